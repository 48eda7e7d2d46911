"""GDPO: each reward is normalised in its group before the rewards are added. arXiv 2601.05242, eq. 4-7.

    A_k  = (r_k - mean_g r_k) / std_g r_k         per reward and group                     eq. 4, 5
    s    = sum_k w_k A_k                          the weighted sum                         eq. 6, 7
    A    = (s - mean s) / (std s + eps)           over the scorable rows of the batch      eq. 6

Conventions of the group step: ``gdpo_nemo.advantages.groups``. Of this sum and the batch step, and where
TRL f2cd577, verl 1dda039 and NeMo RL v0.7.0 differ:

- ddof (default 1) holds for both steps. The paper does not name it; the +-0.7071 of its Figure 2 need 1.
  TRL, verl and NeMo RL use 1.
- eps (default 1e-6) is in the batch step only. TRL adds 1e-4 in both steps, verl takes rsqrt(var + 1e-8) in
  the batch step, NeMo RL has no eps there.
- The batch step is over samples. verl runs it over the tokens of all responses, so a long response counts
  more often and rows without any signal are pushed off 0.
- Rows of dead groups and of groups of one count in the batch statistics; rows that are not valid or have no
  reward do not, and get exactly 0. TRL, verl and NeMo RL count failed rollouts.
- mean s is 0 for any groups, weights and missing entries, because each A_k adds to 0 in its group. Only
  rounding is left of it, so it is not subtracted: rows of dead groups stay exactly 0.
- |s| <= tol * sum_k |w_k A_k| is an exact cancellation, s = 0; tol is 1e-12 for float64 rewards and 1e-6 for
  float32. The same rule with both sides added up over a group catches rows near the group's mean, whose own
  terms are as small as the rounding of r_2 = 1 - r_1. TRL, verl and NeMo RL have no such rule: the batch step
  scales what rounding leaves to unit variance.
- A batch without two scorable rows or without variance is 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from gdpo_nemo.advantages.groups import standardise
from gdpo_nemo.advantages.inputs import Batch, check_ddof, prepare
from gdpo_nemo.errors import InputError

CANCELLATION = {torch.float32: 1e-6, torch.float64: 1e-12}
"""By dtype of the rewards: a sum at most this share of the sum of its terms' magnitudes is 0."""


def gdpo(
    rewards_B_K: torch.Tensor,
    group_ids_B: torch.Tensor,
    *,
    weights: Sequence[float] | None = None,
    valid_B: torch.Tensor | None = None,
    ddof: int = 1,
    eps: float = 1e-6,
    batch_norm: bool = True,
) -> torch.Tensor:
    """Advantages of GDPO (arXiv 2601.05242, eq. 4-7).

    Args:
        rewards_B_K: float32 or float64 [B, K]. NaN: this reward does not apply to this sample.
        group_ids_B: int64 [B], one label per prompt group; any values, order and group sizes.
        weights: K numbers, all 1 unless given. By name: ``align_weights(names, mapping)``.
        valid_B: bool [B]; False takes the row out of every statistic.
        ddof: 1 or 0, in the group and the batch standard deviation.
        eps: added to the standard deviation of the batch.
        batch_norm: False leaves out the batch step (Appendix A) and returns the weighted sum.

    Returns:
        [B], dtype and device of ``rewards_B_K``, without gradient.

    Raises:
        InputError: a wrong shape, dtype, device, weight count or value; the message says which.
    """
    check_ddof(ddof)
    if not (math.isfinite(eps) and eps >= 0):
        raise InputError(f"eps is {eps}; expected a finite number of at least 0, such as 1e-6.")
    batch = prepare(rewards_B_K, group_ids_B, weights, valid_B)
    terms_K_B = standardise(batch.rewards_K_B, batch.entries, ddof=ddof)
    terms_K_B *= batch.weights_K_1
    sum_B = cancelled_sum(batch, terms_K_B)
    if batch_norm:
        std = torch.linalg.vector_norm(sum_B) / math.sqrt(max(batch.num_scorable - ddof, 1))
        sum_B /= (std + eps).clamp_(min=1e-150)  # without variance and eps: 0 / 1e-150
    return sum_B.to(batch.dtype)


def cancelled_sum(batch: Batch, terms_K_B: torch.Tensor) -> torch.Tensor:
    """Sum of the terms over the rewards, [B]; exactly 0 where they cancel in the row or in its whole group."""
    sum_B = terms_K_B.sum(0)
    excess_1_B = torch.sub(sum_B.abs(), terms_K_B.abs().sum(0), alpha=CANCELLATION[batch.dtype])[None]
    excess_of_group_1_B = batch.rows.spread(batch.rows.total(excess_1_B))
    return sum_B.masked_fill_(torch.minimum(excess_1_B, excess_of_group_1_B)[0] <= 0, 0.0)
