"""The parts of the page that can be read without its script: tables, verdicts, curves, panels of numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from urllib.parse import quote

import numpy as np

from gdpo_nemo.report.figures.curves import NOTE
from gdpo_nemo.report.figures.tradeoff import split_arm
from gdpo_nemo.report.grid import heading, number
from gdpo_nemo.report.page import charts
from gdpo_nemo.report.page.document import Grid, Health, PageDocument
from gdpo_nemo.report.page.markup import Markup, el, joined
from gdpo_nemo.report.spec import Column
from gdpo_nemo.report.table import BASE, Cell, Table, TableRow
from gdpo_nemo.report.verdict import Verdict

ARMS_AT_FIRST = 8  # more lines than that cannot be told apart
STATUS_ORDER = ("supported", "contradicted", "not_supported", "not_run")
CELL_ORDER = ("reproduced", "direction", "not_reproduced", "underpowered", "not_run")


def words(status: str) -> str:
    """A status as it is read."""
    return status.replace("_", " ")


def section(name: str, heading_text: str, *parts: str) -> Markup:
    """A part of the page that the navigation leads to."""
    return el("section", el("h2", heading_text), *parts, id=name)


def notes(lines: Sequence[str]) -> Markup:
    """Sentences in small print."""
    return el("div", *(el("p", line) for line in lines), class_="notes") if lines else Markup("")


def scroll(name: str, table: Markup) -> Markup:
    """A table that scrolls sideways on a narrow screen, by keyboard too."""
    return el("div", table, class_="scroll", tabindex=0, role="region", aria_label=name)


def tiles(document: PageDocument) -> Markup:
    """How many claims and cells came out how."""
    statuses = Counter[str](verdict.status for verdict in document.verdicts)
    cells = [cell for table in document.tables for row in table.rows for cell in row.cells]
    verdicts = Counter[str](cell.verdict for cell in cells if cell.verdict is not None)
    shown = [(statuses[status], f"claims {words(status)}") for status in STATUS_ORDER] if document.verdicts else []
    shown += [(verdicts[verdict], f"cells {words(verdict)}") for verdict in CELL_ORDER if verdicts]
    lines = (run for trace in document.traces.values() for run in trace.runs)
    runs = {run.path: run.state for run in lines if run.name.split("/")[0] != BASE}
    finished = sum(state == "finished" for state in runs.values())
    items = [el("li", el("b", str(count)), el("span", label)) for count, label in shown]
    if runs:
        items.append(el("li", el("b", f"{finished} of {len(runs)}"), el("span", "runs finished")))
    return el("ul", *items, class_="tiles")


def claims(document: PageDocument) -> Markup:
    """One row per verdict, its interval drawn on the scale of its column."""
    columns = {column.name: column for table in document.tables for column in table.columns}
    reach: dict[str, float] = {}
    for verdict in document.verdicts:
        ends = [verdict.difference or 0.0]
        ends += [verdict.interval.low, verdict.interval.high] if verdict.interval else []
        reach[verdict.claim.on] = max(reach.get(verdict.claim.on, 0.0), *map(abs, ends))
    several = len({verdict.model for verdict in document.verdicts}) > 1
    rows = [_claim(verdict, columns, document.labels, reach, several) for verdict in document.verdicts]
    head = [el("th", name, scope="col") for name in ("verdict", "claim", "difference", "0 in the middle", "n")]
    table = el("table", el("thead", el("tr", *head)), el("tbody", *rows), class_="claims")
    return scroll("Claims", table)


def _claim(
    verdict: Verdict,
    columns: Mapping[str, Column],
    labels: Mapping[str, str],
    reach: Mapping[str, float],
    several: bool,
) -> Markup:
    claim, column = verdict.claim, columns.get(verdict.claim.on)
    digits, name = (column.digits, column.title) if column else (2, claim.on)
    left, right = (labels.get(arm, arm) for arm in (claim.left, claim.right))
    cells = [el("td", el("span", words(verdict.status), class_=f"badge {verdict.status}"))]
    reason = el("span", verdict.reason, class_="faint")
    model = f", {verdict.model}" if several else ""
    cells.append(el("td", f"{left} {claim.relation} {right} on {name}{model} ", reason))
    if verdict.difference is None:
        return el("tr", *cells, el("td", "-"), el("td"), el("td", "-"))
    unit = " points" if verdict.unit == "%" else ""
    low, high = (verdict.interval.low, verdict.interval.high) if verdict.interval else (None, None)
    span = "no interval" if low is None or high is None else f"[{low:+.{digits}f}, {high:+.{digits}f}]"
    drawn = charts.forest(verdict.difference, low, high, reach[claim.on], verdict.status)
    seeds = len(verdict.by_seed or {})
    of = "" if seeds == verdict.seeds_planned else f" of {verdict.seeds_planned}"
    cells += [
        el("td", el("span", f"{verdict.difference:+.{digits}f}{unit} {span}", class_="whole"), *_beside(verdict)),
        el("td", drawn),
        el("td", f"{seeds}{of} x {verdict.num_questions}"),
    ]
    return el("tr", *cells)


def _beside(verdict: Verdict) -> list[Markup]:
    """What stands under a difference: the p-value and the paper's effects."""
    beside = [] if verdict.p_adjusted is None else [f"p = {verdict.p_adjusted:.2g} after Holm"]
    beside += [f"paper: {effect:+g} ({label})" for label, effect in verdict.effects.items()]
    return [el("small", "; ".join(beside), class_="faint under")] if beside else []


