"""GRPO on several rewards: the rewards are added, then normalised in their group. arXiv 2601.05242, eq. 1-2.

    total = sum_k w_k r_k                         over the rewards that apply to the row   eq. 1
    A     = (total - mean_g) / std_g              ``scale_by_std=True``                    eq. 2
    A     = total - mean_g                        ``scale_by_std=False``: the paper's "GRPO w/o std"

Conventions of the group step: ``gdpo_nemo.advantages.groups``, with one change: a group has no variance when
max - min <= 1e-6 * max sum_k |w_k r_k|, because rounding in a total is as large as its terms, not as the total
(r_2 = 1 - r_1 and weights of opposite sign). There is no epsilon: TRL adds 1e-4 to std_g, verl and NeMo RL 1e-6.
Rows that are not valid or have no reward are in no statistic and get exactly 0; NeMo RL gives a component that a
sample lacks the value 0, which enters the baseline of the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from gdpo_nemo.advantages.groups import standardise
from gdpo_nemo.advantages.inputs import check_ddof, prepare


def grpo(
    rewards_B_K: torch.Tensor,
    group_ids_B: torch.Tensor,
    *,
    weights: Sequence[float] | None = None,
    valid_B: torch.Tensor | None = None,
    ddof: int = 1,
    scale_by_std: bool = True,
) -> torch.Tensor:
    """Advantages of GRPO on the weighted sum of the rewards (arXiv 2601.05242, eq. 1-2).

    Args:
        rewards_B_K: float32 or float64 [B, K]. NaN: this reward does not apply to this sample.
        group_ids_B: int64 [B], one label per prompt group; any values, order and group sizes.
        weights: K numbers, all 1 unless given. By name: ``align_weights(names, mapping)``.
        valid_B: bool [B]; False takes the row out of every statistic.
        ddof: 1 or 0, in the group standard deviation; without effect when ``scale_by_std`` is False.
        scale_by_std: False only subtracts the group mean.

    Returns:
        [B], dtype and device of ``rewards_B_K``, without gradient.

    Raises:
        InputError: a wrong shape, dtype, device, weight count or value; the message says which.
    """
    check_ddof(ddof)
    batch = prepare(rewards_B_K, group_ids_B, weights, valid_B)
    terms_K_B = batch.rewards_K_B * batch.weights_K_1
    advantages_1_B = standardise(
        terms_K_B.sum(0, keepdim=True),
        batch.rows,
        ddof=ddof,
        scale_by_std=scale_by_std,
        magnitude_K_B=terms_K_B.abs().sum(0, keepdim=True),
    )
    return advantages_1_B[0].add_(0.0).to(batch.dtype)  # + 0.0 turns -0.0 into 0.0
