"""Two columns against each other, one point per arm: accuracy against exceed ratio over length weights. Figure 6.

The arms of one method that differ in the weight of a reward are a series, joined in the order of the weights. A point
is the mean over seeds of the table's cell and the bars are the cells' intervals, so the figure shows nothing that
the table does not.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gdpo_nemo.errors import InputError, UnknownNameError
from gdpo_nemo.files import csv_text
from gdpo_nemo.report.figures import style
from gdpo_nemo.report.spec import Column
from gdpo_nemo.report.table import Cell, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_PANELS_PER_ROW = 3
TITLE_WIDTH = 48  # characters
LABEL_POINTS = 10
NEAR = 0.06  # of the span of a panel's points, in both directions
WEIGHTED = re.compile(r"(?P<method>.+)_w(?P<weight>\d+(\.\d+)?)")
NOTE = "Point: mean over seeds, the weight beside it. Bars: the intervals of both means."


XY = tuple[float, float]


@dataclass(frozen=True)
class Point:
    """One arm in one panel.

    Attributes:
        panel: heading of the panel.
        method: the arm's name less its weight; one line and colour.
        weight: of the reward that is varied; 1 for an arm whose name has none.
        label: the arm's name in tables.
        x, y: cells of the two columns; a cell without a value leaves the point out of the drawing.
    """

    panel: str
    method: str
    weight: float
    label: str
    x: Cell
    y: Cell


def split_arm(arm: str) -> tuple[str, float]:
    """``gdpo_w25``, in percent, or ``gdpo_w0.25`` -> (``gdpo``, 0.25); the weight is 1 where the name has none."""
    match = WEIGHTED.fullmatch(arm)
    if match is None:
        return arm, 1.0
    is_percent = "." not in match["weight"] and len(match["weight"]) > 1
    return match["method"], float(match["weight"]) / (100 if is_percent else 1)


def has_weights(table: Table) -> bool:
    """Whether some arm of a table varies a weight, so that there is a line to draw."""
    return any(split_arm(row.arm)[1] != 1.0 for row in table.rows)


def narrowed(table: Table, names: Sequence[str]) -> Table:
    """A table of the named columns alone, in that order.

    Raises:
        UnknownNameError: the table has no such column.
    """
    place = {column.name: i for i, column in enumerate(table.columns)}
    for name in names:
        if name not in place:
            raise UnknownNameError(f"column of {table.name}", name, place)
    chosen = [place[name] for name in names]
    return replace(
        table,
        columns=tuple(table.columns[i] for i in chosen),
        rows=tuple(replace(row, cells=tuple(row.cells[i] for i in chosen)) for row in table.rows),
    )


def points_of(table: Table) -> list[Point]:
    """The points of a table whose columns come in pairs (x, y), one pair per panel; a base model is left out.

    Raises:
        InputError: the number of columns is odd.
    """
    if len(table.columns) % 2:
        raise InputError(
            f"{table.name}: a trade-off takes pairs of columns (x, y), this table has {len(table.columns)}"
        )
    points = []
    for row in table.rows:
        if row.arm.startswith("base"):
            continue
        method, weight = split_arm(row.arm)
        for i in range(0, len(table.columns), 2):
            heading = _panel(table, i, row.group)
            points.append(Point(heading, method, weight, row.label, row.cells[i], row.cells[i + 1]))
    return points


def to_csv(points: Sequence[Point]) -> str:
    """One row per point; unrounded, empty where there is no value."""
    ends = [f"{axis}{part}" for axis in "xy" for part in ("", "_low", "_high")]
    rows = []
    for point in points:
        numbers = [part for cell in (point.x, point.y) for part in (cell.value, *_ends(cell))]
        size = [point.x.num_seeds, point.x.num_questions]
        rows.append([point.panel, point.method, f"{point.weight:g}", point.label, *numbers, *size])
    return csv_text(["panel", "method", "weight", "label", *ends, "seeds", "questions"], rows)


def write_tradeoff(table: Table, stem: Path) -> None:
    """Write ``<stem>.csv``, ``.png`` and ``.pdf``.

    Raises:
        InputError: the number of columns is odd.
        PrerequisiteError: matplotlib is not installed; the CSV has been written.
    """
    points = points_of(table)
    style.write_figure(lambda: draw_tradeoff(table, points), to_csv(points), stem)


def draw_tradeoff(table: Table, points: Sequence[Point]) -> Figure:
    """The figure itself; a legend entry for every method, run or not."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.lines import Line2D

    methods = list(dict.fromkeys(point.method for point in points))
    panels = list(dict.fromkeys(point.panel for point in points))
    palette = style.colours(methods)
    num_columns = max(1, min(len(panels), MAX_PANELS_PER_ROW))
    num_rows = max(1, -(-len(panels) // num_columns))
    layout = ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.08)
    figure = Figure(figsize=(max(4.4 * num_columns, 6.0), 3.2 * num_rows + 0.9), layout=layout)
    all_axes = figure.subplots(num_rows, num_columns, squeeze=False).flatten()
    for i, axes in enumerate(all_axes):
        if i >= len(panels):
            axes.set_axis_off()
            continue
        pair = 2 * (i % (len(table.columns) // 2))
        _draw_panel(axes, [point for point in points if point.panel == panels[i]], methods, palette)
        axes.set_title(textwrap.fill(panels[i], TITLE_WIDTH), fontsize=11)
        axes.set_xlabel(_axis(table.columns[pair]))
        axes.set_ylabel(_axis(table.columns[pair + 1]))
        style.plain(axes)
    handles = []
    for marker, method in zip(_markers(len(methods)), methods, strict=True):
        own = [point for point in points if point.method == method]
        look: dict[str, Any] = {"color": palette[method], "marker": marker, "linewidth": 1.5, "markersize": 6}
        handles.append(Line2D([], [], label=f"{_method_label(own)} ({_sizes(own)})", **look))
    per_row = style.legend_columns([str(handle.get_label()) for handle in handles], figure.get_figwidth())
    figure.legend(handles=handles, loc="outside upper center", ncols=per_row, frameon=False)
    figure.supxlabel((style.SYNTHETIC if table.synthetic else "") + NOTE, fontsize=8, color="0.35")
    return figure


def _draw_panel(axes: Axes, points: Sequence[Point], methods: Sequence[str], palette: dict[str, str]) -> None:
    shown = [(p.x.value, p.y.value) for p in points if p.x.value is not None and p.y.value is not None]
    near = _nearness(shown)
    labelled: list[XY] = []
    for marker, method in zip(_markers(len(methods)), methods, strict=True):
        own = sorted((point for point in points if point.method == method), key=lambda point: point.weight)
        xy = [(p.x.value, p.y.value, p) for p in own if p.x.value is not None and p.y.value is not None]
        if not xy:
            continue
        colour = palette[method]
        axes.plot(
            [x for x, _, _ in xy], [y for _, y, _ in xy], color=colour, marker=marker, linewidth=1.5, markersize=6
        )
        for x, y, point in xy:
            for cell, other, draw in ((point.x, y, axes.hlines), (point.y, x, axes.vlines)):
                if cell.interval is not None:
                    draw(other, cell.interval.low, cell.interval.high, color=colour, alpha=0.35, linewidth=1.2)
        for text, at in _labels([(x, y, point.weight) for x, y, point in xy], near):
            below = sum(near(at, other) for other in labelled)
            labelled.append(at)
            place = (6, -11 - LABEL_POINTS * below)
            axes.annotate(text, at, xytext=place, textcoords="offset points", fontsize=8, color=colour)
    axes.margins(0.1)
    if not shown:
        axes.text(0.5, 0.5, "not run", transform=axes.transAxes, ha="center", color="0.4")


def _nearness(shown: Sequence[XY]) -> Callable[[XY, XY], bool]:
    """Whether labels at two of the points would lie on each other."""
    spans = [max(values) - min(values) for values in zip(*shown, strict=True)]
    return lambda one, other: all(abs(a - b) <= NEAR * span for a, b, span in zip(one, other, spans, strict=True))


def _labels(points: Sequence[tuple[float, float, float]], near: Callable[[XY, XY], bool]) -> list[tuple[str, XY]]:
    """Texts and places of one method's weights, in their order; those that lie on each other share one."""
    together: list[list[tuple[float, float, float]]] = []
    for point in points:
        if together and near(together[-1][0][:2], point[:2]):
            together[-1].append(point)
        else:
            together.append([point])
    return [(" to ".join(dict.fromkeys(f"{some[i][2]:g}" for i in (0, -1))), some[0][:2]) for some in together]


def _panel(table: Table, i: int, group: str) -> str:
    """What the pair's benchmark is called, and the model where the table has several."""
    names = [table.columns[i].benchmark] if len(table.columns) > 2 else []
    names += [group] if group and len({row.group for row in table.rows}) > 1 else []
    return ", ".join(names) or table.title


def _axis(column: Column) -> str:
    unit = " (%)" if column.unit == "%" and "%" not in column.title else ""
    return f"{column.title}{unit}\n{column.better} is better"


def _method_label(points: Sequence[Point]) -> str:
    """The label of the arm that carries the full weight, or of the first one."""
    whole = [point.label for point in points if point.weight == 1.0]
    return (whole or [point.label for point in points])[0]


def _sizes(points: Sequence[Point]) -> str:
    seeds = sorted({point.x.num_seeds for point in points if point.x.value is not None})
    return f"n = {' or '.join(map(str, seeds))}" if seeds else "not run"


def _markers(count: int) -> list[str]:
    return [style.MARKERS[i % len(style.MARKERS)] for i in range(count)]


def _ends(cell: Cell) -> tuple[float | None, float | None]:
    return (cell.interval.low, cell.interval.high) if cell.interval else (None, None)
