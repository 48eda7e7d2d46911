"""What rewards are like, per reward and per method, on recorded rollouts.

Per reward r_k, over the rollouts that have it (variances with ddof 1):

    variance within      sum_g sum_i (r - mean_g r)^2 / sum_g (n_g - 1): what an advantage sees; the variance over all
                         rollouts also has the differences between prompts, which no method learns from
    constant groups      of the groups in which it has a value and at least two rollouts stand: those where it is the
                         same throughout (max - min <= 1e-6 max|r|, as ``advantages.groups``)
    ceiling, floor       rollouts at its declared highest and lowest value; without a range at the highest and lowest
                         that was seen

Per method, which reward decides the advantage:

    share_k = cov(a_k, A) / var(A)        A = sum_k a_k, so the shares add to 1

the covariance decomposition of a variance of a sum (Shorrocks, Econometrica 50(1), 1982). For GDPO a_k = w_k A_k
(arXiv 2601.05242, eq. 4-7; its batch step is one factor and changes no share), as ``advantages.diagnostics`` logs
it. For GRPO a_k = w_k (r_k - mean_g r_k) / std_g(total) (eq. 1-2), for GRPO w/o std without the division. A negative
share: the others outvote this reward. One reward can hold more than 1.

    distinct             different multisets of advantages among the groups seen, to 6 decimals, before the batch step
    alive                groups whose advantages are not all 0
    amplification        sqrt(P / P_alive) of GDPO's batch step, see ``advantages.diagnostics``

For a batch of P prompts with the share q of groups alive: P q groups alive are expected, within the 95 % interval of
a binomial count that adds the uncertainty of q: P q +- 1.96 sqrt(P q (1 - q) (1 + P / P_seen)).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gdpo_nemo.conditioning import apply_conditions, check_conditions
from gdpo_nemo.errors import InputError
from gdpo_nemo.health.pairs import PairHealth, pair_health
from gdpo_nemo.health.rollouts import Rollouts, Setting

if TYPE_CHECKING:
    from torch import Tensor

    from gdpo_nemo.advantages.inputs import Batch

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
LABELS = {"grpo": "GRPO", "grpo_no_std": "GRPO w/o std", "gdpo": "GDPO"}
DECIMALS = 6
ROUNDING = 1e-9  # of the width of a range, as rewards of one's own are checked
LARGEST = 1e100  # above, a reward cannot be squared and counts as not finite


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
class MethodHealth:
    """What a method makes of the rewards.

    Attributes:
        method: key of ``LABELS``.
        shares: reward -> its share of the variance of the advantage.
        distinct: different advantage groups.
        alive: groups with a signal.
        expected_alive: of the batch, with its 95 % interval.
        amplification: expected of the batch, of GDPO; 1 for the others, NaN when no group is alive.
    """

    method: str
    shares: Mapping[str, float]
    distinct: int
    alive: int
    expected_alive: tuple[float, float, float]
    amplification: float


@dataclass(frozen=True)
class Health:
    """Everything about some rollouts.

    Attributes:
        source: where they come from.
        num_rollouts, num_valid, num_groups: counts; groups of one are among them.
        group_sizes: smallest and largest.
        prompts, rollouts: of the batch that is expected.
        rewards, pairs: one entry each.
        methods: in the order of ``LABELS``.
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
        _methods(rollouts, setting, prompts),
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


