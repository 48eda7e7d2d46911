"""Spikes, collapsed seeds, spread and learning-rate sensitivity, on curves made by hand."""

import csv
import io
import math

import numpy as np
import pytest

from gdpo_nemo.report.stability import (
    final_level,
    is_collapsed,
    learning_rate_sensitivity,
    measure,
    num_spikes,
    rows,
    to_csv,
    to_markdown,
)
from gdpo_nemo.report.training import Training

RANGES = {"format": (0.0, 1.0)}


def training(values, loss=None, name="gdpo/seed0"):
    values = np.asarray(values, dtype=float)
    metrics = {"reward/format/mean": values}
    if loss is not None:
        metrics["loss"] = np.asarray(loss, dtype=float)
    return Training(name, np.arange(1.0, len(values) + 1), metrics)


def noise(num_steps, seed=0):
    return np.random.default_rng(seed).standard_normal(num_steps)


def test_quiet_noise_has_no_spike_and_a_jump_is_one():
    quiet = noise(400)
    assert num_spikes(quiet) == 0
    loud = quiet.copy()
    loud[100] = 60.0
    loud[200:204] = 60.0  # one episode
    assert num_spikes(loud) == 2
    assert num_spikes(-loud) == 0  # downwards is no spike
    assert num_spikes(loud * 1e-4) == 2 and num_spikes(loud + 1e3) == 2


def test_what_is_not_finite_is_a_spike_at_any_step():
    values = noise(60)
    values[3], values[40] = math.nan, math.inf
    assert num_spikes(values) == 2
    assert num_spikes(np.array([math.nan])) == 1
    assert num_spikes(np.array([])) == 0


def test_a_constant_loss_has_no_spike_and_any_rise_above_it_is_one():
    values = np.zeros(50)
    assert num_spikes(values) == 0
    values[30] = 1e-9
    assert num_spikes(values) == 1


def test_few_steps_have_no_history_to_spike_from():
    values = np.zeros(20)
    values[19] = 100.0
    assert num_spikes(values) == 0


def test_the_final_level_is_the_mean_of_the_last_tenth():
    assert final_level(np.arange(100.0)) == pytest.approx(np.mean(range(90, 100)))
    assert final_level(np.arange(10.0)) == pytest.approx(np.mean(range(5, 10)))  # at least five steps
    assert final_level(np.array([1.0, math.nan])) == 1.0
    assert math.isnan(final_level(np.full(8, math.nan)))


@pytest.mark.parametrize(
    ("end", "expected"),
    [(0.9, False), (0.66, False), (0.64, True), (0.0, True)],
)
def test_a_fall_of_more_than_a_quarter_of_the_range_is_a_collapse(end, expected):
    values = [*np.linspace(0, 0.9, 40), *[0.9] * 20, *[end] * 40]
    assert is_collapsed(training(values), {"format": 1.0}) is expected


def test_a_reward_that_never_rose_has_not_collapsed():
    assert not is_collapsed(training([0.02] * 50), {"format": 1.0})
    assert is_collapsed(training([0.5] * 50, loss=[0.1] * 49 + [math.nan]), {"format": 1.0})


def test_measured_per_arm():
    fallen = [*[0.8] * 30, *[0.1] * 30]
    trainings = {
        ("gdpo", 0): training([0.5] * 60, noise(60)),
        ("gdpo", 1): training([0.7] * 60, noise(60, 1)),
        ("grpo", 0): training(fallen, noise(60, 2)),
        ("grpo", 3): training([0.6] * 60, [*noise(59, 3), math.inf]),
        ("grpo", 4): training([0.6] * 60, noise(60, 4)),
    }
    gdpo, grpo = measure(trainings, ["format", "length/max"], RANGES)
    assert (gdpo.arm, gdpo.seeds, gdpo.steps, gdpo.collapsed) == ("gdpo", (0, 1), 120, ())
    assert gdpo.spreads["format"] == pytest.approx(math.sqrt(0.02))
    assert gdpo.levels["format"] == pytest.approx(0.6)
    assert grpo.collapsed == (0, 3)
    assert (grpo.spikes, gdpo.spikes) == ({"loss": 1, "grad_norm": None}, {"loss": 0, "grad_norm": None})
    assert grpo.spikes_per_1000("loss") == pytest.approx(1000 / 180)
    limits = grpo.collapse_interval
    assert 0.2 < limits.low < 2 / 3 < limits.high < 1
    table = {(r["arm"], r["quantity"]): r for r in csv.DictReader(io.StringIO(to_csv([gdpo, grpo])))}
    assert float(table["grpo", "share of collapsed seeds"]["value"]) == pytest.approx(2 / 3)
    assert table["gdpo", "spread across seeds"]["of"] == "format"
    headings, lines = rows([gdpo, grpo], {"gdpo": "GDPO"})
    assert len(headings) == len(lines[0]) == len(lines[1]) and lines[0][0] == "GDPO"
    assert lines[1][3].startswith("2 of 3 [") and lines[0][2] == "-"
    text = to_markdown([gdpo, grpo], {}, ["gdpo: 0.1"], note="NOTE")
    assert text.startswith("NOTE\n\n# Stability") and "- gdpo: 0.1" in text


def test_one_seed_has_no_spread_and_an_undeclared_range_is_that_of_the_values():
    [only] = measure({("gdpo", 0): training([*[4.0] * 20, *[2.5] * 20])}, ["format"], {})
    assert only.spreads == {"format": None}
    assert only.collapsed == (0,)
    assert measure({}, ["format"], RANGES) == []


def test_learning_rate_sensitivity_by_hand():
    levels = {1e-3: {"gdpo": 0.8, "grpo": 0.2}, 1e-4: {"gdpo": 0.9, "grpo": 0.7, "odd": 1.0}, 1e-5: {"gdpo": 0.6}}
    got = learning_rate_sensitivity(levels)
    assert got == {"gdpo": (pytest.approx(0.3), 1e-4, 3), "grpo": (pytest.approx(0.5), 1e-4, 2)}
