"""Labelled programs on a few short tests of their problems, and the checkers; on all tests: contests.py."""

import json
from pathlib import Path

import checkers
import contests
import pytest

from gdpo_nemo.rewards.code import judge

SHORT = Path(__file__).resolve().parents[1] / "data" / "code_contests.jsonl"


def test_every_label_holds():
    rows = contests.judge(SHORT)
    assert [row for row in rows if not row["holds"]] == []
    labels = [row["label"] for row in rows]
    assert labels.count("right") == len(SHORT.read_text().splitlines()) == 14
    assert set(labels) == {"right", "wrong", "error", "memory", "timeout", "compile_error", "unseen"}


def test_mistakes_that_no_test_of_the_file_shows_are_mistakes():
    right = {program.id: program for program in contests.programs() if program.mistake is None}
    unseen = [program for program in contests.programs() if program.shows]
    assert len(unseen) == 2
    for program in unseen:
        tests = {"inputs": [program.shows[0]], "outputs": [program.shows[1]]}
        assert judge(right[program.id].source, tests).statuses == ("ok",)
        assert judge(program.source, tests).statuses == ("wrong",)


@pytest.mark.parametrize(
    ("id", "stdin", "expected", "right", "wrong"),
    [
        (4, "2\n6 35\n10 21\n", "2", ["2", "3", "5", "7"], ["1", "-1", "6", "x", "", "2 3"]),
        (4, "2\n2 3\n5 7\n", "-1", ["-1"], ["2", "5"]),
        (
            7,
            "2 3\n3 1 2 3\n0\n",
            "1\n1 2 1",
            ["1\n1 2 1", "1\n1 2 3"],
            ["0", "1\n1 2 4", "1\n2 1 1", "2\n1 2 1\n1 2 2"],
        ),
        (7, "2 2\n2 1 2\n1 1\n", "0", ["0"], ["1\n1 2 1", "1\n1 2 2"]),
        (10, "3\n2 2 2\n", "1\nR", ["1\nR", "1\nL"], ["0", "2\nLL", "1\nLR", "1"]),
        (13, "3 2\n1 2\n2 3\n", "Yes\n1 2 1", ["Yes\n1 2 1", "YES 2 1 2"], ["No", "Yes\n1 1 2", "Yes\n1 2"]),
        (13, "4 3\n1 2\n1 3\n1 4\n", "No", ["No"], ["Yes\n1 2 3 2"]),
        (13, "4 4\n1 2\n1 3\n1 4\n", "Yes\n1 1 1 1", ["Yes\n1 2 3 4"], ["No", "Yes\n1 1 1 5"]),
        (15, "5 2 2\n1 1\n", "NO", ["NO"], ["YES\n0 1 0 2 0"]),
        (15, "3 1 2\n1\n", "YES\n0 1 0", ["YES\n0 1 0"], ["NO", "YES\n1 0 0", "YES\n0 1 1", "YES\n0 1"]),
        (15, "4 1 3\n2\n", "YES\n0 1 1 0", ["YES\n0 1 1 0", "YES 0 0 1 1"], ["YES\n1 0 1 0"]),
        (19, "2\n", "0\n1\n", ["0 1", "0\n1\n"], ["0 2", "0 1 1"]),
    ],
)
def test_checkers_accept_every_right_answer_and_no_other(id, stdin, expected, right, wrong):
    assert [checkers.accepts(id, stdin, expected, answer) for answer in right] == [True] * len(right)
    assert [checkers.accepts(id, stdin, expected, answer) for answer in wrong] == [False] * len(wrong)


@pytest.mark.parametrize(
    ("id", "stdin"), [(7, "1 1\n0 1\n"), (13, "4 1\n3 2\n3 1\n3 4\n"), (13, "3 2\n1 2\n1 2\n"), (15, "2 1 1\n3\n")]
)
def test_inputs_that_a_problem_does_not_allow_are_not_judged(id, stdin):
    assert checkers.accepts(id, stdin, "0", "0") is None


def test_the_interactive_problem_is_won_by_the_right_program_alone():
    right, wrong = (program for program in contests.programs() if program.id == 11)
    assert checkers.segments_of_good_functions(right.source) == (20, 20)
    assert checkers.segments_of_good_functions(wrong.source)[0] < 20


def test_the_program_prints_a_row_for_each_and_fails_where_a_label_does_not_hold(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("CONTESTS", raising=False)
    assert contests.main([]) == 3
    assert "code_eval_code_contests.jsonl" in capsys.readouterr().err
    problem = json.loads(next(line for line in SHORT.read_text().splitlines() if json.loads(line)["id"] == 17))
    path = tmp_path / "one.jsonl"
    path.write_text(json.dumps(problem))
    assert contests.main([str(path), "--modes", "auto"]) == 0
    assert (
        "| 12_B. Correct Solution? | zero has no first digit | error | 1 | 3 | error 2 |  | yes |"
        in capsys.readouterr().out
    )
    problem["test"][0]["output"]["stdout"] = "NEITHER\n"
    path.write_text(json.dumps(problem))
    monkeypatch.setenv("CONTESTS", str(path))
    assert contests.main(["--modes", "auto", "--json"]) == 1
    rows = json.loads(capsys.readouterr().out)["auto"]
    assert rows[0]["program"] == "right" and (rows[0]["statuses"]["wrong"], rows[0]["holds"]) == (1, False)
