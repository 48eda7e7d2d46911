"""Conditioned rewards: an easy reward counts only where a hard one is met. arXiv 2601.05242, eq. 8.

    r_k  <-  r_k          where r_l >= t
             else_value   where r_l <  t          (0 in the paper)

applied to the raw rewards, before any statistics. Every gate reads raw values, so the order of the conditions
does not matter, and a reward that is itself conditioned can still be a gate.

Conventions:

- A gate that is NaN makes the conditioned reward NaN: nobody knows whether it is met. A conditioned reward that
  is NaN stays NaN, because it does not apply to this sample whatever the gate says.
- The same reward may have several conditions; all must hold, and they must agree on ``else_value``.
- Conditions that lead back to their start (a on b, b on a) are refused.
- ``else_value=nan`` is the subgroup variant: rows that fail the gate leave the statistics of the reward, and it
  is normalised over the rows that pass, as in PAPO (arXiv 2603.26535). It needs two passing rows in a group.
- A reward that can lie below ``else_value`` draws a ``ConditionWarning``: failing the gate then pays more than
  passing it with a poor value. A penalty in [-1, 0] under ``else_value=0`` is the usual case.

The comparison is made in the dtype of the rewards, so that float32(0.7) meets a threshold of 0.7. TRL f2cd577,
verl 1dda039 and NeMo RL v0.7.0 have no conditioned rewards; there they are written into the reward functions.

Importing this module does not import torch.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gdpo_nemo.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    import torch


class ConditionWarning(UserWarning):
    """A condition that pays more for failing its gate than for passing it."""


@dataclass(frozen=True, slots=True)
class Condition:
    """``reward`` counts where ``on`` is at least ``at_least``, and is ``else_value`` elsewhere.

    Attributes:
        reward: name of the conditioned reward.
        on: name of the reward that is the gate.
        at_least: smallest raw value of the gate that passes; finite.
        else_value: value where the gate fails; finite, or NaN for the subgroup variant.

    Raises:
        InputError: a number is not what it must be, or the reward is its own gate.
    """

    reward: str
    on: str
    at_least: float = 1.0
    else_value: float = 0.0

    def __post_init__(self) -> None:
        if not math.isfinite(self.at_least):
            raise InputError(f"at_least of the condition on {self.reward!r} is {self.at_least}; expected a number.")
        if math.isinf(self.else_value):
            raise InputError(
                f"else_value of the condition on {self.reward!r} is {self.else_value}; expected a finite number, "
                f"or nan to leave the rows that fail {self.on!r} out."
            )
        if self.reward == self.on:
            raise InputError(f"reward {self.reward!r} is conditioned on itself; name another reward in 'on'.")


def check_conditions(
    names: Sequence[str],
    conditions: Iterable[Condition],
    *,
    ranges: Mapping[str, tuple[float, float]] | None = None,
) -> None:
    """Refuse conditions that cannot be applied to rewards of these names. Needs no torch.

    Args:
        names: the reward names.
        conditions: in any order.
        ranges: reward name -> (lowest, highest) possible value, for the warning.

    Raises:
        UnknownNameError: a condition or a range names a reward that is not in ``names``.
        InputError: conditions in a circle, or two conditions of one reward with different else values.

    Warns:
        ConditionWarning: a declared range reaches below ``else_value``.
    """
    conditions = tuple(conditions)
    for condition in conditions:
        for name in (condition.reward, condition.on):
            if name not in names:
                raise UnknownNameError("reward in a condition", name, names)
    for name in ranges or {}:
        if name not in names:
            raise UnknownNameError("reward in ranges", name, names)
    _check_else_values(conditions)
    _check_circles(conditions)
    for condition in conditions:
        lowest, _ = (ranges or {}).get(condition.reward, (math.inf, math.inf))
        if condition.else_value > lowest:
            _warn(condition, f"its range starts at {lowest:g}")


def apply_conditions(
    rewards_B_K: torch.Tensor,
    names: Sequence[str],
    conditions: Iterable[Condition],
    *,
    ranges: Mapping[str, tuple[float, float]] | None = None,
) -> torch.Tensor:
    """Replace conditioned rewards where their gates fail.

    Args:
        rewards_B_K: raw rewards [B, K], floating point; NaN where a reward does not apply.
        names: K names, one per column.
        conditions: in any order.
        ranges: reward name -> (lowest, highest) possible value. Decides the warning for the rewards that it
            names; for the others the values of this batch do.

    Returns:
        A new tensor [B, K]; the argument is left as it was.

    Raises:
        UnknownNameError: a condition or a range names a reward that is not in ``names``.
        InputError: names that do not fit the columns, conditions in a circle, or two conditions of one reward
            with different else values.

    Warns:
        ConditionWarning: the conditioned reward can lie below ``else_value``.
    """
    conditions = tuple(conditions)
    _check_columns(rewards_B_K, names)
    check_conditions(names, conditions, ranges=ranges)
    conditioned_B_K = rewards_B_K.clone()
    for condition in conditions:
        raw_B = rewards_B_K[:, names.index(condition.reward)]
        gate_B = rewards_B_K[:, names.index(condition.on)]
        target_B = conditioned_B_K[:, names.index(condition.reward)]
        if condition.reward not in (ranges or {}) and bool((raw_B < condition.else_value).any()):
            _warn(condition, "this batch has a lower value")
        target_B.masked_fill_((gate_B < condition.at_least) & ~target_B.isnan(), condition.else_value)
        target_B.masked_fill_(gate_B.isnan(), math.nan)
    return conditioned_B_K


def _check_columns(rewards_B_K: torch.Tensor, names: Sequence[str]) -> None:
    if rewards_B_K.dim() != 2 or not rewards_B_K.is_floating_point():
        raise InputError(
            f"rewards_B_K is {rewards_B_K.dtype} of shape {list(rewards_B_K.shape)}; expected floating point [B, K]."
        )
    if isinstance(names, str) or len(names) != rewards_B_K.shape[1] or len(set(names)) != len(names):
        raise InputError(
            f"names is {names!r} for {rewards_B_K.shape[1]} columns of rewards_B_K; expected one distinct name each."
        )


def _check_else_values(conditions: Sequence[Condition]) -> None:
    first: dict[str, float] = {}
    for condition in conditions:
        other = first.setdefault(condition.reward, condition.else_value)
        if other != condition.else_value and not (math.isnan(other) and math.isnan(condition.else_value)):
            low, high = sorted([str(other), str(condition.else_value)])
            raise InputError(
                f"the conditions on {condition.reward!r} have else values {low} and {high}; give all of them the "
                f"same else_value, so that the result does not depend on their order."
            )


def _check_circles(conditions: Sequence[Condition]) -> None:
    gates: dict[str, list[str]] = {}
    for condition in conditions:
        gates.setdefault(condition.reward, []).append(condition.on)
    done: set[str] = set()

    def follow(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            circle = " -> ".join((*path[path.index(name) :], name))
            raise InputError(f"the conditions form a circle: {circle}. Remove one of them.")
        if name not in done:
            for gate in gates.get(name, ()):
                follow(gate, (*path, name))
            done.add(name)

    for reward in gates:
        follow(reward, ())


def _warn(condition: Condition, evidence: str) -> None:
    warnings.warn(
        f"reward {condition.reward!r} can be below else_value={condition.else_value:g} ({evidence}): failing the gate "
        f"{condition.on!r} then pays more than passing it. Shift the reward to start at {condition.else_value:g}, "
        f"lower else_value, or use else_value=nan.",
        ConditionWarning,
        stacklevel=3,
    )
