import importlib.util
import json
import math
from pathlib import Path

import numpy as np
import pytest
import yaml
from scripted_server import ScriptedServer, chat

from gdpo_nemo.config import GdpoConfig, validate
from gdpo_nemo.errors import InputError
from gdpo_nemo.evaluation.command_line import execute
from gdpo_nemo.evaluation.mathematics import majority_at_k, pass_at_k
from gdpo_nemo.evaluation.problems import read_problems
from gdpo_nemo.prompts.mathematics import build_messages
from gdpo_nemo.stats import bootstrap_samples
from gdpo_nemo.types import Row

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "aime.json": [{"problem": f"What is {n} + 1?", "answer": str(n + 1), "year": "2024"} for n in range(4)],
    "amc.json": [
        {"problem": "Half of 284?", "answer": 142.0, "url": "x"},
        {"problem": "A third of 1?", "answer": 1 / 3},
    ],
    "math.json": [{"problem": "Halve 1.", "answer": "\\frac{1}{2}", "unique_id": "test/a/1.json"}],
    "minerva.json": [{"problem": "How far?", "answer": ["9.6\n", "9.60"], "idx": "9", "type": "Astronomy"}],
    "olympiad_bench.json": [{"id": "7", "problem": "Solve.", "answer": ["$x=2$"], "is_multiple_answer": "False"}],
}


def program():
    spec = importlib.util.spec_from_file_location("_math_suite", ROOT / "eval" / "math_suite.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PROGRAM


@pytest.fixture
def folder(tmp_path):
    for name, rows in FILES.items():
        (tmp_path / "data" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "data" / name).write_text(json.dumps(rows))
    return tmp_path


@pytest.fixture
def serve():
    servers = []

    def start(script):
        servers.append(ScriptedServer(script))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def run(server, folder, *more):
    line = ["--endpoint", server.url, "--data", str(folder / "data"), "--out", str(folder / "out"), "--json", *more]
    return execute(program(), line)


def numbers(capsys):
    results = json.loads(capsys.readouterr().out)["results"]
    return {name: {one["name"]: one for one in found} for name, found in results.items()}


def test_the_shapes_of_the_published_files(folder):
    read = {name: read_problems(folder / "data" / name) for name in FILES}
    assert [problem.golds for problem in read["amc.json"].problems] == [("142",), (str(1 / 3),)]
    assert read["minerva.json"].problems[0].golds == ("9.6", "9.60") and read["minerva.json"].shape == "lists"
    assert [problem.id for problem in read["aime.json"].problems] == ["1", "2", "3", "4"]
    assert (read["math.json"].problems[0].id, read["olympiad_bench.json"].problems[0].id) == ("test/a/1.json", "7")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"problem": "x", "answer": "1"}, {"problem": "", "answer": "1"}], "row 2 has no problem or question"),
        ([{"problem": "x", "answer": "  "}], "row 1 has no answer"),
        ([{"problem": "x", "solution": "no box"}], "row 1 has no answer"),
        ([{"problem": "x", "answer": "1"}, {"problem": "y", "answer": ["1"]}], "answers and lists"),
        ({"problem": "x"}, "expected a list"),
        ([], "no rows"),
    ],
)
def test_a_file_that_is_no_set_of_problems_is_refused(rows, words, tmp_path):
    (tmp_path / "x.json").write_text(json.dumps(rows))
    with pytest.raises(InputError, match=words):
        read_problems(tmp_path / "x.json")


def test_the_other_minerva_is_told_apart_by_its_shape_and_named(folder, serve, capsys):
    rows = [{"problem": "How far?", "solution": "It is \\boxed{3}. No: $\\boxed{4.5e33}$"}]
    (folder / "data" / "minerva.json").unlink()
    (folder / "data" / "minerva.jsonl").write_text("\n".join(map(json.dumps, rows)))
    server = serve(lambda body, nth: chat("\\boxed{4.5\\times 10^{33}}"))
    assert run(server, folder, "--benchmarks", "minerva", "--samples", "1") == 0
    [name] = found = numbers(capsys)
    assert name == "minerva_boxed" and found[name]["accuracy avg@1"]["value"] == 100.0


ANSWERS = {  # sample 0 and sample 1 of each question: text, finish, tokens
    "What is 0 + 1?": [("So \\boxed{1}.", "stop", 10), ("\\boxed{1}", "stop", 30)],
    "What is 1 + 1?": [("<think>2</think> \\boxed{2}", "stop", 20), ("\\boxed{3}", "stop", 10)],
    "What is 2 + 1?": [("\\boxed{5}", "stop", 21), ("<think> 3 so far", "length", 40)],
    "What is 3 + 1?": [("I say 4", "stop", 5), ("\\boxed{4} no, \\boxed{", "length", 40)],
    "Half of 284?": [("\\boxed{142}", "stop", 5), ("\\boxed{142.0}", "stop", 5)],
    "A third of 1?": [("\\boxed{\\frac{1}{4}}", "stop", 5), ("\\boxed{0}", "stop", 25)],
    "Halve 1.": [("\\boxed{0.5}", "stop", 5), ("\\boxed{1/2}", "stop", 5)],
    "How far?": [("\\boxed{9.6}", "stop", 5), ("\\boxed{96}", "stop", 5)],
    "Solve.": [("\\boxed{2}", "stop", 5), ("\\boxed{x = 2}", "stop", 5)],
}


def scripted():
    """The first seed asked for a question is sample 0 of it, whatever the order on the wire."""
    seeds = {}

    def script(body, nth):
        text = body["messages"][-1]["content"]
        question = next(question for question in ANSWERS if text.startswith(question))
        assert text.endswith("Let's think step by step and output the final answer within \\boxed{}.")
        seen = seeds.setdefault(question, [])
        if body["seed"] not in seen:
            seen.append(body["seed"])
        said, finish, tokens = ANSWERS[question][seen.index(body["seed"])]
        return chat(said, finish=finish, tokens=tokens)

    return script


