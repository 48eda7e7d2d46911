"""A procedurally generated world of word problems, answered as GSM8K is: a thought, then a number, each in its tags.

Somebody has some things, and two or three events change how many:

    Anna has 7 apples. Then 4 more come. Then they double. How many apples are there now?

    <think>7 + 4 = 11, 11 * 2 = 22</think>
    <answer>22</answer>

Each step is a fact that the warm-up teaches (about two hundred of them). After it the model's answers differ in three
ways, one for each reward: whether the tags are all there (format), whether the steps are right (correct), and whether
the answer is a number alone, not ``22 apples`` or ``22.0`` (integer). Thoughts in tags are less reliable than the same
steps without them, and an answer without any steps is a guess, so that the rewards pull in different directions at
first.

Demonstrated guesses are drawn at random, so that no answer is remembered with its problem; and problems are split into
train and held-out by start and events, whoever has whatever.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final, Literal

import numpy as np

from gdpo_nemo.data.questions import ATTEMPTS, DrawnWorld, Split, check_shares, split_of
from gdpo_nemo.errors import InputError
from gdpo_nemo.types import Row

NAMES: Final = ("Anna", "Ben", "Chloe", "David", "Emma", "Felix")
THINGS: Final = ("apples", "books", "coins", "marbles", "stamps", "tickets")
AMOUNTS: Final = (2, 3, 4, 5)
THREE, TWO = "three steps", "two steps"
NEWLINE: Final = "\n"


@dataclass(frozen=True)
class Event:
    """What happens to the things.

    Attributes:
        words: of the problem.
        sign: of the calculation: ``+``, ``-``, ``*`` or ``/``.
        amount: its second number.
    """

    words: str
    sign: str
    amount: int

    @property
    def calculation(self) -> str:
        """As a step writes it, e.g. ``+ 4``."""
        return f"{self.sign} {self.amount}"

    def apply(self, number: int) -> Fraction:
        """How many there are afterwards, which may be none, less, or a fraction."""
        if self.sign == "+":
            return Fraction(number + self.amount)
        if self.sign == "-":
            return Fraction(number - self.amount)
        return Fraction(number * self.amount) if self.sign == "*" else Fraction(number, self.amount)


EVENTS: Final = (
    *(Event(f"Then {amount} more come.", "+", amount) for amount in AMOUNTS),
    *(Event(f"Then {amount} are given away.", "-", amount) for amount in AMOUNTS),
    Event("Then they double.", "*", 2),
    Event("Then they triple.", "*", 3),
    Event("Then half of them are lost.", "/", 2),
)
BY_WORDS: Final = {event.words: event for event in EVENTS}


@dataclass(frozen=True)
class ProblemMix:
    """Shares and noise of demonstrated answers after the clean phase; what is left of the shares is guesses.

    Attributes:
        think_share: share of answers with their steps in a think section.
        plain_share: share of answers with their steps before the answer section, without tags.
        think_noise: chance that a step in a think section names a random number (later steps follow from it).
        plain_noise: likewise of a plain step.
        piece_kept: chance that each tag, and the newline between the sections, is there.
        bare_kept: chance that the answer is a number alone; others have a unit or a decimal, equally often.
    """

    think_share: float = 0.25
    plain_share: float = 0.55
    think_noise: float = 0.8
    plain_noise: float = 0.1
    piece_kept: float = 0.85
    bare_kept: float = 0.75

    def __post_init__(self) -> None:
        check_shares(self)
        if self.think_share + self.plain_share > 1:
            raise InputError(f"mix: the shares {self.think_share} and {self.plain_share} add up to more than 1")


CLEAN = ProblemMix(think_share=0.5, plain_share=0.5, think_noise=0.0, plain_noise=0.0, piece_kept=1.0, bare_kept=1.0)


@dataclass(frozen=True)
class WordProblemWorld(DrawnWorld):
    """Size and seed of the world.

    Attributes:
        kind: names this world in a configuration.
        seed: draws which problems are held out.
        largest: number that there can be at any time, 12 to 60; at least one thing is left.
        heldout_share: share of the problems kept for evaluation.
        mix: behaviour of the model before reinforcement learning.
    """

    enlarged_by: ClassVar[str] = "embedded.data.largest or heldout_share"

    kind: Literal["word_problems"] = "word_problems"
    seed: int = 0
    largest: int = 24
    heldout_share: float = 0.25
    mix: ProblemMix = ProblemMix()

    def __post_init__(self) -> None:
        self.check_limits({"largest": (12, 60)})

    def after(self, event: Event, number: int) -> int | None:
        """How many there are after an event, None where that is no number of this world."""
        result = event.apply(number)
        return int(result) if result.denominator == 1 and 1 <= result <= self.largest else None

    def row(self, split: Split, rng: np.random.Generator) -> Row:
        """See ``DrawnWorld``."""
        for _ in range(ATTEMPTS):
            start = int(rng.integers(1, self.largest + 1))
            events = tuple(EVENTS[int(i)] for i in rng.integers(len(EVENTS), size=int(rng.integers(2, 4))))
            number: int | None = start
            for event in events:
                number = None if number is None else self.after(event, number)
            if number is not None and self._split_of(start, events) == split:
                break
        else:
            raise InputError(f"found no {split} problem in {self}; heldout_share leaves none")
        fields = {
            "name": NAMES[int(rng.integers(len(NAMES)))],
            "things": THINGS[int(rng.integers(len(THINGS)))],
            "start": start,
            "events": tuple(event.words for event in events),
            "group": THREE if len(events) == 3 else TWO,
        }
        chain = " ".join((str(start), *(event.calculation for event in events)))
        return Row(f"word_problems/{split}/{fields['name']} {fields['things']} {chain}", fields, str(number))

    def _split_of(self, start: int, events: tuple[Event, ...]) -> Split:
        parts = (str(self.seed), str(start), *(event.calculation for event in events))
        return split_of(parts, self.heldout_share)


def demonstrate(world: WordProblemWorld, row: Row, mix: ProblemMix, rng: np.random.Generator) -> str:
    """One demonstrated answer to a row."""
    style = rng.random()
    thinks, guesses = style < mix.think_share, style >= mix.think_share + mix.plain_share
    if guesses:
        steps, result = "", _any(world, rng)
    else:
        steps, result = _steps(world, row, mix.think_noise if thinks else mix.plain_noise, rng)

    def piece(text: str) -> str:
        return text if rng.random() < mix.piece_kept else ""

    answer = str(result)
    if rng.random() >= mix.bare_kept:
        answer += ".0" if rng.random() < 0.5 else f" {row.fields['things']}"
    thought = f"{piece('<think>')}{steps}{piece('</think>')}" if thinks else steps
    return f"{thought}{piece(NEWLINE) if steps else ''}{piece('<answer>')}{answer}{piece('</answer>')}"


def _steps(world: WordProblemWorld, row: Row, noise: float, rng: np.random.Generator) -> tuple[str, int]:
    """The steps of an answer, and the number that they end in."""
    number, steps = row.fields["start"], list[str]()
    for event in map(BY_WORDS.__getitem__, row.fields["events"]):
        right = world.after(event, number)
        reached = _any(world, rng) if right is None or rng.random() < noise else right
        steps.append(f"{number} {event.calculation} = {reached}")
        number = reached
    return ", ".join(steps), number


def _any(world: WordProblemWorld, rng: np.random.Generator) -> int:
    return int(rng.integers(1, world.largest + 1))
