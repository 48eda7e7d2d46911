"""How steady training was, from metrics.jsonl: spikes, collapsed seeds, spread across seeds, learning-rate sensitivity.

Definitions (docs/stability.md says why). With T steps logged, the *level* of a reward over a window is its mean there,
and the window is the last tenth of the steps, at least ``MIN_WINDOW``.

    spike      a step whose value is not finite, or lies more than SPIKE_FACTOR robust standard deviations (1.4826 times
               the median absolute deviation) above the median of the SPIKE_HISTORY steps before it; steps next to each
               other are one spike. Counted for ``loss`` and for ``grad_norm``
    collapsed  a seed in which some reward's final level is more than COLLAPSE_SHARE of the reward's range below the
               best level that it had over any window of that length, or whose loss was not finite
    spread     standard deviation (ddof 1) of the final level over the seeds of an arm
    sensitivity over learning rates: highest less lowest mean final level of an arm
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gdpo_nemo.files import csv_text
from gdpo_nemo.report.spec import is_metric
from gdpo_nemo.report.training import Training
from gdpo_nemo.stats import Interval, wilson
from gdpo_nemo.stats.strata import FloatArray

SPIKE_HISTORY = 20
SPIKE_FACTOR = 8.0
MAD_TO_STD = 1.4826
MIN_WINDOW = 5
COLLAPSE_SHARE = 0.25
SPIKED = ("loss", "grad_norm")
NOTE = (
    f"Spike: not finite, or more than {SPIKE_FACTOR:g} robust standard deviations above the median of the "
    f"{SPIKE_HISTORY} steps before. Collapsed: a reward ends more than {COLLAPSE_SHARE:.0%} of its range below its "
    "best level, or the loss was not finite; in brackets the 95 % Wilson interval of the share. Spread: standard "
    "deviation over seeds of the mean of the last tenth of the steps."
)


@dataclass(frozen=True)
class ArmStability:
    """One arm.

    Attributes:
        arm: its name.
        seeds: runs with logged steps.
        steps: of all of them together.
        spikes: metric -> number of spikes in all of them; None where the metric was not logged.
        collapsed: seeds that collapsed.
        levels: reward -> mean over seeds of the final level.
        spreads: reward -> see the module's docstring; None with one seed.
    """

    arm: str
    seeds: tuple[int, ...]
    steps: int
    spikes: Mapping[str, int | None]
    collapsed: tuple[int, ...]
    levels: Mapping[str, float]
    spreads: Mapping[str, float | None]

    @property
    def collapse_interval(self) -> Interval:
        """Of the share of collapsed seeds."""
        return wilson(len(self.collapsed), len(self.seeds))

    def spikes_per_1000(self, metric: str) -> float | None:
        """Spikes per thousand steps."""
        found = self.spikes.get(metric)
        return None if found is None or not self.steps else 1000 * found / self.steps


def measure(
    trainings: Mapping[tuple[str, int], Training],
    rewards: Sequence[str],
    ranges: Mapping[str, tuple[float, float]],
) -> list[ArmStability]:
    """One entry per arm with logged steps, in the order of the runs.

    Args:
        trainings: (arm, seed) -> what it logged.
        rewards: names, without those of other metrics.
        ranges: reward -> (lowest, highest); of a reward without one the range of all logged values.
    """
    names = [reward for reward in rewards if not is_metric(reward)]
    widths = {reward: _width(reward, ranges, trainings.values()) for reward in names}
    found = []
    for arm in dict.fromkeys(arm for arm, _ in trainings):
        own = {seed: training for (name, seed), training in trainings.items() if name == arm}
        levels = {reward: [final_level(training.of(reward)) for training in own.values()] for reward in names}
        found.append(
            ArmStability(
                arm=arm,
                seeds=tuple(sorted(own)),
                steps=sum(len(training.steps_T) for training in own.values()),
                spikes={metric: _spikes_of(own.values(), metric) for metric in SPIKED},
                collapsed=tuple(seed for seed in sorted(own) if is_collapsed(own[seed], widths)),
                levels={reward: float(np.nanmean(values)) for reward, values in levels.items() if _some(values)},
                spreads={
                    reward: float(np.nanstd(values, ddof=1)) if len(values) > 1 else None
                    for reward, values in levels.items()
                },
            )
        )
    return found


def num_spikes(values_T: FloatArray) -> int:
    """Spikes of one run."""
    if len(values_T) == 0:
        return 0
    is_spike_T = ~np.isfinite(values_T)
    if len(values_T) > SPIKE_HISTORY:
        clean_T = np.where(is_spike_T, np.nan, values_T)
        before = np.lib.stride_tricks.sliding_window_view(clean_T, SPIKE_HISTORY)[:-1]
        whole = ~np.isnan(before).any(axis=1)
        some = ~whole & ~np.isnan(before).all(axis=1)
        medians, deviations = np.zeros(len(before)), np.full(len(before), np.inf)
        for rows_T, median in ((whole, np.median), (some, np.nanmedian)):  # the second goes row by row, which is slow
            if rows_T.any():
                medians[rows_T] = median(before[rows_T], axis=1)
                spread_T = np.abs(before[rows_T] - medians[rows_T, None])
                deviations[rows_T] = median(spread_T, axis=1) * MAD_TO_STD
        with np.errstate(invalid="ignore"):
            is_spike_T[SPIKE_HISTORY:] |= clean_T[SPIKE_HISTORY:] > medians + SPIKE_FACTOR * deviations
    return int(is_spike_T[0]) + int((is_spike_T[1:] & ~is_spike_T[:-1]).sum())


def final_level(values_T: FloatArray) -> float:
    """Mean over the last window, NaN where nothing is graded there."""
    last = values_T[-_window(len(values_T)) :]
    return float(np.nanmean(last)) if _some(last) else math.nan


def is_collapsed(training: Training, widths: Mapping[str, float]) -> bool:
    """Whether a reward fell, or the loss was not finite.

    Args:
        training: what the run logged.
        widths: reward -> highest less lowest value that it can take.
    """
    loss_T = training.metrics.get("loss")
    if loss_T is not None and not np.isfinite(loss_T).all():
        return True
    for reward, width in widths.items():
        values_T = training.of(reward)
        window = _window(len(values_T))
        best, last = _best_level(values_T, min(window, len(values_T))), final_level(values_T)
        if best - last > COLLAPSE_SHARE * width:
            return True
    return False


def _best_level(values_T: FloatArray, window: int) -> float:
    """The highest mean over any window of that many steps, NaN where nothing is graded."""
    graded_T = ~np.isnan(values_T)
    counts, sums = (
        np.concatenate([[0.0], np.cumsum(of_T)]) for of_T in (graded_T.astype(np.float64), np.nan_to_num(values_T))
    )
    counts, sums = counts[window:] - counts[:-window], sums[window:] - sums[:-window]
    return float((sums[counts > 0] / counts[counts > 0]).max()) if (counts > 0).any() else math.nan


def learning_rate_sensitivity(
    levels: Mapping[float, Mapping[str, float]],
) -> dict[str, tuple[float, float, int]]:
    """Arm -> (highest less lowest level, learning rate of the highest, learning rates) over a sweep.

    Args:
        levels: learning rate -> arm -> mean final level of one reward. An arm counts where it has two rates and more.
    """
    found = {}
    for arm in dict.fromkeys(arm for by_arm in levels.values() for arm in by_arm):
        own = {rate: by_arm[arm] for rate, by_arm in sorted(levels.items()) if arm in by_arm}
        if len(own) > 1:
            best = max(own, key=lambda rate: own[rate])
            found[arm] = (own[best] - min(own.values()), best, len(own))
    return found


def to_csv(arms: Sequence[ArmStability]) -> str:
    """One row per arm and quantity."""
    lines: list[Sequence[object]] = []
    for one in arms:
        size = [len(one.seeds), one.steps]
        for metric in SPIKED:
            lines.append([one.arm, "spikes per 1000 steps", metric, one.spikes_per_1000(metric), "", "", *size])
        share, limits = len(one.collapsed) / len(one.seeds), one.collapse_interval
        lines.append([one.arm, "share of collapsed seeds", "", share, limits.low, limits.high, *size])
        for reward in one.spreads:
            lines.append([one.arm, "final level", reward, one.levels.get(reward), "", "", *size])
            lines.append([one.arm, "spread across seeds", reward, one.spreads[reward], "", "", *size])
    return csv_text(["arm", "quantity", "of", "value", "low", "high", "seeds", "steps"], lines)


def rows(arms: Sequence[ArmStability], labels: Mapping[str, str]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of words, the same for every rendering."""
    rewards = list(dict.fromkeys(reward for one in arms for reward in one.spreads))
    headings = ["", *(f"{metric} spikes / 1000 steps" for metric in SPIKED), "collapsed seeds"]
    headings += [f"spread of {reward}" for reward in rewards] + ["seeds x steps"]
    lines = []
    for one in arms:
        limits = one.collapse_interval
        line = [labels.get(one.arm, one.arm), *(_number(one.spikes_per_1000(metric), 1) for metric in SPIKED)]
        line.append(f"{len(one.collapsed)} of {len(one.seeds)} [{100 * limits.low:.0f} %, {100 * limits.high:.0f} %]")
        line += [_number(one.spreads.get(reward), 3) for reward in rewards]
        lines.append([*line, f"{len(one.seeds)} x {one.steps // len(one.seeds)}"])
    return headings, lines


