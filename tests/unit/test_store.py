import json
import math
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from gdpo_nemo import files
from gdpo_nemo.errors import InputError, RunDirError, UnknownNameError
from gdpo_nemo.evaluation.grading import score_row
from gdpo_nemo.evaluation.store import REQUIRED, EvaluationStore
from gdpo_nemo.files import append_jsonl
from gdpo_nemo.types import RewardVector

HEADER = {
    "benchmark": {"name": "sums", "revision": None, "hashes": {"data": "00"}},
    "grader": "exact",
    "model": {"name": "m"},
    "sampling": {"temperature": 0.5},
    "samples_per_question": 2,
    "provenance": {"created": "monday"},
}
QUESTIONS = [{"row_id": "b", "messages": [], "gold": "1", "group": "easy"}, {"row_id": "a", "messages": [], "gold": ""}]


def generation(row_id, index):
    return {"row_id": row_id, "index": index, "response": "x", "length_tokens": 1, "truncated": False}


def score(row_id, index, **values):
    return {"row_id": row_id, "index": index, "values": values, "reasons": {}}


@pytest.fixture
def store(tmp_path):
    store = EvaluationStore.create(tmp_path / "eval" / "sums", HEADER)
    store.write_questions(QUESTIONS)
    return store


def test_what_is_written_is_read(store):
    store.append_generations([generation("b", 1)])
    store.append_generations([generation("a", 0)])
    vector = RewardVector({"correct": 1.0, "style": math.nan}, {"style": ("gave_up",)})
    store.append_scores([score_row("b", 1, vector)])
    again = EvaluationStore.open(store.path)
    assert again.header == {"schema": 2} | HEADER
    assert again.questions() == QUESTIONS
    assert again.generations() == [generation("b", 1), generation("a", 0)]
    row = {"values": {"correct": 1.0, "style": None}, "reasons": {"style": ["gave_up"]}}
    assert again.scores() == again.scores("exact") == [{"row_id": "b", "index": 1} | row]


def test_scores_as_arrays_tell_ungraded_from_absent(store):
    store.append_scores([score("a", 1, correct=0.5, style=None), score("b", 0, correct=None), score("b", 1, correct=1)])
    matrix = store.score_matrix()
    assert matrix.row_ids == ("b", "a") and matrix.groups == ("easy", None)
    np.testing.assert_array_equal(matrix.values["correct"], [[np.nan, 1.0], [np.nan, 0.5]])
    assert np.isnan(matrix.values["style"]).all()
    assert matrix.scored_Q_N.tolist() == [[True, True], [False, True]]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([score("c", 0)], "sample 0 of 'c', which was not asked"),
        ([score("a", 2)], "sample 2 of 'a', which was not asked"),
        ([score("a", 0), score("a", 0)], "two scores of sample 0 of 'a'"),
        ([score("a", 0, correct=1), score("b", 1, correct="yes")], "correct of sample 1 of 'b' is 'yes', which is no"),
        ([score("a", 0, correct="1.0")], "correct of sample 0 of 'a' is '1.0', which is no score"),
        ([score("b", "0")], "is no row of scores"),
        ([score("b", None)], "is no row of scores"),
        ([score("b", 0.0)], "is no row of scores"),
        ([score(["b"], 0)], "is no row of scores"),
        ([score("b", 0) | {"values": [1.0]}], "is no row of scores"),
        ([score("b", 0) | {"values": None}], "is no row of scores"),
    ],
)
def test_scores_of_what_was_not_asked_are_refused(rows, words, store):
    store.append_scores(rows)
    with pytest.raises(RunDirError, match=words):
        store.score_matrix()


def test_a_null_with_the_code_of_its_reward_does_not_apply_and_one_without_is_ungraded(store):
    row = score("a", 1, correct=0.5, style=None) | {"reasons": {"style": ["does_not_apply"]}}
    store.append_scores([row, score("b", 0, correct=None, style=None) | {"reasons": {"style": ["timeout"]}}])
    marks = store.score_matrix().inapplicable
    assert {name: marks_Q_N.tolist() for name, marks_Q_N in marks.items()} == {"style": [[False, False], [False, True]]}


