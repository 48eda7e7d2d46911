"""A bound on what GDPO's batch step scales living groups up by.

    A  <-  A * min(1, cap / sqrt(P / P_alive))

P groups with a scorable row, P_alive of them with a signal. The batch step brings the root mean square of all scorable
rows to 1, so with equal groups the rows of living groups are scaled up by sqrt(P / P_alive) (docs/algorithm.md): 11.3
with 4 of 512 alive. With a cap of 1 their root mean square is 1 whatever the number of dead groups: as if the standard
deviation were taken over living groups alone. All rows are scaled alike; signs, order and zeros stay.

The factor is of the whole batch. TRL f2cd577, verl 1dda039 and NeMo RL v0.7.0 have no such bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def capped(advantages_B: Tensor, amplification: float, cap: float) -> tuple[Tensor, float]:
    """Advantages [B] whose amplification is at most ``cap``, and the factor they were brought down by.

    Args:
        advantages_B: of GDPO with its batch step.
        amplification: sqrt(P / P_alive), as ``Diagnostics.amplification`` has it.
        cap: at least 1.
    """
    factor = min(1.0, cap / amplification)
    return (advantages_B * factor if factor < 1 else advantages_B), factor