def to_markdown(
    arms: Sequence[ArmStability], labels: Mapping[str, str], sweep: Sequence[str] = (), note: str = ""
) -> str:
    """A section of its own; ``note`` stands first."""
    headings, lines = rows(arms, labels)
    table = [f"| {' | '.join(line)} |" for line in (headings, ["---"] * len(headings), *lines)]
    parts = [*([note] if note else []), "# Stability of training", "\n".join(table), NOTE]
    parts += ["## Learning rates", "\n".join(f"- {line}" for line in sweep)] if sweep else []
    return "\n\n".join(parts) + "\n"


def _spikes_of(trainings: Collection[Training], metric: str) -> int | None:
    logged = [training.metrics[metric] for training in trainings if metric in training.metrics]
    return sum(map(num_spikes, logged)) if logged else None


def _width(reward: str, ranges: Mapping[str, tuple[float, float]], trainings: Collection[Training]) -> float:
    if reward in ranges:
        return ranges[reward][1] - ranges[reward][0]
    values = np.concatenate([training.of(reward) for training in trainings])
    return float(np.nanmax(values) - np.nanmin(values)) if _some(values) else 0.0


def _window(num_steps: int) -> int:
    return max(MIN_WINDOW, num_steps // 10)


def _some(values: Sequence[float] | FloatArray) -> bool:
    return len(values) > 0 and not bool(np.isnan(np.asarray(values, dtype=np.float64)).all())


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}"
