"""One table, four renderings: Markdown, LaTeX, CSV with unrounded values, plain text."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Sequence

from gdpo_nemo.report.spec import Column
from gdpo_nemo.report.table import Cell, Table

TEXT_WIDTH = 100
CSV_FIELDS = (
    "arm", "label", "column", "title", "unit", "value", "low", "high", "level", "method", "seeds", "seeds_planned",
    "seed_list", "questions", "samples", "ungraded", "best", "note",
)  # fmt: skip
LATEX_ESCAPES = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip
MARKDOWN_SPECIAL = "\\|*_`<"


MARK_TEXT, MARK_MARKDOWN, MARK_LATEX = "{}*", "**{}**", r"\textbf{{{}}}"


def to_text(table: Table) -> str:
    """For a terminal: no colour, no box drawing."""
    grid = [["", *(heading(column) for column in table.columns), "n"]]
    for row in table.rows:
        cells = [_cell_text(cell, column, MARK_TEXT) for cell, column in zip(row.cells, table.columns, strict=True)]
        grid.append([row.label, *cells, row.size])
    widths = [max(len(line[i]) for line in grid) for i in range(len(grid[0]))]
    lines = ["  ".join(part.ljust(width) for part, width in zip(line, widths, strict=True)).rstrip() for line in grid]
    rule = "-" * max(map(len, lines))
    blocks = [
        table.title,
        "\n".join([rule, lines[0], rule, *lines[1:], rule]),
        textwrap.fill(_caption(table, "*"), TEXT_WIDTH),
    ]
    blocks += _text_list("Claims", table.claims)
    blocks += _text_list("No result yet", table.missing)
    blocks += _text_list("Differences from the paper", [f"{name}: {text}" for name, text in table.deviations])
    return "\n\n".join(blocks) + "\n"


def to_markdown(table: Table) -> str:
    """For a README or a model card."""
    header = ["", *(heading(column) for column in table.columns), "n"]
    lines = [_markdown_row(header), "|" + " --- |" + " ---: |" * (len(header) - 1)]
    for row in table.rows:
        cells = [_cell_text(cell, column, MARK_MARKDOWN) for cell, column in zip(row.cells, table.columns, strict=True)]
        lines.append(f"| {_markdown(row.label)} | {' | '.join(cells)} | {row.size} |")
    blocks = [f"# {_markdown(table.title)}", "\n".join(lines), _markdown(_caption(table, "Bold"))]
    for title, items in (("Claims", table.claims), ("No result yet", table.missing)):
        if items:
            blocks += [f"## {title}", "\n".join(f"- {_markdown(item)}" for item in items)]
    if table.deviations:
        notes = [f"{i}. {_markdown(name)}: {_markdown(text)}" for i, (name, text) in enumerate(table.deviations, 1)]
        blocks += ["## Differences from the paper", "\n".join(notes)]
    return "\n\n".join(blocks) + "\n"


def to_latex(table: Table) -> str:
    """A ``table`` environment for the booktabs package."""
    header = ["", *(heading(column) for column in table.columns), "n"]
    lines = [
        "% needs \\usepackage{booktabs}",
        "\\begin{table}[t]",
        "\\centering",
        f"\\caption{{{_latex(table.title)}. {_latex(_caption(table, 'Bold'))}}}",
        f"\\label{{tab:{''.join(c if c.isalnum() else '-' for c in table.name)}}}",
        f"\\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
        "\\toprule",
        " & ".join(map(_latex, header)) + " \\\\",
        "\\midrule",
    ]
    for row in table.rows:
        cells = [_cell_text(cell, column, MARK_LATEX) for cell, column in zip(row.cells, table.columns, strict=True)]
        lines.append(" & ".join([_latex(row.label), *cells, _latex(row.size).replace(" x ", " $\\times$ ")]) + " \\\\")
    lines += ["\\bottomrule", "\\end{tabular}"]
    if table.missing:
        lines.append(f"\\par\\footnotesize No result yet: {_latex('; '.join(table.missing))}.")
    for number, (name, text) in enumerate(table.deviations, 1):
        lines.append(f"\\par\\footnotesize$^{{{number}}}$ {_latex(name)}: {_latex(text)}.")
    return "\n".join([*lines, "\\end{table}", ""])


def to_csv(table: Table) -> str:
    """One row per arm and column; numbers unrounded, empty where there is none."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, CSV_FIELDS, lineterminator="\n")
    writer.writeheader()
    for row in table.rows:
        for cell, column in zip(row.cells, table.columns, strict=True):
            writer.writerow(
                {
                    "arm": row.arm,
                    "label": row.label,
                    "column": column.name,
                    "title": column.title,
                    "unit": column.unit,
                    "value": cell.value,
                    "low": cell.interval and cell.interval.low,
                    "high": cell.interval and cell.interval.high,
                    "level": cell.interval and cell.interval.level,
                    "method": cell.interval and cell.interval.method,
                    "seeds": cell.num_seeds,
                    "seeds_planned": len(row.seeds_planned),
                    "seed_list": " ".join(map(str, row.seeds_used)),
                    "questions": cell.num_questions,
                    "samples": cell.num_samples,
                    "ungraded": cell.num_ungraded,
                    "best": int(cell.best),
                    "note": cell.note,
                }
            )
    return buffer.getvalue()


def heading(column: Column) -> str:
    """Title of a column with its unit."""
    return f"{column.title} (%)" if column.unit == "%" and "%" not in column.title else column.title


def _cell_text(cell: Cell, column: Column, mark: str) -> str:
    if cell.value is None:
        return cell.note
    text = number(cell.value, column.digits)
    if cell.best:
        text = mark.format(text)
    if cell.interval:
        text += f" [{number(cell.interval.low, column.digits)}, {number(cell.interval.high, column.digits)}]"
    if cell.one_model:
        text += " (q)"
    if cell.num_ungraded:
        text += f" ({cell.num_ungraded} ungraded)"
    return text.replace("-", "$-$") if mark == MARK_LATEX else text


def number(value: float, digits: int) -> str:
    """Rounded to the column's decimals, without a minus before zero."""
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text


def _caption(table: Table, best: str) -> str:
    return " ".join([*table.caption, *([f"{best}: {table.best_note}"] if table.best_note else [])])


def _text_list(title: str, items: Sequence[str]) -> list[str]:
    lines = [textwrap.fill(item, TEXT_WIDTH, initial_indent="  ", subsequent_indent="    ") for item in items]
    return ["\n".join([f"{title}:", *lines])] if items else []


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_markdown, cells))} |"


def _markdown(text: str) -> str:
    return "".join("\\" + c if c in MARKDOWN_SPECIAL else c for c in text)


def _latex(text: str) -> str:
    return "".join(LATEX_ESCAPES.get(c, c) for c in text)
