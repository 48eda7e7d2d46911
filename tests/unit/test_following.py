"""The monitor as both backends call it: the same alarms however a run is cut, and what each action does."""

import math
import typing

import pytest

from gdpo_nemo.config import AlarmName, GdpoConfig
from gdpo_nemo.errors import ConfigError, RunHaltedError, UnknownNameError
from gdpo_nemo.files import read_jsonl
from gdpo_nemo.health.following import Monitor, accept, action, log_for, selected
from gdpo_nemo.health.monitor import DEFAULT, LOCAL, RULES, alarms
from gdpo_nemo.health.rules import Series
from gdpo_nemo.method import Method
from gdpo_nemo.run_dir import RunDir

STEPS = 200
OWN = {name: {"fn": "math:floor", "range": [-3.0, 3.0]} for name in ("format", "correct")}


def block(**monitor):
    return GdpoConfig.model_validate({"rewards": OWN, "monitor": monitor})


def tools(**monitor):
    return GdpoConfig.model_validate({"task": "tool_calling", "monitor": monitor})


def rows(**changes):
    """A run in which nothing happens; a change is a function of the step, from 1."""
    for step in range(1, STEPS + 1):
        row = {"step": step, "loss": 0.1, "grad_norm": 0.5, "entropy": 0.5, "reward/format/mean": 1.0}
        row |= {"reward/correct/mean": 2.0, "groups/alive": 14.0, "groups/total": 16.0, "length/mean": 12.0}
        yield row | {key: change(step) for key, change in changes.items()}


SICK = {
    "reward/format/mean": lambda step: math.nan if step > 30 else 1.0,
    "reward/correct/mean": lambda step: 2.0 if step < 70 else -2.0,
    "length/mean": lambda step: 12.0 if step < 100 else 40.0,
    "groups/alive": lambda step: 0.0 if step > 150 else 14.0,
    "grad_norm": lambda step: 9.0 if step == 90 else 0.5 + step % 3 / 10,
    "kl": lambda step: 0.9 if step > 120 else 0.1,
    "clip_fraction": lambda step: 0.9 if step > 180 else 0.1,
    "advantage/correct/share": lambda step: 0.99 if step > 110 else 0.5,
}


@pytest.fixture
def run(tmp_path):
    return RunDir.claim(tmp_path / "seed0", {}, {})


def follow(run, gdpo, series, start=0, until=STEPS):
    """Rows after ``start`` up to ``until``, or up to one that ends the run; returns the step and the error."""
    run.drop_metrics_after(start)
    monitor = Monitor(run, gdpo, start)
    for row in series:
        if start < row["step"] <= until:
            run.append_metrics(row)
            stop = monitor.look(row)
            if stop:
                return row["step"], stop
    return until, None


def test_a_run_raises_while_it_goes_on_what_its_rows_raise_afterwards(run):
    gdpo = block(alarms=["all"])
    follow(run, gdpo, rows(**SICK))
    series = Series.of(list(rows(**SICK)), {"format": 1.0, "correct": 1.0}, {name: (-3.0, 3.0) for name in OWN})
    expected = alarms(series, tuple(RULES))
    assert {one.rule for one in expected} >= {*LOCAL} - {"loss", "grad_norm"} | {"collapse", "length"}
    assert [(row["rule"], row["subject"], row["step"], row["since"], row["text"]) for row in run.alarms()] == [
        (one.rule, one.subject, one.step, one.since, one.text) for one in expected
    ]


@pytest.mark.parametrize("cut", [(10,), (34, 31), (35, 35), (120, 60), (199, 150)])
def test_a_resumed_run_raises_the_same_alarms(cut, run, tmp_path):
    """Killed after the first step of ``cut``, resumed from the last."""
    whole = RunDir.claim(tmp_path / "whole", {}, {})
    gdpo = block(alarms=["all"], on_alarm={"stop": "warn"})
    follow(whole, gdpo, rows(**SICK))
    follow(run, gdpo, rows(**SICK), until=cut[0])
    follow(run, gdpo, rows(**SICK), start=cut[-1])
    assert read_jsonl(run.path / "logs" / "alarms.jsonl") == read_jsonl(whole.path / "logs" / "alarms.jsonl")


def test_a_healthy_run_leaves_no_file(run):
    assert follow(run, block(alarms=["all"]), rows()) == (STEPS, None)
    assert not (run.path / "logs" / "alarms.jsonl").exists()


def test_switched_off_it_raises_nothing(run):
    follow(run, block(alarms=[]), rows(**SICK))
    assert run.alarms() == []


