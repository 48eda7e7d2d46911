"""A procedurally generated world of small programming tasks, with hidden tests that a sandbox runs.

A task gives a number k, perhaps as a chain of operations modulo 7, and says which of some numbers to keep, what to do
with each, and what to print: a filter by k, a map and a reduction. Three things cost tokens:

    the number   a program can work k out, one line for each operation (``k = 3``, ``k = 2 * k % 7``), or name what the
                 operations lead to. One operation is a fact that the warm-up teaches; what two lead to nothing shows
                 at once, so there a program works it out, from the start or from the first result on, or guesses
    the guard    the largest or smallest of no numbers is an exception. Tests are drawn at random, so that whether one
                 of them keeps nothing depends on the filter and its number, and only some tasks need the guard
    comments     of every line (``verbose``) or of none (``compact``)

Under a length limit that a program without comments meets when it works two operations out from the first result on,
or when it has a guard, but not with both, the right, the short and the safe program differ. Tasks are split into train
and held-out by hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

import numpy as np

from gdpo_nemo.data.questions import ATTEMPTS, DrawnWorld, Split, check_heldout_share, check_shares, split_of
from gdpo_nemo.errors import InputError
from gdpo_nemo.types import Row

NUM_TESTS: Final = 3
LARGEST: Final = 9
MODULUS: Final = 7
NUMBERS: Final = range(2, MODULUS)
LINE_LENGTHS: Final = (5, 9)
DIGITS: Final = tuple(str(digit) for digit in range(MODULUS))
HARD, EASY = "two operations", "at most one"
K: Final = "{k}"


@dataclass(frozen=True)
class Step:
    """One part of a task: its words, its code, and what it does.

    Attributes:
        words: as in the task.
        code: as in the program; ``{k}`` where the number goes.
        does: of an operation, k -> k; of a filter, (x, k) -> whether x stays; of a map, x -> number; of a reduction,
            numbers -> number.
    """

    words: str
    code: str
    does: Callable[..., int]


OPERATIONS: Final = (
    Step("doubled", "k = 2 * k % 7", lambda k: 2 * k % MODULUS),
    Step("plus 5", "k = (k + 5) % 7", lambda k: (k + 5) % MODULUS),
    Step("negated", "k = -k % 7", lambda k: -k % MODULUS),
    Step("squared", "k = k * k % 7", lambda k: k * k % MODULUS),
    Step("tripled", "k = 3 * k % 7", lambda k: 3 * k % MODULUS),
    Step("minus 4", "k = (k - 4) % 7", lambda k: (k - 4) % MODULUS),
)
FILTERS: Final = (
    Step("those above k", "a = [x for x in a if x > {k}]", lambda x, k: x > k),
    Step("those below k", "a = [x for x in a if x < {k}]", lambda x, k: x < k),
    Step("the multiples of k", "a = [x for x in a if x % {k} == 0]", lambda x, k: x % k == 0),
)
MAPS: Final = (
    Step("", "", lambda x: x),
    Step("square each", "a = [x * x for x in a]", lambda x: x * x),
    Step("negate each", "a = [-x for x in a]", lambda x: -x),
    Step("double each", "a = [2 * x for x in a]", lambda x: 2 * x),
)
REDUCTIONS: Final = (
    Step("the sum", "print(sum(a))", sum),
    Step("how many there are", "print(len(a))", len),
    Step("the largest, or 0 if there is none", "print(max(a) if a else 0)", lambda a: max(a, default=0)),
    Step("the smallest, or 0 if there is none", "print(min(a) if a else 0)", lambda a: min(a, default=0)),
)
READ, GUARD = "a = list(map(int, input().split()))", (" if a", " else 0")
ASSIGN: Final = "k = "
COMMENTS: Final = ("# the number", "# read the numbers", "# keep some", "# change each", "# print the result")
OPEN, CLOSE = "```python\n", "```"


@dataclass(frozen=True)
class ProgramMix:
    """Behaviour of the model before reinforcement learning.

    Attributes:
        verbose_share: share of programs that comment every line.
        verbose_noise: chance, in a verbose program, that each of filter, map and a named result is another one.
        compact_noise: likewise in a compact one.
        guessed: of two operations, share of programs that name a random number.
        worked: of the others, and of one operation, share of programs that work the number out from the start on.
        guard_kept: chance that the guard of the largest and smallest is there.
        read_kept: chance that the line that reads the numbers is there.
    """

    verbose_share: float = 0.5
    verbose_noise: float = 0.1
    compact_noise: float = 0.3
    guessed: float = 0.5
    worked: float = 0.5
    guard_kept: float = 0.4
    read_kept: float = 0.9

    def __post_init__(self) -> None:
        check_shares(self)


CLEAN = ProgramMix(verbose_noise=0.0, compact_noise=0.0, guessed=0.0, guard_kept=1.0, read_kept=1.0)


@dataclass(frozen=True)
class Task:
    """A start and its operations, a filter, a map and a reduction; all but the start as places in the tuples above."""

    start: int
    operations: tuple[int, ...]
    filter: int
    map: int
    reduction: int

    @property
    def number(self) -> str:
        """How k is given, e.g. ``3, doubled, plus 5``."""
        return ", ".join([str(self.start), *(OPERATIONS[i].words for i in self.operations)])

    @property
    def words(self) -> str:
        """What is asked, e.g. ``keep those above k, square each, print the sum``."""
        parts = [
            f"keep {FILTERS[self.filter].words}",
            MAPS[self.map].words,
            f"print {REDUCTIONS[self.reduction].words}",
        ]
        return ", ".join(part for part in parts if part)

    @property
    def k(self) -> int:
        """What the operations lead to."""
        return follow(self.start, self.operations)

    def answer(self, numbers: Sequence[int]) -> int:
        """What a right program prints."""
        kept = [x for x in numbers if FILTERS[self.filter].does(x, self.k)]
        return int(REDUCTIONS[self.reduction].does([MAPS[self.map].does(x) for x in kept]))

    def tests(self) -> dict[str, list[str]]:
        """``NUM_TESTS`` inputs with outputs, the same ones every time."""
        digest = hashlib.sha256(f"{self.number}; {self.words}".encode()).digest()
        rng = np.random.default_rng(int.from_bytes(digest[:8], "big"))
        lengths = rng.integers(LINE_LENGTHS[0], LINE_LENGTHS[1] + 1, size=NUM_TESTS)
        inputs = [rng.integers(1, LARGEST + 1, size=length).tolist() for length in lengths]
        return {
            "inputs": [" ".join(map(str, numbers)) + "\n" for numbers in inputs],
            "outputs": [f"{self.answer(numbers)}\n" for numbers in inputs],
        }

    def split(self, seed: int, heldout_share: float) -> Split:
        """Where the task belongs in a world."""
        return split_of((str(seed), self.number, self.words), heldout_share)


def follow(start: int, operations: Sequence[int]) -> int:
    """The number that operations lead to."""
    for i in operations:
        start = OPERATIONS[i].does(start)
    return start


@dataclass(frozen=True)
class ProgramWorld(DrawnWorld):
    """Size and seed of the world.

    Attributes:
        kind: names this world in a configuration.
        seed: draws which tasks are held out.
        hard_share: share of tasks with two operations; the others have none or one.
        heldout_share: share of the tasks kept for evaluation.
        mix: behaviour of the model before reinforcement learning.
    """

    enlarged_by: ClassVar[str] = "embedded.data.heldout_share"

    kind: Literal["programs"] = "programs"
    seed: int = 0
    hard_share: float = 0.6
    heldout_share: float = 0.25
    mix: ProgramMix = ProgramMix()

    def __post_init__(self) -> None:
        check_heldout_share(self.heldout_share)
        if not 0 <= self.hard_share <= 1:
            raise InputError(f"hard_share is {self.hard_share}; it must be 0 to 1")

    def row(self, split: Split, rng: np.random.Generator) -> Row:
        """See ``DrawnWorld``."""
        num_operations = 2 if rng.random() < self.hard_share else int(rng.integers(2))
        for _ in range(ATTEMPTS):
            operations = tuple(rng.integers(len(OPERATIONS), size=num_operations).tolist())
            places = [int(rng.integers(len(steps))) for steps in (FILTERS, MAPS, REDUCTIONS)]
            task = Task(int(rng.integers(MODULUS)), operations, *places)
            if task.k in NUMBERS and task.split(self.seed, self.heldout_share) == split:
                break
        else:
            raise InputError(f"found no {split} task in {self}; set heldout_share nearer to a half")
        fields = {"task": task, "number": task.number, "words": task.words}
        fields["group"] = HARD if num_operations == 2 else EASY
        return Row(f"programs/{split}/{task.number}; {task.words}", fields, json.dumps(task.tests()))


def demonstrate(row: Row, mix: ProgramMix, rng: np.random.Generator) -> str:
    """One demonstrated program."""
    task: Task = row.fields["task"]
    verbose = rng.random() < mix.verbose_share
    noise = mix.verbose_noise if verbose else mix.compact_noise
    work, k = _number(task, mix, noise, rng)
    keep = _perhaps_other(task.filter, len(FILTERS), noise, rng)
    change = _perhaps_other(task.map, len(MAPS), noise, rng)
    report = REDUCTIONS[task.reduction].code
    parts = [
        work,
        READ if rng.random() < mix.read_kept else "",
        FILTERS[keep].code.format(k=k),
        MAPS[change].code,
        report if rng.random() < mix.guard_kept else report.replace("".join(GUARD), ""),
    ]
    text = "".join(
        f"{comment}\n{part}\n" if verbose else f"{part}\n"
        for comment, part in zip(COMMENTS, parts, strict=True)
        if part
    )
    return f"{OPEN}{text}{CLOSE}"


def _number(task: Task, mix: ProgramMix, noise: float, rng: np.random.Generator) -> tuple[str, str]:
    """The lines that work k out, perhaps none, and what the filter calls it."""
    num = len(task.operations)
    if num > 1 and rng.random() < mix.guessed:
        return "", str(_any_number(rng))
    if num and rng.random() < mix.worked:
        known, left = task.start, task.operations
    else:  # the first result is named, or the start where there is no operation
        known, left = follow(task.start, task.operations[:1]), task.operations[1:]
        if num and rng.random() < noise:
            known = _any_number(rng)
    if not left:
        return "", str(known)
    return "\n".join([f"{ASSIGN}{known}", *(OPERATIONS[i].code for i in left)]), "k"


def _any_number(rng: np.random.Generator) -> int:
    return int(rng.integers(MODULUS))


def _perhaps_other(asked: int, count: int, noise: float, rng: np.random.Generator) -> int:
    return int(rng.integers(count)) if rng.random() < noise else asked
