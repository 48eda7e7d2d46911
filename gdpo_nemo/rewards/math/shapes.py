"""What an answer is made of: numbers and expressions, phrases, and the containers they stand in.

Only the ends of the tree, ``Leaf.text``, are mathematics, and every container keeps its type and its number of
elements, which a comparison of values alone would lose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from gdpo_nemo.rewards.math.units import Unit


@dataclass(frozen=True)
class Leaf:
    """A number or an expression.

    Attributes:
        text: clean LaTeX.
        unit: what stands behind it.
        percent: whether a percent sign does.
        base: the base of the number system in its subscript.
        modulus: m of a trailing (mod m).
    """

    text: str
    unit: Unit | None = None
    percent: bool = False
    base: str = ""
    modulus: str = ""


@dataclass(frozen=True)
class Phrase:
    """Words, compared without case, articles and punctuation."""

    words: str


@dataclass(frozen=True)
class Choice:
    """The letter of a multiple choice, and the answer behind it, if any."""

    letter: str
    value: Answer | None


@dataclass(frozen=True)
class Group:
    """Several answers. Tuples, vectors, matrices and ratios are ordered; lists, sets and unions are not."""

    kind: Literal["list", "set", "tuple", "union", "ratio", "matrix"]
    items: tuple[Answer, ...]
    is_series: bool = False


@dataclass(frozen=True)
class Interval:
    """Numbers between two bounds; ``variable`` is the name in the inequality that it was written as."""

    low: Answer
    high: Answer
    low_closed: bool
    high_closed: bool
    variable: str = ""


@dataclass(frozen=True)
class Named:
    """An assignment: ``x = 5``, ``f(x) = 2x``, ``(x, y) = (1, 2)``."""

    name: str
    value: Answer


@dataclass(frozen=True)
class Relation:
    """An equation or an inequality that is no assignment and no interval; ``sides`` are clean text."""

    operators: tuple[str, ...]
    sides: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Prose:
    """Text that is neither mathematics nor a short phrase: nothing can be compared with it."""


Answer = Leaf | Phrase | Choice | Group | Interval | Named | Relation | Prose


def leaves(answer: Answer) -> list[Leaf]:
    """The expressions of an answer, from left to right."""
    if isinstance(answer, Leaf):
        return [answer]
    if isinstance(answer, Group):
        return [leaf for item in answer.items for leaf in leaves(item)]
    if isinstance(answer, Interval):
        return leaves(answer.low) + leaves(answer.high)
    if isinstance(answer, Named) or (isinstance(answer, Choice) and answer.value is not None):
        return leaves(cast(Answer, answer.value))
    return []
