"""What a command gives back, and plain text tables."""

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


def table(rows: Sequence[Sequence[str]], indent: str = "  ") -> str:
    """Rows of cells as aligned lines."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(f"{indent}{line}".rstrip() for line in lines)


def listing(pairs: Sequence[tuple[str, str]], indent: str = "  ") -> str:
    """Labelled values, one a line."""
    return table([[label, value] for label, value in pairs if value], indent)


def shortened(names: Sequence[str], limit: int = 6) -> str:
    """A comma-separated list that stays on one line."""
    rest = len(names) - limit
    return ", ".join(names) if rest <= 0 else f"{', '.join(names[:limit])} and {rest} more"
