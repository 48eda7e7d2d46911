"""``python -m gdpo_nemo.backends.embedded``: what its exit codes say, and when it ends by itself."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from gdpo_nemo.backends.embedded.__main__ import main
from gdpo_nemo.run_dir import RunDir

MODULE = (sys.executable, "-m", "gdpo_nemo.backends.embedded")
PARENT = f"""
import os, subprocess, sys
child = subprocess.Popen({list(MODULE)!r} + sys.argv[1:], env=os.environ | {{"GDPO_PARENT": str(os.getpid())}})
print(child.pid, flush=True)
child.wait()
"""


@pytest.fixture
def start(configure, claim, tmp_path):
    """Claim a run from a random model: ``start(steps)``."""
    small = ("embedded.train.checkpoint_every=1000000", "embedded.evaluation.questions=3", "base=null")
    return lambda steps: claim(tmp_path / "arm" / "seed0", configure(*small, f"embedded.train.steps={steps}"))


def wait_for(condition, limit_s=60):
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"still waiting after {limit_s} s"
        time.sleep(0.02)


@pytest.mark.parametrize("arguments", [[], ["a", "tensorboard", "b"]])
def test_a_wrong_command_line_is_a_usage_error(arguments, capsys):
    assert main(arguments) == 2
    assert "usage: python -m gdpo_nemo.backends.embedded RUN_DIR" in capsys.readouterr().err


def test_a_folder_that_is_no_run_is_refused(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert "is not a run directory" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "exit_code", "words"),
    [
        ({"embeded": {}}, 2, "Did you mean 'embedded'?"),
        ({"gdpo": {"task": "tool_caling"}}, 2, "Did you mean 'tool_calling'?"),
        ({"gdpo": {"task": "tool_calling", "rewards": {"lenght": {}}}}, 2, "'lenght'. Known: format"),
        ({"embedded": {"model": {"name": "/nowhere/to/be/found"}}}, 3, "cannot load model '/nowhere/to/be/found'"),
        ({"base": "elsewhere"}, 1, "base/elsewhere is missing or unfinished"),
    ],
)
def test_a_run_that_cannot_start_says_why(change, exit_code, words, configure, tmp_path, capsys):
    run = RunDir.claim(tmp_path / "a" / "b" / "c", configure().model_dump(mode="json") | change, {})
    assert main([str(run.path)]) == exit_code
    assert words in capsys.readouterr().err
    assert not run.is_locked() and run.metrics() == []


def test_a_run_is_done_once(start, capsys):
    run = start(2)
    assert main([str(run.path)]) == 0
    assert (run.state(), run.last_step(), run.result()["steps"]) == ("finished", 2, 2)
    timing = [json.loads(line) for line in (run.path / "logs" / "timing.jsonl").read_text().splitlines()]
    assert [row["step"] for row in timing] == [1, 2] and all(row["step_s"] > 0 for row in timing)
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*.json*")}
    assert "already finished" not in capsys.readouterr().out
    assert main([str(run.path)]) == 0
    assert "already finished" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*.json*")} == before


def test_a_run_under_way_is_not_started_twice(start, capsys):
    run = start(2)
    with run.lock():
        assert main([str(run.path)]) == 1
    assert f"in use by process {os.getpid()}" in capsys.readouterr().err
    assert run.metrics() == []


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's request exists on Linux only")
def test_a_run_ends_with_the_process_that_started_it(start, environment):
    run = start(1_000_000)  # hours
    command = [sys.executable, "-c", PARENT, str(run.path)]
    parent = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    try:
        wait_for(run.is_locked)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        wait_for(lambda: not run.is_locked())
        assert run.state() == "started"
    finally:
        for pid in (parent.pid, child):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        parent.communicate()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's request exists on Linux only")
def test_a_run_whose_parent_is_gone_already_does_not_start(start, environment):
    run = start(2)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    environment = environment | {"GDPO_PARENT": str(gone.pid)}
    done = subprocess.run([*MODULE, str(run.path)], env=environment, capture_output=True, timeout=60)
    assert done.returncode == 1
    assert run.state() == "started" and not (run.path / "run.lock").exists()
