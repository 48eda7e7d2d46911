import io
import os
import pty
import signal
from dataclasses import dataclass

import pytest

from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.suite import progress
from gdpo_nemo.suite.progress import Progress, describe_exit, duration, has_room
from gdpo_nemo.suite.scheduler import Ended, Job

RESULT = {"steps": 4, "evaluation": {"questions": 8, "reward/format/mean": 0.5, "reward/correct/mean": None}}


@dataclass
class Run:
    name: str
    dir: RunDir
    total_steps: int = 4


@pytest.fixture
def runs(tmp_path):
    return [Run(f"gdpo seed{i}", RunDir.claim(tmp_path / str(i), {"seed": i}, {})) for i in range(2)]


def job(run):
    return Job(run.name, ["true"], run.dir.log_path)


def test_a_log_gets_a_line_a_minute_and_one_for_each_run_that_is_over(runs, monkeypatch):
    monkeypatch.setattr(progress, "LOOK_EVERY_S", 0.0)
    stream = io.StringIO()
    watch = Progress(runs, stream)
    watch.started(job(runs[0]))
    runs[0].dir.append_metrics({"step": 3})
    watch.tick()
    assert stream.getvalue() == ""
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    watch.tick()
    assert "0 of 2 runs over, 3 of 8 steps, about " in stream.getvalue()
    assert stream.getvalue().endswith("left; gdpo seed0 3/4\n")
    runs[0].dir.append_metrics({"step": 4})
    watch.tick()
    assert stream.getvalue().endswith("gdpo seed0 4/4, evaluating\n")
    runs[0].dir.finish(RESULT)
    watch.ended(Ended(job(runs[0]), 0, 100.0))
    assert stream.getvalue().endswith("finished gdpo seed0 in 2 min: format 0.500, correct -\n")


def test_a_failure_shows_the_exit_and_the_end_of_the_log(runs):
    stream = io.StringIO()
    watch = Progress(runs, stream)
    runs[1].dir.log_path.write_text("".join(f"line {i}\n" for i in range(30)))
    watch.started(job(runs[1]))
    watch.ended(Ended(job(runs[1]), -signal.SIGKILL, 1.0))
    text = stream.getvalue()
    assert text.startswith(
        f"FAILED gdpo seed1: killed by SIGKILL (out of memory?). The end of {runs[1].dir.log_path}:\n"
    )
    assert text.endswith("    line 28\n    line 29\n") and "line 17\n" not in text


def test_an_exit_without_a_result_is_a_failure(runs):
    stream = io.StringIO()
    watch = Progress(runs, stream)
    watch.started(job(runs[0]))
    watch.ended(Ended(job(runs[0]), 0, 1.0))
    assert stream.getvalue().startswith("FAILED gdpo seed0: exit code 0.")


def test_a_bar_needs_a_terminal_that_knows_its_size():
    assert not has_room(io.StringIO())
    ours, theirs = pty.openpty()
    with open(ours, "rb", 0), open(theirs, "w") as terminal:
        assert terminal.isatty() and min(os.get_terminal_size(theirs)) == 0
        assert not has_room(terminal)


@pytest.mark.parametrize(("seconds", "words"), [(0.4, "0 s"), (89, "89 s"), (180, "3 min"), (9000, "2.5 h")])
def test_durations_read_naturally(seconds, words):
    assert duration(seconds) == words


@pytest.mark.parametrize(("code", "words"), [(3, "exit code 3"), (-15, "killed by SIGTERM")])
def test_exits_read_naturally(code, words):
    assert describe_exit(code) == words
