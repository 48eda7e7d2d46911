"""A run that is stopped in any way goes on to the same bytes."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from gdpo_nemo.backends.embedded.train import train
from gdpo_nemo.backends.embedded.warmup import warm_up
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.run_tree import RunTree
from gdpo_nemo.suite.grid import Selection, resolve
from gdpo_nemo.suite.programs import all_programs, find

TREE = "runs/tool_calling/embedded/tiny"
LINE = ("run", "tool_calling", "--smoke", "--arms", "gdpo", "--seeds", "0", "--out", "runs")
LONG = (*LINE, "embedded.train.steps=5000")  # it is still under way when other commands look at it


@pytest.fixture
def start(environment, tmp_path):
    """Start the command line in ``tmp_path`` and return the process; what is left of it is killed at the end."""
    started = []

    def call(line=LINE):
        command = [sys.executable, "-m", "gdpo_nemo.cli", *line]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=pipe, stderr=pipe, text=True)
        started.append(process)
        return process

    yield call
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def warmed_up(smoke, tmp_path):
    """A folder that has the warm-up of the smoke run already: the run in it."""
    shutil.copytree(smoke[0] / TREE / "base", tmp_path / TREE / "base")
    return RunTree(tmp_path / TREE).run("gdpo", 0)


def wait_until(condition, process):
    while not condition() and process.poll() is None:
        time.sleep(0.01)
    assert process.poll() is None, process.communicate()


def assert_same_bytes(run, reference):
    files = ("questions.jsonl", "generations.jsonl", "scores/default.jsonl", "evaluation.json", "result.json")
    for name in ("metrics.jsonl", "result.json", *(f"eval/heldout/{file}" for file in files)):
        assert (run.path / name).read_bytes() == (reference / name).read_bytes(), name
    weights, expected = (RunDir(path).checkpoints()[-1][1] / "model.safetensors" for path in (run.path, reference))
    assert weights.read_bytes() == expected.read_bytes()


def test_after_kill_9_at_a_random_step_the_same_command_gives_the_same_bytes(gdpo, smoke, warmed_up, start, tmp_path):
    step = random.randint(1, 5)
    process = start()
    wait_until(lambda: warmed_up.last_step() >= step, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    resumed = gdpo(*LINE, cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert_same_bytes(warmed_up, smoke[0] / TREE / "gdpo" / "seed0")


class Stopped(Exception):
    pass


class StoppedAtThree(RunDir):
    """Stopped after the row of step 3, between two checkpoints."""

    def append_metrics(self, row):
        super().append_metrics(row)
        if row["step"] == 3:
            raise Stopped


FEW = (
    *(f"embedded.warmup.{few}" for few in ("clean_steps=4", "noisy_steps=2", "batch_size=8", "pool_rows=16")),
    *(f"embedded.train.{few}" for few in ("steps=4", "checkpoint_every=2", "prompts_per_step=2")),
    *("embedded.train.rollouts_per_prompt=4", "embedded.train.max_new_tokens=16", "embedded.evaluation.questions=6"),
)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", [program.experiment.name for program in all_programs()])
def test_a_run_of_each_experiment_that_is_stopped_and_resumed_gives_the_same_bytes(name, tmp_path):
    ends, program = [], find(name)
    arm = [arm.name for arm in program.experiment.arms if arm.default and arm.name.startswith("gdpo")][-1]
    for out, kind in (("whole", RunDir), ("stopped", StoppedAtThree)):
        grid = resolve(Selection(program, "embedded", (arm,), (0,), "tiny", tmp_path / out, overrides=FEW))
        [run] = grid.runs
        warm_up(RunDir.claim(grid.base.dir.path, grid.base.settings, {}), grid.base.config)
        claimed = kind.claim(run.dir.path, run.settings, {})
        if kind is StoppedAtThree:
            with pytest.raises(Stopped):
                train(claimed, run.config)
            assert claimed.checkpoints()[-1][0] == 2 and claimed.result() is None
        train(RunDir(claimed.path), run.config)
        ends.append(claimed)
    assert [row["step"] for row in ends[1].metrics()] == [1, 2, 3, 4]
    assert_same_bytes(ends[1], ends[0].path)


def test_an_interrupted_run_stops_its_children_and_says_how_to_go_on(gdpo, warmed_up, start, tmp_path):
    process = start(LONG)
    wait_until(warmed_up.is_locked, process)
    for arguments in (LONG, (*LONG, "--fresh")):
        refused = gdpo(*arguments, cwd=tmp_path)
        assert refused.returncode == 1 and "under way" in refused.stderr
    planned = gdpo("plan", *LONG[1:], cwd=tmp_path)
    assert planned.returncode == 0 and "under way" in planned.stdout
    seen = json.loads(gdpo("status", "tool_calling", "--out", "runs", "--json", cwd=tmp_path).stdout)
    assert seen["under_way"]
    assert {row["name"]: row["state"] for row in seen["runs"]}["gdpo seed0"] == "running"
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate()
    assert process.returncode == 130
    assert f"Go on with: gdpo {' '.join(LONG)}" in errors
    assert not warmed_up.is_locked()
    assert warmed_up.state() == "started"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_killed_again_and_again_at_any_moment_it_arrives_at_the_same_bytes(gdpo, smoke, start, tmp_path, seed):
    moments = random.Random(seed)
    for _ in range(4):
        process = start()
        try:
            process.wait(moments.uniform(1, 25))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
    done = gdpo(*LINE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert_same_bytes(RunTree(tmp_path / TREE).run("gdpo", 0), smoke[0] / TREE / "gdpo" / "seed0")


@pytest.fixture
def broken_torch(environment, tmp_path):
    """Every process started from now on finds a torch that cannot be loaded."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "torch.py").write_text("raise ImportError('libtorch.so: no such file')\n")
    before = environment["PYTHONPATH"]
    environment["PYTHONPATH"] = f"{tmp_path / 'broken'}{os.pathsep}{before}"
    yield
    environment["PYTHONPATH"] = before


