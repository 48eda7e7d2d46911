"""Before the optimiser's step: is every number finite, and if not, whose is it?

    rewards              of the batch, before any statistic is made of them; NaN is a missing reward, not one of these
    log-probabilities    and what the loss makes of them, before the backward pass
    gradients            their norm, before the optimiser's step: a step with one infinite entry ruins every weight

Each finding is a ``NonFiniteError`` that names the row, the rollout and, where there is one, the reward or the token.
Nothing is measured twice: the loss and the norm are looked at anyway, and only where one of them is not finite is the
sample searched.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gdpo_nemo.config import TrainConfig
from gdpo_nemo.errors import NonFiniteError
from gdpo_nemo.health.rules import SKIPPED
from gdpo_nemo.models.log_probs import log_probs
from gdpo_nemo.models.sampling import Samples
from gdpo_nemo.types import RewardVector, Rollout


def check_rewards(vectors: Sequence[RewardVector], rollouts: Sequence[Rollout]) -> None:
    """No reward is infinite.

    Raises:
        NonFiniteError: one is.
    """
    for vector, rollout in zip(vectors, rollouts, strict=True):
        for name, value in vector.values.items():
            if math.isinf(value):
                raise NonFiniteError(f"reward {name!r} of {_name(rollout)} is {value:g}")


def check_kl(kl_B: Tensor, rollouts: Sequence[Rollout]) -> None:
    """No penalty of ``gdpo.kl_in_reward`` is infinite or NaN; as NaN it would pass for a missing reward.

    Raises:
        NonFiniteError: one is.
    """
    wrong = (~kl_B.isfinite()).nonzero()
    if len(wrong):
        b = int(wrong[0])
        raise NonFiniteError(f"the KL to the reference of {_name(rollouts[b])} is {kl_B[b].item():g}")


def check_loss(loss: float, samples: Samples, rows_b: Tensor, **per_token_b_R: Tensor | None) -> None:
    """The loss of a micro-batch is finite.

    Args:
        loss: of the micro-batch.
        samples: the rollouts.
        rows_b: which of them are in the micro-batch.
        per_token_b_R: what the loss was made of, in the order in which it was: name -> values [b, R] or None.

    Raises:
        NonFiniteError: it is not; the first of these that is not finite either is named, with its token.
    """
    if math.isfinite(loss):
        return
    for name, values_b_R in per_token_b_R.items():
        if values_b_R is not None:
            wrong = (~values_b_R.isfinite() & samples.response_B_R[rows_b]).nonzero()
            if len(wrong):
                b, t = wrong[0].tolist()
                what = f"{name.replace('_', ' ')} of token {t + 1} of {_name(samples.rollouts[int(rows_b[b])])}"
                raise NonFiniteError(f"the {what} is {values_b_R[b, t].item():g}")
    raise NonFiniteError(f"the loss is {loss:g}, and the loss of no single token is")


def check_gradient(norm: float, model: Any, samples: Samples, rows_b: Tensor, temperature: float) -> None:
    """The norm of the gradient is finite. The gradients of single rollouts are computed only where it is not.

    Raises:
        NonFiniteError: it is not; the first rollout whose log-probability has such a gradient by itself is named.
    """
    if math.isfinite(norm):
        return
    parameters = dict(model.named_parameters())
    for row in rows_b.split(1):
        total = log_probs(model, samples, row, temperature).sum()
        gradients = torch.autograd.grad(total, list(parameters.values()), allow_unused=True)
        for name, gradient in zip(parameters, gradients, strict=True):
            if gradient is not None and not gradient.isfinite().all():
                rollout = _name(samples.rollouts[int(row)])
                raise NonFiniteError(f"the norm of the gradient is {norm:g}: that of {rollout} is not finite in {name}")
    raise NonFiniteError(f"the norm of the gradient is {norm:g}, and that of no single rollout is")


def left_out(error: NonFiniteError, step: int, spec: TrainConfig) -> dict[str, float]:
    """The metrics of a step that is left out.

    Raises:
        NonFiniteError: ``on_non_finite`` is ``stop``.
    """
    text = f"step {step}: {error}"
    if spec.on_non_finite == "stop":
        raise NonFiniteError(
            f"{text}. The weights have not been changed by it. embedded.train.on_non_finite=skip leaves such steps out"
        ) from error
    print(f"{text}; the step is left out", flush=True)
    return {SKIPPED: 1.0}


def _name(rollout: Rollout) -> str:
    return f"row {rollout.row_id!r}, rollout {rollout.index}"
