import math
import re
import sys
from dataclasses import replace

import pytest
import scipy.stats
from planted_runs import COLUMNS, cells, make_spec, verdicts, write_all, write_run

from gdpo_nemo.errors import InputError, PrerequisiteError, UnknownNameError
from gdpo_nemo.report.builder import build
from gdpo_nemo.report.cells import Part
from gdpo_nemo.report.loading import read_evaluations
from gdpo_nemo.report.spec import Claim, Column
from gdpo_nemo.report.table import build_table
from gdpo_nemo.report.verdict import adjusted, judge_all
from gdpo_nemo.stats import crossed_t


def test_cell_by_hand(tmp_path):
    # Two seeds, four questions, two samples each. Seed 0: question means 1, .5, 0, ungraded. Seed 1: 1, 1, .5, 0.
    formats = {
        0: [[1.0, 1.0], [0.0, 1.0], [0.0, None], [None, None]],
        1: [[1.0, 1.0], [1.0, 1.0], [0.5, 1.0], [0.0, 0.0]],
    }
    for seed, values in formats.items():
        write_run(tmp_path / "strong" / f"seed{seed}", {"format": values})
    spec = make_spec(tmp_path, arms=("strong",), seeds=(0, 1), columns=COLUMNS[:1], base=None)
    build(spec, tmp_path / "out")
    cell = cells(tmp_path / "out")["strong", "format"]
    assert float(cell["value"]) == pytest.approx(100 * (1.5 / 3 + 2.5 / 4) / 2)
    assert (cell["questions"], cell["samples"], cell["ungraded"], cell["seeds"]) == ("4", "16", "3", "2")
    expected = crossed_t([[1, 0.5, 0, math.nan], [1, 1, 0.5, 0]])
    assert float(cell["low"]) == pytest.approx(max(0.0, 100 * expected.low))
    assert float(cell["high"]) == pytest.approx(min(100.0, 100 * expected.high))
    assert "(3 ungraded)" in (tmp_path / "out" / "table.md").read_text("utf-8")


def test_base_row_has_wilson_over_questions(root, tmp_path):
    report = build(make_spec(root), tmp_path)
    cell = cells(tmp_path)["base/abc123", "format"]
    expected = scipy.stats.binomtest(6, 60).proportion_ci(method="wilson")
    assert (float(cell["value"]), cell["method"]) == (10.0, "Wilson")
    assert (float(cell["low"]), float(cell["high"])) == pytest.approx((100 * expected.low, 100 * expected.high))
    assert re.search(r"^Before RL \(base\)\s+10\.0 \[4\.7, 20\.1\] \(q\).* 1 x 60$", report.text, re.MULTILINE)
    assert cells(tmp_path)["base/abc123", "correct"]["method"] == "bootstrap over questions"


def test_a_perfect_share_still_has_an_interval(tmp_path):
    for seed in range(3):
        write_run(tmp_path / "strong" / f"seed{seed}", {"format": [[1.0]] * 50})
    build(make_spec(tmp_path, arms=("strong",), columns=COLUMNS[:1], base=None), tmp_path / "out")
    cell = cells(tmp_path / "out")["strong", "format"]
    expected = scipy.stats.binomtest(150, 150).proportion_ci(method="wilson")
    assert (float(cell["low"]), float(cell["high"])) == (pytest.approx(100 * expected.low), 100.0)


def test_intervals_stay_inside_the_possible_values(root, tmp_path):
    build(make_spec(root, claims=(Claim("erratic", ">", "weak", on="format"),)), tmp_path)
    cell = cells(tmp_path)["erratic", "format"]
    assert (float(cell["low"]), float(cell["high"])) == (0.0, 100.0)
    assert float(cells(tmp_path)["erratic", "correct"]["low"]) >= -3.0
    assert verdicts(tmp_path)[0]["interval"]["high"] <= 100.0


def test_share_counts_values_that_reach_the_threshold(tmp_path):
    values = [[3.0 - 1e-12], [2.9], [3.0], [-3.0]]
    for seed in range(2):
        write_run(tmp_path / "strong" / f"seed{seed}", {"correct": values})
    columns = (
        Column("call", "Right call", "correct", at_least=3.0),
        Column("wrong", "Wrong call", "correct", below=2.9, better="lower"),
    )
    build(make_spec(tmp_path, arms=("strong",), seeds=(0, 1), columns=columns, base=None), tmp_path / "out")
    shown = cells(tmp_path / "out")
    assert (shown["strong", "call"]["value"], shown["strong", "wrong"]["value"]) == ("50.0", "25.0")
    with pytest.raises(InputError, match="leave one"):
        Column("both", "Both", "correct", at_least=1.0, below=1.0)


