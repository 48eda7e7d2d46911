"""Two arms against each other, and what such a comparison could have found.

Arms are paired by seed and by question: both sides of a pair share the data order, the starting model and the
question, so what they have in common cancels before anything is averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from gdpo_nemo.errors import InputError
from gdpo_nemo.stats.intervals import Interval, crossed_p, crossed_t, graded_matrix, t_tail, variances
from gdpo_nemo.stats.strata import FloatArray, Strata, seed_means, split


@dataclass(frozen=True, slots=True, eq=False)
class PairedDifference:
    """Left minus right over the seeds and questions that both have.

    Attributes:
        value: mean over seeds of each seed's mean difference.
        interval: ``crossed_t`` of the differences; None with a single seed, which says nothing about the next
            one, and with a single graded question.
        p: two-sided p-value of the same comparison (``crossed_p``); None where there is no interval.
        by_seed: mean difference of each paired seed.
        values_S_Q: differences per seed and question, NaN where either side is ungraded.
        strata: groups of the questions, if the means are weighted.
    """

    value: float
    interval: Interval | None
    p: float | None
    by_seed: Mapping[int, float]
    values_S_Q: FloatArray
    strata: Strata | None = None

    def num_seeds_with_sign(self, sign: int) -> int:
        """Seeds in which left is above right (``sign`` 1) or below it (-1)."""
        return sum(value * sign > 0 for value in self.by_seed.values())


def paired_difference(
    left: Mapping[int, ArrayLike],
    right: Mapping[int, ArrayLike],
    *,
    strata: Strata | None = None,
    level: float = 0.95,
) -> PairedDifference:
    """Compare two arms: same seed against same seed, same question against same question.

    Args:
        left: seed -> values_Q, the same questions in the same order on both sides.
        right: likewise. Seeds that only one side has are left out.
        strata: fixed groups of the questions and their weights.
        level: of the interval.

    Raises:
        InputError: no common seed, unequal numbers of questions, or nothing graded on both sides in a seed.
    """
    seeds = sorted(set(left) & set(right))
    if not seeds:
        raise InputError(f"no common seed: left has {sorted(left)}, right has {sorted(right)}")
    left_S_Q, right_S_Q = (_stack([side[seed] for seed in seeds]) for side in (left, right))
    if left_S_Q.shape != right_S_Q.shape:
        raise InputError(f"unequal questions: left has {left_S_Q.shape[1]}, right has {right_S_Q.shape[1]}")
    difference_S_Q = graded_matrix(left_S_Q - right_S_Q)
    means_S = seed_means(difference_S_Q, strata)
    num_graded = min(int((~np.isnan(own)).any(axis=0).sum()) for _, own in split(difference_S_Q, strata))
    enough = len(seeds) > 1 and num_graded > 1
    return PairedDifference(
        value=float(means_S.mean()),
        interval=crossed_t(difference_S_Q, strata=strata, level=level) if enough else None,
        p=crossed_p(difference_S_Q, strata=strata) if enough else None,
        by_seed=dict(zip(seeds, map(float, means_S), strict=True)),
        values_S_Q=difference_S_Q,
        strata=strata,
    )


def minimum_detectable_effect(
    difference_S_Q: ArrayLike,
    *,
    strata: Strata | None = None,
    num_seeds: int | None = None,
    level: float = 0.95,
    power: float = 0.8,
) -> float:
    """The true difference that a comparison with this spread would find supported with the given power.

    With t_a the quantile of the interval and t_p the one-sided quantile of the power,
    sqrt(t_a(S-1)^2 v_seed + t_a(Q-1)^2 v_question) + sqrt(t_p(S-1)^2 v_seed + t_p(Q-1)^2 v_question).
    An approximation: at 0.8 the power reached is 0.73 to 0.77 with three seeds and 0.8 with ten.

    Args:
        difference_S_Q: paired differences, at least two seeds.
        strata: fixed groups of the questions and their weights.
        num_seeds: plan for this many seeds instead of S.
        level: of the interval that decides.
        power: chance to find it, above 0.5.

    Raises:
        InputError: as ``crossed_t``, fewer than two planned seeds, or a power outside (0.5, 1).
    """
    difference_S_Q = graded_matrix(difference_S_Q)
    planned = len(difference_S_Q) if num_seeds is None else num_seeds
    parts = variances(difference_S_Q, strata)
    return _detectable(
        parts.seed * len(difference_S_Q) / planned, parts.question, planned, parts.question_dof, level, power
    )


def detectable_with_spread(spread: float, num_seeds: int, *, level: float = 0.95, power: float = 0.8) -> float:
    """As ``minimum_detectable_effect``, where all that is known is the standard deviation of a seed's difference.

    Raises:
        InputError: fewer than two seeds, a power outside (0.5, 1), or a spread that is not positive.
    """
    if not spread > 0:
        raise InputError(f"the spread of a seed's difference must be positive, got {spread}")
    return _detectable(spread**2 / num_seeds, 0.0, num_seeds, 1, level, power)


def seeds_needed(effect: float, detectable: Callable[[int], float], most: int = 1000) -> int | None:
    """The fewest seeds, from two on, that find a true difference of this size; None where ``most`` do not.

    Args:
        effect: of either sign.
        detectable: number of seeds -> difference that they find; falls with the number.
        most: where to stop.
    """
    if abs(effect) == 0 or detectable(most) > abs(effect):
        return None
    low, high = 1, most  # high is enough, low is not: one seed has no interval
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if detectable(middle) <= abs(effect) else (middle, high)
    return high


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values that keep the chance of any false rejection at the level (Holm 1979, Scand. J. Stat. 6, 65-70).

    The i-th smallest of m is multiplied by m - i + 1, never falls below the one before it, and never exceeds 1.
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, before = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        before = max(before, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = before
    return adjusted


def _detectable(
    v_seed: float, v_question: float, num_seeds: int, question_dof: float, level: float, power: float
) -> float:
    if num_seeds < 2 or not 0.5 < power < 1:
        raise InputError(f"needs two seeds and a power between 0.5 and 1, got {num_seeds} and {power}")
    detected, missed = (
        t_tail(tail, num_seeds - 1) ** 2 * v_seed + t_tail(tail, question_dof) ** 2 * v_question
        for tail in (1 - level, 2 * (1 - power))
    )
    return float(detected**0.5 + missed**0.5)


def _stack(rows: list[ArrayLike]) -> FloatArray:
    arrays = [np.asarray(row, dtype=np.float64) for row in rows]
    if len({array.shape for array in arrays}) > 1:
        raise InputError(f"seeds have unequal numbers of questions: {[array.shape for array in arrays]}")
    return np.stack(arrays)
