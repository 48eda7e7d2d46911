"""One table, five renderings: plain text, Markdown, LaTeX, HTML, and CSV with unrounded values."""

from __future__ import annotations

import csv
import html
import io
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence

from gdpo_nemo.report.captions import SYNTHETIC
from gdpo_nemo.report.grid import Grid, Text, grid
from gdpo_nemo.report.table import Table
from gdpo_nemo.terminal import columns, sentences, table_rows

CSV_FIELDS = (
    "model", "arm", "label", "column", "title", "unit", "paper", "band_low", "band_high", "value", "low", "high",
    "level", "method", "iqm", "verdict", "seeds", "seeds_planned", "seed_list", "questions", "samples", "ungraded",
    "does_not_apply", "failed", "best", "note", "key", "synthetic",
)  # fmt: skip
LATEX_ESCAPES = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip
MARKDOWN_SPECIAL = "\\|*_`<~$"
LINE_BREAK = re.compile(r"\s*[\r\n\v\f\x85\u2028\u2029]+\s*")
CLAIMS, POWER, MISSING, DEVIATIONS = "Claims", "What these runs can tell", "No result yet", "Differences from the paper"
NOTES = "These runs"


def to_text(table: Table) -> str:
    """For a terminal: no colour, no box drawing."""
    words = grid(table)
    lines = [[(block.name, row) for row in block.rows] for block in words.blocks]
    cells = [list(words.headings), *([_marked(text, "{}*") for text in row] for rows in lines for _, row in rows)]
    printed = ["\n".join(row) for row in table_rows(cells, indent="")]
    rule = "-" * max(len(line) for row in printed for line in row.splitlines())
    body, at = [rule, printed[0], rule], 1
    for block in words.blocks:
        body += [block.name] if block.name else []
        body += printed[at : at + len(block.rows)]
        at += len(block.rows)
    blocks = [SYNTHETIC] if table.synthetic else []
    blocks += [table.title]
    blocks += ["\n".join([*body, rule]), textwrap.fill(_caption(table, "*"), columns())]
    for title, items in _lists(table):
        blocks += _text_list(title, items)
    blocks += _text_list(DEVIATIONS, [f"{name}: {text}" for name, text in table.deviations])
    return "\n\n".join(blocks) + "\n"


def to_markdown(table: Table) -> str:
    """For a README or a model card."""
    words = grid(table)
    blocks = [f"**{_markdown(SYNTHETIC)}**"] if table.synthetic else []
    blocks += [f"# {_markdown(table.title)}"]
    for block in words.blocks:
        blocks += [f"### {_markdown(block.name)}"] if block.name else []
        lines = [_markdown_row(words.headings), "|" + "".join(_markdown_rule(words, i) for i in _columns(words))]
        lines += [
            f"| {' | '.join(_marked(text, '**{}**', _markdown) for text in row)} |".replace("|  |", "| |")
            for row in block.rows
        ]
        blocks.append("\n".join(lines))
    blocks.append(_markdown(_caption(table, "Bold")))
    for title, items in _lists(table):
        blocks += _markdown_list(title, items)
    if table.deviations:
        notes = [f"{i}. {_markdown(name)}: {_markdown(text)}" for i, (name, text) in enumerate(table.deviations, 1)]
        blocks += [f"## {DEVIATIONS}", "\n".join(notes)]
    return "\n\n".join(blocks) + "\n"


def to_latex(table: Table) -> str:
    """A ``table`` environment for the booktabs package."""
    words = grid(table)
    banner = f"\\textbf{{{_latex(SYNTHETIC)}}} " if table.synthetic else ""
    num_columns = len(words.headings)
    lines = [
        "% needs \\usepackage{booktabs}",
        "\\begin{table}[t]",
        "\\centering",
        f"\\caption{{{banner}{_latex(table.title)}. {_latex(_caption(table, 'Bold'))}}}",
        f"\\label{{tab:{''.join(c if c.isalnum() else '-' for c in table.name)}}}",
        f"\\begin{{tabular}}{{{'l' * words.num_labels}{'r' * (num_columns - words.num_labels)}}}",
        "\\toprule",
        _latex_row(map(_latex, words.headings)),
    ]
    for block in words.blocks:
        lines.append("\\midrule")
        lines += [f"\\multicolumn{{{num_columns}}}{{l}}{{\\textit{{{_latex(block.name)}}}}} \\\\"] if block.name else []
        lines += [_latex_row(map(_latex_cell, row)) for row in block.rows]
    lines += ["\\bottomrule", "\\end{tabular}", *(f"\\par\\footnotesize {_latex(note)}" for note in table.notes)]
    for title, items in ((CLAIMS, table.claims if table.against_paper else ()), (POWER, table.power)):
        lines += [f"\\par\\footnotesize {title}: {_latex('; '.join(items))}."] if items else []
    if table.missing:
        lines.append(f"\\par\\footnotesize {MISSING}: {_latex('; '.join(table.missing))}.")
    for index, (name, text) in enumerate(table.deviations, 1):
        lines.append(f"\\par\\footnotesize$^{{{index}}}$ {_latex(name)}: {_latex(text)}.")
    return "\n".join([*lines, "\\end{table}", ""])


