"""Distinct advantage groups (figure 3) and trade-offs over weights (figure 6)."""

import csv
import io
from itertools import product

import pytest
from planted_runs import make_spec, planted, write_run

from gdpo_nemo.errors import InputError, UnknownNameError
from gdpo_nemo.report.builder import build
from gdpo_nemo.report.figures.groups import PANELS, count_groups, draw_groups, to_csv, write_groups
from gdpo_nemo.report.figures.tradeoff import draw_tradeoff, narrowed, points_of, split_arm, write_tradeoff
from gdpo_nemo.report.figures.tradeoff import to_csv as points_csv
from gdpo_nemo.report.spec import Column
from gdpo_nemo.report.table import Cell, Table, TableRow
from gdpo_nemo.stats import Interval

EXCEED = Column("exceed", "Exceed", "exceed", better="lower", benchmark="aime")
ACCURACY = Column("acc", "Accuracy", "acc", benchmark="aime")


@pytest.mark.parametrize(
    ("rollouts", "weights", "distinct"),
    [
        (2, (1, 1), (2, 3, 3)),  # the worked example of the paper, section 3.1
        (4, (1, 1), (7, 10, 14)),
        (8, (1, 1), (29, 36, 81)),
        (16, (1, 1), (121, 136, 497)),
        (4, (1, 1, 1), (14, 20, 45)),
        (4, (1, 1, 1, 1), (23, 35, 127)),
        (16, (1, 0.5), (786, 816, 921)),
    ],
)
def test_distinct_groups_are_counted_exactly(rollouts, weights, distinct):
    assert tuple(count_groups(rollouts, weights).distinct.values()) == distinct


@pytest.mark.parametrize("rollouts", [3, 5, 9])
def test_two_equal_rewards_follow_the_closed_form(rollouts):
    found = count_groups(rollouts, (1, 1))
    assert found.distinct["grpo"] == 1 + rollouts * (rollouts - 1) // 2
    assert found.distinct["grpo_no_std"] == rollouts * (rollouts + 1) // 2
    assert found.possible == (rollouts + 3) * (rollouts + 2) * (rollouts + 1) // 6


def test_too_many_groups_to_enumerate_are_refused():
    with pytest.raises(InputError, match="at most 1000000"):
        count_groups(8, (1.0,) * 6)


