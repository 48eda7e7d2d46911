"""How two rewards go together within prompt groups; differences between prompts say nothing about advantages.

With c = r - mean_g r over the rows of a group that have both rewards, and all sums over all groups:

    pearson         sum c_a c_b / sqrt(sum c_a^2 sum c_b^2)                   the pooled within-group correlation
    spearman        the same of mid-ranks within the group; rank_i - mean rank = 1/2 sum_j sign(r_i - r_j)
    conflict rate   of the pairs of rollouts of one group that both rewards put in an order, the share that they order
                    oppositely: (1 - gamma) / 2 of Goodman and Kruskal (1954)

A pair of rewards without any such rows is NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gdpo_nemo.health.rollouts import Rollouts

ENTRIES_AT_ONCE = 4_000_000


@dataclass(frozen=True)
class PairHealth:
    """Two rewards; the module defines the numbers.

    Attributes:
        left, right: their names.
        pearson, spearman: within groups.
        conflict_rate: of ordered pairs of rollouts.
        num_ordered: pairs of rollouts that both rewards put in an order.
    """

    left: str
    right: str
    pearson: float
    spearman: float
    conflict_rate: float
    num_ordered: int


def pair_health(rollouts: Rollouts) -> tuple[PairHealth, ...]:
    """Every pair of rewards, over the valid rollouts."""
    names = rollouts.names
    couples = [(a, b) for a in range(len(names)) for b in range(a + 1, len(names))]
    sums = np.zeros((len(couples), 8))
    for block in _blocks(rollouts):
        for row, (a, b) in zip(sums, couples, strict=True):
            row += _sums(block[:, :, a], block[:, :, b])
    return tuple(_pair(names[a], names[b], row) for (a, b), row in zip(couples, sums.tolist(), strict=True))


def _blocks(rollouts: Rollouts) -> list[NDArray[np.float64]]:
    """The groups as [P, G, K], those of one size together, a bounded number at once."""
    valid_B = rollouts.valid_B
    order = np.argsort(rollouts.group_ids_B[valid_B], kind="stable")
    rewards_B_K = rollouts.rewards_B_K[valid_B][order]
    rewards_B_K = np.where(np.isfinite(rewards_B_K), rewards_B_K, np.nan)
    _, starts, sizes = np.unique(rollouts.group_ids_B[valid_B][order], return_index=True, return_counts=True)
    blocks = []
    for size in np.unique(sizes[sizes > 1]):
        first = starts[sizes == size]
        at_once = max(1, ENTRIES_AT_ONCE // int(size) ** 2)
        for start in range(0, len(first), at_once):
            rows_P_G = first[start : start + at_once, None] + np.arange(size)
            blocks.append(rewards_B_K[rows_P_G])
    return blocks


def _sums(left_P_G: NDArray[np.float64], right_P_G: NDArray[np.float64]) -> list[float]:
    both_P_G = np.isfinite(left_P_G) & np.isfinite(right_P_G)
    centred, ranks, signs = [], [], []
    for values_P_G in (left_P_G, right_P_G):
        kept_P_G = np.where(both_P_G, values_P_G, 0.0)
        count_P_1 = np.maximum(both_P_G.sum(axis=1, keepdims=True), 1)
        centred.append(np.where(both_P_G, kept_P_G - kept_P_G.sum(axis=1, keepdims=True) / count_P_1, 0.0))
        sign_P_G_G = np.sign(kept_P_G[:, :, None] - kept_P_G[:, None, :])
        sign_P_G_G *= both_P_G[:, :, None] & both_P_G[:, None, :]
        signs.append(sign_P_G_G)
        ranks.append(sign_P_G_G.sum(axis=2) / 2)
    agreement = signs[0] * signs[1]
    return [
        *(float((x * y).sum()) for x, y in ((centred[0], centred[1]), (centred[0], centred[0]), (centred[1],) * 2)),
        *(float((x * y).sum()) for x, y in ((ranks[0], ranks[1]), (ranks[0], ranks[0]), (ranks[1],) * 2)),
        float((agreement < 0).sum()) / 2,
        float((agreement != 0).sum()) / 2,
    ]


def _pair(left: str, right: str, sums: list[float]) -> PairHealth:
    xy, xx, yy, rank_xy, rank_xx, rank_yy, conflicts, ordered = sums
    return PairHealth(
        left,
        right,
        _correlation(xy, xx, yy),
        _correlation(rank_xy, rank_xx, rank_yy),
        conflicts / ordered if ordered else math.nan,
        int(ordered),
    )


def _correlation(xy: float, xx: float, yy: float) -> float:
    scale = math.sqrt(xx) * math.sqrt(yy)
    return xy / scale if scale > 0 else math.nan