def results(table: Table, traces: Mapping[str, object]) -> Markup:
    """One table; a cell that can be traced is a link."""
    names = ["", *(heading(column) for column in table.columns), "n"]
    head = el("thead", el("tr", *(el("th", name, scope="col") for name in names)))
    rows: list[Markup] = []
    group = ""
    for row in table.rows:
        if row.group and row.group != group:
            group = row.group
            rows.append(el("tr", el("th", group, colspan=len(names), scope="colgroup"), class_="group"))
        rows.append(_row(row, table.columns, traces))
    best = [f"*: {table.best_note}"] if table.best_note else []
    missing = [f"No result yet: {'; '.join(table.missing)}."] if table.missing else []
    how = ["A value leads to its runs and samples."] if traces else []
    return joined(
        [
            scroll(table.title, el("table", head, el("tbody", *rows), class_="results")),
            notes([*table.notes, *how, *missing, *table.caption, *best]),
        ]
    )


def _row(row: TableRow, columns: Sequence[Column], traces: Mapping[str, object]) -> Markup:
    cells = []
    for cell, column in zip(row.cells, columns, strict=True):
        inside = _cell(cell, column)
        if cell.key in traces:
            inside = el("a", inside, href=f"#cell={quote(cell.key, safe=':/')}")
        cells.append(el("td", inside, class_="best" if cell.best else None))
    return el("tr", el("th", row.label, scope="row"), *cells, el("td", row.size))


def _cell(cell: Cell, column: Column) -> Markup:
    parts = [el("span", cell.note if cell.value is None else number(cell.value, column.digits), class_="value")]
    small = []
    if cell.interval:
        small.append(f"[{number(cell.interval.low, column.digits)}, {number(cell.interval.high, column.digits)}]")
    small += ["(q)"] if cell.one_model else []
    small += [f"({cell.without_value})"] if cell.without_value else []
    if small:
        parts += [Markup(" "), el("span", " ".join(small), class_="span")]
    if cell.paper is not None:
        digits = max(column.digits, cell.paper_digits)
        band = f" [{number(cell.band.low, digits)}, {number(cell.band.high, digits)}]" if cell.band else ""
        parts += [Markup(" "), el("span", f"paper {number(cell.paper, cell.paper_digits)}{band}", class_="paper")]
    if cell.verdict is not None and cell.verdict != "not_run":
        parts += [Markup(" "), el("span", words(cell.verdict), class_=f"badge {cell.verdict}")]
    return joined(parts)


