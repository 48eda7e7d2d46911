"""Named rewards, one module per task.

A reward maps ``(Row, Rollout)`` to a ``RewardVector``: named numbers with declared
ranges. It never weights and never sums; names live until the advantage function.
Both backends, and evaluation, use the same objects.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
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


@runtime_checkable
class BatchReward(Reward, Protocol):
    """A reward that scores many rollouts at once, on workers of its own; ``__call__`` is a batch of one."""

    def score_many(self, rows: Sequence[Row], rollouts: Sequence[Rollout]) -> list[RewardVector]:
        """Score rollouts; ``rows[i]`` is the row that ``rollouts[i]`` answers."""
        ...


REWARDS = {
    "tool_calling": "gdpo_nemo.rewards.tool_calling:ToolCallingReward",
    "math_length": "gdpo_nemo.rewards.math:MathReward",
    "code_reasoning": "gdpo_nemo.rewards.code:CodeReward",
    "gsm8k": "gdpo_nemo.rewards.gsm8k:Gsm8kReward",
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


def score_all(reward: Reward, rows: Sequence[Row], rollouts: Sequence[Rollout]) -> list[RewardVector]:
    """Rewards of rollouts, all at once where the reward can do that; ``rows[i]`` is what ``rollouts[i]`` answers."""
    if isinstance(reward, BatchReward):
        return reward.score_many(rows, rollouts)
    return [reward(row, rollout) for row, rollout in zip(rows, rollouts, strict=True)]
