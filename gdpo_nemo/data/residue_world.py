r"""A procedurally generated world of arithmetic in which length costs and longer answers are more often right.

A problem gives a number and a chain of operations modulo a small prime; the answer goes into ``\boxed{}``. Each
operation is a table of ``modulus`` facts, which the warm-up teaches in worked answers. A chain can be worked step by
step, after a list of the steps to do (``verbose``) or without one (``concise``), or answered at once (``direct``). A
direct answer of the warm-up names a random number: nothing shows at once which number a whole chain leads to, so there
is none to remember, and a direct answer is a guess on training prompts as on held-out ones. Under a length limit that
a concise answer to the shorter chains meets and one to the longest does not, the easy problems have an answer that is
right and short, and the hard ones have to choose.

Chains are split into train and held-out by hash.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np

from gdpo_nemo.data.questions import ATTEMPTS, DrawnWorld, Split, check_shares, split_of
from gdpo_nemo.errors import InputError
from gdpo_nemo.types import Row

OPERATIONS: dict[str, Callable[[int], int]] = {
    "double": lambda x: 2 * x,
    "add 5": lambda x: x + 5,
    "negate": lambda x: -x,
    "square": lambda x: x * x,
    "triple": lambda x: 3 * x,
    "subtract 4": lambda x: x - 4,
}
HARD, EASY = "hard", "easy"


@dataclass(frozen=True)
class StyleMix:
    """Shares and noise of demonstrated answers after the clean phase; what is left of the shares guesses at once.

    Attributes:
        verbose_share: share of answers that list the operations and then state each step.
        concise_share: share of answers that state each step alone.
        verbose_noise: chance that a verbose step names a random number (later steps follow from it).
        concise_noise: likewise of a concise step.
        hard_guesses: share of answers to the hard problems that are guessed at once, whatever their style would be.
    """

    verbose_share: float = 0.4
    concise_share: float = 0.35
    verbose_noise: float = 0.05
    concise_noise: float = 0.15
    hard_guesses: float = 0.5

    def __post_init__(self) -> None:
        check_shares(self)
        if self.verbose_share + self.concise_share > 1:
            raise InputError(f"mix: the shares {self.verbose_share} and {self.concise_share} add up to more than 1")


CLEAN = StyleMix(verbose_share=0.5, concise_share=0.5, verbose_noise=0.0, concise_noise=0.0, hard_guesses=0.0)


@dataclass(frozen=True)
class ResidueWorld(DrawnWorld):
    """Size and seed of the world.

    Attributes:
        kind: names this world in a configuration.
        seed: draws which chains are held out.
        modulus: of all calculations, 3 to 31.
        num_operations: how many kinds, 1 to 6.
        min_operations: shortest chain.
        max_operations: longest chain; chains of this length are the hard ones.
        heldout_share: share of chains kept for evaluation.
        mix: behaviour of the model before reinforcement learning.
    """

    enlarged_by: ClassVar[str] = "embedded.data.num_operations, max_operations or heldout_share"

    kind: Literal["residues"] = "residues"
    seed: int = 0
    modulus: int = 7
    num_operations: int = 6
    min_operations: int = 2
    max_operations: int = 3
    heldout_share: float = 0.25
    mix: StyleMix = StyleMix()

    def __post_init__(self) -> None:
        limits = {"modulus": (3, 31), "num_operations": (1, len(OPERATIONS)), "max_operations": (2, 6)}
        self.check_limits(limits | {"min_operations": (1, self.max_operations)})

    @property
    def operations(self) -> tuple[str, ...]:
        """The operations of this world."""
        return tuple(OPERATIONS)[: self.num_operations]

    def results(self, start: int, operations: tuple[str, ...]) -> list[int]:
        """The number after each operation of a chain."""
        reached: list[int] = []
        for operation in operations:
            reached.append(self.apply(operation, reached[-1] if reached else start))
        return reached

    def apply(self, operation: str, number: int) -> int:
        """One operation modulo ``modulus``."""
        return OPERATIONS[operation](number) % self.modulus

    def row(self, split: Split, rng: np.random.Generator) -> Row:
        """See ``DrawnWorld``."""
        for _ in range(ATTEMPTS):
            length = int(rng.integers(self.min_operations, self.max_operations + 1))
            start = int(rng.integers(self.modulus))
            chain = tuple(self.operations[int(rng.integers(self.num_operations))] for _ in range(length))
            if split_of((str(self.seed), str(start), *chain), self.heldout_share) == split:
                break
        else:
            raise InputError(f"found no {split} chain in {self}; raise heldout_share, modulus or num_operations")
        fields: dict[str, Any] = {
            "start": start,
            "operations": chain,
            "modulus": self.modulus,
            "group": HARD if length == self.max_operations else EASY,
        }
        gold = str(self.results(start, chain)[-1])
        return Row(f"residues/{split}/{start} {'; '.join(chain)} mod {self.modulus}", fields, gold)


def demonstrate(world: ResidueWorld, row: Row, mix: StyleMix, rng: np.random.Generator) -> str:
    """One demonstrated answer to a row."""
    start, chain = row.fields["start"], row.fields["operations"]
    style = rng.random()
    gives_up = row.fields["group"] == HARD and rng.random() < mix.hard_guesses
    if gives_up or style >= mix.verbose_share + mix.concise_share:
        return f"\\boxed{{{int(rng.integers(world.modulus))}}}"
    verbose = style < mix.verbose_share
    noise = mix.verbose_noise if verbose else mix.concise_noise
    reached = [start]
    for operation in chain:
        wrong = rng.random() < noise
        reached.append(int(rng.integers(world.modulus)) if wrong else world.apply(operation, reached[-1]))
    steps = [f"{operation}: {after}" for operation, (_, after) in zip(chain, pairwise(reached), strict=True)]
    return f"{', '.join([*chain, *steps] if verbose else steps)} \\boxed{{{reached[-1]}}}"
