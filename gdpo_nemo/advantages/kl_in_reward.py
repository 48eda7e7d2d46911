"""The KL penalty that the released GRPO baseline pays inside its reward.

    kl    = sum_t (logp_t - ref_logp_t)           over the response's tokens, its end token among them
    total = sum_k w_k r_k - coef * kl             then eq. 1-2 as without it

Source: verl as in NVlabs/GDPO (b080e63), ``apply_kl_penalty`` of verl/trainer/ppo/ray_trainer.py with kl_penalty "kl"
and ``algorithm.kl_ctrl.kl_coef`` 0.001: per token, ``token_level_scores - coef * kl * response_mask``, which
``compute_grpo_outcome_advantage`` and its variant without std add up over the response before their group statistics.
``logp`` is the policy's before the first update on the batch, ``ref_logp`` that of the model that training began with;
no gradient flows through either. The estimator is k1, so a single sample's value can be negative.

That code's GDPO reads the rewards before the penalty, so it pays none. GRPO of TRL and NeMo RL have no such term.

The penalty is part of the total that is divided by the group's std: in a group whose rewards are all equal, it alone
decides, and its differences are brought to unit variance, however small the coefficient. Below the tolerance of
``gdpo_nemo.advantages.grpo`` (differences of 1e-6 of the total) the group stays dead.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

NAME = "kl_in_reward"
"""Of the penalty's column among the rewards, in what is logged."""


def sequence_kl(logp_B_T: torch.Tensor, ref_logp_B_T: torch.Tensor, mask_B_T: torch.Tensor) -> torch.Tensor:
    """k1 of each response: the sum over its tokens of logp - ref_logp, in nats.

    Args:
        logp_B_T: log-probabilities of the sampled tokens under the policy that sampled them.
        ref_logp_B_T: the same under the reference.
        mask_B_T: True (or 1) on the response's tokens; what stands elsewhere is not read.

    Returns:
        float64 [B], without gradient.
    """
    distance_B_T = logp_B_T.detach().double() - ref_logp_B_T.detach().double()
    return distance_B_T.masked_fill(~mask_B_T.bool(), 0.0).sum(dim=1)


def with_penalty(
    rewards_B_K: torch.Tensor, weights: Sequence[float], kl_B: torch.Tensor, coef: float
) -> tuple[torch.Tensor, tuple[float, ...]]:
    """Rewards [B, K + 1] and K + 1 weights whose weighted sum has ``- coef * kl_B`` in it.

    A row without any reward (all NaN) has no penalty either: it is not graded, and stays out of every statistic.
    """
    ungraded_B = rewards_B_K.isnan().all(dim=1)
    column_B = kl_B.to(rewards_B_K).masked_fill(ungraded_B, torch.nan)
    return torch.cat([rewards_B_K, column_B[:, None]], dim=1), (*weights, -coef)
