"""Curves over training, one panel per reward or metric, the same style for an arm in every figure.

Thick line: median over the seeds, drawn as far as every seed got. Band: their inter-quartile range
(linear interpolation, from two seeds on). Thin lines: the seeds. Nothing is smoothed.

A curve is named by a reward (its mean over the batch of each step) or by a key of ``metrics.jsonl``, such as
``length/max``, the longest response of the batch, or ``frac_truncated``. Figures 1b, 4, 5 and 7 of arXiv 2601.05242.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gdpo_nemo.report.figures import style
from gdpo_nemo.report.figures.tradeoff import split_arm
from gdpo_nemo.report.spec import ReportSpec, is_metric
from gdpo_nemo.report.training import Training
from gdpo_nemo.stats.intervals import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_PANELS_PER_ROW = 3
MARGIN = 0.04
MAX_POINTS = 240
LEGEND_ROW_IN = 0.21
DASHES = ("--", "-.", ":")
QUARTILES = (0.25, 0.5, 0.75)
NOTE = "Thick line: median over seeds. Band: inter-quartile range. Thin lines: single seeds. Not smoothed."
TITLES = {
    "length/max": "longest response of the batch",
    "length/mean": "mean response length",
    "frac_truncated": "responses cut off",
}
UNITS = {"length/max": "tokens", "length/mean": "tokens", "frac_truncated": "share of the batch"}


@dataclass(frozen=True, eq=False)
class Curve:
    """One reward or metric of one run, NaN at a step where nothing was graded."""

    arm: str
    seed: int
    name: str
    steps_T: FloatArray
    values_T: FloatArray


def title(name: str) -> str:
    """Heading of a panel: a reward's own name, or a metric's in words."""
    return TITLES.get(name, name)


def axis_label(name: str) -> str:
    """What the values of a panel are."""
    return UNITS.get(name, "value per step") if is_metric(name) else "mean reward of the batch"


def curves_of(spec: ReportSpec, trainings: Mapping[tuple[str, int], Training]) -> list[Curve]:
    """Every curve that exists so far; a run without a finished step has none.

    Raises:
        UnknownNameError: a run logged rewards or metrics, but not the one asked for.
    """
    return [
        Curve(arm, seed, name, training.steps_T, training.of(name))
        for (arm, seed), training in trainings.items()
        for name in spec.curves
    ]


def to_csv(curves: Sequence[Curve]) -> str:
    """Long format; an ungraded step has an empty value."""
    lines = ["arm,seed,step,name,value"]
    for curve in curves:
        who, what = _csv(curve.arm, curve.seed), _csv(curve.name)
        steps, values = curve.steps_T.astype(np.int64).tolist(), curve.values_T.tolist()
        lines += [
            f"{who},{step},{what},{'' if value != value else value}" for step, value in zip(steps, values, strict=True)
        ]
    return "\n".join([*lines, ""])


def quartiles(curves: Sequence[Curve]) -> tuple[FloatArray, FloatArray]:
    """Steps that every curve has reached, and [3, steps]: lower quartile, median, upper quartile over seeds."""
    steps = reduce(np.intersect1d, (curve.steps_T for curve in curves))
    table_S_T = np.stack([curve.values_T[np.searchsorted(curve.steps_T, steps)] for curve in curves])
    num_graded_T = (~np.isnan(table_S_T)).sum(axis=0)
    summary = np.full((3, len(steps)), np.nan)
    whole, some = num_graded_T == len(curves), (num_graded_T > 0) & (num_graded_T < len(curves))
    summary[:, whole] = np.quantile(table_S_T[:, whole], QUARTILES, axis=0)
    if some.any():
        summary[:, some] = np.nanquantile(table_S_T[:, some], QUARTILES, axis=0)
    return steps, summary


def drawn_steps(curves: Sequence[Curve]) -> tuple[FloatArray, int]:
    """The steps to draw, at most ``MAX_POINTS`` and the last one, and k where that is every k-th."""
    steps = np.unique(np.concatenate([curve.steps_T for curve in curves]))
    every = math.ceil(len(steps) / MAX_POINTS)
    keep = np.arange(len(steps)) % every == 0
    keep[-1] = True
    return steps[keep], every


def write_curves(spec: ReportSpec, curves: Sequence[Curve], stem: Path) -> None:
    """Write ``<stem>.csv``, ``.png`` and ``.pdf``.

    Raises:
        PrerequisiteError: matplotlib is not installed; the CSV has been written.
    """
    style.write_figure(lambda: draw_curves(spec, curves), to_csv(curves), stem)


def draw_curves(spec: ReportSpec, curves: Sequence[Curve]) -> Figure:
    """The figure itself; a legend entry for every arm, run or not."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.lines import Line2D

    arms = list(dict.fromkeys(arm for arm, _ in spec.runs))
    palette = style.colours(list(dict.fromkeys(split_arm(arm)[0] for arm in arms)))
    weights = sorted({split_arm(arm)[1] for arm in arms} - {1.0}, reverse=True)
    looks = {arm: _look(palette, weights, *split_arm(arm)) for arm in arms}
    num_columns = 2 if len(spec.curves) == 4 else min(len(spec.curves), MAX_PANELS_PER_ROW)
    num_rows = math.ceil(len(spec.curves) / num_columns)
    width = max(4.2 * num_columns, 6.0)
    labels = [_label(spec, arm, curves) for arm in arms]
    per_row = style.legend_columns(labels, width)
    legend_in = LEGEND_ROW_IN * max(0, math.ceil(len(arms) / per_row) - 2)
    figure = Figure(figsize=(width, 2.9 * num_rows + 0.9 + legend_in), layout=ConstrainedLayoutEngine(h_pad=0.08))
    panels = figure.subplots(num_rows, num_columns, squeeze=False).flatten()
    for panel, name in zip(panels, spec.curves, strict=False):
        _draw_panel(panel, name, looks, curves)
        _set_range(panel, spec.reward_ranges.get(name))
    for panel in panels[len(spec.curves) :]:
        panel.set_axis_off()
    handles = [
        Line2D([], [], linewidth=2.2, label=label, **looks[arm]) for arm, label in zip(arms, labels, strict=True)
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=per_row, frameon=False)
    every = drawn_steps(curves)[1] if curves else 1
    thinned = f" One step in {every} is drawn." if every > 1 else ""
    figure.supxlabel((style.SYNTHETIC if spec.synthetic else "") + NOTE + thinned, fontsize=8, color="0.35")
    return figure


