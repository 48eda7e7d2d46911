"""From rows and rollouts to named rewards to one advantage per rollout: the part that all backends share.

raw rewards -> conditions (eq. 8) -> quantiles -> weights by name -> families -> GDPO or GRPO -> cap -> clip -> veto

What stands between conditions and method, and after it, is off unless configured: ``gdpo_nemo.signals``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gdpo_nemo.conditioning import Condition, apply_conditions, check_conditions
from gdpo_nemo.config import GdpoConfig, RewardConfig
from gdpo_nemo.errors import ConfigError, InputError, UnknownNameError
from gdpo_nemo.options import check_options
from gdpo_nemo.rewards import Reward, build_reward, score_all
from gdpo_nemo.rewards.own import OwnReward, load_function, source_file
from gdpo_nemo.rewards.scoring import Scorer, is_failure
from gdpo_nemo.signals.chain import Signals
from gdpo_nemo.signals.quantile import Quantiles
from gdpo_nemo.types import RewardVector, Rollout, Row

if TYPE_CHECKING:
    from torch import Tensor

    from gdpo_nemo.advantages import Diagnostics


class Method:
    """A configured advantage function over named rewards.

    Attributes:
        reward: the task's reward object, None without a task.
        scorer: calls the rewards of the user's own, None without any.
        names: the rewards in use, in the order of the K axis: the task's, then own ones.
        weights: weight of each, same order: a number, or a schedule over the steps.
        ranges: name -> (lowest, highest) value that the reward can give, same order.
        scored: every reward that ``score`` gives, in use or not.
    """

    def __init__(self, config: GdpoConfig) -> None:
        """Resolve names, weights and conditions once, and import the functions of own rewards.

        Raises:
            ConfigError: an option that the chosen method does not have, no reward at all, or an own reward's
                function that cannot be imported or called.
            UnknownNameError: a reward or condition that the task does not have.
            InputError: conditions that contradict each other or form a circle.
            PrerequisiteError: a judge's key is missing from the environment.
        """
        self.config = config
        self.reward: Reward | None = None if config.task is None else build_reward(config.task, **config.task_options)
        own = [_own(name, spec, config.python_path) for name, spec in config.rewards.items() if spec.is_own]
        self.scorer = Scorer(own) if own else None
        ranges = _ranges(config, self.reward)
        self.scored = tuple(ranges)
        self.names = tuple(name for name in self.scored if not config.rewards or name in config.rewards)
        specs = {name: config.rewards[name] for name in self.names if name in config.rewards}
        self.weights: tuple[Any, ...] = tuple(specs[name].weight if name in specs else 1.0 for name in self.names)
        self.conditions = tuple(
            Condition(reward=name, on=gate.on, at_least=gate.at_least, else_value=gate.else_value)
            for name, spec in specs.items()
            if (gate := spec.condition) is not None
        )
        self.ranges = {name: ranges[name] for name in self.names}
        check_conditions(self.names, self.conditions, ranges=self.ranges)
        check_options(config)
        for name in config.families:
            if name in self.scored:
                raise ConfigError(
                    f"gdpo.families.{name} is called like a reward, whose numbers are logged as well; "
                    "give it another name"
                )
        self.signals = self._signals(specs)

    def _signals(self, specs: Mapping[str, RewardConfig]) -> Signals:
        config = self.config
        mapped = [name for name, spec in specs.items() if spec.normalise == "quantile"]
        members = {member for family in config.families.values() for member in family.rewards}
        as_they_are = set(self.names) if config.method == "grpo" else members
        rescaled = as_they_are - set(mapped) if config.rescale_by_range else ()
        return Signals(
            self.names,
            self.weights,
            tuple(high - low if name in rescaled else 1.0 for name, (low, high) in self.ranges.items()),
            config.families,
            Quantiles(mapped, config.quantile) if mapped else None,
            config.amplification_cap,
            config.clip_advantage,
            config.veto,
        )

    def score(self, rows: Sequence[Row], rollouts: Sequence[Rollout]) -> list[RewardVector]:
        """Every reward of every rollout; ``rows[i]`` is the row that ``rollouts[i]`` answers.

        The task's rewards are computed right here, or on workers that they bring; own ones by ``Scorer``, which says
        what happens when they fail.

        Raises:
            RewardError: an own reward is wrong, or fails throughout.
        """
        if self.reward is None:
            assert self.scorer is not None
            return self.scorer.score(rows, rollouts)
        vectors = score_all(self.reward, rows, rollouts)
        if self.scorer is None:
            return vectors
        return [
            RewardVector({**built_in.values, **own.values}, {**built_in.reasons, **own.reasons})
            for built_in, own in zip(vectors, self.scorer.score(rows, rollouts), strict=True)
        ]

    def failures(self, vectors: Sequence[RewardVector]) -> dict[str, float]:
        """``reward/<name>/frac_failed`` of each own reward: samples that it raised on, or answered too late."""
        names = [] if self.scorer is None else [reward.name for reward in self.scorer.rewards]
        return {
            f"reward/{name}/frac_failed": sum(any(map(is_failure, vector.reasons[name])) for vector in vectors)
            / len(vectors)
            for name in names
        }

    def unused_means(self, vectors: Sequence[RewardVector]) -> dict[str, float]:
        """``reward/<name>/mean`` of each reward that is scored and not in use; NaN where no sample is graded."""
        means = {}
        for name in self.scored:
            if name not in self.names:
                graded = [value for vector in vectors if not math.isnan(value := vector[name])]
                means[f"reward/{name}/mean"] = sum(graded) / len(graded) if graded else math.nan
        return means

    def matrix(self, vectors: Sequence[RewardVector]) -> Tensor:
        """The rewards in use as float64 [B, K]; NaN where a reward does not apply.

        A sample with a reward that crashed or answered late is NaN throughout: it is not graded, and the rewards it
        does have must not decide alone what it teaches.
        """
        import torch

        return torch.tensor([self._values(vector) for vector in vectors], dtype=torch.float64)

    def _values(self, vector: RewardVector) -> list[float]:
        failed = any(map(is_failure, chain.from_iterable(vector.reasons.values())))
        return [math.nan if failed else vector[name] for name in self.names]

    def advantages(
        self, rewards_B_K: Tensor, group_ids_B: Tensor, valid_B: Tensor | None = None, *, step: int | None = None,
        kl_B: Tensor | None = None,
    ) -> tuple[Tensor, Diagnostics]:  # fmt: skip
        """Advantages [B] and their diagnostics for raw rewards [B, K] in the order of ``names``.

        Args:
            rewards_B_K: float64 [B, K]. NaN: this reward does not apply to this sample.
            group_ids_B: int64 [B], one label per prompt group.
            valid_B: bool [B]; False takes the row out.
            step: the training step, counted from 1; what changes with the run reads it.
            kl_B: ``sequence_kl`` of each sample [B], read where ``kl_in_reward`` is set. The penalty is logged as a
                reward of that name.

        Raises:
            InputError: ``kl_in_reward`` is set and there is no ``kl_B``; a weight follows a schedule and there is no
                ``step``; or the method has no advantages.
        """
        if self.config.method == "preference":
            raise InputError("method preference has pairs of responses and no advantages")
        from gdpo_nemo.advantages import diagnostics, gdpo, grpo, kl_in_reward

        conditioned_B_K = apply_conditions(rewards_B_K, self.names, self.conditions, ranges=self.ranges)
        names, logged = self.signals.columns, self.signals.logged_weights(step)
        method_B_J, weights = self.signals.before(conditioned_B_K, group_ids_B, valid_B, step)
        if coef := self.config.kl_in_reward:
            if kl_B is None:
                raise InputError(f"gdpo.kl_in_reward is {coef:g}, and the samples come without their KL (kl_B)")
            names, logged = (*names, kl_in_reward.NAME), (*logged, -coef)
            method_B_J, weights = kl_in_reward.with_penalty(method_B_J, weights, kl_B, coef)
        health = diagnostics(method_B_J, group_ids_B, names=names, weights=logged, valid_B=valid_B)
        if self.config.method == "gdpo":
            advantages_B = gdpo(
                method_B_J,
                group_ids_B,
                weights=weights,
                valid_B=valid_B,
                ddof=self.config.ddof,
                eps=self.config.eps,
                batch_norm=self.config.batch_norm,
            )
        else:
            advantages_B = grpo(
                method_B_J,
                group_ids_B,
                weights=weights,
                valid_B=valid_B,
                ddof=self.config.ddof,
                scale_by_std=self.config.scale_by_std,
            )
        if self.signals.reshape:  # people follow a reward by its values, not by its places or its family's sum
            values = diagnostics(conditioned_B_K, group_ids_B, names=self.names, valid_B=valid_B)
            health = health.with_values(values.rewards)
        advantages_B, cut = self.signals.after(advantages_B, rewards_B_K, health.amplification)
        return advantages_B, replace(health, signals=self.signals.scheduled(step) | cut)

    def informative(
        self, rewards_B_K: Tensor, group_ids_B: Tensor, valid_B: Tensor | None = None, *, step: int | None = None
    ) -> Tensor:
        """Rows [B] of groups that dynamic sampling keeps, by ``gdpo.dynamic_sampling``; arguments as ``advantages``."""
        from gdpo_nemo.advantages import informative

        conditioned_B_K = apply_conditions(rewards_B_K, self.names, self.conditions, ranges=self.ranges)
        method_B_J, weights = self.signals.before(conditioned_B_K, group_ids_B, valid_B, step, keep=False)
        criterion = self.config.dynamic_sampling
        return informative(method_B_J, group_ids_B, weights=weights, valid_B=valid_B, criterion=criterion)

    def save(self, folder: Path) -> None:
        """Write what the method has gathered over the run into a checkpoint's folder."""
        self.signals.save(folder)

    def restore(self, folder: Path | None) -> None:
        """Go on with what ``save`` wrote into a checkpoint's folder; None: the run begins.

        Raises:
            RunDirError: the checkpoint was written without it.
        """
        self.signals.restore(folder)


