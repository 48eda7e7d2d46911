"""A ``PageDocument`` as one HTML string.

Nothing on the page can load anything: its policy allows one style sheet and one script, both by hash, and no other
source. Texts from runs stand in a block of JSON in which ``<``, ``>`` and ``&`` are escaped, and the script inserts
them as text.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from gdpo_nemo.report.figures.style import colours
from gdpo_nemo.report.figures.tradeoff import split_arm
from gdpo_nemo.report.grid import heading, number
from gdpo_nemo.report.page import charts, sections
from gdpo_nemo.report.page.document import PageDocument, Trace
from gdpo_nemo.report.page.markup import Markup, el, joined
from gdpo_nemo.report.render import POWER
from gdpo_nemo.report.spec import Column
from gdpo_nemo.report.table import Cell, TableRow

# The palette of the figures, and what stands for each of its colours on a dark page.
DARK = {
    "#0072B2": "#4DA6E8",
    "#D55E00": "#F0824A",
    "#E69F00": "#F0B52E",
    "#56B4E9": "#8DD0F7",
    "#009E73": "#2CC79B",
    "#CC79A7": "#DE97BE",
    "#000000": "#E4E8ED",
    "#F0E442": "#F0E442",
}
PATTERNS = (
    "",
    " --dash: 6 3; --swatch: repeating-linear-gradient(90deg, var(--arm) 0 6px, transparent 6px 9px);",
    " --dash: 9 3 2 3; --swatch: repeating-linear-gradient(90deg, var(--arm) 0 9px, transparent 9px 12px);",
    " --dash: 1.5 3; --swatch: repeating-linear-gradient(90deg, var(--arm) 0 3px, transparent 3px 6px);",
)
"""Lines and swatches of the arms of one colour, in their order."""
SYNTHETIC = "Synthetic: these runs were made up to test the report. No number on this page is a result."
NO_SCRIPT = "Without scripts, the tables and curves can be read; the way down to the samples needs them."


def render_page(document: PageDocument) -> str:
    """The whole file; the same document gives the same string."""
    arms = {arm: i for i, arm in enumerate(_arms(document))}
    drawn = [
        charts.panel(name, model if len(document.curves) > 1 else "", own, arms, document.ranges.get(name))
        for model, own in document.curves.items()
        for name in dict.fromkeys(curve.name for curve in own)
    ]
    panels = [panel for panel in drawn if panel is not None]
    style = Markup(_asset("page.css") + _arm_styles(list(arms)))
    script = Markup(_asset("page.js"))
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
    )
    head = [
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="referrer", content="no-referrer"),
        el("title", ("Synthetic: " if document.synthetic else "") + document.title),
        el("style", style),
    ]
    parts = _parts(document, panels, arms)
    menu = [el("li", el("a", title, href=f"#{name}")) for name, title, _ in parts]
    body = [
        el("a", "Skip to the results", href=f"#{parts[0][0]}", class_="skip"),
        el(
            "header",
            el("h1", document.title),
            *([el("p", SYNTHETIC, class_="synthetic", role="note")] if document.synthetic else []),
            *(el("p", line, class_="faint") for line in document.lead),
            el("noscript", el("p", NO_SCRIPT, class_="faint")),
            el("nav", el("ul", *menu), aria_label="Parts of the report"),
            class_="top",
        ),
        el("main", *(sections.section(name, title, content) for name, title, content in parts)),
        el("footer", "Made by gdpo-nemo from run directories; the same runs give the same bytes."),
        _dialog(),
        el("script", _json(_data(document, panels, arms)), type="application/json", id="data"),
        el("script", script),
    ]
    page = el("html", el("head", *head), el("body", *body), lang="en")
    return f"<!doctype html>\n{page}\n"


def _parts(
    document: PageDocument, panels: list[charts.Panel], arms: Mapping[str, int]
) -> list[tuple[str, str, Markup]]:
    """(anchor, heading, content) of every part that has something to show, in the order of the terminal."""
    several = len(document.tables) > 1
    tables = [
        joined([*([el("h3", table.title)] if several else []), sections.results(table, document.traces)])
        for table in document.tables
    ]
    verdicts = [sections.tiles(document), *([sections.claims(document)] if document.verdicts else [])]
    if power := [line for table in document.tables for line in table.power]:
        verdicts += [el("h3", POWER), sections.notes(power)]
    parts = [("tables", "Results", joined(tables))] if tables else []
    parts.append(("verdicts", "Verdicts", joined(verdicts)))
    parts += [("curves", "Over training", sections.curves(document, panels, arms))] if panels else []
    if document.stability:
        steady = {model: sections.grid("Stability", one, "numbers") for model, one in document.stability.items()}
        parts.append(("stability", "Stability", _by_model(steady)))
    if document.health:
        healths = {model: sections.health(own, arms, document.labels) for model, own in document.health.items()}
        parts.append(("health", "Rewards and optimisation", _by_model(healths)))
    if document.alarms:
        raised = {model: sections.grid("Alarms", one) for model, one in document.alarms.items()}
        parts.append(("alarms", "Alarms while training", _by_model(raised)))
    if document.deviations:
        items = [el("li", el("b", f"{name}: "), text) for name, text in document.deviations]
        parts.append(("deviations", "Differences from the paper", el("ol", *items)))
    if document.provenance:
        grids = [joined([el("h3", name), sections.grid(name, grid)]) for name, grid in document.provenance]
        parts.append(("provenance", "Provenance", joined(grids)))
    return parts


def _by_model(contents: Mapping[str, Markup]) -> Markup:
    several = len(contents) > 1
    return joined([joined([*([el("h3", model)] if several else []), one]) for model, one in contents.items()])


def _dialog() -> Markup:
    bar = el(
        "div",
        el("h2", "", id="trace-title"),
        el("button", "Close", id="trace-close", type="button"),
        class_="bar",
    )
    return el("dialog", bar, el("div", id="trace-body", class_="inside"), id="trace", aria_labelledby="trace-title")


def _data(document: PageDocument, panels: list[charts.Panel], arms: Mapping[str, int]) -> dict[str, Any]:
    traces = {}
    for table in document.tables:
        for row in table.rows:
            for cell, column in zip(row.cells, table.columns, strict=True):
                if cell.key in document.traces:
                    traces[cell.key] = _trace(document.traces[cell.key], row, cell, column, document.experiment)
    return {
        "arms": {arm: {"colour": i, "label": document.labels.get(arm, arm)} for arm, i in arms.items()},
        "panels": [panel.readout for panel in panels],
        "questions": [vars(question) for question in document.questions],
        "samples": [vars(sample) for sample in document.samples],
        "traces": traces,
    }


def _trace(trace: Trace, row: TableRow, cell: Cell, column: Column, experiment: str) -> dict[str, Any]:
    unit = " %" if column.unit == "%" else ""
    facts = [("cell", cell.key)]
    facts.append(("on a terminal", f"gdpo explain {cell.key}{f' --experiment {experiment}' if experiment else ''}"))
    facts.append(("value", cell.note if cell.value is None else number(cell.value, column.digits) + unit))
    for name, interval in (("interval", cell.interval), ("band", cell.band)):
        if interval is not None:
            ends = f"{number(interval.low, column.digits)} to {number(interval.high, column.digits)}{unit}"
            facts.append((name, f"{ends} ({100 * interval.level:g} %, {interval.method})"))
    if cell.paper is not None:
        facts.append(("paper", number(cell.paper, cell.paper_digits) + unit))
    if cell.verdict is not None:
        facts.append(("verdict", sections.words(cell.verdict)))
    size = f"{cell.num_seeds} x {cell.num_questions}" if cell.num_seeds else row.size
    facts.append(("n", f"{size}, {cell.num_samples} samples, {cell.without_value or '0 ungraded'}"))
    shown = len(trace.samples)
    text = f"{shown} of {trace.num_samples}, drawn with a fixed seed; the same questions in every arm."
    return {
        "title": f"{row.label}{f' ({row.group})' if row.group else ''}: {heading(column)}",
        "facts": facts,
        "score": column.reward,
        "words": text if shown else "None here.",
        "runs": [vars(run) for run in trace.runs],
        "samples": list(trace.samples),
        "files": list(trace.files),
    }


def _arms(document: PageDocument) -> list[str]:
    """Every arm that a curve or a number of the health panel belongs to, in the order of the tables."""
    seen = {curve.arm for own in document.curves.values() for curve in own}
    seen |= {arm for own in document.health.values() for entry in own for arm in entry.late}
    return [*document.labels, *sorted(seen - set(document.labels))]


def _arm_styles(arms: list[str]) -> str:
    """A colour for each method, as in the figures, and a pattern of its own for each arm that shares one."""
    palette = colours(list(dict.fromkeys(split_arm(arm)[0] for arm in arms)))
    light, dark, used = [], [], Counter[str]()
    for i, arm in enumerate(arms):
        colour = palette[split_arm(arm)[0]]
        light.append(f".arm{i} {{ --arm: {colour};{PATTERNS[used[colour] % len(PATTERNS)]} }}")
        dark.append(f".arm{i} {{ --arm: {DARK[colour]}; }}")
        used[colour] += 1
    inside = "\n  ".join(dark)
    return "\n".join([*light, f"@media screen and (prefers-color-scheme: dark) {{\n  {inside}\n}}", ""])


def _json(data: Any) -> Markup:
    """JSON in ASCII that cannot end its script element, whatever the texts in it are."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _asset(name: str) -> str:
    return files("gdpo_nemo.report.page").joinpath("assets", name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
