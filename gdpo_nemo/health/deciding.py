"""Which reward decides the advantage, per method, on recorded rollouts.

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

from gdpo_nemo.conditioning import apply_conditions
from gdpo_nemo.health.rollouts import LARGEST, Rollouts, Setting

if TYPE_CHECKING:
    from torch import Tensor

    from gdpo_nemo.advantages.inputs import Batch

LABELS = {"grpo": "GRPO", "grpo_no_std": "GRPO w/o std", "gdpo": "GDPO"}
DECIMALS = 6


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


def method_health(rollouts: Rollouts, setting: Setting, prompts: int) -> tuple[MethodHealth, ...]:
    """An entry for each of ``LABELS``; ``prompts`` of the batch that is expected."""
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
