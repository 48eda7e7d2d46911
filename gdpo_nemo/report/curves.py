"""Reward curves over training, one panel per reward, the same style for an arm in every figure.

Thick line: median over the seeds, drawn as far as every seed got. Band: their inter-quartile range
(linear interpolation, from two seeds on). Thin lines: the seeds. Nothing is smoothed.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gdpo_nemo.errors import PrerequisiteError, UnknownNameError
from gdpo_nemo.report.samples import run_name
from gdpo_nemo.report.spec import ReportSpec
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.stats.intervals import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, told apart under the common colour vision deficiencies.
BLUE, VERMILION, ORANGE, SKY, GREEN = "#0072B2", "#D55E00", "#E69F00", "#56B4E9", "#009E73"
PURPLE, BLACK, YELLOW = "#CC79A7", "#000000", "#F0E442"
COLOURS = {
    "gdpo": BLUE,
    "grpo": VERMILION,
    "grpo_no_std": ORANGE,
    "gdpo_no_batch_norm": SKY,
    "grpo_rescaled": GREEN,
}
OTHER_COLOURS = (PURPLE, BLACK, GREEN, SKY, ORANGE, YELLOW, VERMILION, BLUE)
MAX_PANELS_PER_ROW = 3
MARGIN = 0.04
NOTE = "Thick line: median over seeds. Band: inter-quartile range. Thin lines: single seeds. Not smoothed."


@dataclass(frozen=True, eq=False)
class Curve:
    """One reward of one run: mean over the batch of each step, NaN where none was graded."""

    arm: str
    seed: int
    reward: str
    steps_T: FloatArray
    values_T: FloatArray


def read_curves(spec: ReportSpec) -> list[Curve]:
    """Every curve that exists so far; a run without a finished step has none.

    Raises:
        UnknownNameError: runs log rewards, but not the one asked for.
    """
    curves = []
    for (arm, seed), path in spec.runs.items():
        rows = RunDir(path).metrics()
        for reward in spec.curves if rows else ():
            key = f"reward/{reward}/mean"
            if not any(key in row for row in rows):
                known = {name.split("/")[1] for row in rows for name in row if name.startswith("reward/")}
                raise UnknownNameError(f"reward in the metrics of {run_name(path)}", reward, sorted(known))
            values = [math.nan if row.get(key) is None else float(row[key]) for row in rows]
            steps = np.array([row["step"] for row in rows], dtype=np.float64)
            curves.append(Curve(arm, seed, reward, steps, np.array(values)))
    return curves


def to_csv(curves: Sequence[Curve]) -> str:
    """Long format; an ungraded step has an empty value."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["arm", "seed", "step", "reward", "value"])
    for curve in curves:
        for step, value in zip(curve.steps_T, curve.values_T, strict=True):
            text = "" if math.isnan(value) else repr(float(value))
            writer.writerow([curve.arm, curve.seed, int(step), curve.reward, text])
    return buffer.getvalue()


def quartiles(curves: Sequence[Curve]) -> tuple[FloatArray, FloatArray]:
    """Steps that every curve has reached, and [3, steps]: lower quartile, median, upper quartile over seeds."""
    steps = sorted(set.intersection(*(set(curve.steps_T.tolist()) for curve in curves)))
    table_S_T = np.full((len(curves), len(steps)), np.nan)
    for s, curve in enumerate(curves):
        at = dict(zip(curve.steps_T.tolist(), curve.values_T.tolist(), strict=True))
        table_S_T[s] = [at[step] for step in steps]
    summary = np.full((3, len(steps)), np.nan)
    some = ~np.isnan(table_S_T).all(axis=0)
    if some.any():
        summary[:, some] = np.nanquantile(table_S_T[:, some], [0.25, 0.5, 0.75], axis=0)
    return np.array(steps), summary


def colours(arms: Sequence[str]) -> dict[str, str]:
    """Arm -> colour: a known arm always has its own, others take what is left in the order of the table."""
    chosen = {arm: COLOURS[arm] for arm in arms if arm in COLOURS}
    free = [colour for colour in OTHER_COLOURS if colour not in chosen.values()]
    for i, arm in enumerate(arm for arm in arms if arm not in chosen):
        chosen[arm] = free[i % len(free)] if free else BLACK
    return chosen


