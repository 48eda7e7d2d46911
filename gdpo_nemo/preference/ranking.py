"""Two independent ways from several rewards to one score per response, both blind to the scale of a reward.

    standing_k = (below - above) / (2 (n - 1))              in [-1/2, 1/2], over n responses that have reward k
    score      = sum_k w_k standing_k / sum_k |w_k|         in [-1/2, 1/2]

``below`` and ``above`` count responses with a smaller and a larger value of reward k. The two differ in whom a
response is compared with:

    borda            the responses of its group: standing_k + 1/2 is the average rank, from 0 to n - 1, over n - 1
    quantile_scores  all responses of the batch: standing_k + 1/2 is the quantile at which its value lies

Borda counts a narrow lead like a wide one; quantiles weigh a lead by how much of the batch lies in between. So they
can name different winners, which ``select`` takes as a sign that a group does not say what is better.

Sources: the count of J.-C. de Borda, "Memoire sur les elections au scrutin" (1781), with ties by average rank, so
that each reward hands out the same points whatever its ties; quantiles by the definition 7 of Hyndman and Fan
(The American Statistician 50, 1996), in the middle of equal values.

Conventions:

- Equal are values that differ by at most 1e-6 of the largest magnitude among those compared, as in
  ``gdpo_nemo.advantages.groups``; rounding makes no rank.
- NaN: the reward does not apply to this response. It is not ranked by it, nobody is ranked against it, and the
  standing is 0, the mean of the reward: neither for the response nor against it. So is that of a response that is
  alone with its reward.
- A row without any reward, or that is not valid, has the score NaN: it is ungraded, not bad.
- A negative weight turns the order of its reward around; a weight of 0 leaves it out.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gdpo_nemo.advantages.groups import ZERO_VARIANCE
from gdpo_nemo.advantages.inputs import Batch, prepare
from gdpo_nemo.errors import InputError


def borda(
    rewards_B_K: Tensor,
    group_ids_B: Tensor,
    *,
    weights: Sequence[float] | None = None,
    valid_B: Tensor | None = None,
) -> Tensor:
    """Weighted Borda count of each response in its group, ties by average rank.

    A strictly increasing map of a reward, another one in each group, changes nothing, as long as it brings no two
    values so near to each other that they count as equal.

    Args:
        rewards_B_K: float32 or float64 [B, K]. NaN: this reward does not apply to this sample.
        group_ids_B: int64 [B], one label per prompt group; any values, order and group sizes.
        weights: K numbers, all 1 unless given; not all 0.
        valid_B: bool [B]; False takes the row out of every ranking.

    Returns:
        float64 [B] in [-1/2, 1/2]; NaN for rows that are not valid or have no reward.

    Raises:
        InputError: a wrong shape, dtype, device, weight count or value; the message says which.
    """
    batch = prepare(rewards_B_K, group_ids_B, weights, valid_B)
    group_B = batch.rows.index_K_B[0]
    size_P = batch.rows.count_K_P[0].long()
    order_B = torch.argsort(group_B, stable=True)
    start_B = (size_P.cumsum(0) - size_P)[group_B]
    place_B = torch.empty_like(group_B)
    place_B[order_B] = torch.arange(len(group_B), device=group_B.device)
    place_B -= start_B
    graded_B = group_B < len(size_P) - 1
    row, column = group_B[graded_B], place_B[graded_B]
    width = max([1, *size_P[:-1].tolist()])
    values_K_B = batch.rewards_K_B.masked_fill(~batch.entries.present_K_B, torch.nan)
    table_K_P_G = values_K_B.new_full((len(values_K_B), len(size_P), width), torch.nan)
    table_K_P_G[:, row, column] = values_K_B[:, graded_B]
    standing_K_B = torch.zeros_like(values_K_B)
    standing_K_B[:, graded_B] = _standing(table_K_P_G)[:, row, column]
    return _fuse(standing_K_B, batch, graded_B)


def quantile_scores(
    rewards_B_K: Tensor, *, weights: Sequence[float] | None = None, valid_B: Tensor | None = None
) -> Tensor:
    """Weighted sum of the quantiles at which a response's rewards lie in the batch.

    A strictly increasing map of a reward, the same for the whole batch, changes nothing; see ``borda``.

    Args:
        rewards_B_K: float32 or float64 [B, K]. NaN: this reward does not apply to this sample.
        weights: K numbers, all 1 unless given; not all 0.
        valid_B: bool [B]; False takes the row out of the batch.

    Returns:
        float64 [B] in [-1/2, 1/2]; NaN for rows that are not valid or have no reward.

    Raises:
        InputError: a wrong shape, dtype, device, weight count or value; the message says which.
    """
    one_group_B = torch.zeros(rewards_B_K.shape[:1], dtype=torch.int64, device=rewards_B_K.device)
    return borda(rewards_B_K, one_group_B, weights=weights, valid_B=valid_B)


def _standing(values_K_P_G: Tensor) -> Tensor:
    """(below - above) / (2 (n - 1)) of each value within the last axis, 0 for NaN."""
    missing = values_K_P_G.isnan()
    num_K_P_1 = (~missing).sum(-1, keepdim=True)
    rounding = ZERO_VARIANCE * values_K_P_G.abs().masked_fill_(missing, 0.0).amax(-1, keepdim=True)
    ascending = values_K_P_G.masked_fill(missing, torch.inf).sort(-1).values
    below = torch.searchsorted(ascending, values_K_P_G - rounding)
    above = num_K_P_1 - torch.searchsorted(ascending, values_K_P_G + rounding, right=True)
    return ((below - above).double() / (2 * (num_K_P_1 - 1).clamp(min=1))).masked_fill(missing, 0.0)


def _fuse(standing_K_B: Tensor, batch: Batch, graded_B: Tensor) -> Tensor:
    total = float(batch.weights_K_1.abs().sum())
    if total == 0:
        raise InputError("weights are all 0, so no reward ranks anything; give one of them a weight.")
    return (standing_K_B * batch.weights_K_1 / total).sum(0).masked_fill(~graded_B, torch.nan)
