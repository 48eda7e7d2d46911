"""The rules of ``monitor``: the row of a run's metrics at which something first holds.

A level is the mean over the last ``WINDOW`` steps; the start is the first ``START`` steps. Each rule yields at most one
finding for each subject and looks at no row past the one that it names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdpo_nemo.errors import UnknownNameError
from gdpo_nemo.signals.schedules import Schedule, weight_at

WINDOW = 10
START = 10
PATIENCE = 5
BEFORE = 20
FALL = 0.25
ROBUST = 8 * 1.4826
REPEATED = ("repeated/ngrams", "repeated/compression")
SKIPPED = "skipped"
"""Metric of a step that was left out because of a value that is not finite; only such a step has it."""

Array = NDArray[np.float64]
Finding = tuple[str, int, int, str]  # subject, row, rows that it rests on, text
Rule = Callable[["Series"], Iterator[Finding]]


@dataclass(frozen=True)
class Series:
    """What a run logged.

    Attributes:
        steps: of the rows.
        metrics: name -> value per row, NaN where a row has none.
        weights: reward in use -> its weight at each row.
        ranges: reward -> declared (lowest, highest) value.
        watched: held-out metrics: rewards that are scored and should rise with those in use.
    """

    steps: NDArray[np.int64]
    metrics: Mapping[str, Array]
    weights: Mapping[str, Array]
    ranges: Mapping[str, tuple[float, float]]
    watched: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        rows: Sequence[Mapping[str, Any]],
        weights: Mapping[str, float | Schedule],
        ranges: Mapping[str, tuple[float, float]],
        watched: Sequence[str] = (),
    ) -> Series:
        """From rows as ``RunDir.metrics`` gives them; a reward of weight 0 is not in use.

        Raises:
            UnknownNameError: a held-out metric that is no reward of the run.
        """
        log = Log(weights, ranges, watched)
        for row in rows:
            log.add(row)
        return log.series()

    def tail(self, num_rows: int) -> Series:
        """The last rows."""
        last = slice(max(0, len(self.steps) - num_rows), None)
        metrics, weights = ({key: one[last] for key, one in all.items()} for all in (self.metrics, self.weights))
        return Series(self.steps[last], metrics, weights, self.ranges, self.watched)

    def rewards(self, pattern: str) -> Iterator[tuple[str, Array]]:
        """The metric of every reward in use that logs it; NaN at rows at which its weight is 0."""
        for name, weight_T in self.weights.items():
            if pattern.format(name) in self.metrics:
                yield name, np.where(weight_T == 0, math.nan, self.metrics[pattern.format(name)])


class Log:
    """Rows as they come, ready to be looked at after each."""

    def __init__(
        self,
        weights: Mapping[str, float | Schedule],
        ranges: Mapping[str, tuple[float, float]],
        watched: Sequence[str] = (),
    ) -> None:
        """See ``Series.of``."""
        for name in watched:
            if name not in ranges:
                raise UnknownNameError("reward to watch", name, ranges)
        self._used = {name: weight for name, weight in weights.items() if weight}
        self._ranges, self._watched = ranges, tuple(watched)
        self._steps = np.zeros(64, dtype=np.int64)
        self._metrics: dict[str, Array] = {}
        self._num_rows = 0

    def add(self, row: Mapping[str, Any]) -> None:
        """Take the row of the next step."""
        n = self._num_rows
        if n == len(self._steps):
            self._steps = np.append(self._steps, self._steps)
            self._metrics = {key: np.append(old, np.full(n, math.nan)) for key, old in self._metrics.items()}
        self._steps[n] = row["step"]
        for key, value in row.items():
            if key not in self._metrics:
                self._metrics[key] = np.full(len(self._steps), math.nan)
            self._metrics[key][n] = _number(value)
        self._num_rows += 1

    def series(self) -> Series:
        """All rows so far, without a copy."""
        n = self._num_rows
        metrics = {key: values[:n] for key, values in self._metrics.items() if key != "step"}
        steps = self._steps[:n]
        weights = {
            name: np.array([weight_at(weight, step) for step in steps.tolist()])
            if isinstance(weight, Schedule)
            else np.full(n, weight)
            for name, weight in self._used.items()
        }
        return Series(steps, metrics, weights, self._ranges, self._watched)


def not_finite(key: str) -> Rule:
    """The first value of a metric that is not finite; a step that was left out for that reason has none."""

    def rule(series: Series) -> Iterator[Finding]:
        for values_T in _logged(series, key):
            left_out_T = series.metrics.get(SKIPPED, np.zeros(len(values_T))) == 1
            yield from _first(key, ~np.isfinite(values_T) & ~left_out_T, 1, f"{key} is not finite")

    return rule


def lost_reward(series: Series) -> Iterator[Finding]:
    """A reward that no rollout has, ``PATIENCE`` steps in a row."""
    for name, values_T in series.rewards("reward/{}/mean"):
        text = f"no rollout has {name}, {PATIENCE} steps in a row"
        lost_T = np.isnan(values_T) & (series.weights[name] != 0)
        yield from _first(name, _in_a_row(lost_T, PATIENCE), PATIENCE, text)


def no_groups(series: Series) -> Iterator[Finding]:
    """No group with a signal, ``PATIENCE`` steps in a row."""
    for alive_T in _logged(series, "groups/alive"):
        text = f"no group has a signal, {PATIENCE} steps in a row"
        yield from _first("groups", _in_a_row(alive_T == 0, PATIENCE), PATIENCE, text)


def few_groups(series: Series) -> Iterator[Finding]:
    """Less than a quarter of the groups with a signal."""
    for alive_T in _logged(series, "groups/alive"):
        for total_T in _logged(series, "groups/total"):
            level_T = _level(alive_T / np.where(total_T > 0, total_T, math.nan))
            yield from _first("groups", level_T < 0.25, WINDOW, "{:.0%} of the groups have a signal", level_T)


def collapse(series: Series) -> Iterator[Finding]:
    """A reward in use that fell by more than ``FALL`` of its range."""
    for name, values_T in series.rewards("reward/{}/mean"):
        level_T, best_T, fallen_T = _fallen(series, name, values_T)
        yield from _first(name, fallen_T, WINDOW, f"{name} fell from {{:.3g}} to {{:.3g}}", best_T, level_T)


def hack(series: Series) -> Iterator[Finding]:
    """A held-out metric that fell so while the weighted sum of the rewards in use is no lower than at its best.

    The sum is of both rows with the weights of the later one: a weight that rises is no reward that rises.
    """
    means = {name: _logged(series, f"reward/{name}/mean") for name in series.weights}
    levels = {name: _level(values_T) for name, logged in means.items() for values_T in logged}
    for name in series.watched:
        for values_T in _logged(series, f"reward/{name}/mean"):
            level_T, best_T, fallen_T = _fallen(series, name, values_T)
            at = _argbest(level_T)
            gains = [series.weights[used] * (one_T - one_T[at]) for used, one_T in levels.items()]
            counts = [series.weights[used] != 0 for used in levels]
            risen_T = np.sum(np.where(counts, gains, 0.0), axis=0) >= 0 if gains else np.zeros(len(fallen_T), bool)
            text = f"{name} fell from {{:.3g}} to {{:.3g}} while the rewards in use rose"
            yield from _first(name, fallen_T & risen_T, WINDOW, text, best_T, level_T)


def repeated(series: Series) -> Iterator[Finding]:
    """Responses to different prompts that are less than a quarter as distinct as at the start, by both measures."""
    measures = [values_T for key in REPEATED for values_T in _logged(series, key)]
    if len(measures) == len(REPEATED):
        levels = [_level(values_T) for values_T in measures]
        pairs = zip(levels, measures, strict=True)
        holds_T = np.all([1 - level_T < 0.25 * (1 - _start(values_T)) for level_T, values_T in pairs], axis=0)
        text = "responses to different prompts share {:.0%} of their 4-grams, {:.0%} of their bytes"
        yield from _first("responses", holds_T, WINDOW, text, *levels)


def truncated(series: Series) -> Iterator[Finding]:
    """More than half of the responses at the length limit, and less than a quarter at the start."""
    for values_T in _logged(series, "frac_truncated"):
        level_T = _level(values_T)
        late_T = (level_T > 0.5) & (_start(values_T) < 0.25)
        yield from _first("frac_truncated", late_T, WINDOW, "{:.0%} of the responses are cut off", level_T)


def above(key: str, most: float) -> Rule:
    """The level of a metric above a bound."""

    def rule(series: Series) -> Iterator[Finding]:
        for values_T in _logged(series, key):
            level_T = _level(values_T)
            yield from _first(key, level_T > most, WINDOW, f"{key} is at {{:.3g}}", level_T)

    return rule


def drift(key: str, low: float, high: float) -> Rule:
    """The level of a metric outside [low, high] times its mean at the start."""

    def rule(series: Series) -> Iterator[Finding]:
        for values_T in _logged(series, key):
            level_T, start = _level(values_T), _start(values_T)
            outside_T = (level_T < low * start) | (level_T > high * start)
            yield from _first(key, outside_T, WINDOW, f"{key} is {{:.3g}}, {start:.3g} at the start", level_T)

    return rule


def gradient_spike(series: Series) -> Iterator[Finding]:
    """A gradient norm far above those of the ``BEFORE`` steps before it."""
    for values_T in _logged(series, "grad_norm"):
        if len(values_T) > BEFORE:
            before_T_W = np.lib.stride_tricks.sliding_window_view(values_T[:-1], BEFORE)
            median_T = np.median(before_T_W, axis=1)
            deviation_T = np.median(np.abs(before_T_W - median_T[:, None]), axis=1)
            spike_T = np.zeros(len(values_T), dtype=bool)
            spike_T[BEFORE:] = values_T[BEFORE:] > median_T + ROBUST * deviation_T
            yield from _first("grad_norm", spike_T, 1, "the gradient norm jumped to {:.3g}", values_T)


def dominance(series: Series) -> Iterator[Finding]:
    """One reward of several with 95 % of the variance of the advantage, ``WINDOW`` steps in a row."""
    if len(series.weights) > 1:
        for name, values_T in series.rewards("advantage/{}/share"):
            text = f"{name} has 95 % of the advantage or more, {WINDOW} steps in a row"
            yield from _first(name, _in_a_row(values_T >= 0.95, WINDOW), WINDOW, text)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def _logged(series: Series, key: str) -> list[Array]:
    """The metric, where the run logs it."""
    return [series.metrics[key]] if key in series.metrics else []


def _first(subject: str, holds_T: NDArray[np.bool_], rests_on: int, text: str, *values: Array) -> Iterator[Finding]:
    if holds_T.any():
        row = int(holds_T.argmax())
        yield subject, row, rests_on, text.format(*(values_T[row] for values_T in values))


def _in_a_row(holds_T: NDArray[np.bool_], count: int) -> NDArray[np.bool_]:
    """Whether something held at the last ``count`` rows."""
    held_T = np.full(len(holds_T), False)
    if len(holds_T) >= count:
        held_T[count - 1 :] = np.lib.stride_tricks.sliding_window_view(holds_T, count).all(axis=1)
    return held_T


def _level(values_T: Array) -> Array:
    """Mean over the last ``WINDOW`` rows; NaN before there are as many, or where one has no value."""
    level_T = np.full(len(values_T), math.nan)
    if len(values_T) >= WINDOW:
        level_T[WINDOW - 1 :] = np.lib.stride_tricks.sliding_window_view(values_T, WINDOW).mean(axis=1)
    return level_T


def _start(values_T: Array) -> float:
    return float(values_T[:START].mean()) if len(values_T) >= START else math.nan


def _argbest(level_T: Array) -> NDArray[np.intp]:
    """The row of the highest level so far; 0 before there is one."""
    known_T = np.where(np.isnan(level_T), -math.inf, level_T)
    best_T = known_T >= np.maximum.accumulate(known_T)
    return np.maximum.accumulate(np.where(best_T, np.arange(len(level_T)), 0))


def _fallen(series: Series, name: str, values_T: Array) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Level, best level so far, and whether the first is below the second by more than ``FALL`` of the range."""
    level_T = _level(values_T)
    best_T = level_T[_argbest(level_T)]
    low, high = series.ranges[name]
    return level_T, best_T, best_T - level_T > FALL * (high - low)