def test_when_the_warm_up_fails_nothing_else_starts(gdpo, broken_torch, tmp_path):
    done = gdpo(*LINE, cwd=tmp_path)
    assert done.returncode == 1
    assert "FAILED warm-up: exit code 1" in done.stderr and "libtorch.so: no such file" in done.stderr
    assert f"go on with: gdpo {' '.join(LINE)}" in done.stderr
    assert not RunTree(tmp_path / TREE).run("gdpo", 0).log_path.exists()


def test_fresh_clears_the_selected_runs_and_a_failure_names_log_and_next_command(gdpo, finished, broken_torch):
    tree = RunTree(finished / TREE)
    [base] = (finished / TREE / "base").iterdir()
    kept = [path / "provenance.json" for path in (base, tree.run("grpo", 0).path)]
    before = [path.stat().st_mtime_ns for path in kept]
    done = gdpo(*LINE, "--fresh", "--json", cwd=finished)
    assert done.returncode == 1
    assert "is kept: other runs started from it" in done.stderr
    assert [path.stat().st_mtime_ns for path in kept] == before
    run = tree.run("gdpo", 0)
    assert (run.state(), run.metrics()) == ("started", [])
    assert f"FAILED gdpo seed0: exit code 1. The end of {run.log_path.relative_to(finished)}" in done.stderr
    assert f"go on with: gdpo {' '.join(LINE)} --json" in done.stderr
    answer = json.loads(done.stdout)
    assert (answer["failed"], answer["reused"]) == (["gdpo seed0"], [])
    assert answer["runs"] == [{"name": "gdpo seed0", "state": "started", "path": f"{TREE}/gdpo/seed0", "result": None}]
    assert len(answer["report"]["verdicts"]) == 6