def write_figure(spec: ReportSpec, curves: Sequence[Curve], stem: Path) -> None:
    """Write ``<stem>.png`` and ``<stem>.pdf``, the same bytes for the same curves.

    Raises:
        PrerequisiteError: matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.backends.backend_pdf import FigureCanvasPdf
    except ImportError as error:
        raise PrerequisiteError(
            f"figures need matplotlib, which is not installed ({error}); tables, verdict and curves.csv are written. "
            "Run: pip install 'gdpo-nemo[report]'"
        ) from error
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({"pdf.fonttype": 42, "font.size": 10, "axes.linewidth": 0.8})
        for canvas, suffix, metadata in (
            (FigureCanvasAgg, ".png", {"Software": None}),
            (FigureCanvasPdf, ".pdf", {"Creator": None, "Producer": None, "CreationDate": None}),
        ):
            buffer = io.BytesIO()
            canvas(draw_figure(spec, curves)).print_figure(buffer, dpi=200, metadata=metadata)
            partial = stem.with_suffix(suffix + ".partial")
            partial.write_bytes(buffer.getvalue())
            os.replace(partial, stem.with_suffix(suffix))


def draw_figure(spec: ReportSpec, curves: Sequence[Curve]) -> Figure:
    """The figure itself; a legend entry for every arm, run or not."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.lines import Line2D

    arms = list(dict.fromkeys(arm for arm, _ in spec.runs))
    palette = colours(arms)
    num_columns = 2 if len(spec.curves) == 4 else min(len(spec.curves), MAX_PANELS_PER_ROW)
    num_rows = math.ceil(len(spec.curves) / num_columns)
    width = max(4.2 * num_columns, 6.0)
    figure = Figure(figsize=(width, 2.9 * num_rows + 0.9), layout=ConstrainedLayoutEngine(h_pad=0.08))
    panels = figure.subplots(num_rows, num_columns, squeeze=False).flatten()
    for panel, reward in zip(panels, spec.curves, strict=False):
        _draw_panel(panel, reward, arms, palette, curves)
        _set_range(panel, spec.reward_ranges.get(reward))
    for panel in panels[len(spec.curves) :]:
        panel.set_axis_off()
    handles = []
    for arm in arms:
        seeds = {curve.seed for curve in curves if curve.arm == arm}
        label = f"{spec.labels.get(arm, arm)} (n = {len(seeds)})" if seeds else f"{spec.labels.get(arm, arm)} (not run)"
        handles.append(Line2D([], [], color=palette[arm], linewidth=2.2, label=label))
    per_row = max(1, round(width / 2.8))
    figure.legend(handles=handles, loc="outside upper center", ncols=min(len(arms), per_row), frameon=False)
    figure.supxlabel(NOTE, fontsize=8, color="0.35")
    return figure


def _draw_panel(
    panel: Axes, reward: str, arms: Sequence[str], palette: Mapping[str, str], curves: Sequence[Curve]
) -> None:
    panel.set_title(reward, fontsize=11)
    panel.set_xlabel("training step")
    panel.set_ylabel("mean reward of the batch")
    panel.grid(color="0.9", linewidth=0.6)
    panel.spines[["top", "right"]].set_visible(False)
    drawn = False
    for z, arm in enumerate(arms):
        own = [curve for curve in curves if curve.arm == arm and curve.reward == reward]
        style: dict[str, Any] = {"color": palette[arm], "solid_capstyle": "round"}
        for curve in own:
            panel.plot(curve.steps_T, curve.values_T, linewidth=0.7, alpha=0.45, zorder=2 + z / 100, **style)
        if own:
            drawn = True
            steps, (lower, median, upper) = quartiles(own)
            if len(own) > 1:
                panel.fill_between(steps, lower, upper, color=palette[arm], alpha=0.18, linewidth=0, zorder=1.5)
            panel.plot(steps, median, linewidth=2.0, zorder=3 + z / 100, **style)
    if not drawn:
        panel.text(0.5, 0.5, "no finished step yet", transform=panel.transAxes, ha="center", color="0.4")


def _set_range(panel: Axes, declared: tuple[float, float] | None) -> None:
    if declared is not None:
        margin = MARGIN * (declared[1] - declared[0])
        panel.set_ylim(declared[0] - margin, declared[1] + margin)
