"""From two scores per response to at most one pair per group: who wins, who loses, and which groups are skipped.

    winner     the best of the group by every score, of the responses without a veto
    loser      the lowest Borda count, then the lowest quantile score; not an anchor
    gap        min(tanh((b_w - b_l) / (2 temperature)), q_w - q_l)          in [-1, 1]

b is the Borda count, q the quantile score. With shares exp(b_i / temperature) / sum_j exp(b_j / temperature) over the
group, the first term is the lead of the winner over the loser, (share_w - share_l) / (share_w + share_l), whatever the
rest of the group. A low temperature takes any lead for a whole one; at 1/2 the term is about b_w - b_l.

A group is skipped for the first of these that holds:

    ungraded      fewer than two responses have a score, or all that have one are anchors
    vetoed        every graded response is vetoed
    disagreeing   no response is the best by both scores
    close         no other response may lose, gap <= 0, or gap < min_gap

Conventions:

- Scores within 1e-9 of each other are equal. Of responses that are equal by both scores the first row is taken, so an
  anchor in the last place wins only where it is better.
- A vetoed response can lose and cannot win. It stays in the rankings.
- An anchor is an answer that the policy did not give, such as the reference answer. It can win and cannot lose.
- Ungraded rows (NaN) neither win nor lose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gdpo_nemo.errors import InputError

EQUAL = 1e-9
"""Scores that differ by no more than this are equal: sums of a few ranks differ by rounding."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """One pair for each of the N groups that are used, in the order of the sorted labels, and what befell all groups.

    Attributes:
        winner_N: rows, int64.
        loser_N: rows, int64.
        gap_N: float64, above 0.
        num_groups: groups with any row; the sum of the counts below and of N.
        num_ungraded: skipped, too few graded responses.
        num_vetoed: skipped, no response without a veto.
        num_disagreeing: skipped, the two scores name different winners.
        num_close: skipped, nobody loses by enough.
    """

    winner_N: Tensor
    loser_N: Tensor
    gap_N: Tensor
    num_groups: int
    num_ungraded: int
    num_vetoed: int
    num_disagreeing: int
    num_close: int

    def as_metrics(self) -> dict[str, float]:
        """Shares of the groups, by fate; they add up to 1. NaN without any group, and for the gap without any pair."""
        fates = {
            "used": len(self.winner_N),
            "ungraded": self.num_ungraded,
            "vetoed": self.num_vetoed,
            "disagreeing": self.num_disagreeing,
            "close": self.num_close,
        }
        shares = {
            f"preference/frac_{fate}": number / self.num_groups if self.num_groups else math.nan
            for fate, number in fates.items()
        }
        return shares | {"preference/gap_mean": self.gap_N.mean().item()}


def select(
    group_ids_B: Tensor,
    borda_B: Tensor,
    quantile_B: Tensor,
    *,
    temperature: float = 0.5,
    min_gap: float = 0.0,
    vetoed_B: Tensor | None = None,
    anchor_B: Tensor | None = None,
) -> Pairs:
    """One winner and one loser of each group on which both scores agree.

    Args:
        group_ids_B: integers [B], one label per prompt group; any values, order and group sizes.
        borda_B: float64 [B], as ``borda`` gives it; NaN for rows that are not graded.
        quantile_B: float64 [B], as ``quantile_scores`` gives it; NaN in the same rows.
        temperature: of the shares that the gap of the Borda counts is measured in; above 0.
        min_gap: smallest gap of a pair, 0 to 1; 0 asks for any that is above 0.
        vetoed_B: bool [B]; True: may not win.
        anchor_B: bool [B]; True: may not lose.

    Raises:
        InputError: a wrong shape, dtype, device or number, or scores that do not grade the same rows.
    """
    _check(group_ids_B, borda_B, quantile_B, vetoed_B, anchor_B)
    if not (math.isfinite(temperature) and temperature > 0):
        raise InputError(f"temperature is {temperature}; expected a finite number above 0, such as 0.5.")
    if not 0 <= min_gap <= 1:
        raise InputError(f"min_gap is {min_gap}; expected a number from 0 to 1, such as 0.05.")
    graded_B = ~borda_B.isnan()
    labels_P, group_B = torch.unique(group_ids_B, return_inverse=True)
    groups = _Groups(group_B, len(labels_P))
    vetoed_B = torch.zeros_like(graded_B) if vetoed_B is None else vetoed_B
    anchor_B = torch.zeros_like(graded_B) if anchor_B is None else anchor_B

    free_B = graded_B & ~vetoed_B
    best_B = groups.best(borda_B, free_B) & groups.best(quantile_B, free_B)
    winner_P = groups.first(best_B)
    winner_B = torch.arange(len(group_B), device=group_B.device) == winner_P[group_B]
    lowest_B = groups.best(-borda_B, graded_B & ~anchor_B & ~winner_B)
    loser_P = groups.first(groups.best(-quantile_B, lowest_B))

    num_graded_P = groups.count(graded_B)
    ungraded_P = (num_graded_P < 2) | (groups.count(graded_B & ~anchor_B) == 0)
    vetoed_P = ~ungraded_P & (groups.count(free_B) == 0)
    disagreeing_P = ~ungraded_P & ~vetoed_P & (groups.count(best_B) == 0)
    agreed_P = ~(ungraded_P | vetoed_P | disagreeing_P)
    paired_P = agreed_P & (loser_P < len(group_B))
    winner_N, loser_N = winner_P[paired_P], loser_P[paired_P]
    lead_N = torch.tanh((borda_B[winner_N] - borda_B[loser_N]) / (2 * temperature))
    gap_N = torch.minimum(lead_N, quantile_B[winner_N] - quantile_B[loser_N])
    used_N = (gap_N > EQUAL) & (gap_N >= min_gap - EQUAL)
    counts = torch.stack([ungraded_P, vetoed_P, disagreeing_P, agreed_P]).sum(1).tolist()
    num_ungraded, num_vetoed, num_disagreeing, num_agreed = counts
    return Pairs(
        winner_N[used_N],
        loser_N[used_N],
        gap_N[used_N],
        num_groups=len(labels_P),
        num_ungraded=num_ungraded,
        num_vetoed=num_vetoed,
        num_disagreeing=num_disagreeing,
        num_close=num_agreed - int(used_N.sum()),
    )


@dataclass(frozen=True, slots=True)
class _Groups:
    """The group number of every row, and reductions over the rows of each group."""

    group_B: Tensor
    num_groups: int

    def count(self, rows_B: Tensor) -> Tensor:
        return torch.bincount(self.group_B[rows_B], minlength=self.num_groups)

    def best(self, score_B: Tensor, among_B: Tensor) -> Tensor:
        """Rows with the highest score of their group among some, all that are equal."""
        score_B = score_B.masked_fill(~among_B, -torch.inf)
        top_P = score_B.new_full((self.num_groups,), -torch.inf).scatter_reduce_(0, self.group_B, score_B, "amax")
        return among_B & (score_B >= top_P[self.group_B] - EQUAL)

    def first(self, rows_B: Tensor) -> Tensor:
        """The first of some rows in each group; the number of all rows where there is none."""
        number_B = torch.arange(len(rows_B), device=rows_B.device).masked_fill(~rows_B, len(rows_B))
        return number_B.new_full((self.num_groups,), len(rows_B)).scatter_reduce_(0, self.group_B, number_B, "amin")


def _check(
    group_ids_B: Tensor, borda_B: Tensor, quantile_B: Tensor, vetoed_B: Tensor | None, anchor_B: Tensor | None
) -> None:
    for what, score_B in (("borda_B", borda_B), ("quantile_B", quantile_B)):
        if score_B.dtype != torch.float64 or score_B.dim() != 1:
            raise InputError(f"{what} is {score_B.dtype} of shape {list(score_B.shape)}; expected float64 [B].")
    if group_ids_B.is_floating_point() or group_ids_B.dtype == torch.bool:
        raise InputError(f"group_ids_B is {group_ids_B.dtype}; expected integer labels (int64).")
    for what, mask_B in (("vetoed_B", vetoed_B), ("anchor_B", anchor_B)):
        if mask_B is not None and mask_B.dtype != torch.bool:
            raise InputError(f"{what} is {mask_B.dtype}; expected bool.")
    tensors = {"group_ids_B": group_ids_B, "quantile_B": quantile_B, "vetoed_B": vetoed_B, "anchor_B": anchor_B}
    for what, tensor in tensors.items():
        if tensor is not None and (tensor.shape != borda_B.shape or tensor.device != borda_B.device):
            raise InputError(
                f"{what} has shape {list(tensor.shape)} on {tensor.device}; expected {list(borda_B.shape)} on "
                f"{borda_B.device}, one per row of borda_B."
            )
    if not torch.equal(borda_B.isnan(), quantile_B.isnan()):
        raise InputError("borda_B and quantile_B do not grade the same rows; make both from the same rewards.")
