"""Weights that change with the training step, counted from 1.

    constant    w(t) = value
    linear      w(t) = start up to first_step, end from last_step on, on the line between them in between
    step        w(t) = values[i], where i of the ``steps`` are at most t: values[i + 1] holds from steps[i] on
    curriculum  w(t) = 0 before start_step, then value * min(1, (t - start_step + 1) / ramp_steps)

Each is a function of the step alone, so a resumed run needs nothing but its step. GDPO's batch step divides by the
size of the weighted sum: a weight changes what a reward counts beside the others, never the size of the advantage.
TRL f2cd577, verl 1dda039 and NeMo RL v0.7.0 have fixed weights only.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from gdpo_nemo.errors import InputError
from gdpo_nemo.validation import TAG


@dataclass(frozen=True)
class Constant:
    """One weight throughout, written as a schedule.

    Raises:
        InputError: it is not finite.
    """

    value: float
    schedule: Literal["constant"] = "constant"

    def __post_init__(self) -> None:
        _check_finite(value=self.value)

    def __str__(self) -> str:
        return f"{self.value:g}"

    def at(self, step: int) -> float:
        """The weight at a step."""
        return self.value


@dataclass(frozen=True)
class Linear:
    """From one weight to another along a line.

    Attributes:
        start, end: weights, finite.
        first_step, last_step: up to which ``start`` holds, and from which on ``end``.

    Raises:
        InputError: a weight that is not finite, or steps other than 1 <= first_step < last_step.
    """

    start: float
    end: float
    last_step: int
    first_step: int = 1
    schedule: Literal["linear"] = "linear"

    def __post_init__(self) -> None:
        _check_finite(start=self.start, end=self.end)
        if not 1 <= self.first_step < self.last_step:
            raise InputError(
                f"a linear schedule from step {self.first_step} to step {self.last_step}; expected a first_step of at "
                "least 1 and a later last_step"
            )

    def __str__(self) -> str:
        return f"{self.start:g} to {self.end:g} (steps {self.first_step} to {self.last_step})"

    def at(self, step: int) -> float:
        """The weight at a step."""
        share = (step - self.first_step) / (self.last_step - self.first_step)
        share = min(max(share, 0.0), 1.0)
        return (1 - share) * self.start + share * self.end


@dataclass(frozen=True)
class Steps:
    """Weights that hold for a while.

    Attributes:
        values: weights, finite; one more than ``steps``.
        steps: at which the next value begins, rising, above 1.

    Raises:
        InputError: other values or steps.
    """

    values: tuple[float, ...]
    steps: tuple[int, ...]
    schedule: Literal["step"] = "step"

    def __post_init__(self) -> None:
        _check_finite(**{f"values[{i}]": value for i, value in enumerate(self.values)})
        if len(self.values) != len(self.steps) + 1:
            raise InputError(
                f"a step schedule of {len(self.values)} values and {len(self.steps)} steps; expected one value more "
                "than steps: the first holds until the first step"
            )
        if any(later <= earlier for earlier, later in pairwise((1, *self.steps))):
            raise InputError(f"the steps of a schedule are {list(self.steps)}; expected rising numbers above 1")

    def __str__(self) -> str:
        later = [f"{value:g} from step {step}" for value, step in zip(self.values[1:], self.steps, strict=True)]
        return ", ".join([f"{self.values[0]:g}", *later])

    def at(self, step: int) -> float:
        """The weight at a step."""
        return self.values[bisect_right(self.steps, step)]


@dataclass(frozen=True)
class Curriculum:
    """A reward that begins to count at a step.

    Attributes:
        start_step: the first with a weight other than 0.
        value: the whole weight, finite.
        ramp_steps: in which it is reached, in equal parts; 1: at once.

    Raises:
        InputError: a value that is not finite, or a number of steps below 1.
    """

    start_step: int
    value: float = 1.0
    ramp_steps: int = 1
    schedule: Literal["curriculum"] = "curriculum"

    def __post_init__(self) -> None:
        _check_finite(value=self.value)
        if self.start_step < 1 or self.ramp_steps < 1:
            raise InputError(
                f"a curriculum with start_step {self.start_step} and ramp_steps {self.ramp_steps}; expected at least 1"
            )

    def __str__(self) -> str:
        ramp = f" over {self.ramp_steps} steps" if self.ramp_steps > 1 else ""
        return f"0 before step {self.start_step}, then {self.value:g}{ramp}"

    def at(self, step: int) -> float:
        """The weight at a step."""
        return self.value * min(1.0, max(0, step - self.start_step + 1) / self.ramp_steps)


Schedule = Constant | Linear | Steps | Curriculum


def _tag(given: Any) -> str:
    if isinstance(given, dict):
        return f"{TAG}{given.get('schedule')}"
    return f"{TAG}{getattr(given, 'schedule', 'number')}"


Weight = Annotated[
    Annotated[float, Field(allow_inf_nan=False), Tag(f"{TAG}number")]
    | Annotated[Constant, Tag(f"{TAG}constant")]
    | Annotated[Linear, Tag(f"{TAG}linear")]
    | Annotated[Steps, Tag(f"{TAG}step")]
    | Annotated[Curriculum, Tag(f"{TAG}curriculum")],
    Discriminator(
        _tag,
        custom_error_type="schedule",
        custom_error_message="no such schedule; known: constant, linear, step, curriculum",
    ),
]
"""A field of a configuration: a number, or the mapping of a schedule."""


def weight_at(weight: float | Schedule, step: int | None) -> float:
    """The weight in force at a step.

    Args:
        weight: a number or a schedule.
        step: counted from 1; None where no step is known, which a number does not mind.

    Raises:
        InputError: a schedule, and no step.
    """
    if isinstance(weight, Schedule):
        if step is None:
            raise InputError(f"a weight follows a schedule ({weight}), and the step is not given; pass step=")
        return weight.at(step)
    return weight


def weights_at(weights: Sequence[float | Schedule], step: int | None) -> tuple[float, ...]:
    """``weight_at`` of each.

    Raises:
        InputError: as there.
    """
    return tuple(weight_at(weight, step) for weight in weights)


def weight_text(weight: float | str | Schedule) -> str:
    """A weight for people; a text stays one."""
    return f"{weight:g}" if isinstance(weight, int | float) else str(weight)


def _check_finite(**numbers: float) -> None:
    for name, number in numbers.items():
        if not math.isfinite(number):
            raise InputError(f"{name} of a schedule is {number}; expected a finite number")
