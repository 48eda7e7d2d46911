"""What a command gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    """The outcome of a command, for a person and for a script.

    Attributes:
        text: what a person reads.
        data: the same as JSON-able values (``--json``).
        exit_code: see the table in ``gdpo --help``.
    """

    text: str
    data: Any
    exit_code: int = 0


def shortened(names: Sequence[str], limit: int = 6) -> str:
    """A comma-separated list that stays on one line."""
    rest = len(names) - limit
    return ", ".join(names) if rest <= 0 else f"{', '.join(names[:limit])} and {rest} more"
