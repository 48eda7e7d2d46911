"""What all figures share: an arm's colour, and files that depend on nothing but what is drawn."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gdpo_nemo.errors import PrerequisiteError
from gdpo_nemo.files import write_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, told apart under the common colour vision deficiencies.
BLUE, VERMILION, ORANGE, SKY, GREEN = "#0072B2", "#D55E00", "#E69F00", "#56B4E9", "#009E73"
PURPLE, BLACK, YELLOW = "#CC79A7", "#000000", "#F0E442"
SYNTHETIC = "SYNTHETIC, made-up runs, no result. "
COLOURS = {
    "gdpo": BLUE,
    "grpo": VERMILION,
    "grpo_no_std": ORANGE,
    "gdpo_no_batch_norm": SKY,
    "grpo_rescaled": GREEN,
    "gdpo_conditioned": GREEN,
    "grpo_conditioned": PURPLE,
    "gdpo_2obj": SKY,
    "gdpo_3obj": BLUE,
    "grpo_2obj": ORANGE,
    "grpo_3obj": VERMILION,
}
OTHER_COLOURS = (PURPLE, BLACK, GREEN, SKY, ORANGE, YELLOW, VERMILION, BLUE)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DPI = 200
LEGEND_HANDLE_IN, LEGEND_LETTER_IN = 0.6, 0.08  # at the font size below, spaces between entries included


def colours(arms: Sequence[str]) -> dict[str, str]:
    """Arm -> colour: a known arm always has its own, others take what is left in the order of the table."""
    chosen = {arm: COLOURS[arm] for arm in arms if arm in COLOURS}
    free = [colour for colour in OTHER_COLOURS if colour not in chosen.values()]
    for i, arm in enumerate(arm for arm in arms if arm not in chosen):
        chosen[arm] = free[i % len(free)] if free else BLACK
    return chosen


def legend_columns(labels: Sequence[str], width_in: float) -> int:
    """How many entries of a legend stand side by side in so many inches."""
    entry_in = LEGEND_HANDLE_IN + LEGEND_LETTER_IN * max(map(len, labels), default=0)
    return max(1, min(len(labels), int(width_in / entry_in)))


def plain(panel: Axes) -> None:
    """Grid behind, no box around."""
    panel.grid(color="0.9", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def write_figure(draw: Callable[[], Figure], csv_text: str, stem: Path) -> None:
    """Write ``<stem>.csv``, ``.png`` and ``.pdf``, whatever the reader's matplotlib settings are.

    Raises:
        PrerequisiteError: matplotlib is not installed; the CSV has been written.
    """
    write_text(stem.with_name(f"{stem.name}.csv"), csv_text)
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.backends.backend_pdf import FigureCanvasPdf
    except ImportError as error:
        raise PrerequisiteError(
            f"figures need matplotlib, which is not installed ({error}); tables, verdicts and {stem.name}.csv are "
            "written. Run: pip install 'gdpo-nemo[report]'"
        ) from error
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({"pdf.fonttype": 42, "font.size": 10, "axes.linewidth": 0.8})
        matplotlib.rcParams["path.simplify_threshold"] = 1.0  # a pixel: thousands of steps else take many seconds
        figure = draw()
        for canvas, suffix, metadata in (
            (FigureCanvasAgg, ".png", {"Software": None}),
            (FigureCanvasPdf, ".pdf", {"Creator": None, "Producer": None, "CreationDate": None}),
        ):
            buffer = io.BytesIO()
            canvas(figure).print_figure(buffer, dpi=DPI, metadata=metadata)
            figure.set_layout_engine("none")  # the second file has the layout of the first
            partial = stem.with_name(f"{stem.name}{suffix}.partial")
            partial.write_bytes(buffer.getvalue())
            os.replace(partial, stem.with_name(f"{stem.name}{suffix}"))
