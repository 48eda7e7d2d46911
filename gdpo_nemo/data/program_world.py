"""A procedurally generated world of small programming tasks, with hidden tests that a sandbox runs.

A task says which of some numbers to keep, what to do with each, and what to print: a filter, a map and a reduction.
A program is made of a few lines; it is right when it passes all tests. The last test keeps nothing, so that a program
without a guard ends in an exception where the largest or smallest number is asked for. Programs may comment every line
(``verbose``) or none (``compact``); a comment costs a token, and a length limit can be set that only compact programs
meet. Tasks are split into train and held-out by hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

import numpy as np

from gdpo_nemo.data.questions import Split, check_heldout_share, check_shares, split_of
from gdpo_nemo.errors import InputError
from gdpo_nemo.randomness import stream
from gdpo_nemo.types import Row

NUM_TESTS: Final = 3
LARGEST: Final = 20
DIGITS: Final = tuple(str(digit) for digit in range(2, 7))
GUARDED, PLAIN = "guarded", "plain"
K: Final = "{k}"


@dataclass(frozen=True)
class Step:
    """One part of a task: its words and its code, both perhaps with a number ``{k}``, and what it does.

    Attributes:
        words: as in the task.
        code: as in the program.
        does: of a filter, (x, k) -> whether x stays; of a map, (x, k) -> number; of a reduction, numbers -> number.
    """

    words: str
    code: str
    does: Callable[..., int]

    @property
    def takes_number(self) -> bool:
        """Whether a number belongs to it."""
        return K in self.words


FILTERS: Final = (
    Step("the even ones", "a = [x for x in a if x % 2 == 0]", lambda x, k: x % 2 == 0),
    Step("the odd ones", "a = [x for x in a if x % 2 == 1]", lambda x, k: x % 2 == 1),
    Step("those above {k}", "a = [x for x in a if x > {k}]", lambda x, k: x > k),
    Step("those below {k}", "a = [x for x in a if x < {k}]", lambda x, k: x < k),
    Step("the multiples of {k}", "a = [x for x in a if x % {k} == 0]", lambda x, k: x % k == 0),
)
MAPS: Final = (
    Step("", "", lambda x, k: x),
    Step("square each", "a = [x * x for x in a]", lambda x, k: x * x),
    Step("negate each", "a = [-x for x in a]", lambda x, k: -x),
    Step("add {k} to each", "a = [x + {k} for x in a]", lambda x, k: x + k),
    Step("multiply each by {k}", "a = [x * {k} for x in a]", lambda x, k: x * k),
)
REDUCTIONS: Final = (
    Step("the sum", "print(sum(a))", sum),
    Step("how many there are", "print(len(a))", len),
    Step("the largest, or 0 if there is none", "print(max(a) if a else 0)", lambda a: max(a, default=0)),
    Step("the smallest, or 0 if there is none", "print(min(a) if a else 0)", lambda a: min(a, default=0)),
)
READ, GUARD = "a = list(map(int, input().split()))", " if a else 0"
COMMENTS: Final = ("# read the numbers", "# keep some", "# change each", "# print the result")
OPEN, CLOSE = "```python\n", "```"


@dataclass(frozen=True)
class ProgramMix:
    """Behaviour of the model before reinforcement learning.

    Attributes:
        verbose_share: share of programs that comment every line.
        verbose_noise: chance, in a verbose program, that each of filter and map is another one than asked.
        compact_noise: likewise in a compact one.
        guard_kept: chance that a guard that is needed is there.
        read_kept: chance that the line that reads the numbers is there.
    """

    verbose_share: float = 0.5
    verbose_noise: float = 0.1
    compact_noise: float = 0.3
    guard_kept: float = 0.4
    read_kept: float = 0.8

    def __post_init__(self) -> None:
        check_shares(self)


CLEAN = ProgramMix(verbose_noise=0.0, compact_noise=0.0, guard_kept=1.0, read_kept=1.0)


@dataclass(frozen=True)
class Task:
    """A filter, a map and a reduction, as places in the tuples above, with their numbers (empty: none)."""

    filter: tuple[int, str]
    map: tuple[int, str]
    reduction: int

    @property
    def words(self) -> str:
        """What is asked, e.g. ``keep those above 5, square each, print the sum``."""
        keep = FILTERS[self.filter[0]].words.format(k=self.filter[1])
        change = MAPS[self.map[0]].words.format(k=self.map[1])
        parts = [f"keep {keep}", change, f"print {REDUCTIONS[self.reduction].words}"]
        return ", ".join(part for part in parts if part)

    def answer(self, numbers: Sequence[int]) -> int:
        """What a right program prints."""
        keep, change = FILTERS[self.filter[0]].does, MAPS[self.map[0]].does
        limit, amount = (int(text or 0) for text in (self.filter[1], self.map[1]))
        kept = [x for x in numbers if keep(x, limit)]
        return int(REDUCTIONS[self.reduction].does([change(x, amount) for x in kept]))

    def tests(self) -> dict[str, list[str]]:
        """``NUM_TESTS`` inputs with outputs, the same ones every time; in the last one the filter keeps nothing."""
        rng = np.random.default_rng(int.from_bytes(self._digest()[:8], "big"))
        keep, limit = FILTERS[self.filter[0]].does, int(self.filter[1] or 0)
        inputs = [rng.integers(1, LARGEST + 1, size=6).tolist() for _ in range(NUM_TESTS - 1)]
        inputs.append([x for x in rng.permutation(LARGEST).tolist() if x and not keep(x, limit)][:4] or [limit or 1])
        return {
            "inputs": [" ".join(map(str, numbers)) + "\n" for numbers in inputs],
            "outputs": [f"{self.answer(numbers)}\n" for numbers in inputs],
        }

    def split(self, seed: int, heldout_share: float) -> Split:
        """Where the task belongs in a world."""
        return split_of((str(seed), self.words), heldout_share)

    def _digest(self) -> bytes:
        return hashlib.sha256(self.words.encode()).digest()


@dataclass(frozen=True)
class ProgramWorld:
    """Size and seed of the world.

    Attributes:
        kind: names this world in a configuration.
        seed: draws which tasks are held out.
        heldout_share: share of the tasks kept for evaluation.
        mix: behaviour of the model before reinforcement learning.
    """

    kind: Literal["programs"] = "programs"
    seed: int = 0
    heldout_share: float = 0.25
    mix: ProgramMix = ProgramMix()

    def __post_init__(self) -> None:
        check_heldout_share(self.heldout_share)

    def rows(self, split: Split, rng: np.random.Generator) -> Iterator[Row]:
        """Endless rows of one split, drawn from ``rng``."""
        tasks = _tasks(self)[split]
        while True:
            yield _row(split, tasks[int(rng.integers(len(tasks)))])

    def questions(self, count: int, seed: int) -> list[Row]:
        """``count`` different held-out rows, the same ones for the same seed.

        Raises:
            InputError: the world does not have that many.
        """
        tasks = _tasks(self)["heldout"]
        if count > len(tasks):
            raise InputError(
                f"embedded.evaluation.questions is {count}; this world has {len(tasks)} held-out tasks. "
                "Ask for fewer, or raise embedded.data.heldout_share"
            )
        return [_row("heldout", tasks[i]) for i in stream(seed, "questions").permutation(len(tasks))[:count]]


@lru_cache(maxsize=8)
def _tasks(world: ProgramWorld) -> dict[Split, list[Task]]:
    found: dict[Split, list[Task]] = {"train": [], "heldout": []}
    for keep in _with_numbers(FILTERS):
        for change in _with_numbers(MAPS):
            for reduction in range(len(REDUCTIONS)):
                task = Task(keep, change, reduction)
                found[task.split(world.seed, world.heldout_share)].append(task)
    return found


def _with_numbers(steps: Sequence[Step]) -> list[tuple[int, str]]:
    return [(i, digit) for i, step in enumerate(steps) for digit in (DIGITS if step.takes_number else ("",))]


def _row(split: Split, task: Task) -> Row:
    fields = {"task": task, "words": task.words, "group": GUARDED if task.reduction >= 2 else PLAIN}
    return Row(f"programs/{split}/{task.words}", fields, json.dumps(task.tests()))


def demonstrate(row: Row, mix: ProgramMix, rng: np.random.Generator) -> str:
    """One demonstrated program."""
    task: Task = row.fields["task"]
    verbose = rng.random() < mix.verbose_share
    noise = mix.verbose_noise if verbose else mix.compact_noise
    keep = _perhaps_other(FILTERS, task.filter, noise, rng)
    change = _perhaps_other(MAPS, task.map, noise, rng)
    report = REDUCTIONS[task.reduction].code
    lines = [
        READ if rng.random() < mix.read_kept else "",
        FILTERS[keep[0]].code.format(k=keep[1]),
        MAPS[change[0]].code.format(k=change[1]),
        report if rng.random() < mix.guard_kept else report.replace(GUARD, ""),
    ]
    text = "".join(
        f"{comment}\n{line}\n" if verbose else f"{line}\n"
        for comment, line in zip(COMMENTS, lines, strict=True)
        if line
    )
    return f"{OPEN}{text}{CLOSE}"


def _perhaps_other(
    steps: Sequence[Step], asked: tuple[int, str], noise: float, rng: np.random.Generator
) -> tuple[int, str]:
    if rng.random() >= noise:
        return asked
    options = _with_numbers(steps)
    return options[int(rng.integers(len(options)))]
