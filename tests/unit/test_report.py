import json
import math
import re
import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from planted_runs import COLUMNS, cells, make_spec, planted, write_all, write_evaluation, write_run

from gdpo_nemo.errors import InputError, PrerequisiteError, UnknownNameError
from gdpo_nemo.report.builder import build
from gdpo_nemo.report.captions import power
from gdpo_nemo.report.cells import Part
from gdpo_nemo.report.loading import read_evaluations
from gdpo_nemo.report.spec import Claim, Column
from gdpo_nemo.report.table import build_table
from gdpo_nemo.report.verdict import Verdict, adjusted, judge_all
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.stats import crossed_t, paired_difference
from gdpo_nemo.types import NOT_APPLICABLE


@pytest.fixture(scope="module")
def finished_runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("finished")
    write_all(root)
    return root


@pytest.fixture
def root(finished_runs, tmp_path):
    return shutil.copytree(finished_runs, tmp_path / "runs")


def verdicts(out):
    return json.loads((out / "verdict.json").read_text("utf-8"))["claims"]


# ---- verdicts


@pytest.mark.parametrize(
    ("claim", "status", "holds", "agreeing"),
    [
        (Claim("strong", ">", "weak", on="format"), "supported", True, 3),
        (Claim("weak", "<", "strong", on="format"), "supported", True, 3),
        (Claim("weak", ">", "strong", on="format"), "contradicted", False, 0),
        (Claim("strong", "<", "weak", on="format"), "contradicted", False, 0),
        (Claim("strong", ">", "erratic", on="format"), "not_supported", False, 1),
        (Claim("strong", ">", "absent", on="format"), "not_run", None, 0),
    ],
)
def test_verdict_of_a_planted_effect(root, tmp_path, claim, status, holds, agreeing):
    report = build(make_spec(root, claims=(claim,)), tmp_path / "out")
    [verdict] = verdicts(tmp_path / "out")
    assert (verdict["status"], verdict["holds"], verdict["seeds_agreeing"]) == (status, holds, agreeing)
    assert (report.verdicts[0].status, report.verdicts[0].holds) == (status, holds)
    assert f"{status.replace('_', ' ')}: {claim.left.title()} {claim.relation} {claim.right.title()}" in report.text


def test_verdict_shows_what_it_rests_on(root, tmp_path):
    build(make_spec(root, claims=(Claim("strong", ">", "weak", on="format"),)), tmp_path)
    sides = [
        {seed: [100 * samples[0] for samples in planted(arm, seed)["format"]] for seed in range(3)}
        for arm in ("strong", "weak")
    ]
    expected = paired_difference(*sides)
    [verdict] = verdicts(tmp_path)
    assert verdict["difference"] == expected.value
    assert verdict["difference_by_seed"] == {str(seed): value for seed, value in expected.by_seed.items()}
    assert verdict["interval"] == {
        "low": expected.interval.low,
        "high": expected.interval.high,
        "level": 0.95,
        "method": "crossed t over seeds and questions",
    }
    counts = {"seeds": 3, "seeds_planned": 3, "questions": 60, "samples": 360, "ungraded": 0, "does_not_apply": 0}
    assert verdict["n"] == counts
    assert verdict["runs"] == [f"{arm}/seed{seed}" for arm in ("strong", "weak") for seed in range(3)]
    assert 0 < verdict["minimum_detectable_effect"] < 100


def test_seeds_too_far_apart_for_any_share_say_so(root):
    spec = make_spec(root)
    verdict = Verdict(
        Claim("strong", ">", "weak", on="format"), "not_supported", "", "%", by_seed={0: 1.0, 2: 9.0}, detectable=339.7
    )
    [line] = power(spec, [verdict])
    assert line.endswith(": 2 seeds this far apart find no difference of shares (it would take 339.7 points)")
    [line] = power(spec, [replace(verdict, detectable=82.0)])
    assert line.endswith(": 2 seeds find a difference of 82.0 points four times in five")


def test_verdict_uses_the_seeds_that_both_arms_finished(root, tmp_path):
    RunDir(root / "weak" / "seed1").clear()
    build(make_spec(root, claims=(Claim("strong", ">", "weak", on="format"),)), tmp_path)
    [verdict] = verdicts(tmp_path)
    assert list(verdict["difference_by_seed"]) == ["0", "2"]
    assert verdict["n"]["seeds"] == 2 and verdict["n"]["seeds_planned"] == 3


def test_one_seed_supports_no_claim(tmp_path):
    write_all(tmp_path / "runs", seeds=(0,))
    spec = make_spec(tmp_path / "runs", seeds=(0,), claims=(Claim("strong", ">", "weak", on="format"),))
    build(spec, tmp_path / "out")
    [verdict] = verdicts(tmp_path / "out")
    assert (verdict["status"], verdict["holds"], verdict["interval"]) == ("not_supported", False, None)
    assert "two seeds" in verdict["reason"] and verdict["difference"] > 50
    assert cells(tmp_path / "out")["strong", "format"]["best"] == "0"


