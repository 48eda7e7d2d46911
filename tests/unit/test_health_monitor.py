import json
import math

import numpy as np
import pytest

from gdpo_nemo.errors import UnknownNameError
from gdpo_nemo.health.monitor import DEFAULT, RULES, alarms, last_healthy
from gdpo_nemo.health.rules import Series
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.signals.schedules import Curriculum, Linear
from gdpo_nemo.suite.command_line import execute

RANGES = {"format": (0.0, 1.0), "correct": (-3.0, 3.0)}
STEPS = 60


def healthy(**changes):
    """Rows of a run that learns; a change is a value or a function of the step (from 1)."""
    rng = np.random.default_rng(0)
    rows = []
    for step in range(1, STEPS + 1):
        row = {
            "step": step,
            "loss": 0.1 * float(rng.normal()),
            "grad_norm": 0.5 + 0.05 * float(rng.normal()),
            "reward/format/mean": 1 - math.exp(-step / 20),
            "reward/correct/mean": 2 - 2 * math.exp(-step / 30),
            "advantage/format/share": 0.4,
            "advantage/correct/share": 0.6,
            "groups/alive": 14.0,
            "groups/total": 16.0,
            "length/mean": 12.0 + float(rng.normal()),
            "frac_truncated": 0.02,
            "entropy": 0.5 - step / 200,
            "kl": 0.01,
            "clip_fraction": 0.01,
        }
        for key, change in changes.items():
            row[key] = change(step) if callable(change) else change
        rows.append(row)
    return rows


def raised(rows, weights=None, watched=("correct",), names=tuple(RULES)):
    return alarms(Series.of(rows, weights or {"format": 1.0, "correct": 1.0}, RANGES, watched), names)


def test_a_healthy_run_raises_nothing():
    assert raised(healthy()) == []
    assert raised([]) == [] and raised(healthy()[:3]) == []


def after(step, then, before):
    return lambda now: then if now > step else before


@pytest.mark.parametrize(
    ("rule", "key", "change", "step", "since"),
    [
        ("loss", "loss", after(30, math.nan, 0.1), 31, 30),
        ("grad_norm", "grad_norm", after(30, math.nan, 0.5), 31, 30),
        ("lost_reward", "reward/format/mean", after(30, math.nan, 0.9), 35, 30),
        ("no_groups", "groups/alive", after(30, 0.0, 14.0), 35, 30),
        ("collapse", "reward/format/mean", after(30, 0.0, 1.0), 33, 23),  # 3 of 10 steps: level 0.7
        ("truncated", "frac_truncated", after(30, 1.0, 0.0), 36, 26),
        ("kl", "kl", after(30, 1.0, 0.0), 36, 26),
        ("gradient_spike", "grad_norm", lambda step: 50.0 if step == 40 else 0.5 + step % 2 / 10, 40, 39),
        ("length", "length/mean", after(30, 1.0, 11.0), 36, 26),
        ("entropy", "entropy", after(30, 0.0, 0.5), 40, 30),
        ("few_groups", "groups/alive", after(30, 1.0, 15.0), 38, 28),
        ("dominance", "advantage/correct/share", after(30, 0.97, 0.6), 40, 30),
        ("clipped", "clip_fraction", after(30, 0.9, 0.0), 34, 24),
    ],
)
def test_each_rule_finds_what_it_is_for_at_the_first_step_that_shows_it(rule, key, change, step, since):
    [alarm] = [one for one in raised(healthy(**{key: change})) if one.rule == rule]
    assert (alarm.step, alarm.since, alarm.level) == (step, since, RULES[rule][0])


def test_a_lasting_rise_of_the_gradient_norm_is_told_from_a_spike():
    rows = healthy(grad_norm=lambda step: 0.5 if step <= 10 else 0.5 * 1.2 ** (step - 10))
    assert "gradient" in [alarm.rule for alarm in raised(rows)]
    assert "gradient" not in [alarm.rule for alarm in raised(healthy(grad_norm=after(30, 3.0, 0.5)))]