def _methods(rollouts: Rollouts, setting: Setting, prompts: int) -> tuple[MethodHealth, ...]:
    import torch

    from gdpo_nemo.advantages.gdpo import cancelled_sum
    from gdpo_nemo.advantages.groups import standardise
    from gdpo_nemo.advantages.inputs import prepare

    rewards_B_K = np.where(np.abs(rollouts.rewards_B_K) <= LARGEST, rollouts.rewards_B_K, np.nan)
    raw = apply_conditions(torch.from_numpy(rewards_B_K), rollouts.names, setting.conditions)
    ids, valid = torch.from_numpy(rollouts.group_ids_B), torch.from_numpy(rollouts.valid_B)
    weights = [setting.weights.get(name, 1.0) for name in rollouts.names]
    summed = weights
    if setting.rescale_by_range:
        widths = [setting.ranges[name][1] - setting.ranges[name][0] for name in rollouts.names]
        summed = [weight / width for weight, width in zip(weights, widths, strict=True)]
    apart, together = prepare(raw, ids, weights, valid), prepare(raw, ids, summed, valid)
    terms = {"gdpo": standardise(apart.rewards_K_B, apart.entries, ddof=1) * apart.weights_K_1}
    totals = {"gdpo": cancelled_sum(apart, terms["gdpo"])}
    for method in ("grpo", "grpo_no_std"):
        terms[method], totals[method] = _summed(together, scale_by_std=method == "grpo")
    group_P = rollouts.group_ids_B
    return tuple(
        _method(method, rollouts.names, terms[method], totals[method], apart, group_P, prompts) for method in LABELS
    )


def _summed(batch: Batch, *, scale_by_std: bool) -> tuple[Tensor, Tensor]:
    """The terms a_k of GRPO, [K, B], and its advantages [B].

    The terms are not centred: advantages add to 0 in every group, so their covariance with a term does not notice.
    """
    from gdpo_nemo.advantages.groups import standardise

    weighted_K_B = batch.rewards_K_B * batch.weights_K_1
    magnitude_1_B = weighted_K_B.abs().sum(0, keepdim=True)
    total_1_B = weighted_K_B.sum(0, keepdim=True)
    centred_1_B = standardise(total_1_B, batch.rows, ddof=1, scale_by_std=False, magnitude_K_B=magnitude_1_B)
    advantage_1_B = standardise(total_1_B, batch.rows, ddof=1, scale_by_std=scale_by_std, magnitude_K_B=magnitude_1_B)
    squares_1_P = batch.rows.total(centred_1_B.square())
    factor_1_P = batch.rows.total(centred_1_B * advantage_1_B) / squares_1_P.where(squares_1_P > 0, 1.0)
    return weighted_K_B * batch.rows.spread(factor_1_P), advantage_1_B[0]


def _method(
    method: str,
    names: tuple[str, ...],
    terms_K_B: Tensor,
    total_B: Tensor,
    batch: Batch,
    group_ids_B: NDArray[np.int64],
    prompts: int,
) -> MethodHealth:
    variance = float(total_B.square().sum())
    shares = (terms_K_B * total_B).sum(1) / variance if variance > 0 else terms_K_B.sum(1) * math.nan
    scorable_B = batch.rows.present_K_B[0].numpy()
    advantages, groups = total_B.numpy()[scorable_B], group_ids_B[scorable_B]
    fingerprints, alive = _fingerprints(advantages, groups)
    seen = len(np.unique(groups))
    share = alive / seen if seen else 0.0
    spread = 1.96 * math.sqrt(prompts * share * (1 - share) * (1 + prompts / max(seen, 1)))
    expected = prompts * share
    amplification = 1.0 if method != "gdpo" else math.sqrt(1 / share) if share else math.nan
    return MethodHealth(
        method,
        dict(zip(names, shares.tolist(), strict=True)),
        len(fingerprints),
        alive,
        (expected, max(0.0, expected - spread), min(float(prompts), expected + spread)),
        amplification,
    )


def _fingerprints(advantages: NDArray[np.float64], groups: NDArray[np.int64]) -> tuple[set[bytes], int]:
    """The different groups of advantages, sorted and rounded, and how many groups are not 0 throughout."""
    order = np.lexsort((advantages, groups))
    rounded = np.round(advantages[order], DECIMALS) + 0.0
    cuts = np.flatnonzero(np.diff(groups[order])) + 1
    pieces = np.split(rounded, cuts) if len(rounded) else []
    exact = np.split(advantages[order], cuts) if len(rounded) else []
    return {piece.tobytes() for piece in pieces}, sum(bool(piece.any()) for piece in exact)
