"""A table as rows of words, before any markup: what all renderings print in the same order.

Two layouts. Without numbers of the paper's: a row per arm, a column per column. With them: a row per column and arm,
with paper, band, ours, interval, n and verdict.
"""

from __future__ import annotations

from dataclasses import dataclass

from gdpo_nemo.report.reproduction import CELL_WORDS
from gdpo_nemo.report.spec import Column
from gdpo_nemo.report.table import Cell, Table, TableRow
from gdpo_nemo.stats import Interval

AGAINST_PAPER: tuple[str, ...] = ("", "", "paper", "band", "ours", "interval", "n", "verdict")
NUM_LABELS_AGAINST_PAPER = 2
UNKNOWN = "-"


@dataclass(frozen=True)
class Text:
    """One cell of a rendering; ``best`` is marked as each rendering does."""

    text: str
    best: bool = False
    after: str = ""


@dataclass(frozen=True)
class Block:
    """Rows of one model; no name where the table has one model only and does not say which."""

    name: str
    rows: tuple[tuple[Text, ...], ...]


@dataclass(frozen=True)
class Grid:
    """Headings, and the rows of each model; the first ``num_labels`` columns name the row."""

    headings: tuple[str, ...]
    num_labels: int
    blocks: tuple[Block, ...]


def grid(table: Table) -> Grid:
    """The words of a table in its layout."""
    headings, num_labels, lay_out = ("", *map(heading, table.columns), "n"), 1, _row_per_arm
    if table.against_paper:
        headings, num_labels, lay_out = AGAINST_PAPER, NUM_LABELS_AGAINST_PAPER, _row_per_cell
    blocks = [
        Block(group, tuple(lay_out(table, [row for row in table.rows if row.group == group]))) for group in table.groups
    ]
    return Grid(headings, num_labels, tuple(blocks))


def heading(column: Column) -> str:
    """Title and unit."""
    return f"{column.title} (%)" if column.unit == "%" and "%" not in column.title else column.title


def number(value: float, digits: int) -> str:
    """A number as printed, never minus zero."""
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text


def _row_per_arm(table: Table, rows: list[TableRow]) -> list[tuple[Text, ...]]:
    return [
        (
            Text(row.label),
            *(_value(cell, column, with_interval=True) for cell, column in zip(row.cells, table.columns, strict=True)),
            Text(row.size),
        )
        for row in rows
    ]


def _row_per_cell(table: Table, rows: list[TableRow]) -> list[tuple[Text, ...]]:
    lines: list[tuple[Text, ...]] = []
    for i, column in enumerate(table.columns):
        for row in rows:
            cell = row.cells[i]
            digits = max(column.digits, cell.paper_digits)
            lines.append(
                (
                    Text(heading(column) if row is rows[0] else ""),
                    Text(row.label),
                    Text(UNKNOWN if cell.paper is None else number(cell.paper, cell.paper_digits)),
                    Text(_span(cell.band, digits)),
                    _value(cell, column, with_interval=False),
                    Text(_span(cell.interval, column.digits)),
                    Text(_size(cell, row)),
                    Text(CELL_WORDS[cell.verdict] if cell.verdict else cell.note or UNKNOWN),
                )
            )
    return lines


def _value(cell: Cell, column: Column, *, with_interval: bool) -> Text:
    if cell.value is None:
        return Text(cell.note)
    after = f" {_span(cell.interval, column.digits)}" if with_interval and cell.interval else ""
    if cell.one_model:
        after += " (q)"
    if cell.without_value:
        after += f" ({cell.without_value})"
    return Text(number(cell.value, column.digits), cell.best, after)


def _span(interval: Interval | None, digits: int) -> str:
    return f"[{number(interval.low, digits)}, {number(interval.high, digits)}]" if interval else UNKNOWN


def _size(cell: Cell, row: TableRow) -> str:
    if not cell.num_seeds:
        return "" if len(row.seeds_planned) < 2 else f"0 of {len(row.seeds_planned)} seeds"
    used, planned = cell.num_seeds, len(row.seeds_planned)
    return f"{used}{'' if used == planned else f' of {planned}'} x {cell.num_questions}"
