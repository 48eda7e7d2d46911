"""A response under a threshold never gets a positive advantage.

    A  <-  min(A, 0)      where r < below

r is the raw value of one reward, before conditions, quantiles and weights, so a reward of weight 0 can veto. The rule
is the last one, on the advantage that the loss sees: no rescaling comes after it. A condition (eq. 8) takes one reward
away where a gate fails, and the row can still be the best of its group by the others; a veto takes every push upwards.

- Negative advantages stay as they are, and so does every row that is not under the threshold.
- The mean of a group with a vetoed row falls below 0. It is not subtracted: that could lift vetoed rows above 0 again,
  and would lift rows without a signal. The others in the group are not raised to make up for it.
- NaN vetoes nothing: the reward does not apply to that sample.

The comparison is made in the dtype of the rewards, as in ``gdpo_nemo.conditioning``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gdpo_nemo.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Veto:
    """What vetoes.

    Attributes:
        reward: name of a reward in use.
        below: values under it veto; finite.

    Raises:
        InputError: ``below`` is not finite.
    """

    reward: str
    below: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.below):
            raise InputError(f"below of the veto by {self.reward!r} is {self.below}; expected a finite number")

    def check(self, names: Sequence[str]) -> None:
        """Refuse a reward that is not in use.

        Raises:
            UnknownNameError: there is none of that name.
        """
        if self.reward not in names:
            raise UnknownNameError("reward in gdpo.veto.reward", self.reward, names)


def vetoed(advantages_B: Tensor, rewards_B_K: Tensor, names: Sequence[str], veto: Veto) -> tuple[Tensor, int]:
    """Advantages [B] after the veto, and how many positive ones it took.

    Args:
        advantages_B: after everything else.
        rewards_B_K: raw rewards [B, K].
        names: K names.
        veto: by whom.
    """
    taken_B = (rewards_B_K[:, names.index(veto.reward)] < veto.below) & (advantages_B > 0)
    return advantages_B.masked_fill(taken_B, 0.0), int(taken_B.sum())
