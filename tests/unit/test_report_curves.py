import csv
import io
import math
import struct

import matplotlib
import numpy as np
import pytest
from matplotlib.collections import PolyCollection

from gdpo_nemo.errors import UnknownNameError
from gdpo_nemo.report.figures.curves import MAX_POINTS, curves_of, draw_curves, quartiles, to_csv, write_curves
from gdpo_nemo.report.figures.style import colours
from gdpo_nemo.report.spec import Column, ReportSpec
from gdpo_nemo.report.training import read_training
from gdpo_nemo.run_dir import RunDir

RANGES = {"format": (0.0, 1.0), "correct": (-3.0, 3.0)}


def write_metrics(path, **rewards):
    """One row per step; NaN is an ungraded step."""
    run = RunDir.claim(path, {"kind": "train"}, {})
    for t, values in enumerate(zip(*rewards.values(), strict=True)):
        run.append_metrics({"step": t + 1, **dict(zip((f"reward/{r}/mean" for r in rewards), values, strict=True))})


def make_spec(root, arms, seeds=(0, 1, 2), curves=("format", "correct"), ranges=RANGES):
    return ReportSpec(
        experiment="curves",
        title="Curves",
        scale="embedded",
        model="tiny",
        runs={(arm, seed): root / arm / f"seed{seed}" for arm in arms for seed in seeds},
        base=None,
        columns=(Column("format", "Format", "format"),),
        claims=(),
        deviations=(),
        curves=curves,
        labels={"gdpo": "GDPO", "grpo": "GRPO"},
        reward_ranges=ranges,
    )


def read_curves(spec):
    return curves_of(spec, read_training(spec.runs))


def panels(figure):
    return [axes for axes in figure.axes if axes.axison]


def thick(axes):
    return [line for line in axes.lines if line.get_linewidth() > 1]


def bands(axes):
    return [patch for patch in axes.collections if isinstance(patch, PolyCollection)]


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_csv_is_long_and_leaves_ungraded_steps_empty(tmp_path):
    write_metrics(tmp_path / "gdpo" / "seed0", format=[0.1, math.nan, 0.3], correct=[1.0, -2.0, 1 / 3])
    rows = list(csv.DictReader(io.StringIO(to_csv(read_curves(make_spec(tmp_path, ("gdpo",)))))))
    assert [row["value"] for row in rows if row["name"] == "format"] == ["0.1", "", "0.3"]
    assert [float(row["value"]) for row in rows if row["name"] == "correct"] == [1.0, -2.0, 1 / 3]
    assert {(row["arm"], row["seed"]) for row in rows} == {("gdpo", "0")}
    assert [row["step"] for row in rows[:3]] == ["1", "2", "3"]