def test_a_stop_ends_the_run_until_it_is_accepted(run):
    gdpo = block(on_alarm={"collapse": "stop"})
    step, stop = follow(run, gdpo, rows(**SICK))
    assert 70 < step < 80 and "collapse" in str(stop) and "--accept" in str(stop)
    assert run.halted_by()["rule"] == "collapse" and run.state() == "started"
    with pytest.raises(RunHaltedError, match="collapse"):
        Monitor(run, gdpo, step)
    assert [row["rule"] for row in accept(run)] == ["collapse"] and accept(run) == []
    assert follow(run, gdpo, rows(**SICK), start=step) == (STEPS, None)
    assert [row["accepted"] for row in run.alarms() if row["rule"] == "collapse"] == [True]


def test_a_run_that_goes_on_before_the_alarm_is_stopped_by_it_again(run):
    gdpo = block(on_alarm={"collapse": "stop"})
    step, _ = follow(run, gdpo, rows(**SICK))
    accept(run)
    assert follow(run, gdpo, rows(**SICK), start=60)[0] == step


@pytest.mark.parametrize(
    ("on_alarm", "expected"),
    [
        ({}, ("checkpoint", "warn", "stop")),
        ({"checkpoint": "stop"}, ("stop", "warn", "stop")),
        ({"checkpoint": "stop", "collapse": "warn"}, ("warn", "warn", "stop")),
        ({"stop": "warn", "entropy": "checkpoint"}, ("checkpoint", "checkpoint", "warn")),
    ],
)
def test_the_action_of_a_rule_is_before_that_of_its_level(on_alarm, expected):
    assert tuple(action(rule, on_alarm) for rule in ("collapse", "entropy", "loss")) == expected


@pytest.mark.parametrize("alarms", [["default"], [], ["hack", "loss"]])
def test_an_action_of_an_alarm_that_is_off_is_refused(alarms):
    with pytest.raises(ConfigError, match=r"gdpo\.monitor\.on_alarm\.kl=stop .*add it to gdpo\.monitor\.alarms"):
        Method(tools(alarms=alarms, on_alarm={"kl": "stop"}))


@pytest.mark.parametrize(
    "monitor",
    [
        {"alarms": ["default", "kl"], "on_alarm": {"kl": "stop", "collapse": "warn"}},
        {"alarms": ["all"], "on_alarm": {"repeated": "stop"}},
        {"alarms": [], "on_alarm": {"warn": "checkpoint"}},
    ],
)
def test_an_action_of_a_level_or_of_an_alarm_that_is_on_is_taken(monitor):
    assert Method(tools(**monitor))


def test_names_mean_alarms():
    assert selected(["default"]) == list(DEFAULT) and selected(["all"]) == list(RULES)
    assert selected(["repeated", "default", "loss"]) == ["repeated", *DEFAULT]
    assert set(typing.get_args(AlarmName)) == set(RULES)


def test_held_out_metrics_are_named_or_those_without_weight(run):
    assert log_for(GdpoConfig.model_validate({"rewards": OWN}), None).series().watched == ()
    paid = {"rewards": {**OWN, "correct": OWN["correct"] | {"weight": 0.0}}}
    assert log_for(GdpoConfig.model_validate(paid), None).series().watched == ("correct",)
    with pytest.raises(UnknownNameError, match="corect"):
        Monitor(run, block(metrics=["corect"]))


@pytest.mark.parametrize(("metrics", "raised"), [(["correct"], ["hack"]), (None, []), (["format"], [])])
def test_a_paid_metric_that_falls_while_the_sum_rises_is_a_hack_where_it_is_named(run, metrics, raised):
    hacked = {
        "reward/format/mean": lambda step: -3.0 if step < 70 else 3.0,
        "reward/correct/mean": lambda step: 2.0 if step < 70 else -2.0,
    }
    follow(run, block(alarms=["hack"], metrics=metrics), rows(**hacked))
    assert [row["rule"] for row in run.alarms()] == raised


def checkpoints(run, gdpo, series, every, keep=1):
    """Steps whose checkpoints are left after a run that writes one every so many steps."""
    monitor = Monitor(run, gdpo)
    for row in series:
        monitor.look(row)
        if row["step"] % every == 0:
            with run.new_checkpoint(row["step"], keep, monitor.healthy_until):
                pass
    return [step for step, _ in run.checkpoints()]


def test_the_last_healthy_checkpoint_outlives_an_alarm(run):
    """The alarm at step 73 rests on 10 steps; a checkpoint from before those is there, and stays."""
    left = checkpoints(run, block(), rows(**SICK | {"reward/format/mean": lambda step: 1.0}), every=3)
    assert left == [57, 66, 198]
    assert [run.alarms()[0][key] for key in ("since", "last_healthy_checkpoint")] == [63, "checkpoints/step57"]


def test_without_an_alarm_one_checkpoint_is_kept_that_no_alarm_can_rest_on(run):
    assert checkpoints(run, block(), rows(), every=3) == [183, 192, 198]


def test_a_warning_keeps_no_checkpoint(run):
    quiet = block(on_alarm={"checkpoint": "warn"})
    assert checkpoints(run, quiet, rows(**SICK), every=3) == [183, 192, 198]