@pytest.mark.parametrize(
    "claim", [Claim("strong", ">", "weak", on="format"), Claim("weak", "<", "strong", on="format")]
)
def test_best_follows_the_adjusted_claim_where_there_is_one(root, claim):
    spec = make_spec(root, arms=("strong", "weak"), claims=(claim,))
    part = Part(spec, read_evaluations(spec))
    [verdict] = adjusted(judge_all(spec, part.evaluations, spec.claims), spec.level)

    def best(*verdicts):
        table = build_table([part], verdicts)
        return [row.cells[0].best for row in table.rows]

    assert best() == best(verdict) == [False, True, False]
    assert best(replace(verdict, status="not_supported")) == [False, False, False]
    assert best(replace(verdict, model="another")) == [False, True, False]


def test_best_is_marked_only_against_every_other_arm(root, tmp_path):
    best = Column("format", "Correct format", "format", at_least=1.0)
    worst = replace(best, name="fewest", better="lower")

    def marked(out, **changes):
        build(make_spec(root, columns=(best, worst), **changes), tmp_path / out)
        return {key for key, cell in cells(tmp_path / out).items() if cell["best"] == "1"}

    assert marked("two", arms=("strong", "weak")) == {("strong", "format"), ("weak", "fewest")}
    value = float(cells(tmp_path / "two")["strong", "format"]["value"])
    assert f"| Strong | **{value:.1f}** [" in (tmp_path / "two" / "table.md").read_text("utf-8")
    assert f"\\textbf{{{value:.1f}}} [" in (tmp_path / "two" / "table.tex").read_text("utf-8")
    assert marked("twin", arms=("strong", "weak", "twin")) == {("weak", "fewest")}
    assert marked("erratic", arms=("strong", "weak", "erratic")) == set()
    assert marked("absent", arms=("strong", "weak", "absent")) == set()
    assert marked("alone", arms=("strong",)) == set()


def test_two_builds_are_identical_wherever_the_runs_lie(tmp_path):
    claims = (Claim("strong", ">", "weak", on="format"), Claim("strong", ">", "absent", on="correct"))
    outputs = []
    for place, order in (("here", None), ("elsewhere/deep", [*range(30, 60), *range(30)])):
        root = tmp_path / place
        write_all(root, order=order)
        build(make_spec(root, claims=claims, curves=("format", "correct")), root / "out")
        outputs.append({path.name: path.read_bytes() for path in sorted((root / "out").iterdir())})
    assert outputs[0] == outputs[1]
    assert list(outputs[0]) == [
        "curves.csv", "curves.pdf", "curves.png", "stability.csv", "stability.md", "table.csv", "table.html",
        "table.md", "table.tex", "verdict.json",
    ]  # fmt: skip
    for name, content in outputs[0].items():
        assert str(tmp_path).encode() not in content, name
    assert b"CreationDate" not in outputs[0]["curves.pdf"]


def test_tables_are_written_before_matplotlib_is_missed(root, tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(PrerequisiteError, match=r"pip install 'gdpo-nemo\[report\]'"):
        build(make_spec(root, curves=("format",)), tmp_path / "out")
    written = {path.name for path in (tmp_path / "out").iterdir()}
    tables = {"table.csv", "table.html", "table.md", "table.tex", "verdict.json"}
    assert written == {"curves.csv", "stability.csv", "stability.md", *tables}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"claims": (Claim("strnog", ">", "weak", on="format"),)}, "Did you mean 'strong'"),
        ({"claims": (Claim("strong", ">", "weak", on="formt"),)}, "Did you mean 'format'"),
        ({"columns": (Column("x", "X", "formatt"),)}, "Did you mean 'format'"),
        ({"curves": ("corect",)}, "Did you mean 'correct'"),
    ],
)
def test_unknown_names_are_refused_before_anything_is_written(root, tmp_path, changes, message):
    with pytest.raises(UnknownNameError, match=message):
        build(make_spec(root, **changes), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("changes", [{"runs": {}}, {"columns": ()}])
def test_an_empty_report_is_refused(root, tmp_path, changes):
    with pytest.raises(InputError):
        build(make_spec(root, **changes), tmp_path)
