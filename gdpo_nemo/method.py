"""From named reward vectors to one advantage per rollout: the part that all backends share.

raw rewards -> conditions (eq. 8) -> optional rescaling -> weights by name -> GDPO or GRPO
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gdpo_nemo.conditioning import Condition, apply_conditions, check_conditions
from gdpo_nemo.config import GdpoConfig
from gdpo_nemo.errors import ConfigError, UnknownNameError
from gdpo_nemo.rewards import Reward, build_reward
from gdpo_nemo.types import RewardVector

if TYPE_CHECKING:
    from torch import Tensor

    from gdpo_nemo.advantages import Diagnostics


class Method:
    """A configured advantage function over named rewards.

    Attributes:
        reward: the task's reward object.
        names: the rewards in use, in the order of the K axis.
        weights: weight of each, same order.
        ranges: name -> (lowest, highest) value that the reward can give, same order.
    """

    def __init__(self, config: GdpoConfig) -> None:
        """Resolve names, weights and conditions once.

        Raises:
            ConfigError: an option that the chosen method does not have.
            UnknownNameError: a reward or condition that the task does not have.
            InputError: conditions that contradict each other or form a circle.
        """
        self.config = config
        self.reward: Reward = build_reward(config.task, **config.task_options)
        for name in config.rewards:
            if name not in self.reward.names:
                raise UnknownNameError(f"reward of task {config.task!r}", name, self.reward.names)
        self.names = tuple(name for name in self.reward.names if not config.rewards or name in config.rewards)
        specs = {name: config.rewards[name] for name in self.names if name in config.rewards}
        self.weights = tuple(specs[name].weight if name in specs else 1.0 for name in self.names)
        self.conditions = tuple(
            Condition(reward=name, on=gate.on, at_least=gate.at_least, else_value=gate.else_value)
            for name, spec in specs.items()
            if (gate := spec.condition) is not None
        )
        self.ranges = {name: self.reward.ranges[name] for name in self.names}
        check_conditions(self.names, self.conditions, ranges=self.ranges)
        if config.method == "gdpo" and not config.scale_by_std:
            raise ConfigError("gdpo.scale_by_std=false belongs to method grpo; GDPO always divides by the group's std")
        if config.method == "grpo" and not config.batch_norm:
            raise ConfigError("gdpo.batch_norm=false belongs to method gdpo; GRPO has no batch step")

    def matrix(self, vectors: Sequence[RewardVector]) -> Tensor:
        """The rewards in use as float64 [B, K]; NaN where a reward does not apply."""
        import torch

        return torch.tensor([[vector[name] for name in self.names] for vector in vectors], dtype=torch.float64)

    def advantages(
        self, rewards_B_K: Tensor, group_ids_B: Tensor, valid_B: Tensor | None = None
    ) -> tuple[Tensor, Diagnostics]:
        """Advantages [B] and their diagnostics for raw rewards [B, K] in the order of ``names``."""
        import torch

        from gdpo_nemo.advantages import diagnostics, gdpo, grpo

        rewards_B_K = apply_conditions(rewards_B_K, self.names, self.conditions, ranges=self.ranges)
        weights = self.weights
        if self.config.rescale_by_range:
            widths = (highest - lowest for lowest, highest in self.ranges.values())
            weights = tuple(weight / width for weight, width in zip(weights, widths, strict=True))
        health = diagnostics(rewards_B_K, group_ids_B, names=self.names, weights=self.weights, valid_B=valid_B)
        if self.config.method == "gdpo":
            advantages_B = gdpo(
                rewards_B_K,
                group_ids_B,
                weights=self.weights,
                valid_B=valid_B,
                ddof=self.config.ddof,
                eps=self.config.eps,
                batch_norm=self.config.batch_norm,
            )
        else:
            advantages_B = grpo(
                rewards_B_K,
                group_ids_B,
                weights=weights,
                valid_B=valid_B,
                ddof=self.config.ddof,
                scale_by_std=self.config.scale_by_std,
            )
        assert advantages_B.dtype == torch.float64
        return advantages_B, health