def reward_ranges(config: GdpoConfig) -> dict[str, tuple[float, float]]:
    """Name -> (lowest, highest) value of every reward that a configuration names. Imports no code of the user's.

    Raises:
        ConfigError, UnknownNameError: as ``Method``.
    """
    return _ranges(config, None if config.task is None else build_reward(config.task, **config.task_options))


def own_code(config: GdpoConfig) -> dict[str, Path]:
    """Name -> the file of each own reward's function, where it has one.

    Raises:
        ConfigError, UnknownNameError: as ``Method``.
    """
    functions = {name: load_function(spec.fn, config.python_path) for name, spec in config.rewards.items() if spec.fn}
    return {name: path for name, function in functions.items() if (path := source_file(function)) is not None}


def _ranges(config: GdpoConfig, reward: Reward | None) -> dict[str, tuple[float, float]]:
    built_in: Mapping[str, tuple[float, float]] = {} if reward is None else reward.ranges
    names = () if reward is None else reward.names
    own = {name: spec.range for name, spec in config.rewards.items() if spec.is_own and spec.range is not None}
    for name in config.rewards:
        if name in own and name in names:
            raise ConfigError(
                f"gdpo.rewards.{name}: task {config.task!r} has a reward of that name; give yours another"
            )
        if name not in own and reward is None:
            raise ConfigError(
                f"gdpo.rewards.{name} has neither fn nor judge, and without gdpo.task there is no built-in reward"
            )
        if name not in own and name not in names:
            raise UnknownNameError(f"reward of task {config.task!r}", name, names)
    if not own and reward is None:
        raise ConfigError("no rewards: set gdpo.task, or name your own under gdpo.rewards with fn or judge")
    ranges = {name: built_in[name] for name in names} | own
    for name in config.monitor.metrics or ():
        if name not in ranges:
            raise UnknownNameError("reward in gdpo.monitor.metrics", name, ranges)
    return ranges


def _own(name: str, spec: RewardConfig, python_path: str | None) -> OwnReward:
    assert spec.range is not None
    if spec.judge is not None:
        function = spec.judge.scorer(spec.range, spec.timeout_s)
    else:
        assert spec.fn is not None
        function = load_function(spec.fn, python_path)
    return OwnReward(name, function, spec.range, spec.timeout_s, spec.concurrency, spec.batched)
