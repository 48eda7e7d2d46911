"""Charts as SVG elements. Colours come from the style sheet, so that they fit a light and a dark page.

Everything that belongs to an arm has ``data-arm``: the page's script hides and shows it by that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gdpo_nemo.report.figures.curves import Curve, axis_label, drawn_steps, quartiles, title
from gdpo_nemo.report.page.markup import Markup, el, joined
from gdpo_nemo.stats.intervals import FloatArray

WIDTH, HEIGHT = 380, 240
LEFT, RIGHT, TOP, BOTTOM = 44, 8, 10, 36
SPARK_WIDTH, SPARK_HEIGHT, SPARK_POINTS = 84, 22, 60
FOREST_WIDTH, FOREST_HEIGHT = 150, 20
MARGIN = 0.04


@dataclass(frozen=True)
class Panel:
    """One reward or metric over training.

    Attributes:
        heading: what it shows, and of which model where there are several.
        values: what its values are.
        chart: its SVG.
        readout: what the page's script shows at a step: the axis in the units of the drawing, the steps, and
            arm -> [lower quartile, median, upper quartile] at each step or None.
        every: 1, or k where only every k-th step is drawn.
    """

    heading: str
    values: str
    chart: Markup
    readout: Mapping[str, Any]
    every: int


def panel(
    name: str, model: str, curves: Sequence[Curve], arms: Mapping[str, int], declared: tuple[float, float] | None
) -> Panel | None:
    """Draw the curves of one name; None where there is no finished step.

    Args:
        name: of the curves.
        model: shown in the heading; may be empty.
        curves: of one model, under any name.
        arms: arm -> number of its colour.
        declared: range that the panel spans; None for that of the values.
    """
    heading = f"{title(name)}, {model}" if model else title(name)
    own = [curve for curve in curves if curve.name == name]
    if not own:
        return None
    last = max(int(curve.steps_T[-1]) for curve in own)
    low, high = _range(own, declared)
    scale = _Scale(min(float(curve.steps_T[0]) for curve in own), last, low, high)
    bands, thin, thick = [], [], []
    readout: dict[str, list[list[float] | None]] = {}
    shown, every = drawn_steps(own)
    for arm, number in arms.items():
        seeds = [curve for curve in own if curve.arm == arm]
        if not seeds:
            continue
        look: dict[str, Any] = {"data_arm": arm}
        for curve in seeds:
            keep = np.isin(curve.steps_T, shown)
            points = scale.path(curve.steps_T[keep], curve.values_T[keep])
            thin.append(el("path", d=points, class_=f"seed arm{number}", **look))
        steps, summary_3_T = quartiles(seeds)
        keep = np.isin(steps, shown)
        steps, (lower, median, upper) = steps[keep], summary_3_T[:, keep]
        if len(seeds) > 1:
            bands.append(el("path", d=scale.area(steps, lower, upper), class_=f"band arm{number}", **look))
        thick.append(el("path", d=scale.path(steps, median), class_=f"median arm{number}", **look))
        at = {step: [_short(part) for part in (lower[t], median[t], upper[t])] for t, step in enumerate(steps.tolist())}
        readout[arm] = [None if step not in at or None in at[step] else at[step] for step in shown.tolist()]  # type: ignore[misc]
    drawing = el(
        "svg",
        el("title", f"{heading} over training, one line per arm"),
        *scale.axes(),
        joined(bands),
        joined(thin),
        joined(thick),
        el("line", class_="cursor", x1=0, x2=0, y1=TOP, y2=HEIGHT - BOTTOM, hidden=True),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        class_="chart",
        role="img",
        aria_label=f"{heading}: {axis_label(name)} over training step",
    )
    axis = {"first": scale.first, "last": scale.last, "left": LEFT, "right": WIDTH - RIGHT, "width": WIDTH}
    return Panel(
        heading,
        axis_label(name),
        drawing,
        {"axis": axis, "steps": [int(step) for step in shown.tolist()], "arms": readout},
        every,
    )


def sparkline(steps_T: FloatArray, values_T: FloatArray, low: float, high: float, number: int) -> Markup:
    """A median over training without axes, between the given ends."""
    every = max(1, math.ceil(len(steps_T) / SPARK_POINTS))
    steps, values = _kept(steps_T, every), _kept(values_T, every)
    if not len(steps) or np.isnan(values).all():
        return Markup("")
    across, up = max(float(steps[-1] - steps[0]), 1e-12), max(high - low, 1e-12)
    x = 2 + (steps - steps[0]) / across * (SPARK_WIDTH - 4)
    y = SPARK_HEIGHT - 2 - (values - low) / up * (SPARK_HEIGHT - 4)
    line = el("path", d=_path(x, y), class_=f"spark arm{number}")
    size = {"width": SPARK_WIDTH, "height": SPARK_HEIGHT}
    return el("svg", line, viewBox=f"0 0 {SPARK_WIDTH} {SPARK_HEIGHT}", aria_hidden="true", **size)


def forest(value: float, low: float | None, high: float | None, reach: float, status: str) -> Markup:
    """A difference with its interval on an axis from -reach to reach, 0 in the middle."""

    def x(at: float) -> float:
        inside = min(max(at / reach, -1.0), 1.0) if reach else 0.0
        return round(FOREST_WIDTH / 2 + inside * (FOREST_WIDTH / 2 - 5), 1)

    middle = FOREST_HEIGHT / 2
    parts = [
        el("line", x1=0, x2=FOREST_WIDTH, y1=middle, y2=middle, class_="axis"),
        el("line", x1=x(0), x2=x(0), y1=1, y2=FOREST_HEIGHT - 1, class_="zero"),
    ]
    if low is not None and high is not None:
        parts.append(el("line", x1=x(low), x2=x(high), y1=middle, y2=middle, class_="whisker"))
    parts.append(el("circle", cx=x(value), cy=middle, r=3.5))
    box = f"0 0 {FOREST_WIDTH} {FOREST_HEIGHT}"
    size = {"width": FOREST_WIDTH, "height": FOREST_HEIGHT}
    return el("svg", *parts, viewBox=box, class_=f"forest {status}", aria_hidden="true", **size)


class _Scale:
    """From steps and values to the units of the drawing."""

    def __init__(self, first: float, last: float, low: float, high: float) -> None:
        self.first, self.last, self.low, self.high = first, max(last, first + 1), low, high

    def x(self, step: Any) -> Any:
        return LEFT + (step - self.first) / (self.last - self.first) * (WIDTH - LEFT - RIGHT)

    def y(self, value: Any) -> Any:
        return HEIGHT - BOTTOM - (value - self.low) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM)

    def path(self, steps: FloatArray, values: FloatArray) -> str:
        return _path(self.x(steps), self.y(values))

    def area(self, steps: FloatArray, lower: FloatArray, upper: FloatArray) -> str:
        some = ~np.isnan(lower)
        x, down, up = self.x(steps[some]), self.y(lower[some]), self.y(upper[some])
        return _path(np.concatenate([x, x[::-1]]), np.concatenate([down, up[::-1]])) + "Z" if len(x) else ""

    def axes(self) -> list[Markup]:
        parts = []
        for value in ticks(self.low, self.high):
            y = round(self.y(value), 1)
            parts += [
                el("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid"),
                el("text", f"{value:g}", x=LEFT - 6, y=y + 3.5, class_="tick left"),
            ]
        for step in ticks(self.first, self.last):
            if step == int(step):
                label = {"x": round(self.x(step), 1), "y": HEIGHT - BOTTOM + 15, "class_": "tick middle"}
                parts.append(el("text", f"{step:g}", **label))
        label = {"x": (LEFT + WIDTH - RIGHT) / 2, "y": HEIGHT - 4, "class_": "tick middle"}
        return [*parts, el("text", "training step", **label)]


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers between the ends, about ``count`` of them."""
    rough = (high - low) / count
    if not (math.isfinite(rough) and rough > 0):
        return [low]
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.8)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) + 0.0 for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _range(curves: Sequence[Curve], declared: tuple[float, float] | None) -> tuple[float, float]:
    if declared is None:
        values = np.concatenate([curve.values_T[np.isfinite(curve.values_T)] for curve in curves])
        declared = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    margin = MARGIN * (declared[1] - declared[0]) or 0.5
    return declared[0] - margin, declared[1] + margin


def _kept(values: FloatArray, every: int) -> FloatArray:
    """Every k-th value and the last one."""
    keep = np.arange(len(values)) % every == 0
    keep[-1:] = True
    kept: FloatArray = values[keep]
    return kept


def _path(x: FloatArray, y: FloatArray) -> str:
    """Path data; a gap where a value is NaN."""
    words, pen = [], "M"
    for across, up in zip(np.round(x, 1).tolist(), np.round(y, 1).tolist(), strict=True):
        if math.isnan(up):
            pen = "M"
            continue
        words.append(f"{pen}{across:g} {up:g}")
        pen = "L"
    return "".join(words)


def _short(value: float) -> float | None:
    return None if math.isnan(value) else float(f"{value:.3g}")