def _label(spec: ReportSpec, arm: str, curves: Sequence[Curve]) -> str:
    seeds = {curve.seed for curve in curves if curve.arm == arm}
    return f"{spec.labels.get(arm, arm)} ({f'n = {len(seeds)}' if seeds else 'not run'})"


def _look(palette: Mapping[str, str], weights: Sequence[float], method: str, weight: float) -> dict[str, Any]:
    """A method's colour, dashed for the weights below 1 of a sweep."""
    dashes = "-" if weight == 1.0 else DASHES[weights.index(weight) % len(DASHES)]
    return {"color": palette[method], "linestyle": dashes}


def _csv(*fields: str | int) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="").writerow(fields)
    return buffer.getvalue()


def _draw_panel(panel: Axes, name: str, looks: Mapping[str, Mapping[str, Any]], curves: Sequence[Curve]) -> None:
    panel.set_title(title(name), fontsize=11)
    panel.set_xlabel("training step")
    panel.set_ylabel(axis_label(name))
    style.plain(panel)
    named = [curve for curve in curves if curve.name == name]
    if not named:
        panel.text(0.5, 0.5, "no finished step yet", transform=panel.transAxes, ha="center", color="0.4")
        return
    shown, _ = drawn_steps(named)
    for z, arm in enumerate(looks):
        own = [curve for curve in named if curve.arm == arm]
        look = {**looks[arm], "solid_capstyle": "round"}
        for curve in own:
            keep = np.isin(curve.steps_T, shown)
            panel.plot(curve.steps_T[keep], curve.values_T[keep], linewidth=0.7, alpha=0.45, zorder=2 + z / 100, **look)
        if own:
            steps, summary_3_T = quartiles(own)
            keep = np.isin(steps, shown)
            steps, (lower, median, upper) = steps[keep], summary_3_T[:, keep]
            if len(own) > 1:
                panel.fill_between(steps, lower, upper, color=look["color"], alpha=0.18, linewidth=0, zorder=1.5)
            panel.plot(steps, median, linewidth=2.0, zorder=3 + z / 100, **look)


def _set_range(panel: Axes, declared: tuple[float, float] | None) -> None:
    if declared is not None:
        margin = MARGIN * (declared[1] - declared[0])
        panel.set_ylim(declared[0] - margin, declared[1] + margin)
