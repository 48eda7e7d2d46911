"""Text for a terminal: tables, lists and sentences without colour or box drawing.

Lines have at most ``WIDTH`` columns, or as many as a narrower terminal has. What goes into a file or a pipe does not
depend on the terminal.
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TextIO

WIDTH, NARROWEST = 100, 60
GAP = "  "
TOGETHER = re.compile(r"\[[^][]{,24}\]|\d %|\d x \d")  # an interval, a share, a size: each stays on one line
COMMAND = re.compile(r"`[^`]{,80}`|\b(?:pip install|git clone|gdpo [a-z]+|Did you mean) \S+")  # to be copied whole
KEPT_SPACE = "\N{NO-BREAK SPACE}"


def columns(stream: TextIO | None = None) -> int:
    """How many columns the lines of a stream (default: standard output) may have."""
    wide = shutil.get_terminal_size((WIDTH, 0)).columns if (stream or sys.stdout).isatty() else WIDTH
    return max(NARROWEST, min(WIDTH, wide))


def complaint(message: object) -> str:
    """An error as it goes to standard error.

    In a terminal, lines that are too long go on below themselves, words, paths and commands whole. Elsewhere a line
    stays one line, for those who search a log.
    """
    if not sys.stderr.isatty():
        return f"error: {message}"
    text = COMMAND.sub(lambda match: match[0].replace(" ", KEPT_SPACE), f"error: {message}")
    return _printed("\n".join(part for line in text.splitlines() for part in _complaint_line(line)))


def _complaint_line(line: str) -> list[str]:
    wide, indent = columns(sys.stderr), line[: len(line) - len(line.lstrip())] + GAP
    if len(line) <= wide:
        return [line]
    return textwrap.wrap(line, wide, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def table(rows: Sequence[Sequence[str]], indent: str = "  ") -> str:
    """Rows of cells as aligned lines.

    Where they are wider than ``columns()``, cells go on below themselves, in the columns where this takes the fewest
    lines in all cells together. Words are never broken, so a path that is longer than the line makes it longer.
    """
    return "\n".join("\n".join(lines) for lines in table_rows(rows, indent))


def table_rows(rows: Sequence[Sequence[str]], indent: str = "  ") -> list[list[str]]:
    """The lines of each row of ``table``."""
    if not rows:
        return []
    kept = [list(map(_kept, row)) for row in rows]
    widths = _fitted(kept, columns() - len(indent) - len(GAP) * (len(rows[0]) - 1))
    printed = []
    for row in kept:
        cells = [_wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
        height = max(map(len, cells))
        lines = zip(*([*cell, *[""] * (height - len(cell))] for cell in cells), strict=True)
        printed.append([_line(line, widths, indent) for line in lines])
    return printed


def listing(pairs: Sequence[tuple[str, str]], indent: str = "  ") -> str:
    """Labelled values, one below the other; those without a value are left out."""
    return table([[label.replace(" ", KEPT_SPACE), value] for label, value in pairs if value], indent)


def commands_to_copy(commands: Mapping[str, str], indent: str = "  ") -> str:
    """What each does -> a command: each whole on a line, however long, and what it does where there is room."""
    lines = {f"{indent}{command}": f"  # {does}" for does, command in commands.items()}
    return "\n".join(line + (does if len(line + does) <= columns() else "") for line, does in lines.items())


def sentences(items: Iterable[str], indent: str = "") -> str:
    """Sentences, each on lines of its own."""
    lines = []
    for item in items:
        first, *rest = _wrapped(_kept(item), columns() - len(indent) - len(GAP)) or [""]
        lines += [f"{indent}{first}", *(f"{indent}{GAP}{line}" for line in rest)]
    return _printed("\n".join(lines))


def _line(cells: Sequence[str], widths: Sequence[int], indent: str) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return _printed(f"{indent}{GAP.join(padded)}".rstrip())


def _kept(text: str) -> str:
    return TOGETHER.sub(lambda match: match[0].replace(" ", KEPT_SPACE), text)


def _printed(text: str) -> str:
    return text.replace(KEPT_SPACE, " ")


def _wrapped(cell: str, width: int) -> list[str]:
    if len(cell) <= width:
        return [cell]
    return textwrap.wrap(cell, width, break_long_words=False, break_on_hyphens=False)


def _fitted(rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """A width for each column, as wide as its cells or, where the room does not allow it, as its longest word."""
    columns = list(zip(*rows, strict=True))
    least = [max(len(word) for cell in column for word in cell.split(" ")) for column in columns]
    least[-1] = min(least[-1], room // 3)  # nothing stands to the right of what is longer
    widths = [max(low, min(max(map(len, column)), room)) for low, column in zip(least, columns, strict=True)]
    heights = [_height(column, width) for column, width in zip(columns, widths, strict=True)]
    while sum(widths) > room:
        narrower = {i: _height(columns[i], width - 1) for i, width in enumerate(widths) if width > least[i]}
        if not narrower:
            break
        chosen = min(narrower, key=lambda i: (narrower[i] - heights[i], -widths[i]))
        widths[chosen] -= 1
        heights[chosen] = narrower[chosen]
    return widths


def _height(column: Sequence[str], width: int) -> int:
    return sum(len(_wrapped(cell, width)) for cell in column)
