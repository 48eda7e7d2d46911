"""Held-out questions of a world that draws its rows at random."""

from __future__ import annotations

from collections.abc import Iterable

from gdpo_nemo.errors import InputError
from gdpo_nemo.types import Row

MOST_REPEATS = 1000  # draws of known rows in a row after which a world counts as exhausted


def different(rows: Iterable[Row], count: int, keys: str) -> list[Row]:
    """The first ``count`` different rows of an endless draw.

    Args:
        rows: endless.
        count: how many.
        keys: of the configuration that make the world larger, for the message.

    Raises:
        InputError: the world does not have that many.
    """
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
