"""A bound on the advantage of a single rollout.

    A  <-  min(max(A, -c), c)

A rollout that differs from all others of its group gets (G - 1) / sqrt(G) of a single reward, and the batch step scales
it further; the bound keeps such a row from deciding the gradient. The mean of a group is no longer 0 where one side is
cut. That is not mended: a shift would move rows without a signal off 0. NeMo RL's own clip (grpo.advantage_clip_low and
advantage_clip_high of v0.7.0) comes after everything here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def clipped(advantages_B: Tensor, bound: float) -> tuple[Tensor, int]:
    """Advantages [B] within [-bound, bound], and how many were cut."""
    return advantages_B.clamp(-bound, bound), int((advantages_B.abs() > bound).sum())
