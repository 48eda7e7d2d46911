"""The loss of direct preference optimisation, from token log-probabilities. arXiv 2305.18290, eq. 7.

    logp(y)  = sum_t max(log p(y_t | x, y_<t), min_logp)                    over the tokens of the response
    margin   = beta * ((logp(y_w) - ref(y_w)) - (logp(y_l) - ref(y_l)))
    loss     = -log sigmoid(margin)

y_w is preferred to y_l, ref is the same sum under the reference model. Sums, not means over tokens, as in the paper
and in TRL's ``loss_type="sigmoid"``: a mean (SimPO, arXiv 2405.14734) is another loss.

The paper has no floor. Here a token below ``min_logp`` under the policy counts as ``min_logp`` and has no gradient: the
loss gains nothing by pushing a loser from improbable to impossible, and one -inf does not make the margin infinite.
With the floor far below what a model samples the sums are the paper's.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gdpo_nemo.errors import InputError


def response_logp(logp_B_T: Tensor, mask_B_T: Tensor, *, min_logp: float = -20.0) -> Tensor:
    """Log-probability of each response: the sum over its tokens, each at least ``min_logp``.

    Args:
        logp_B_T: floating point [B, T], log-probability of each token in nats; anything on padding, NaN too.
        mask_B_T: bool [B, T], True on the tokens of the response, the end token included.
        min_logp: floor of a token's log-probability, below 0; -inf switches it off.

    Returns:
        [B], dtype of ``logp_B_T``, differentiable. NaN where a token of the response is NaN.

    Raises:
        InputError: shapes that differ, a mask that is not bool, or a floor that is not below 0.
    """
    if mask_B_T.dtype != torch.bool or logp_B_T.dim() != 2 or logp_B_T.shape != mask_B_T.shape:
        raise InputError(
            f"logp_B_T has shape {list(logp_B_T.shape)} and mask_B_T is {mask_B_T.dtype} of shape "
            f"{list(mask_B_T.shape)}; expected both [B, T], and bool."
        )
    if not min_logp < 0:
        raise InputError(f"min_logp is {min_logp}; expected a number below 0, such as -20.")
    return logp_B_T.masked_fill(~mask_B_T, 0.0).clamp(min=min_logp).sum(1)


def dpo(
    winner_N: Tensor, loser_N: Tensor, winner_ref_N: Tensor, loser_ref_N: Tensor, *, beta: float
) -> tuple[Tensor, Tensor]:
    """Loss and margin of each pair (eq. 7 of arXiv 2305.18290).

    Args:
        winner_N: floating point [N], log-probability of the preferred response under the policy.
        loser_N: [N], of the other one.
        winner_ref_N: [N], of the preferred response under the reference.
        loser_ref_N: [N], of the other one.
        beta: above 0; how dearly the policy pays for leaving the reference.

    Returns:
        loss [N] and margin [N], in nats. The margin is the difference of the implicit rewards (eq. 5); pairs with a
        margin above 0 are those that the policy, measured against its reference, orders rightly.

    Raises:
        InputError: shapes that differ, or a beta that is not above 0.
    """
    if not (math.isfinite(beta) and beta > 0):
        raise InputError(f"beta is {beta}; expected a finite number above 0, such as 0.1.")
    shapes = [list(tensor.shape) for tensor in (winner_N, loser_N, winner_ref_N, loser_ref_N)]
    if len(shapes[0]) != 1 or any(shape != shapes[0] for shape in shapes):
        raise InputError(f"the log-probabilities have shapes {shapes}; expected four times [N].")
    margin_N = beta * ((winner_N - winner_ref_N) - (loser_N - loser_ref_N))
    return -torch.nn.functional.logsigmoid(margin_N), margin_N