def to_html(table: Table) -> str:
    """A page of its own without script or style, to be opened or copied from."""
    words = grid(table)
    parts = ['<!doctype html>\n<html lang="en">\n<meta charset="utf-8">', f"<title>{html.escape(table.title)}</title>"]
    parts += [f"<p><strong>{html.escape(SYNTHETIC)}</strong></p>"] if table.synthetic else []
    parts += [f"<h1>{html.escape(table.title)}</h1>", "<table>", "<thead><tr>"]
    parts += [f'<th scope="col">{html.escape(word)}</th>' for word in words.headings]
    parts.append("</tr></thead>")
    for block in words.blocks:
        parts.append("<tbody>")
        if block.name:
            span = len(words.headings)
            parts.append(f'<tr><th colspan="{span}" scope="rowgroup">{html.escape(block.name)}</th></tr>')
        for row in block.rows:
            marked = [_marked(text, "<strong>{}</strong>", html.escape) for text in row]
            labels = [f'<th scope="row">{text}</th>' for text in marked[: words.num_labels]]
            cells = [f"<td>{text}</td>" for text in marked[words.num_labels :]]
            parts.append(f"<tr>{''.join(labels + cells)}</tr>")
        parts.append("</tbody>")
    parts += ["</table>", f"<p>{html.escape(_caption(table, 'Bold'))}</p>"]
    for title, items in _lists(table):
        parts += _html_list(title, items)
    parts += _html_list(DEVIATIONS, [f"{name}: {text}" for name, text in table.deviations])
    return "\n".join([*parts, "</html>", ""])


def to_csv(table: Table) -> str:
    """One row per arm and column; numbers unrounded, empty where there is none."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, CSV_FIELDS, lineterminator="\n")
    writer.writeheader()
    for row in table.rows:
        for cell, column in zip(row.cells, table.columns, strict=True):
            writer.writerow(
                {
                    "model": cell.key.partition(":")[2].partition("/")[0],
                    "arm": row.arm,
                    "label": row.label,
                    "column": column.name,
                    "title": column.title,
                    "unit": column.unit,
                    "paper": cell.paper,
                    "band_low": cell.band and cell.band.low,
                    "band_high": cell.band and cell.band.high,
                    "value": cell.value,
                    "low": cell.interval and cell.interval.low,
                    "high": cell.interval and cell.interval.high,
                    "level": cell.interval and cell.interval.level,
                    "method": cell.interval and cell.interval.method,
                    "iqm": cell.iqm,
                    "verdict": cell.verdict,
                    "seeds": cell.num_seeds,
                    "seeds_planned": len(row.seeds_planned),
                    "seed_list": " ".join(map(str, row.seeds_used)),
                    "questions": cell.num_questions,
                    "samples": cell.num_samples,
                    "ungraded": cell.num_ungraded,
                    "does_not_apply": cell.num_inapplicable,
                    "failed": cell.num_failed,
                    "best": int(cell.best),
                    "note": cell.note,
                    "key": cell.key,
                    "synthetic": "SYNTHETIC" if table.synthetic else "",
                }
            )
    return buffer.getvalue()


def _lists(table: Table) -> tuple[tuple[str, Sequence[str]], ...]:
    """What stands under a table and its caption, in order."""
    return ((NOTES, table.notes), (CLAIMS, table.claims), (POWER, table.power), (MISSING, table.missing))


def _caption(table: Table, best: str) -> str:
    return " ".join([*table.caption, *([f"{best}: {table.best_note}"] if table.best_note else [])])


def _marked(text: Text, mark: str, escape: Callable[[str], str] = str) -> str:
    value = escape(text.text)
    return (mark.format(value) if text.best else value) + escape(text.after)


def _columns(words: Grid) -> range:
    return range(len(words.headings))


def _text_list(title: str, items: Sequence[str]) -> list[str]:
    return [f"{title}:\n{sentences(items, '  ')}"] if items else []


def _markdown_list(title: str, items: Sequence[str]) -> list[str]:
    return [f"## {title}", "\n".join(f"- {_markdown(item)}" for item in items)] if items else []


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_markdown, cells))} |"


def _markdown_rule(words: Grid, i: int) -> str:
    return " --- |" if i < words.num_labels else " ---: |"


def _markdown(text: str) -> str:
    return "".join("\\" + c if c in MARKDOWN_SPECIAL else c for c in _one_line(text))


def _one_line(text: str) -> str:
    return LINE_BREAK.sub(" ", text)


def _html_list(title: str, items: Sequence[str]) -> list[str]:
    if not items:
        return []
    return [f"<h2>{title}</h2>", "<ul>", *(f"<li>{html.escape(item)}</li>" for item in items), "</ul>"]


def _latex_row(cells: Iterable[str]) -> str:
    """Guarded where a row break before it would take its first character as an argument."""
    line = " & ".join(cells) + " \\\\"
    return "{}" + line if line[0] in "[*" else line


def _latex_cell(text: Text) -> str:
    number = text.text.lstrip("-[").replace(".", "").replace(", ", "").replace("]", "").replace("-", "")
    if number.isdigit() or text.after:
        return _marked(text, "\\textbf{{{}}}", _latex).replace("-", "$-$")
    return _latex(text.text).replace(" x ", " $\\times$ ")


def _latex(text: str) -> str:
    return "".join(LATEX_ESCAPES.get(c, c) for c in _one_line(text))
