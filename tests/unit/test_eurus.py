"""Coding rows of Eurus-2-RL-Data: which they are, which accept several answers, and what training reads of them."""

import importlib.util
import json
from pathlib import Path

import pytest
import yaml

from gdpo_nemo.config import GdpoConfig, validate
from gdpo_nemo.data.eurus import SPECIAL_JUDGE, needs_special_judge, read_code, statistics
from gdpo_nemo.data.eurus import tests_of as usable_tests
from gdpo_nemo.data.sources import EURUS, EURUS_VALIDATION, data_stats, fetch_data
from gdpo_nemo.errors import InputError
from gdpo_nemo.rewards.code import CodeReward
from gdpo_nemo.source import TableSource
from gdpo_nemo.types import Rollout

ROOT = Path(__file__).resolve().parents[2]
PAPER = ROOT / "configs" / "code_reasoning" / "paper.yaml"
requires_pyarrow = pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed")


def row(source, index, text, gold):
    return {
        "data_source": source,
        "prompt": [{"role": "system", "content": "Think."}, {"role": "user", "content": text}],
        "ability": "code" if source in ("apps", "codecontests", "codeforces", "taco") else "math",
        "reward_model": {"ground_truth": gold, "style": "rule"},
        "extra_info": {"index": index, "split": "train"},
    }


def echoes(number, **more):
    return json.dumps(
        {"inputs": [f"{n}\n" for n in range(number)], "outputs": [f"{n}\n" for n in range(number)]} | more
    )


ROWS = [
    row("numina_aops_forum", 0, "What is 2 + 2? Print any of them.", "4"),
    row("apps", 0, "Echo.", echoes(3)),
    row("apps", 1, "Write f.", echoes(5, fn_name="f")),
    row("taco", 0, "Find two divisors.\nIf there are multiple answers,\nprint any.", echoes(1)),
    row("codecontests", 0, "Echo again.", '{"inputs": ["1"], "outputs": []}'),
]
SEVERAL = [
    "If there are multiple possible answers, output any; if there is none, print -1.",
    "If there are many answers you can print any of them.",
    "Print any valid sequence, or -1. Any valid answer will be accepted.",
    "If more than one solution exists, any of them will be accepted as correct. Any correct answer passes.",
    "Return the elements in any order.",
    "If several optimal plans exist, return any one of them.",
    "Print NO if it is impossible. Otherwise, print YES in the first line and the array in the second.",
    "Otherwise output «Yes» on the first line, and in the next one the parent of each vertex.",
    'Print "YES" (without quotes) and then the moves.',
    'In case your answer is "Yes", print n colors.',
    "If the answer is 'yes', then you should also print the string.",
    "Print the addresses, one a line, in the arbitrary order.",
    "Find a sequence of swaps. Note that you don't have to minimize the number of swaps.",
    "This is an interactive problem.",
    "To get the reply flush what you print: fflush(stdout) in C++.",
]
ONE = [
    "How many solutions does the equation have? Print their number modulo 998244353.",
    "He can choose any of the doors and go to any adjacent cell.",
    "You may print each letter in any case (upper or lower).",
    "Print the number of ways to choose one of the boxes.",
    "The cards are given in any order. Print the largest.",
    "Print the answer with an absolute or relative error of at most 1e-6.",
    "If she cannot buy any, print -1.",
    'Print "YES" if it is possible, otherwise print "NO".',
    "Print YES and NO for each question, a line each.",
    'If it cannot be done print "NO". Otherwise print "YES".',
    'If the answer is "YES", then the output "Yes" is right, too. If the answer is yes, Chef wins. Print the winner.',
    "You have to minimize the number of moves. Print it.",
    "Players interact: she flushes the toilet, he has a royal flush. Print the score.",
]


@pytest.mark.parametrize("text", SEVERAL)
def test_problems_that_accept_several_answers_are_flagged(text):
    assert needs_special_judge(text)
    assert needs_special_judge([{"role": "user", "content": text.replace(" ", "\n")}])


@pytest.mark.parametrize("text", ONE)
def test_problems_with_one_answer_are_not(text):
    assert not needs_special_judge(text)


def test_coding_rows_are_read_with_their_tests(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)))
    rows = read_code(path)
    assert [r.id for r in rows] == [f"rows.jsonl line {n}" for n in (2, 3, 4, 5)]
    assert [r.id for r in read_code(path, ["taco"])] == ["rows.jsonl line 4"]
    assert [usable_tests(r.gold) and len(usable_tests(r.gold)["inputs"]) for r in rows] == [3, 5, 1, None]
    counts = statistics(rows)
    assert counts["apps"] == {
        "rows": 2, "calls": 1, "special_judge": 0, "unreadable": 0, "tests": 8, "tests_median": 4.0, "tests_max": 5,
    }  # fmt: skip
    assert counts["taco"]["special_judge"] == 1 and counts["codecontests"]["unreadable"] == 1
    with pytest.raises(InputError, match="no rows"):
        read_code(path, ["codeforces"])


@requires_pyarrow
def test_the_paper_scale_trains_on_coding_rows_with_one_right_answer(tmp_path):
    import pyarrow
    import pyarrow.parquet

    block = yaml.safe_load(PAPER.read_text())["gdpo"]
    assert Path(block["data"]["train"]["path"]).parts[-2:] == (EURUS.name, EURUS.files[0])
    assert Path(block["data"]["heldout"]["path"]).parts[-2:] == (EURUS_VALIDATION.name, EURUS_VALIDATION.files[0])
    assert block["data"]["train"]["without"]["prompt"] == list(SPECIAL_JUDGE)
    for split, rows in (("train", ROWS), ("heldout", ROWS[:3])):
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / f"{split}.parquet")
        block["data"][split]["path"] = str(tmp_path / f"{split}.parquet")
    source = TableSource(validate(GdpoConfig, block).data)
    assert (source.num_rows("train"), source.num_rows("heldout")) == (3, 2)
    echo = next(r for r in source.questions(2, 0) if r.fields["prompt"][1]["content"] == "Echo.")
    assert [(m.role, m.content) for m in source.prompt(echo).messages] == [("system", "Think."), ("user", "Echo.")]
    score = CodeReward()(echo, Rollout(echo.id, 0, "```python\nprint(input())\n```", 9))
    assert dict(score.values) == {"pass_rate": 1.0, "no_bug": 1.0, "length": 1.0}


@requires_pyarrow
def test_stats_count_coding_rows_by_source(tmp_path):
    import pyarrow
    import pyarrow.parquet

    (tmp_path / "mine").mkdir()
    for name in (EURUS.files[0], EURUS_VALIDATION.files[0]):
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "mine" / name)
    fetch_data("code_reasoning", tmp_path / "data", offline=True, copy_from=tmp_path / "mine")
    text, data = data_stats("code_reasoning", tmp_path / "data")
    assert data["eurus_2_rl"]["train.parquet"]["rows"] == 5
    assert data["eurus_2_rl"]["train.parquet"]["code"]["apps"]["rows"] == 2
    assert "taco: 1 rows, 0 call a function, 1 accept several answers, 0 without usable tests" in text