def test_the_figure_of_groups_has_a_panel_per_setting_and_a_csv_of_its_points(tmp_path):
    counts = [count_groups(2, (1, 1)), count_groups(3, (1, 1)), count_groups(4, (1, 1, 1), "rewards")]
    rows = list(csv.DictReader(io.StringIO(to_csv(counts))))
    assert [row["distinct"] for row in rows if row["method"] == "gdpo"] == ["3", "6", "45"]
    figure = draw_groups(counts)
    assert [axes.get_title() for axes in figure.axes] == [PANELS["rollouts"][0], PANELS["rewards"][0]]
    assert [line.get_ydata().tolist() for line in figure.axes[0].lines] == [[2, 4], [3, 6], [3, 6]]
    write_groups(counts, tmp_path / "groups-qwen2.5-1.5b")
    once = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    write_groups(counts, tmp_path / "groups-qwen2.5-1.5b")
    assert once == {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(once) == {f"groups-qwen2.5-1.5b.{kind}" for kind in ("csv", "pdf", "png")}


def cell(value, half=1.0):
    if value is None:
        return Cell(note="not run")
    return Cell(value, Interval(value - half, value + half, 0.95, "crossed t"), num_seeds=3, num_questions=30)


def make_table(rows, columns=(EXCEED, ACCURACY)):
    rows = [TableRow(arm, arm.upper(), (0, 1, 2), (0, 1, 2), 30, tuple(map(cell, values))) for arm, values in rows]
    return Table("t", "Trade-off", (), "", columns, tuple(rows), (), (), ())


def test_an_arm_s_name_says_its_weight():
    assert [split_arm(arm) for arm in ("gdpo", "gdpo_w0.25", "gdpo_w75", "grpo_no_std_w1", "grpo_warm")] == [
        ("gdpo", 1.0), ("gdpo", 0.25), ("gdpo", 0.75), ("grpo_no_std", 1.0), ("grpo_warm", 1.0),
    ]  # fmt: skip


def test_a_method_is_one_line_through_its_weights_and_a_missing_run_leaves_no_point(tmp_path):
    table = make_table(
        [
            ("base/abc", (70.0, 30.0)),
            ("gdpo", (6.0, 29.0)),
            ("gdpo_w0.25", (9.0, 31.0)),
            ("gdpo_w0.5", (None, None)),
            ("grpo", (None, None)),
        ]
    )
    points = points_of(table)
    figure = draw_tradeoff(table, points)
    (axes,) = figure.axes
    assert [line.get_xydata().tolist() for line in axes.lines] == [[[9.0, 31.0], [6.0, 29.0]]]
    assert [text.get_text() for text in axes.texts] == ["0.25", "1"]
    assert len(axes.collections) == 4  # two bars per point
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["GDPO (n = 3)", "GRPO (not run)"]
    assert axes.get_xlabel() == "Exceed (%)\nlower is better"
    rows = list(csv.DictReader(io.StringIO(points_csv(points))))
    assert [(row["method"], row["weight"], row["x"], row["y_high"]) for row in rows] == [
        ("gdpo", "1", "6.0", "30.0"), ("gdpo", "0.25", "9.0", "32.0"), ("gdpo", "0.5", "", ""), ("grpo", "1", "", ""),
    ]  # fmt: skip
    write_tradeoff(table, tmp_path / "figure6")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figure6.csv", "figure6.pdf", "figure6.png"]


def test_weights_that_lie_on_each_other_share_a_label_and_methods_have_theirs_below_each_other():
    rows = [("gdpo", (1.0, 45.0)), ("gdpo_w75", (63.2, 97.4)), ("gdpo_w50", (63.4, 97.7)), ("gdpo_w25", (63.5, 97.4))]
    table = make_table([*rows, ("grpo", (1.0, 46.0)), ("grpo_w50", (63.4, 97.9))])
    (axes,) = draw_tradeoff(table, points_of(table)).axes
    assert [(text.get_text(), text.xyann[1]) for text in axes.texts] == [
        ("0.25 to 0.75", -11), ("1", -11), ("0.5", -21), ("1", -21),
    ]  # fmt: skip


def test_each_pair_of_columns_is_a_panel():
    math = [Column(name, name, name, benchmark="math") for name in ("exceed2", "acc2")]
    table = make_table([("gdpo", (6.0, 29.0, 1.0, 86.0))], (EXCEED, ACCURACY, *math))
    figure = draw_tradeoff(table, points_of(table))
    assert [axes.get_title() for axes in figure.axes if axes.axison] == ["aime", "math"]
    assert figure.axes[1].lines[0].get_ydata().tolist() == [86.0]
    with pytest.raises(InputError, match="pairs of columns"):
        points_of(make_table([], (EXCEED,)))


def test_columns_are_chosen_by_name_and_keep_their_cells():
    table = make_table([("gdpo", (6.0, 29.0))])
    turned = narrowed(table, (ACCURACY.name, EXCEED.name))
    assert turned.columns == (ACCURACY, EXCEED) and [cell.value for cell in turned.rows[0].cells] == [29.0, 6.0]
    with pytest.raises(UnknownNameError, match="column of t"):
        narrowed(table, ("excess",))


@pytest.mark.parametrize(("arms", "drawn"), [(("gdpo", "gdpo_w25"), True), (("gdpo", "grpo"), False)])
def test_a_report_of_several_weights_draws_them(tmp_path, arms, drawn):
    for arm, seed in product(arms, (0, 1)):
        write_run(tmp_path / arm / f"seed{seed}", planted("strong", seed))
    build(make_spec(tmp_path, arms, (0, 1), tradeoff=("format", "correct"), base=None), tmp_path / "out")
    assert (tmp_path / "out/tradeoff.csv").exists() == (tmp_path / "out/tradeoff.png").exists() == drawn


def test_a_weight_is_compared_with_the_whole_weight_seed_by_seed(tmp_path):
    shares = {"gdpo": (4, 6), "gdpo_w25": (9, 9), "grpo_w25": (5, 5)}  # of 10 questions; grpo itself was not run
    for arm, seed in product(shares, (0, 1)):
        hits = [[float(q < shares[arm][seed])] for q in range(10)]
        write_run(tmp_path / arm / f"seed{seed}", {"format": hits, "correct": hits})
    spec = make_spec(tmp_path, tuple(shares), (0, 1), tradeoff=("format", "correct"), base=None)
    report = build(spec, tmp_path / "out")
    rows = list(csv.DictReader((tmp_path / "out/weights.csv").open()))
    assert [(row["arm"], row["less"], row["column"], float(row["difference"]), row["seeds"]) for row in rows] == [
        ("gdpo_w25", "gdpo", "format", pytest.approx(40), "2"),
        ("gdpo_w25", "gdpo", "correct", pytest.approx(0.4), "2"),
    ]
    assert float(rows[0]["low"]) < 40 < float(rows[0]["high"])
    assert "gdpo_w25 less gdpo: Correct format +40.0 points [-90.4, +170.4], 2 seeds" in report.text
