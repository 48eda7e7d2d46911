"""Which groups a method can learn from: the criterion of dynamic sampling (DAPO, arXiv 2503.14476).

    any_component   some reward with a weight has variance in the group; what GDPO can use
    sum             the weighted sum of the rewards has; what GRPO can use, and ``seq_reward`` of the paper's runs

A group whose rewards differ while their sum is constant is alive for ``any_component`` and dead for ``sum``. NeMo RL
v0.7.0 asks for the (leave-one-out) std of the total, per sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from gdpo_nemo.advantages.groups import standardise
from gdpo_nemo.advantages.inputs import prepare

Criterion = Literal["any_component", "sum"]


def informative(
    rewards_B_K: torch.Tensor,
    group_ids_B: torch.Tensor,
    *,
    weights: Sequence[float] | None = None,
    valid_B: torch.Tensor | None = None,
    criterion: Criterion = "any_component",
) -> torch.Tensor:
    """True for every row of a group that has something to learn from, bool [B].

    Args:
        rewards_B_K: float32 or float64 [B, K]. NaN: this reward does not apply to this sample.
        group_ids_B: int64 [B], one label per prompt group.
        weights: K numbers, all 1 unless given.
        valid_B: bool [B]; False takes the row out of the statistics, not out of its group.
        criterion: see the module.

    Raises:
        InputError: a wrong shape, dtype, device, count or value; the message says which.
    """
    batch = prepare(rewards_B_K, group_ids_B, weights, valid_B)
    terms_K_B = batch.rewards_K_B * batch.weights_K_1
    if criterion == "any_component":
        signal_B = standardise(terms_K_B, batch.entries, ddof=1).abs().amax(0)
    else:
        magnitude_1_B = terms_K_B.abs().sum(0, keepdim=True)
        signal_B = standardise(terms_K_B.sum(0, keepdim=True), batch.rows, ddof=1, magnitude_K_B=magnitude_1_B)[0].abs()
    _, group_of_row_B = torch.unique(group_ids_B, return_inverse=True)
    alive_P = torch.zeros(len(group_ids_B), dtype=torch.bool, device=signal_B.device)
    alive_P[group_of_row_B[signal_B > 0]] = True
    return alive_P[group_of_row_B]