def test_the_whole_suite_over_http_gives_the_table_worked_out_by_hand(folder, serve, capsys):
    server = serve(scripted())
    line = ["--samples", "2", "--length-limit", "20", "--pass-at", "1,2", "--concurrency", "1"]
    assert run(server, folder, *line) == 0
    found = numbers(capsys)
    assert list(found) == ["math500", "aime24", "amc", "minerva", "olympiad"]
    accuracy = {name: one["accuracy avg@2"]["value"] for name, one in found.items()}
    assert accuracy == {"math500": 100.0, "aime24": 37.5, "amc": 50.0, "minerva": 50.0, "olympiad": 100.0}
    aime = found["aime24"]
    assert aime["exceed 20 tokens"]["value"] == pytest.approx(100 * 4 / 8)
    assert aime["truncated"]["value"] == pytest.approx(100 * 2 / 8)
    assert aime["pass@1"]["value"] == 37.5 and aime["pass@2"]["value"] == 50.0
    assert aime["accuracy avg@2"]["num_samples"] == 8 and aime["accuracy avg@2"]["failed"] == 0
    assert aime["accuracy avg@2"]["interval"]["method"] == "bootstrap over questions"
    assert aime["accuracy avg@2, these problems"]["interval"]["method"] == "bootstrap over samples, questions fixed"
    stored = [json.loads(line) for line in (folder / "out/aime24/scores/strict.jsonl").read_text().splitlines()]
    assert {row["reasons"]["correct"][0] for row in stored if not row["values"]["correct"]} == {
        "wrong", "no_box", "unfinished_thinking",
    }  # fmt: skip


def test_rescore_says_what_changes_between_graders(folder, serve, capsys):
    server = serve(lambda body, nth: chat("I am sure that it is 1"))
    assert run(server, folder, "--benchmarks", "aime24", "--samples", "1") == 0
    assert numbers(capsys)["aime24"]["accuracy avg@1"]["value"] == 0.0
    asked = len(server.asked)
    line = ["rescore", "--grader", "math_verify", "--benchmarks", "aime24", "--data", str(folder / "data")]
    assert execute(program(), [*line, "--out", str(folder / "out"), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)["aime24"]
    assert len(server.asked) == asked
    assert set(again) == {"scores", "changed", "numbers"}


def test_an_unreadable_gold_is_ungraded_and_not_wrong(folder, serve, capsys):
    rows = [
        {"problem": "Prove it.", "answer": "see the figure on the left of the page"},
        {"problem": "1?", "answer": "1"},
    ]
    (folder / "data" / "aime.json").write_text(json.dumps(rows))
    server = serve(lambda body, nth: chat("\\boxed{1}"))
    assert run(server, folder, "--benchmarks", "aime24", "--samples", "1") == 0
    accuracy = numbers(capsys)["aime24"]["accuracy avg@1"]
    assert (accuracy["value"], accuracy["ungraded"], accuracy["num_samples"]) == (100.0, 1, 1)


def test_wrong_names_and_missing_files_are_explained(folder, serve, capsys):
    server = serve(lambda body, nth: chat("x"))
    assert run(server, folder, "--benchmarks", "aime2024") == 2
    assert "Did you mean 'aime24'?" in capsys.readouterr().err
    assert run(server, folder, "--benchmarks", "aime25") == 3
    assert "looked for aime25.json" in capsys.readouterr().err
    assert server.asked == []


# ---- formulas


def test_pass_at_k_by_hand():
    found = pass_at_k(np.array([[1, 0, 0, 0], [1, 1, 1, 1], [0, 0, 0, math.nan], [1, math.nan, math.nan, math.nan]]), 2)
    assert found[:3, 0].tolist() == pytest.approx([0.5, 1.0, 0.0])
    assert math.isnan(found[3, 0])


def test_a_majority_is_the_most_frequent_answer_and_the_first_of_equals():
    correct = np.array([[0, 1, 1], [1, 0, math.nan], [0, 0, 0], [math.nan, math.nan, math.nan]])
    said = [["3", "4", "4"], ["1", "2", None], [None, None, None], [None, None, None]]
    answers = {(str(q), i): text for q, row in enumerate(said) for i, text in enumerate(row)}
    at = {k: majority_at_k(correct, answers, ["0", "1", "2", "3"], k)[:, 0].tolist() for k in (1, 2, 3)}
    assert at[3][:3] == [1.0, 1.0, 0.0] and math.isnan(at[3][3])
    assert at[2][:2] == [0.0, 1.0] and at[1][:2] == [0.0, 1.0]


def test_the_interval_of_fixed_questions_has_the_spread_of_the_binomial():
    """Thirty problems, each right half of the time in 16 samples: SD = 0.5 / sqrt(30 x 16) = 2.28 points."""
    values = np.tile([0.0, 1.0], (30, 8))
    interval = bootstrap_samples(values, seed=1)
    assert (interval.high - interval.low) / 2 == pytest.approx(1.96 * 0.5 / math.sqrt(480), rel=0.06)
    assert bootstrap_samples(np.ones((30, 16))).high == 1.0
    assert bootstrap_samples(values, seed=1) == interval


def test_training_and_evaluation_ask_with_the_same_words():
    config = validate(GdpoConfig, yaml.safe_load((ROOT / "configs/math_length/paper.yaml").read_text())["gdpo"])
    row = Row("1", {"problem": "What is {x} + 1?"}, "2")
    assert config.data.prompt.build(row).messages == build_messages(row.fields["problem"])
