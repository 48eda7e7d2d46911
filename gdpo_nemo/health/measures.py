"""What rewards are like on recorded rollouts.

For reward r_k, over the rollouts that have it (variances with ddof 1):

    variance within      sum_g sum_i (r - mean_g r)^2 / sum_g (n_g - 1): what an advantage sees; the variance over all
                         rollouts also has the differences between prompts, which no method learns from
    constant groups      of the groups in which it has a value and at least two rollouts stand: those where it is the
                         same throughout (max - min <= 1e-6 max|r|, as ``advantages.groups``)
    ceiling, floor       rollouts at its declared highest and lowest value; without a range at the highest and lowest
                         that was seen

What each method makes of them is in ``health.deciding``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gdpo_nemo.conditioning import check_conditions
from gdpo_nemo.errors import InputError
from gdpo_nemo.health.deciding import MethodHealth, method_health
from gdpo_nemo.health.pairs import PairHealth, pair_health
from gdpo_nemo.health.rollouts import LARGEST, Rollouts, Setting

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
ROUNDING = 1e-9  # of the width of a range, as rewards of one's own are checked


@dataclass(frozen=True)
class RewardHealth:
    """One reward; the module defines the numbers. NaN where no rollout stands behind one.

    Attributes:
        name, weight: as used.
        declared: (lowest, highest), None where nobody declared it.
        lowest, highest, mean, variance, variance_within: of the values.
        quantiles: at ``QUANTILES``.
        frac_missing: of all rollouts.
        frac_failed: rollouts on which it raised or was late, None where the source does not tell.
        num_outside: values outside the declared range or not finite.
        frac_constant_groups, frac_ceiling, frac_floor: see the module.
    """

    name: str
    weight: float
    declared: tuple[float, float] | None
    lowest: float
    highest: float
    mean: float
    variance: float
    variance_within: float
    quantiles: tuple[float, ...]
    frac_missing: float
    frac_failed: float | None
    num_outside: int
    frac_constant_groups: float
    frac_ceiling: float
    frac_floor: float


@dataclass(frozen=True)
class Health:
    """Everything about some rollouts.

    Attributes:
        source: where they come from.
        num_rollouts, num_valid, num_groups: counts; groups of one are among them.
        group_sizes: smallest and largest.
        prompts, rollouts: of the batch that is expected.
        rewards, pairs: one entry each.
        methods: in the order of ``deciding.LABELS``.
        notes: of the reader.
    """

    source: str
    num_rollouts: int
    num_valid: int
    num_groups: int
    group_sizes: tuple[int, int]
    prompts: int
    rollouts: int
    rewards: tuple[RewardHealth, ...]
    pairs: tuple[PairHealth, ...]
    methods: tuple[MethodHealth, ...]
    notes: tuple[str, ...]

    def method(self, name: str) -> MethodHealth:
        """The entry of a method."""
        return next(one for one in self.methods if one.method == name)


def measure(rollouts: Rollouts, setting: Setting) -> Health:
    """All numbers.

    Raises:
        InputError: no group of two rollouts, so that nothing could be learned or measured.
        UnknownNameError: a weight, range or condition of a reward that is not there.
    """
    setting.check(rollouts.names)
    check_conditions(rollouts.names, setting.conditions)
    sizes_P = np.unique(rollouts.group_ids_B, return_counts=True)[1]
    if not len(sizes_P) or sizes_P.max() < 2:
        raise InputError(
            f"{rollouts.source}: no prompt has two rollouts, so no group has an advantage. Sample each prompt several "
            "times, name the column of the prompt (--prompt-key), or give --rollouts-per-prompt"
        )
    prompts = setting.prompts or len(sizes_P)
    return Health(
        rollouts.source,
        len(rollouts.group_ids_B),
        int(rollouts.valid_B.sum()),
        len(sizes_P),
        (int(sizes_P.min()), int(sizes_P.max())),
        prompts,
        setting.rollouts or int(np.median(sizes_P)),
        tuple(_reward(rollouts, setting, k) for k in range(len(rollouts.names))),
        pair_health(rollouts),
        method_health(rollouts, setting, prompts),
        rollouts.notes,
    )


def _reward(rollouts: Rollouts, setting: Setting, k: int) -> RewardHealth:
    name, values_B = rollouts.names[k], rollouts.rewards_B_K[:, k]
    given_B = ~np.isnan(values_B)
    finite_B = given_B & (np.abs(values_B) <= LARGEST)
    seen, groups = values_B[finite_B], rollouts.group_ids_B[finite_B]
    declared = setting.ranges.get(name)
    low, high = declared or ((seen.min(), seen.max()) if len(seen) else (math.nan, math.nan))
    slack = ROUNDING * (high - low)
    outside = int((given_B & ~finite_B).sum())
    if declared:
        outside += int(((seen < low - slack) | (seen > high + slack)).sum())
    num = len(seen)
    failed = rollouts.failed_B_K
    return RewardHealth(
        name,
        setting.weights.get(name, 1.0),
        declared,
        float(seen.min()) if num else math.nan,
        float(seen.max()) if num else math.nan,
        float(seen.mean()) if num else math.nan,
        float(seen.var(ddof=1)) if num > 1 else math.nan,
        *_within(seen, groups),
        frac_missing=1 - float(given_B.mean()),
        frac_failed=None if failed is None else float(failed[:, k].mean()),
        num_outside=outside,
        frac_constant_groups=_constant(seen, groups),
        frac_ceiling=float((seen >= high - slack).mean()) if num else math.nan,
        frac_floor=float((seen <= low + slack).mean()) if num else math.nan,
    )


def _within(seen: NDArray[np.float64], groups: NDArray[np.int64]) -> tuple[float, tuple[float, ...]]:
    """Variance within groups, and the quantiles."""
    if not len(seen):
        return math.nan, (math.nan,) * len(QUANTILES)
    _, index, counts = np.unique(groups, return_inverse=True, return_counts=True)
    centred = seen - (np.bincount(index, seen) / counts)[index]
    freedom = int((counts - 1).sum())
    within = float((centred**2).sum() / freedom) if freedom else math.nan
    return within, tuple(float(value) for value in np.quantile(seen, QUANTILES))


def _constant(seen: NDArray[np.float64], groups: NDArray[np.int64]) -> float:
    """Share of constant groups among those with two values."""
    from gdpo_nemo.advantages.groups import SMALLEST_RANGE, ZERO_VARIANCE

    labels, index, counts = np.unique(groups, return_inverse=True, return_counts=True)
    low, high = np.full(len(labels), np.inf), np.full(len(labels), -np.inf)
    np.minimum.at(low, index, seen)
    np.maximum.at(high, index, seen)
    several = counts > 1
    if not several.any():
        return math.nan
    threshold = np.maximum(ZERO_VARIANCE * np.maximum(np.abs(low), np.abs(high)), SMALLEST_RANGE)
    return float((high - low <= threshold)[several].mean())