def curves(document: PageDocument, panels: Sequence[charts.Panel], arms: Mapping[str, int]) -> Markup:
    """The panels, a box to tick for each arm and a slider for the step."""
    drawn = [curve for own in document.curves.values() for curve in own]
    seeds = {arm: {curve.seed for curve in drawn if curve.arm == arm} for arm in arms}
    boxes = []
    ran = [arm for arm in arms if seeds[arm]]
    at_first = ran if len(ran) <= ARMS_AT_FIRST else [arm for arm in ran if split_arm(arm)[1] == 1.0][:ARMS_AT_FIRST]
    for arm, colour in arms.items():
        size = f"n = {len(seeds[arm])}" if seeds[arm] else "not run"
        box = el(
            "input", type="checkbox", value=arm, checked=arm in at_first, disabled=not seeds[arm], class_=f"arm{colour}"
        )
        swatch = el("span", class_=f"swatch arm{colour}")
        boxes.append(el("label", box, swatch, f"{document.labels.get(arm, arm)} ({size})"))
    figures = [
        el(
            "figure",
            el("figcaption", panel.heading, " ", el("small", panel.values)),
            panel.chart,
            el("ul", class_="readout"),
            data_panel=i,
        )
        for i, panel in enumerate(panels)
    ]
    first = min(panel.readout["steps"][0] for panel in panels)
    last = max(panel.readout["steps"][-1] for panel in panels)
    stepper = el(
        "div",
        el("label", "Step", for_="step"),
        el("input", type="range", id="step", min=first, max=last, value=last),
        el("output", str(last), id="step-value", for_="step"),
        class_="stepper",
    )
    rest = len(ran) - len(at_first)
    off = [f"{rest} further arms are switched off at first."] if rest else []
    thinned = {panel.every for panel in panels if panel.every > 1}
    fewer = [f"One step in {max(thinned)} is drawn; the CSV beside the figures has all."] if thinned else []
    explained = "The numbers at a step are the median and the quartiles over the seeds."
    return joined(
        [
            el("fieldset", el("legend", "Arms shown"), *boxes, class_="arms"),
            el("div", *figures, class_="panels"),
            stepper,
            notes([f"{NOTE} {explained}", *off, *fewer]),
        ]
    )


def health(entries: Sequence[Health], arms: Mapping[str, int], labels: Mapping[str, str]) -> Markup:
    """One row per number: its value late in training, and its way there on a scale that the row's arms share."""
    shown = [arm for arm in arms if any(arm in entry.late for entry in entries)]
    head = el("tr", *(el("th", name, scope="col") for name in ("", *(labels.get(arm, arm) for arm in shown))))
    rows = []
    for entry in entries:
        values = np.concatenate([values_T for values_T in entry.medians_T.values()])
        finite = values[np.isfinite(values)]
        low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
        low, high = (min(low, 0.0), max(high, 1.0)) if entry.percent else (low, high)
        cells = []
        for arm in shown:
            if arm not in entry.late or math.isnan(entry.late[arm]):
                cells.append(el("td", "-"))
                continue
            text = f"{entry.late[arm] * 100:.1f} %" if entry.percent else f"{entry.late[arm]:.3g}"
            spark = charts.sparkline(entry.steps_T[arm], entry.medians_T[arm], low, high, arms[arm])
            cells.append(el("td", text, spark))
        rows.append(el("tr", el("th", entry.title, el("small", entry.meaning), scope="row"), *cells))
    return joined(
        [
            scroll("Health", el("table", el("thead", head), el("tbody", *rows), class_="health")),
            notes(
                [
                    "Median over the seeds of the mean over the last tenth of the steps. Lines: the median over the "
                    "seeds at each step, all arms of a row on one scale."
                ]
            ),
        ]
    )


def grid(name: str, table: Grid, class_: str = "words") -> Markup:
    """A table of words."""
    head = el("thead", el("tr", *(el("th", one, scope="col") for one in table.headings)))
    rows = [
        el("tr", el("th", row[0], scope="row"), *(el("td", one) for one in row[1:])) if row else Markup("")
        for row in table.rows
    ]
    parts = [*([head] if table.headings else []), el("tbody", *rows)]
    return joined([scroll(name, el("table", *parts, class_=class_)), notes(table.notes)])
