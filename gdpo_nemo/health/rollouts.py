"""Named rewards of rollouts in prompt groups, wherever they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gdpo_nemo.conditioning import Condition
from gdpo_nemo.errors import InputError, UnknownNameError
from gdpo_nemo.signals.schedules import weights_at

if TYPE_CHECKING:
    from gdpo_nemo.config import RunConfig

LARGEST = 1e100  # above, a reward cannot be squared and counts as not finite


@dataclass(frozen=True)
class Rollouts:
    """B rollouts with K rewards.

    Attributes:
        names: of the rewards, in the order of the K axis.
        rewards_B_K: float64; NaN where a reward is missing.
        group_ids_B: int64, one label per prompt group.
        source: where they come from, for people.
        failed_B_K: True where a reward raised or was late, as far as the source tells.
        masked_B: True for a rollout that its trainer left out of the loss.
        notes: what a reader has to say about the source.
    """

    names: tuple[str, ...]
    rewards_B_K: NDArray[np.float64]
    group_ids_B: NDArray[np.int64]
    source: str
    failed_B_K: NDArray[np.bool_] | None = None
    masked_B: NDArray[np.bool_] | None = None
    notes: tuple[str, ...] = ()

    @property
    def valid_B(self) -> NDArray[np.bool_]:
        """Rollouts that advantages are made of: not masked, and no reward failed on them."""
        valid_B = np.ones(len(self.group_ids_B), dtype=bool)
        if self.masked_B is not None:
            valid_B &= ~self.masked_B
        if self.failed_B_K is not None:
            valid_B &= ~self.failed_B_K.any(axis=1)
        return valid_B

    def only(self, names: Sequence[str]) -> Rollouts:
        """The rewards of these names, in this order.

        Raises:
            UnknownNameError: the source has no such reward.
        """
        for name in names:
            if name not in self.names:
                raise UnknownNameError(f"reward in {self.source}", name, self.names)
        columns = [self.names.index(name) for name in names]
        failed_B_K = None if self.failed_B_K is None else self.failed_B_K[:, columns]
        return replace(self, names=tuple(names), rewards_B_K=self.rewards_B_K[:, columns], failed_B_K=failed_B_K)


@dataclass(frozen=True)
class Setting:
    """How the rewards are used: what advantages, shares and the expected batch depend on.

    Attributes:
        weights: by name; 1 where a reward is not named.
        ranges: declared (lowest, highest) value by name; a reward without one is judged by what was seen.
        conditions: of eq. 8.
        method: ``gdpo`` or ``grpo``; None: not decided, and the advice speaks of both.
        rescale_by_range: as of the configuration; divides the weights under GRPO.
        prompts, rollouts: of one training batch; None: as many as were seen.
        families: rewards that are normalised as one.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    method: str | None = None
    rescale_by_range: bool = False
    prompts: int | None = None
    rollouts: int | None = None
    families: tuple[tuple[str, ...], ...] = ()

    @classmethod
    def of(cls, config: RunConfig, step: int | None = None) -> Setting:
        """How a configuration uses its rewards, at a step (None: the last) where weights follow a schedule.

        Raises:
            GdpoError: as ``Method``.
        """
        from gdpo_nemo.method import Method

        method, train = Method(config.gdpo), config.embedded.train
        return cls(
            dict(zip(method.names, weights_at(method.weights, step or train.steps), strict=True)),
            method.ranges,
            method.conditions,
            config.gdpo.method,
            config.gdpo.rescale_by_range,
            train.prompts_per_step,
            train.rollouts_per_prompt,
            tuple(family.rewards for family in config.gdpo.families.values()),
        )

    def check(self, names: Sequence[str]) -> None:
        """Refuse a weight or range of a reward that is not there.

        Raises:
            UnknownNameError: there is one.
            InputError: a range that is no interval.
        """
        for kind, named in (("weight", self.weights), ("range", self.ranges)):
            for name in named:
                if name not in names:
                    raise UnknownNameError(f"reward with a {kind}", name, names)
        for name, (lowest, highest) in self.ranges.items():
            if not lowest < highest:
                raise InputError(f"range of reward {name!r} is [{lowest:g}, {highest:g}]; expected [lowest, highest]")