def test_middle_line_is_the_median_and_the_band_the_quartiles(tmp_path):
    for seed, value in enumerate((0.0, 0.1, 0.8)):
        write_metrics(tmp_path / "gdpo" / f"seed{seed}", format=[value, value / 2], correct=[0.0, math.nan])
    spec = make_spec(tmp_path, ("gdpo",))
    curves = read_curves(spec)
    steps, summary = quartiles([curve for curve in curves if curve.name == "format"])
    assert steps.tolist() == [1, 2]
    assert summary[:, 0] == pytest.approx([0.05, 0.1, 0.45])
    steps, summary = quartiles([curve for curve in curves if curve.name == "correct"])
    assert np.isnan(summary[:, 1]).all() and summary[:, 0].tolist() == [0, 0, 0]
    axes = panels(draw_curves(spec, curves))[0]
    assert [line.get_ydata().tolist() for line in thick(axes)] == [[0.1, 0.05]]
    assert len(axes.lines) == 4 and len(bands(axes)) == 1
    band = bands(axes)[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == pytest.approx((0.025, 0.45))


def test_median_ends_where_the_shortest_seed_ends_and_an_empty_run_does_not_count(tmp_path):
    write_metrics(tmp_path / "gdpo" / "seed0", format=[0.1, 0.2, 0.3, 0.4], correct=[0.0] * 4)
    write_metrics(tmp_path / "gdpo" / "seed1", format=[0.3, 0.4], correct=[0.0] * 2)
    RunDir.claim(tmp_path / "gdpo" / "seed2", {}, {})
    spec = make_spec(tmp_path, ("gdpo", "grpo"))
    figure = draw_curves(spec, read_curves(spec))
    axes = panels(figure)[0]
    assert thick(axes)[0].get_ydata() == pytest.approx([0.2, 0.3])
    assert sorted(len(line.get_xdata()) for line in axes.lines) == [2, 2, 4]
    assert legend(figure) == ["GDPO (n = 2)", "GRPO (not run)"]


def test_one_seed_has_no_band(tmp_path):
    write_metrics(tmp_path / "gdpo" / "seed1", format=[0.1, 0.2], correct=[0.0, 0.0])
    spec = make_spec(tmp_path, ("gdpo",))
    figure = draw_curves(spec, read_curves(spec))
    assert [len(bands(axes)) for axes in panels(figure)] == [0, 0]
    assert legend(figure) == ["GDPO (n = 1)"]


def test_panels_span_the_declared_range(tmp_path):
    write_metrics(tmp_path / "gdpo" / "seed0", format=[0.5, 0.6], correct=[1.0, 1.1])
    spec = make_spec(tmp_path, ("gdpo",))
    axes = panels(draw_curves(spec, read_curves(spec)))
    assert [axes[i].get_ylim() for i in (0, 1)] == [pytest.approx((-0.04, 1.04)), pytest.approx((-3.24, 3.24))]
    assert [one.get_title() for one in axes] == ["format", "correct"]
    free = make_spec(tmp_path, ("gdpo",), ranges={})
    low, high = panels(draw_curves(free, read_curves(free)))[0].get_ylim()
    assert 0.4 < low < 0.5 and 0.6 < high < 0.7


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_one_panel_per_reward(tmp_path, count):
    names = tuple(f"reward{i}" for i in range(count))
    write_metrics(tmp_path / "gdpo" / "seed0", **{name: [0.1, 0.2] for name in names})
    spec = make_spec(tmp_path, ("gdpo",), curves=names)
    assert [axes.get_title() for axes in panels(draw_curves(spec, read_curves(spec)))] == list(names)


def test_an_arm_keeps_its_colour_whatever_stands_beside_it():
    assert colours(["grpo", "gdpo"])["gdpo"] == colours(["gdpo", "mine", "other"])["gdpo"]
    many = colours(["gdpo", "grpo", *(f"arm{i}" for i in range(6))])
    assert len(set(many.values())) == 8


def test_the_weights_of_a_method_have_its_colour_and_dashes_of_their_own(tmp_path):
    arms = ("gdpo", "gdpo_w75", "gdpo_w25", "grpo")
    for arm in arms:
        write_metrics(tmp_path / arm / "seed0", format=[0.1, 0.2], correct=[0.0, 0.0])
    spec = make_spec(tmp_path, arms)
    lines = thick(panels(draw_curves(spec, read_curves(spec)))[0])
    assert [line.get_linestyle() for line in lines] == ["-", "--", "-.", "-"]
    assert lines[0].get_color() == lines[1].get_color() == lines[2].get_color() != lines[3].get_color()


def test_a_legend_of_many_arms_stays_inside_the_figure(tmp_path):
    arms = tuple(f"arm_with_a_long_name_{i}" for i in range(16))
    spec = make_spec(tmp_path, arms)
    figure = draw_curves(spec, [])
    figure.draw_without_rendering()
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.x1


def test_files_do_not_depend_on_the_readers_matplotlib_settings(tmp_path):
    write_metrics(tmp_path / "gdpo" / "seed0", format=[0.5, 0.6], correct=[1.0, math.nan])
    spec = make_spec(tmp_path, ("gdpo", "grpo"))
    curves = read_curves(spec)
    write_curves(spec, curves, tmp_path / "one")
    with matplotlib.rc_context({"font.size": 30, "savefig.dpi": 30, "axes.facecolor": "red"}):
        write_curves(spec, curves, tmp_path / "two")
        assert matplotlib.rcParams["font.size"] == 30
    for suffix in (".png", ".pdf"):
        assert (tmp_path / f"one{suffix}").read_bytes() == (tmp_path / f"two{suffix}").read_bytes()
    width, height = struct.unpack(">II", (tmp_path / "one.png").read_bytes()[16:24])
    assert (width, height) == (1680, 760)
    assert not list(tmp_path.glob("*.partial*"))


def test_nothing_run_draws_empty_panels(tmp_path):
    spec = make_spec(tmp_path, ("gdpo", "grpo"))
    figure = draw_curves(spec, read_curves(spec))
    assert [axes.texts[0].get_text() for axes in panels(figure)] == ["no finished step yet"] * 2
    assert legend(figure) == ["GDPO (not run)", "GRPO (not run)"]


@pytest.mark.parametrize(
    ("metric", "values", "words"),
    [
        ("length/max", [20, 17], ("longest response of the batch", "tokens")),
        ("frac_truncated", [0.25, 0.5], ("responses cut off", "share of the batch")),
        ("entropy", [0.5, 0.25], ("entropy", "value per step")),
    ],
)
def test_a_metric_has_a_panel_of_its_own(metric, values, words, tmp_path):
    run = RunDir.claim(tmp_path / "gdpo" / "seed0", {"kind": "train"}, {})
    for step, value in enumerate(values, start=1):
        run.append_metrics({"step": step, "reward/format/mean": 0.5, metric: value})
    spec = make_spec(tmp_path, ("gdpo",), curves=("format", metric))
    axes = panels(draw_curves(spec, read_curves(spec)))[1]
    assert (axes.get_title(), axes.get_ylabel()) == words
    assert thick(axes)[0].get_ydata().tolist() == values


@pytest.mark.parametrize(("asked", "named"), [("fromat", "format"), ("length/mx", "length/max")])
def test_a_curve_that_no_run_logged_is_an_error_that_names_what_there_is(tmp_path, asked, named):
    RunDir.claim(tmp_path / "gdpo" / "seed0", {}, {}).append_metrics(
        {"step": 1, "reward/format/mean": 0.5, "length/max": 3}
    )
    with pytest.raises(UnknownNameError, match=named):
        read_curves(make_spec(tmp_path, ("gdpo",), curves=(asked,)))


def test_long_runs_are_drawn_at_some_steps_and_the_last_and_listed_at_all(tmp_path):
    num_steps = 2 * MAX_POINTS + 1
    for seed in range(2):
        values = np.linspace(seed, 1, num_steps).tolist()
        write_metrics(tmp_path / "gdpo" / f"seed{seed}", format=values, correct=values)
    spec = make_spec(tmp_path, ("gdpo",))
    curves = read_curves(spec)
    figure = draw_curves(spec, curves)
    for line in panels(figure)[0].lines:
        steps = line.get_xdata()
        assert (steps[0], steps[1], steps[-1]) == (1, 4, num_steps) and len(steps) <= MAX_POINTS + 1
    assert "One step in 3 is drawn." in figure.get_supxlabel()
    assert len(to_csv(curves).splitlines()) == 1 + 4 * num_steps
