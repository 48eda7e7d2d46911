"""Runs of which a file cannot be read: named with what to do, and no obstacle for the others."""

import io
import json
import shutil

import pytest

from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.run_tree import RunTree
from gdpo_nemo.suite.command_line import execute
from gdpo_nemo.suite.progress import Progress
from gdpo_nemo.suite.scheduler import Ended, Job

TREE = "runs/tool_calling/embedded/tiny"
SELECTED = "tool_calling --smoke --arms grpo,gdpo --seeds 0 --out runs"
DAMAGES = {
    "a metrics line": ("metrics.jsonl", b'{"step": 1\n{"step": 2}\n', "metrics.jsonl line 1 is corrupt"),
    "a step": ("metrics.jsonl", b'{"loss": 1}\n', "metrics.jsonl line 1 is corrupt: it has no step"),
    "steps that do not rise": (
        "metrics.jsonl",
        b'{"step": 1}\n{"step": 3}\n{"step": 3}\n',
        "metrics.jsonl line 3 is corrupt: step 3 follows step 3, expected rising steps",
    ),
    "a word for a number": (
        "metrics.jsonl",
        b'{"step": 1, "reward/correct/mean": "high"}\n',
        "metrics.jsonl line 1 is corrupt: reward/correct/mean is 'high', which is no number",
    ),
    "bytes": ("metrics.jsonl", b"\xff\xfe\n", "metrics.jsonl line 1 is corrupt"),
    "a configuration": ("config.resolved.yaml", b"gdpo: [", "config.resolved.yaml cannot be read"),
    "no configuration": ("config.resolved.yaml", b"", "config.resolved.yaml holds no mapping"),
    "half a configuration": ("config.resolved.yaml", b"kind: train\nseed: 0\n", "KeyError: 'embedded'"),
    "a result": ("result.json", b'{"steps": ', "result.json is corrupt"),
    "provenance": ("provenance.json", b"[]", "provenance.json is corrupt"),
    "alarms": ("logs/alarms.jsonl", b'{"rule": "kl"}\n', "alarms.jsonl holds a row without 'action'"),
}


@pytest.fixture
def call(finished, monkeypatch, capsys):
    """A command line in a folder with two finished runs: ``call("status tool_calling")``."""
    monkeypatch.chdir(finished)

    def run(line):
        code = execute(line.split())
        return code, capsys.readouterr()

    return run


@pytest.fixture
def damaged(finished):
    """Break a file of gdpo's run."""
    run = RunTree(finished / TREE).run("gdpo", 0)

    def spoil(name, content):
        (run.path / name).parent.mkdir(exist_ok=True)
        (run.path / name).write_bytes(content)
        return run

    return spoil


def words(text):
    return " ".join(text.split())


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_named_and_the_other_is_shown(damage, call, damaged):
    name, content, what = DAMAGES[damage]
    damaged(name, content)
    code, output = call("status tool_calling --out runs")
    assert code == 1 and what in words(output.out) and "start the run again" in words(output.out)
    rows = json.loads(call("status tool_calling --out runs --json")[1].out)["runs"]
    states = {row["name"]: row["state"] for row in rows}
    assert (states["gdpo seed0"], states["grpo seed0"]) == ("unreadable", "finished")

    code, output = call("report tool_calling --out runs --json")
    answer = json.loads(output.out)
    assert code == 1 and len(answer["unreadable"]) == 1 and what in answer["unreadable"][0]
    assert "gdpo/seed0 (cannot be read)" in answer["missing"] and "grpo/seed0" not in str(answer["missing"])
    code, output = call("report tool_calling --out runs --html")
    assert code == 1 and what in words(output.out)

    code, output = call("check tool_calling --out runs")
    assert code == 1 and what in words(output.out)
    assert call("list --out runs")[0] == 0


@pytest.mark.parametrize("damage", ["a metrics line", "half a configuration", "a result"])
def test_a_run_goes_on_with_the_others_and_a_fresh_one_mends_it(damage, call, damaged, finished):
    name, content, what = DAMAGES[damage]
    run = damaged(name, content)
    code, output = call(f"plan {SELECTED}")
    assert code == 0 and "1 finished (reused), 0 begun (resumed), 0 new, 1 unreadable" in words(output.out)
    code, output = call(f"run {SELECTED} --json")
    assert code == 1 and f"gdpo seed0 is left out: {run.path.relative_to(finished)}" in output.err
    answer = json.loads(output.out)
    assert what in answer["damaged"]["gdpo seed0"] and answer["reused"] == ["grpo seed0"]
    assert {row["name"]: row["state"] for row in answer["runs"]} == {
        "grpo seed0": "finished", "gdpo seed0": "unreadable"
    }  # fmt: skip
    assert (run.path / name).read_bytes() == content, "what is damaged is left as it is"
    assert execute(f"run {SELECTED} --fresh --arms gdpo".split()) == 0
    assert run.state() == "finished"


def test_where_no_run_can_be_read_all_are_named(call, damaged, finished):
    damaged("result.json", b"{")
    shutil.copy(finished / TREE / "gdpo/seed0/result.json", finished / TREE / "grpo/seed0/result.json")
    for command in ("report", "check"):
        code, output = call(f"{command} tool_calling --out runs")
        assert code == 1 and output.err.count("result.json is corrupt") == 2


def test_an_evaluation_that_cannot_be_read_is_named_and_the_other_run_is_in_the_table(call, damaged):
    damaged("eval/heldout/scores/default.jsonl", b'{"row_id": \n{}\n')
    code, output = call("report tool_calling --out runs")
    assert code == 1 and "Left out:" in output.out and "default.jsonl line 1 is corrupt" in words(output.out)
    assert "gdpo/seed0 (cannot be read)" in json.loads(call("report tool_calling --out runs --json")[1].out)["missing"]


def test_status_has_a_column_for_each_reward_and_none_for_other_curves(call):
    rows = json.loads(call("status math_length --out runs --json")[1].out)["runs"]
    assert {tuple(row["rewards"]) for row in rows} == {("correct", "length")}


class Run:
    def __init__(self, name, path):
        self.name, self.dir, self.total_steps = name, RunDir.claim(path, {}, {}), 4


def test_a_run_that_becomes_unreadable_fails_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("gdpo_nemo.suite.progress.LOOK_EVERY_S", 0.0)
    runs, stream = [Run(name, tmp_path / name) for name in ("a", "b")], io.StringIO()
    watch = Progress(runs, stream)
    for run in runs:
        watch.started(Job(run.name, ["true"], run.dir.log_path))
    runs[1].dir.append_metrics({"step": 3})
    watch.tick()
    (runs[0].dir.path / "metrics.jsonl").write_text("{\n{}\n")
    watch.tick()
    runs[0].dir.finish({"evaluation": {}})
    watch.ended(Ended(Job("a", ["true"], runs[0].dir.log_path), 0, 1.0))
    assert stream.getvalue().startswith("FAILED a: ") and "metrics.jsonl line 1 is corrupt" in stream.getvalue()