def test_no_common_seed_is_not_run(root, tmp_path):
    for arm, seed in (("strong", 0), ("weak", 1), ("weak", 2)):
        RunDir(root / arm / f"seed{seed}").clear()
    build(make_spec(root, claims=(Claim("strong", ">", "weak", on="format"),)), tmp_path)
    assert verdicts(tmp_path)[0]["status"] == "not_run"
    assert verdicts(tmp_path)[0]["reason"] == "no seed is finished in both arms"


def test_another_level_moves_the_line(root, tmp_path):
    spec = make_spec(root, claims=(Claim("strong", ">", "weak", on="format"),))
    build(spec, tmp_path / "a")
    build(replace(spec, level=0.999), tmp_path / "b")
    wide, narrow = verdicts(tmp_path / "b")[0], verdicts(tmp_path / "a")[0]
    assert wide["interval"]["level"] == 0.999 and wide["interval"]["low"] < narrow["interval"]["low"]
    assert "99.9 %" in (tmp_path / "b" / "table.md").read_text("utf-8")


# ---- the numbers of the table


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


# ---- what is missing


def test_deleting_a_run_changes_its_cells_and_no_other(root, tmp_path):
    spec = make_spec(root, claims=(Claim("strong", ">", "twin", on="format"),))
    build(spec, tmp_path / "before")
    RunDir(root / "weak" / "seed2").clear()
    report = build(spec, tmp_path / "after")
    before, after = cells(tmp_path / "before"), cells(tmp_path / "after")
    assert {key for key in before if before[key] != after[key]} == {("weak", "format"), ("weak", "correct")}
    assert (after["weak", "format"]["seeds"], after["weak", "format"]["seed_list"]) == ("2", "0 1")
    assert report.missing == ["weak/seed2 (not started)"]
    assert "2 of 3 x 60" in report.text and "Weak: seed 2 not started" in report.text
    assert verdicts(tmp_path / "before") == verdicts(tmp_path / "after")


def test_an_arm_without_runs_and_an_unfinished_base_render_as_not_run(tmp_path):
    root = tmp_path / "runs"
    write_all(root, arms=("strong",))
    RunDir(root / "base" / "abc123").clear()
    write_run(root / "weak" / "seed0", planted("weak", 0), finish=False)
    with RunDir.claim(root / "weak" / "seed1", {}, {}).lock():
        report = build(make_spec(root, arms=("strong", "weak")), tmp_path / "out")
    assert report.missing == [
        "base/abc123 (not started)",
        "weak/seed0 (unfinished)",
        "weak/seed1 (still running)",
        "weak/seed2 (not started)",
    ]
    for arm in ("weak", "base/abc123"):
        cell = cells(tmp_path / "out")[arm, "format"]
        assert (cell["value"], cell["low"], cell["note"]) == ("", "", "not run")
    assert "| Weak | not run | not run | 0 of 3 seeds |" in (tmp_path / "out" / "table.md").read_text("utf-8")


def test_nothing_run_at_all_is_still_a_report(tmp_path):
    report = build(make_spec(tmp_path / "runs", claims=(Claim("strong", ">", "weak", on="format"),)), tmp_path / "out")
    assert len(report.missing) == 13 and report.verdicts[0].status == "not_run"
    assert {cell["note"] for cell in cells(tmp_path / "out").values()} == {"not run"}


def test_ungraded_samples_are_counted_and_left_out(tmp_path):
    root = tmp_path / "runs"
    write_all(root, arms=("strong", "weak"))
    shutil.rmtree(root / "strong" / "seed1")
    values = planted("strong", 1, ungraded=range(5))
    write_run(root / "strong" / "seed1", values)
    report = build(
        make_spec(root, arms=("strong", "weak"), claims=(Claim("strong", ">", "weak", on="format"),)), tmp_path
    )
    cell = cells(tmp_path)["strong", "format"]
    means = [np.mean([s[0] for s in planted("strong", seed)["format"]]) for seed in (0, 2)]
    means.append(np.mean([s[0] for s in values["format"] if s[0] is not None]))
    assert float(cell["value"]) == pytest.approx(100 * np.mean(means))
    assert (cell["ungraded"], cell["samples"], cell["questions"]) == ("5", "180", "60")
    assert "(5 ungraded)" in report.text and "Ungraded values: 5 of 840" in " ".join(report.text.split())
    assert verdicts(tmp_path)[0]["n"]["ungraded"] == 5


