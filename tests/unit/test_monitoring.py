"""An embedded run that an alarm stops: what is said about it, and that it goes on as if nothing had been."""

import json
import math

import pytest

from gdpo_nemo.backends.embedded.train import train
from gdpo_nemo.errors import RunHaltedError
from gdpo_nemo.suite.command_line import execute

pytestmark = pytest.mark.usefixtures("one_thread")

STOPS = "gdpo.monitor.on_alarm={lost_reward: stop}"


def never(row, rollout):
    """A reward of one's own that applies to nothing."""
    return math.nan


LOST = f"gdpo.rewards={{format: {{}}, correct: {{}}, own: {{fn: '{__name__}:never', range: [0, 1]}}}}"


@pytest.fixture
def start(base, claim, configure, tmp_path):
    tree = tmp_path / "tool_calling" / "embedded" / "tiny"
    tree.mkdir(parents=True)
    (tree / "base").symlink_to(base.path.parent)

    def call(arm, *overrides):
        config = configure("base=small", LOST, *overrides)
        return claim(tree / arm / "seed0", config), config

    return call


def told(capsys, *arguments):
    code = execute([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_stopped_run_is_not_finished_says_why_and_goes_on_once_accepted(start, tmp_path, capsys):
    run, config = start("gdpo", STOPS)
    for _ in range(2):  # the second one is refused before anything is loaded
        with pytest.raises(RunHaltedError, match=r"stopped at step 5 by the alarm lost_reward: no rollout has own"):
            train(run, config)
    assert run.result() is None and [step for step, _ in run.checkpoints()][-1] == 5
    assert "alarm (stop) at step 5: lost_reward" in capsys.readouterr().out

    line = ("status", "tool_calling", "--out", str(tmp_path))
    [row] = [row for row in told(capsys, *line)[1]["runs"] if row["name"] == "gdpo seed0"]
    assert row["state"] == "stopped by lost_reward" and row["alarms"][0]["step"] == 5
    code, data = told(capsys, "monitor", str(run.path))
    assert code == 1 and data["halted_by"]["rule"] == "lost_reward" and data["alarms"][0]["action"] == "stop"
    assert execute(["monitor", str(run.path)]) == 1 and "--accept" in capsys.readouterr().out

    assert execute(["monitor", str(run.path), "--accept"]) == 0 and "own" in capsys.readouterr().out
    assert execute(["monitor", str(run.path), "--accept"]) == 1 and "nothing to accept" in capsys.readouterr().err
    train(run, config)
    capsys.readouterr()
    code, data = told(capsys, "monitor", str(run.path))
    assert run.result()["steps"] == 6 and code == 0 and data["halted_by"] is None

    other, config = start("unwatched", "gdpo.monitor.alarms=[]")
    train(other, config)
    same = [(one.path / "metrics.jsonl").read_bytes() for one in (run, other)]
    assert same[0] == same[1] and run.result() == other.result() and other.alarms() == []


def test_an_alarm_that_stops_nothing_changes_nothing(start):
    run, config = start("gdpo")
    train(run, config)
    assert [(row["rule"], row["action"], row["level"]) for row in run.alarms()] == [
        ("lost_reward", "checkpoint", "checkpoint")
    ]
    assert run.result()["steps"] == 6
