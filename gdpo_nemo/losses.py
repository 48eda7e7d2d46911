"""Clipped policy surrogate, its aggregation over tokens, and KL estimators.

    ratio_t   = exp(logp_t - old_logp_t)
    policy_t  = -min(ratio_t * A, clip(ratio_t, 1 - clip_low, 1 + clip_high) * A)
    loss      = sum_t weight_t * (policy_t + kl_coef * kl_t)

Source: eq. 3 of the GDPO paper (arXiv 2601.05242); asymmetric clip range and token mean from DAPO
(arXiv 2503.14476). ``weight_t`` is 1 / (tokens of the mini-batch) for the token mean, and
1 / (tokens of the response * responses of the mini-batch) for the sequence mean. verl and NeMo RL
average the same way within a mini-batch; TRL 1.16 calls the two ``dapo`` and ``grpo``.

KL estimators of log-probabilities under the policy and under a reference, d = logp - ref_logp:
k1 = d, k2 = d^2 / 2, k3 = exp(-d) + d - 1 (Schulman, "Approximating KL divergence", 2020).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Aggregation = Literal["token_mean", "sequence_mean"]
KlEstimator = Literal["k1", "k2", "k3"]


def token_weights(mask_B_T: Tensor, aggregation: Aggregation) -> Tensor:
    """Weight of each response token in the mean over one mini-batch; adds up to 1.

    Args:
        mask_B_T: True on response tokens, end token included.
        aggregation: ``token_mean`` or ``sequence_mean``.

    Returns:
        float32 [B, T], zero outside the mask. Micro-batches of the mini-batch sum their weighted losses.
    """
    mask = mask_B_T.float()
    if aggregation == "token_mean":
        return mask / mask.sum().clamp(min=1)
    lengths_B_1 = mask.sum(dim=1, keepdim=True)
    return mask / lengths_B_1.clamp(min=1) / (lengths_B_1 > 0).sum().clamp(min=1)


def clipped_surrogate(
    logp_B_T: Tensor, old_logp_B_T: Tensor, advantages_B: Tensor, *, clip_low: float, clip_high: float
) -> tuple[Tensor, Tensor]:
    """Per-token policy loss, and where the clip was active.

    Returns:
        loss [B, T] and a bool mask [B, T] of tokens whose gradient the clip removed.
    """
    ratio_B_T = torch.exp(logp_B_T - old_logp_B_T)
    advantages_B_1 = advantages_B[:, None].to(logp_B_T.dtype)
    plain = ratio_B_T * advantages_B_1
    clipped = ratio_B_T.clamp(1 - clip_low, 1 + clip_high) * advantages_B_1
    return -torch.minimum(plain, clipped), clipped < plain


def kl_estimate(logp_B_T: Tensor, ref_logp_B_T: Tensor, estimator: KlEstimator) -> Tensor:
    """Per-token estimate of KL(policy || reference) from sampled tokens; k1 is none to train on (docs/algorithm.md)."""
    d = logp_B_T - ref_logp_B_T
    if estimator == "k1":
        return d
    if estimator == "k2":
        return d.square() / 2
    return torch.exp(-d) + d - 1
