"""Named rewards, one module per task.

A reward maps ``(Row, Rollout)`` to a ``RewardVector``: named numbers with declared
ranges. It never weights and never sums; names live until the advantage function.
Both backends, and evaluation, use the same objects.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from gdpo_nemo.errors import UnknownNameError
from gdpo_nemo.types import RewardVector, Rollout, Row


@runtime_checkable
class Reward(Protocol):
    """The one protocol of all tasks.

    Attributes:
        names: reward names, in the order of the K axis.
        ranges: name -> (lowest, highest) value the reward can give.
    """

    names: tuple[str, ...]
    ranges: Mapping[str, tuple[float, float]]

    def __call__(self, row: Row, rollout: Rollout) -> RewardVector:
        """Score one rollout. NaN marks a reward that does not apply or could not be graded."""
        ...


REWARDS = {
    "tool_calling": "gdpo_nemo.rewards.tool_calling:ToolCallingReward",
}


def build_reward(task: str, **options: Any) -> Reward:
    """The reward of a task, by name.

    Raises:
        UnknownNameError: no such task.
    """
    if task not in REWARDS:
        raise UnknownNameError("task", task, REWARDS)
    module_name, class_name = REWARDS[task].split(":")
    reward: Reward = getattr(importlib.import_module(module_name), class_name)(**options)
    return reward