def test_a_hack_needs_both_the_fall_of_the_metric_and_the_rise_of_the_rewards():
    falls = {"reward/correct/mean": lambda step: 2.0 - step / 20}
    weights = {"format": 1.0, "correct": 0.0}
    found = raised(healthy(**falls), weights)
    assert [alarm.rule for alarm in found] == ["hack"]  # correct is not in use, so nothing in use collapses
    assert "correct fell from" in found[0].text
    both = healthy(**falls, **{"reward/format/mean": lambda step: 1 - step / 60})
    assert [alarm.rule for alarm in raised(both, weights)] == ["collapse"]
    assert raised(healthy(**falls), weights, watched=()) == []


def test_a_reward_whose_weight_is_0_as_yet_is_not_in_use_as_yet():
    late = {"format": 1.0, "correct": Curriculum(start_step=31)}
    falls = {"reward/correct/mean": lambda step: 3.0 if step <= 10 else -3.0}
    assert "collapse" in [alarm.rule for alarm in raised(healthy(**falls), watched=())]
    assert "collapse" not in [alarm.rule for alarm in raised(healthy(**falls), late, watched=())]
    for step, weights, expected in ((5, None, 10), (5, late, 35), (40, late, 45)):
        lost = healthy(**{"reward/correct/mean": after(step, math.nan, 1.0)})
        [alarm] = raised(lost, weights, names=["lost_reward"])
        assert alarm.step == expected


def test_a_weight_that_rises_is_no_reward_that_rises():
    rows = healthy(**{"reward/correct/mean": lambda step: 2.0 - step / 20, "reward/format/mean": lambda s: 1 - s / 600})
    rising = {"format": Linear(start=1.0, end=9.0, last_step=STEPS), "correct": 0.0}
    assert raised(rows, rising, names=["hack"]) == []
    assert raised(healthy(**{"reward/correct/mean": lambda step: 2.0 - step / 20}), rising, names=["hack"])


def test_an_alarm_does_not_depend_on_what_comes_later():
    rows = healthy(**{"reward/correct/mean": after(40, -3.0, 2.0)})
    [alarm] = raised(rows)
    assert alarm.step < STEPS and raised(rows[: alarm.step]) == [alarm] and raised(rows[: alarm.step - 1]) == []


def test_names_that_do_not_exist_are_refused():
    with pytest.raises(UnknownNameError, match="Did you mean 'collapse'"):
        raised(healthy(), names=["colapse"])
    with pytest.raises(UnknownNameError, match="reward to watch"):
        Series.of(healthy(), {}, RANGES, ["corect"])


@pytest.fixture
def run(tmp_path):
    gdpo = {"task": "tool_calling", "rewards": {"format": {}, "correct": {}}}
    found = RunDir.claim(tmp_path / "seed0", {"kind": "train", "gdpo": gdpo}, {})
    for step in (20, 40):
        with found.new_checkpoint(step):
            pass
    return found


def test_the_command_names_the_last_healthy_checkpoint_and_its_exit_code_tells(run, capsys):
    for row in healthy(**{"reward/format/mean": after(30, math.nan, 0.9)}):
        run.append_metrics(row)
    assert execute(["monitor", str(run.path), "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert [alarm["rule"] for alarm in data["alarms"]] == ["lost_reward"]
    assert data["last_healthy_checkpoint"].endswith("checkpoints/step20") and data["steps"] == STEPS
    assert execute(["monitor", str(run.path), "--alarms", "dominance"]) == 0
    assert "no alarm" in capsys.readouterr().out
    assert execute(["monitor", str(run.path / "nowhere")]) == 2
    assert "not a run directory" in capsys.readouterr().err
    RunDir.claim(run.path.parent / "base" / "abc", {"kind": "warmup"}, {})
    assert execute(["monitor", str(run.path.parent / "base" / "abc")]) == 2
    assert "is a warm-up, which has no rewards to follow" in capsys.readouterr().err


def test_checkpoints_of_nemo_rl_are_found_as_well(tmp_path):
    for name in ("step_10", "step_20", "tmp_step_15", "step_30"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    assert last_healthy(tmp_path, 20).name == "step_20" and last_healthy(tmp_path, 9) is None


def test_what_is_on_by_default_exists():
    assert set(DEFAULT) <= set(RULES)