def test_an_infinite_score_is_refused_and_nan_is_ungraded(store):
    path = store.path / "scores" / "exact.jsonl"
    path.parent.mkdir()
    path.write_text('{"row_id": "a", "index": 0, "values": {"correct": NaN}, "reasons": {}}\n')
    assert np.isnan(store.score_matrix().values["correct"]).all()
    path.write_text('{"row_id": "a", "index": 0, "values": {"correct": Infinity}, "reasons": {}}\n')
    with pytest.raises(RunDirError, match="correct of sample 0 of 'a' is inf"):
        store.score_matrix()


def test_two_questions_of_one_id_are_refused(store):
    path = store.path / "questions.jsonl"
    path.write_text(path.read_text() * 2)
    with pytest.raises(RunDirError, match="2 of its questions have the row_id of another one"):
        store.score_matrix()


def test_each_grader_has_a_file_of_its_own(store):
    store.append_scores([score("a", 0, correct=0)])
    store.append_scores([score("a", 0, correct=1)], "lenient")
    store.append_scores([score("a", 0, correct=1)], "exact@2")
    assert store.graders() == ["exact", "exact@2", "lenient"]
    assert [store.scores(g)[0]["values"]["correct"] for g in (None, "lenient")] == [0, 1]
    with pytest.raises(UnknownNameError, match=r"lenent.*Did you mean 'lenient'"):
        store.scores("lenent")
    with pytest.raises(InputError, match="no file name"):
        store.append_scores([], "../elsewhere")


def test_the_same_header_opens_and_another_is_refused(store):
    EvaluationStore.create(store.path, HEADER | {"provenance": {"created": "tuesday"}})
    assert EvaluationStore(store.path).header["provenance"] == {"created": "monday"}
    with pytest.raises(RunDirError) as error:
        EvaluationStore.create(store.path, HEADER | {"sampling": {"temperature": 1.0}})
    assert "sampling.temperature: 0.5 there, 1.0 now" in str(error.value) and "--out" in str(error.value)
    with pytest.raises(InputError, match="needs model"):
        EvaluationStore.create(store.path, {key: HEADER[key] for key in HEADER if key != "model"})


def test_a_store_of_a_newer_schema_is_not_guessed_at(store):
    (store.path / "evaluation.json").write_text(json.dumps(HEADER | {"schema": 3}))
    with pytest.raises(RunDirError, match="schema 3, this version reads 2"):
        EvaluationStore.open(store.path)


def test_nothing_there_is_an_error_with_the_path(tmp_path):
    with pytest.raises(RunDirError, match=r"nowhere holds no evaluation"):
        EvaluationStore.open(tmp_path / "nowhere")
    assert EvaluationStore(tmp_path / "nowhere").state() == "missing"


def test_other_questions_are_refused(store):
    store.write_questions(QUESTIONS)
    with pytest.raises(RunDirError, match="other questions"):
        store.write_questions(QUESTIONS[:1])
    with pytest.raises(InputError, match="same row_id"):
        store.write_questions([*QUESTIONS, QUESTIONS[0]])


# ---- states


def test_states_follow_the_files(store):
    assert store.state() == "started"
    with store.lock():
        assert store.state() == "running"
    store.append_failures([{"row_id": "a", "index": 0, "error": "late"}])
    assert store.state() == "incomplete"
    store.append_generations([generation("a", 0)])
    assert store.state() == "started", "a later answer settles a failure"
    store.finish("complete", {"answered": 4})
    assert store.state() == "complete" and store.result() == {"state": "complete", "answered": 4}


def test_the_last_failure_of_a_sample_counts(store):
    store.append_failures([{"row_id": "a", "index": i, "error": error} for i, error in ((0, "x"), (1, "y"), (0, "z"))])
    assert [(row["index"], row["error"]) for row in store.failures()] == [(0, "z"), (1, "y")]


# ---- damage


def test_a_half_written_last_line_does_not_count_and_is_reported(store):
    store.append_generations([generation("a", 0)])
    with open(store.path / "generations.jsonl", "ab") as file:
        file.write(b'{"row_id": "a", "ind')
    assert store.generations() == [generation("a", 0)]
    assert store.half_written() == {"generations.jsonl": 20}
    store.append_generations([generation("a", 1)])
    assert store.generations() == [generation("a", 0), generation("a", 1)]
    assert store.half_written() == {}