def test_what_does_not_apply_is_not_counted_as_ungraded(tmp_path):
    root = tmp_path / "runs"
    write_all(root, arms=("strong", "weak"))
    shutil.rmtree(root / "strong" / "seed1")
    values = planted("strong", 1, ungraded=range(5))
    values["format"][5:12] = [[NOT_APPLICABLE]] * 7
    write_run(root / "strong" / "seed1", values)
    shutil.rmtree(root / "weak" / "seed1")
    write_run(root / "weak" / "seed1", planted("weak", 1) | {"correct": [[NOT_APPLICABLE]] * 60})
    claims = (Claim("strong", ">", "weak", on="format"),)
    report = build(make_spec(root, arms=("strong", "weak"), claims=claims), tmp_path)
    cell, words = cells(tmp_path)["strong", "format"], " ".join(report.text.split())
    assert (cell["ungraded"], cell["does_not_apply"], cell["samples"]) == ("5", "7", "180")
    markdown = (tmp_path / "table.md").read_text("utf-8")
    assert "(5 ungraded, 7 do not apply)" in markdown and "(60 do not apply)" in markdown
    assert (
        "Ungraded values: 5 of 840" in words and "do not apply to their sample, as its reward says: 67 of 840" in words
    )
    assert {key: verdicts(tmp_path)[0]["n"][key] for key in ("ungraded", "does_not_apply")} == {
        "ungraded": 5,
        "does_not_apply": 7,
    }
    weak = cells(tmp_path)["weak", "correct"]
    assert (weak["seeds"], weak["ungraded"], weak["does_not_apply"]) == ("2", "0", "60")


def test_a_reward_that_applies_to_no_sample_says_so_in_its_cell(tmp_path):
    root = tmp_path / "runs"
    write_all(root, arms=("strong",), seeds=())
    write_run(root / "strong" / "seed0", planted("strong", 0) | {"format": [[NOT_APPLICABLE]] * 60})
    build(make_spec(root, arms=("strong",), seeds=(0,)), tmp_path)
    cell = cells(tmp_path)["strong", "format"]
    assert (cell["value"], cell["note"], cell["ungraded"], cell["does_not_apply"]) == ("", "does not apply", "0", "60")


def test_a_wholly_ungraded_seed_is_no_seed_of_that_column(tmp_path):
    root = tmp_path / "runs"
    write_all(root, arms=("strong", "weak"), seeds=(0, 1))
    for arm in ("strong", "weak"):
        shutil.rmtree(root / arm / "seed1")
    write_run(root / "strong" / "seed1", planted("strong", 1, ungraded=range(60)))
    write_run(root / "weak" / "seed1", {**planted("weak", 1), "format": [[None]] * 60})
    shutil.rmtree(root / "weak" / "seed0")
    build(make_spec(root, arms=("strong", "weak"), seeds=(0, 1)), tmp_path)
    strong, weak = cells(tmp_path)["strong", "format"], cells(tmp_path)["weak", "format"]
    assert (strong["seeds"], strong["ungraded"], strong["method"]) == ("1", "60", "Wilson")
    assert (weak["seeds"], weak["value"], weak["note"]) == ("0", "", "ungraded")
    assert cells(tmp_path)["strong", "correct"]["seeds"] == "2"


# ---- the same runs, the same bytes


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


# ---- wrong input


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


def test_runs_that_cannot_be_paired_are_refused(tmp_path):
    spec = make_spec(tmp_path, arms=("strong", "weak"), seeds=(0,), columns=COLUMNS[:1], base=None)
    write_run(tmp_path / "strong" / "seed0", {"format": [[1.0], [0.0]]})
    write_run(tmp_path / "weak" / "seed0", {"format": [[1.0], [0.0], [1.0]]})
    with pytest.raises(InputError, match="2 questions, weak/seed0 has 3"):
        build(spec, tmp_path / "out")
    shutil.rmtree(tmp_path / "weak")
    write_run(tmp_path / "weak" / "seed0", {"format": [[1.0, 1.0], [0.0, 0.0]]})
    with pytest.raises(InputError, match="1 samples per question, weak/seed0 has 2"):
        build(spec, tmp_path / "out")
    run = RunDir(tmp_path / "weak" / "seed0")
    other = [{"row_id": "q000"}, {"row_id": "other"}]
    one = [{"row_id": q, "index": 0, "values": {"format": 1}} for q in ("q000", "q001")]
    write_evaluation(run, 1, other, one)
    report = build(spec, tmp_path / "out")
    assert report.missing == ["weak/seed0 (cannot be read)"] and "was not asked" in str(report.unreadable)
    write_evaluation(run, 1, other, [one[0], one[1] | {"row_id": "other"}])
    run.finish({"evaluation": {}})
    with pytest.raises(InputError, match=r"different questions, e\.g\. only one has 'other'"):
        build(spec, tmp_path / "out")


@pytest.mark.parametrize("lost", ["base/abc123", "strong/seed1"])
@pytest.mark.parametrize("file", [".", "scores/default.jsonl"])
def test_a_finished_run_whose_evaluation_is_lost_is_not_run_and_named(root, tmp_path, lost, file):
    whole = build(make_spec(root), tmp_path / "whole")
    gone = root / lost / "eval" / "heldout" / file
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    report = build(make_spec(root), tmp_path / "out")
    assert report.missing == [
        f"{lost} (finished, but its evaluation is not there; remove its result.json and start it again)"
    ]
    base, strong, *others = report.table.rows
    if lost == "strong/seed1":
        assert strong.seeds_used == (0, 2)
    else:
        assert [cell.note for cell in base.cells] == ["not run"] * len(COLUMNS)
        assert (strong, *others) == whole.table.rows[1:]
