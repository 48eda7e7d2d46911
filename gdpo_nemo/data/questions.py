"""Worlds of rows drawn at random: what is trained on, and the held-out questions."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any, ClassVar, Literal

import numpy as np

from gdpo_nemo.errors import InputError
from gdpo_nemo.randomness import stream
from gdpo_nemo.types import Row

Split = Literal["train", "heldout"]
ATTEMPTS = 10_000  # draws before a world counts as one without a row of that split
MOST_REPEATS = 1000  # draws of known rows in a row after which a world counts as exhausted


class DrawnWorld(ABC):
    """A world whose rows are drawn one by one.

    Attributes:
        enlarged_by: the keys of the configuration that make it larger, for messages.
        heldout_share: share of its rows kept for evaluation.
    """

    enlarged_by: ClassVar[str]
    heldout_share: float

    @abstractmethod
    def row(self, split: Split, rng: np.random.Generator) -> Row:
        """One row of a split, drawn from ``rng``.

        Raises:
            InputError: found none of that split in ``ATTEMPTS`` draws.
        """

    def rows(self, split: Split, rng: np.random.Generator) -> Iterator[Row]:
        """Endless rows of one split, drawn from ``rng``.

        Raises:
            InputError: a world so small that it has none of that split.
        """
        while True:
            yield self.row(split, rng)

    def questions(self, count: int, seed: int) -> list[Row]:
        """``count`` different held-out rows, the same ones for the same seed.

        Raises:
            InputError: the world does not have that many.
        """
        return _different(self.rows("heldout", stream(seed, "questions")), count, self.enlarged_by)

    def check_limits(self, limits: Mapping[str, tuple[float, float]]) -> None:
        """Refuse a world with a field below its lowest or above its highest value, or with a wrong held-out share.

        Raises:
            InputError: it has one.
        """
        _check_limits(self, limits)
        check_heldout_share(self.heldout_share)


def split_of(parts: Iterable[str], heldout_share: float) -> Split:
    """Where a row belongs, by a hash of the seed of its world and of what it asks."""
    digest = hashlib.sha256("/".join(parts).encode()).digest()
    return "heldout" if digest[0] < 256 * heldout_share else "train"


def check_heldout_share(share: float) -> None:
    """Refuse a share that leaves nothing to train on, or no questions.

    Raises:
        InputError: it is not between 0 and 1.
    """
    if not 0 < share < 1:
        raise InputError(f"heldout_share is {share}; it must be above 0 and below 1")


def check_shares(mix: Any) -> None:
    """Refuse a mix of demonstrated behaviour of which a share or chance is none.

    Raises:
        InputError: one is not from 0 to 1.
    """
    _check_limits(mix, dict.fromkeys((field.name for field in fields(mix)), (0, 1)), "mix.")


def _check_limits(block: Any, limits: Mapping[str, tuple[float, float]], prefix: str = "") -> None:
    for name, (lowest, highest) in limits.items():
        if not lowest <= getattr(block, name) <= highest:
            raise InputError(f"{prefix}{name} is {getattr(block, name)}; it must be {lowest} to {highest}")


def _different(rows: Iterable[Row], count: int, keys: str) -> list[Row]:
    """The first ``count`` different rows of an endless draw."""
    found: dict[str, Row] = {}
    repeated = 0
    for row in rows:
        repeated = repeated + 1 if row.id in found else 0
        found[row.id] = row
        if len(found) == count:
            return list(found.values())
        if repeated == MOST_REPEATS:
            break
    raise InputError(
        f"embedded.evaluation.questions is {count}; this world has about {len(found)} held-out rows. "
        f"Ask for fewer, or raise {keys}"
    )