@pytest.mark.parametrize(
    "line",
    [
        b'{"row_id": "a", "ind',
        b"[1]",
        b'{"row_id": "a", "index": 0}',
        b"\x00\x00\x00",
        b"",
        b'{"row_id": "a", "index": 0, "response": ""},{"row_id": "a", "index": 1, "response": ""}',
    ],
)
@pytest.mark.parametrize("number", [1, 1200, 2500])
def test_damage_elsewhere_names_file_and_line(line, number, store):
    lines = [json.dumps(generation("a", 0)).encode()] * 2500
    lines[number - 1] = line
    (store.path / "generations.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(RunDirError, match=rf"generations\.jsonl line {number} is corrupt"):
        store.generations()


def test_a_damaged_header_is_named(store):
    (store.path / "evaluation.json").write_text("{")
    with pytest.raises(RunDirError, match=r"evaluation\.json is corrupt"):
        EvaluationStore.open(store.path)


@pytest.mark.parametrize(
    "header",
    [
        [],
        {},
        HEADER,
        {"schema": "2"} | HEADER,
        *({"schema": 2} | {k: v for k, v in HEADER.items() if k != key} for key in REQUIRED),
        {"schema": 2} | HEADER | {"samples_per_question": "2"},
        {"schema": 2} | HEADER | {"samples_per_question": 0},
        {"schema": 2} | HEADER | {"sampling": None},
    ],
)
def test_a_header_that_lacks_something_is_named(header, store):
    (store.path / "evaluation.json").write_text(json.dumps(header))
    with pytest.raises(RunDirError, match=r"evaluation\.json is corrupt"):
        EvaluationStore.open(store.path)


# ---- lock

HOLDER = """
import sys, time
from pathlib import Path
from gdpo_nemo.evaluation.store import EvaluationStore
with EvaluationStore(Path(sys.argv[1])).lock():
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_process_is_refused_and_a_killed_one_leaves_no_lock(store, environment):
    command = [sys.executable, "-c", HOLDER, str(store.path)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(RunDirError, match=rf"in use by process {holder.pid}"), store.lock():
        pass
    os.kill(holder.pid, signal.SIGKILL)
    holder.communicate()
    with store.lock():
        assert store.state() == "running"
    assert store.state() == "started"


# ---- the layout of version 1


def test_what_a_run_wrote_before_is_read(tmp_path):
    folder = tmp_path / "seed0" / "eval"
    scores = [score(row, index, correct=1.0) for row in "ab" for index in range(3)]
    append_jsonl(folder / "questions.jsonl", QUESTIONS)
    append_jsonl(folder / "generations.jsonl", [generation("a", 0)])
    append_jsonl(folder / "scores.jsonl", scores)
    store = EvaluationStore.open(folder / "heldout")
    assert (store.header["schema"], store.header["benchmark"]["name"], store.samples_per_question) == (1, "heldout", 3)
    assert store.questions() == QUESTIONS and store.generations() == [generation("a", 0)]
    assert store.scores() == store.scores("default") == scores
    assert store.score_matrix().values["correct"].tolist() == [[1.0] * 3] * 2
    assert store.state() == "complete" and store.failures() == []


@pytest.mark.parametrize("faster", [True, False])
def test_rows_are_the_same_with_and_without_the_faster_parser(faster, tmp_path, monkeypatch):
    if not faster:
        monkeypatch.setattr(files, "loads", json.loads)
    rows = [{"x": 0.1 + 0.2, "y": None, "z": "é\u2028", "n": 2**62}, {"x": 1e-320, "deep": {"a": [1, 2.5]}}]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert list(files.iterate_jsonl(path)) == rows
    path.write_text('{"x": NaN}\n{"x": "\\ud800"}\n')  # of older files; and half a character, which models do emit
    first, second = files.iterate_jsonl(path)
    assert math.isnan(first["x"]) and second["x"] == "\ud800"
