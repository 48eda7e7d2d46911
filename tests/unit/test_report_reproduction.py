"""The paper's cells beside ours: every verdict from planted values, what a missing run changes, made-up runs marked."""

import csv
import io
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats

from gdpo_nemo.errors import InputError
from gdpo_nemo.evaluation.store import EvaluationStore
from gdpo_nemo.report.builder import build_exhibit
from gdpo_nemo.report.captions import SYNTHETIC, claim_line
from gdpo_nemo.report.cells import Part
from gdpo_nemo.report.loading import read_evaluations
from gdpo_nemo.report.references import ReferenceTable
from gdpo_nemo.report.reproduction import band, cell_verdict
from gdpo_nemo.report.samples import Evaluation
from gdpo_nemo.report.spec import Claim, Column, Exhibit, ReportSpec
from gdpo_nemo.report.synthetic import Plan, write_exhibit
from gdpo_nemo.report.verdict import adjusted, judge_all
from gdpo_nemo.run_tree import RunTree
from gdpo_nemo.stats import Interval
from gdpo_nemo.suite.explaining import explain

COLUMNS = (
    Column("easy", "Easy", "correct", benchmark="quiz", strata={"a": 0.75, "b": 0.25}, reference="easy", share=True),
    Column("short", "Too long", "long", benchmark="other", reference="long", share=True, better="lower"),
    Column("noisy", "Noisy", "noise", benchmark="other", reference="noisy", share=True),
)
CLAIMS = (
    Claim("gdpo", ">", "grpo", on="easy"),
    Claim("gdpo", "<", "grpo", on="short"),
    Claim("gdpo", ">", "grpo", on="noisy"),
)
EXHIBIT = Exhibit(
    "table9", "Table 9", "table", models=("small", "large"), arms=("grpo", "gdpo"), columns=COLUMNS, claims=CLAIMS
)
REFERENCE = ReferenceTable.model_validate(
    {
        "title": "Table 9",
        "unit": "percent",
        "decimals": 1,
        "runs": 5,
        "runs_source": "stated",
        "columns": ["easy", "long", "noisy"],
        "models": {
            model: {
                "label": model.title(),
                "cells": {
                    "base": {"easy": 30.0, "long": 60.0, "noisy": None},
                    "grpo": {"easy": 40.0, "long": 50.0, "noisy": 50.0},
                    "gdpo": {"easy": 60.0, "long": 20.0, "noisy": 55.0},
                },
            }
            for model in ("small", "large")
        },
    }
)


def specs(tree, exhibit=EXHIBIT, seeds=range(5), **changes):
    return [
        ReportSpec(
            experiment="made_up",
            title=exhibit.title,
            scale="paper",
            model=model,
            runs={(arm, seed): RunTree(tree / model).run(arm, seed).path for arm in exhibit.arms for seed in seeds},
            base=tree / model / "base",
            columns=exhibit.columns,
            claims=exhibit.claims,
            deviations=(),
            curves=exhibit.rewards,
            labels={"grpo": "GRPO", "gdpo": "GDPO"},
            exhibit=exhibit.name,
            reference=REFERENCE,
            **changes,
        )
        for model in exhibit.models
    ]


def plant(tree, exhibit=EXHIBIT, **changes):
    plan = Plan(questions=150, spread=0.3, spreads={"noisy": 12.0}, **changes)
    write_exhibit(exhibit, REFERENCE, tree, plan)
    return tree


@pytest.fixture(scope="module")
def as_planted(tmp_path_factory):
    return plant(tmp_path_factory.mktemp("planted") / "runs")


def cells(out):
    rows = csv.DictReader(io.StringIO((out / "table.csv").read_text("utf-8")))
    return {row["key"]: row for row in rows}


def report(tree, out, **changes):
    build_exhibit(EXHIBIT, specs(tree, **changes), out)
    return cells(out)


def verdicts_of(found, model="small"):
    return {key.split("/", 1)[1]: cell["verdict"] for key, cell in found.items() if key.startswith(f"table9:{model}/")}


# ---- every verdict from planted values


def test_the_papers_values_are_reproduced_or_too_noisy_to_tell(as_planted, tmp_path):
    found = report(as_planted, tmp_path)
    assert verdicts_of(found) == {
        "base/easy": "reproduced",
        "base/short": "reproduced",
        "base/noisy": "",  # the paper's number is not known
        "grpo/easy": "reproduced",
        "grpo/short": "reproduced",
        "grpo/noisy": "underpowered",
        "gdpo/easy": "reproduced",
        "gdpo/short": "reproduced",
        "gdpo/noisy": "underpowered",
    }
    assert found["table9:large/gdpo/easy"]["paper"] == "60.0"
    assert found["table9:large/base/noisy"]["paper"] == ""


def test_an_effect_at_another_level_is_direction_and_none_or_the_opposite_is_not_reproduced(tmp_path):
    offsets = {("grpo", "easy"): 20.0, ("gdpo", "easy"): 20.0, ("gdpo", "short"): 45.0}
    found = report(plant(tmp_path / "runs", offsets=offsets), tmp_path / "out")
    assert {key: verdict for key, verdict in verdicts_of(found).items() if "noisy" not in key} == {
        "base/easy": "reproduced",
        "base/short": "reproduced",
        "grpo/easy": "direction",
        "gdpo/easy": "direction",
        "grpo/short": "reproduced",  # the cell is right, whatever the other arm does
        "gdpo/short": "not_reproduced",
    }
    claims = json.loads((tmp_path / "out" / "verdict.json").read_text("utf-8"))["claims"]
    assert [claim["status"] for claim in claims[:2]] == ["supported", "contradicted"]
    assert claims[0]["paper_effects"] == {"Small": 20.0}


def test_one_seed_is_underpowered_whatever_its_value(tmp_path):
    tree = plant(tmp_path / "runs", seeds=[0])
    found = report(tree, tmp_path / "out", seeds=[0])
    assert verdicts_of(found)["gdpo/easy"] == "underpowered"
    assert verdicts_of(found)["base/easy"] == "reproduced"
    assert found["table9:small/gdpo/easy"]["band_low"] == ""


def test_nothing_run_is_not_run_everywhere_beside_the_papers_numbers(tmp_path):
    found = report(tmp_path / "runs", tmp_path / "out")
    assert set(verdicts_of(found).values()) == {"not_run", ""}
    assert {cell["note"] for cell in found.values()} == {"not run"}
    text = (tmp_path / "out" / "table.md").read_text("utf-8")
    assert "| Easy (%) | Before RL (base) | 30.0 | - | not run | - | | not run |" in text
    assert "| Noisy (%) | Before RL (base) | - | - | not run | - | | not run |" in text  # a number nobody knows
    assert "SYNTHETIC" not in text


# ---- a missing run changes its own cells


def test_deleting_runs_turns_exactly_their_cells_into_not_run(as_planted, tmp_path):
    tree = shutil.copytree(as_planted, tmp_path / "runs")
    before = report(tree, tmp_path / "before")
    shutil.rmtree(tree / "small" / "base")
    for seed in range(5):
        shutil.rmtree(tree / "large" / "gdpo" / f"seed{seed}")
    after = report(tree, tmp_path / "after")
    not_run = {key for key in after if after[key]["note"] == "not run"}
    assert not_run == {f"table9:{place}/{column.name}" for place in ("small/base", "large/gdpo") for column in COLUMNS}
    for key in before:
        numbers = ("value", "low", "high", "band_low", "band_high", "seeds", "verdict")
        if key not in not_run:
            assert [before[key][name] for name in numbers] == [after[key][name] for name in numbers]


def test_an_evaluation_without_a_question_group_is_not_run_in_the_columns_that_weigh_it(as_planted, tmp_path):
    tree = shutil.copytree(as_planted, tmp_path / "runs")
    for seed in range(5):
        path = tree / "small" / "gdpo" / f"seed{seed}" / "eval" / "quiz"
        for name in ("questions.jsonl", "scores/default.jsonl"):
            lines = [line for line in (path / name).read_text("utf-8").splitlines(True) if '"b-' not in line]
            (path / name).write_text("".join(lines), "utf-8")
    with pytest.raises(InputError, match="base has 300 questions, gdpo/seed0 has 150"):
        report(tree, tmp_path / "out")  # the others answered more questions
    for seed in range(5):
        shutil.rmtree(tree / "small" / "grpo" / f"seed{seed}")
    shutil.rmtree(tree / "small" / "base")
    found = report(tree, tmp_path / "out")
    assert found["table9:small/gdpo/easy"]["note"] == "not run"
    assert found["table9:small/gdpo/short"]["verdict"] == "reproduced"


def test_an_incomplete_evaluation_counts_only_when_allowed_and_shows_its_failures(as_planted, tmp_path):
    tree = shutil.copytree(as_planted, tmp_path / "runs")
    path = tree / "small" / "gdpo" / "seed2" / "eval" / "other"
    scores = (path / "scores" / "default.jsonl").read_text("utf-8").splitlines(True)
    (path / "scores" / "default.jsonl").write_text("".join(scores[:-4]), "utf-8")
    answers = (path / "generations.jsonl").read_text("utf-8").splitlines(True)
    (path / "generations.jsonl").write_text("".join(answers[:-3]), "utf-8")
    lost = [{key: json.loads(line)[key] for key in ("row_id", "index")} for line in answers[-3:]]
    EvaluationStore(path).append_failures(row | {"error": "HTTP 500", "attempts": 3} for row in lost)
    EvaluationStore(path).finish("incomplete", {})
    found = report(tree, tmp_path / "strict")
    assert (found["table9:small/gdpo/short"]["seeds"], found["table9:small/gdpo/easy"]["seeds"]) == ("4", "5")
    text = " ".join((tmp_path / "strict" / "table.md").read_text("utf-8").split())
    assert "Small, GDPO: seed 2 other incomplete: some requests failed" in text
    found = report(tree, tmp_path / "allowed", allow_incomplete=True)
    cell = found["table9:small/gdpo/short"]
    assert (cell["seeds"], cell["ungraded"], cell["failed"]) == ("5", "4", "3")
    text = (tmp_path / "allowed" / "table.md").read_text("utf-8")
    assert "(4 ungraded, 3 of them failed)" in text and "requests that failed for good" in text
    assert "1 samples have no line in the scores" in text  # answered, and its score was cut off


# ---- made-up runs


def test_every_rendering_says_synthetic(as_planted, tmp_path):
    exhibit = replace(EXHIBIT, rewards=("format",))
    tree = plant(tmp_path / "runs", exhibit, steps=30)
    built = build_exhibit(exhibit, specs(tree, exhibit), tmp_path / "out")
    assert built.text.startswith(SYNTHETIC) and built.table.synthetic
    for name in ("table.md", "table.tex", "table.html", "table.csv", "verdict.json", "stability-small.md"):
        assert "SYNTHETIC" in (tmp_path / "out" / name).read_text("utf-8"), name
    curves = replace(exhibit, kind="curves", columns=())
    built = build_exhibit(curves, specs(tree, curves), tmp_path / "curves")
    assert built.text.startswith(SYNTHETIC)


def test_made_up_runs_are_never_shown_beside_others(as_planted, tmp_path):
    tree = shutil.copytree(as_planted, tmp_path / "runs")
    header = tree / "large" / "gdpo" / "seed1" / "eval" / "quiz" / "evaluation.json"
    content = json.loads(header.read_text("utf-8"))
    header.write_text(json.dumps({key: value for key, value in content.items() if key != "synthetic"}), "utf-8")
    with pytest.raises(InputError, match=r"is synthetic and .*gdpo/seed1.* is not"):
        report(tree, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("run", ["gdpo/seed1", "base"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sampling": {"temperature": 0.6}}, r"sampling\.temperature is (1.0 and 0.6|0.6 and 1.0)"),
        (
            {"benchmark": {"name": "quiz", "revision": "b", "hashes": {}}},
            r"benchmark\.revision is (None and 'b'|'b' and None)",
        ),
    ],
)
def test_runs_that_were_evaluated_in_different_ways_share_no_table(as_planted, tmp_path, run, change, message):
    tree = shutil.copytree(as_planted / "small", tmp_path / "runs" / "small")
    header = tree / run / "eval" / "quiz" / "evaluation.json"
    header.write_text(json.dumps(json.loads(header.read_text("utf-8")) | change), "utf-8")
    with pytest.raises(InputError, match=message):
        read_evaluations(specs(tree.parent)[0])


def test_a_share_of_values_that_are_none_is_refused(as_planted, tmp_path):
    tree = shutil.copytree(as_planted / "small", tmp_path / "runs" / "small")
    path = tree / "gdpo" / "seed1" / "eval" / "quiz" / "scores" / "default.jsonl"
    path.write_text(path.read_text("utf-8").replace('"correct": 1.0', '"correct": 7', 1), "utf-8")
    with pytest.raises(InputError, match="correct of a sample is 7, expected 0 to 1 for the share 'Easy'"):
        read_evaluations(specs(tree.parent)[0])


def test_the_explanation_of_a_cell_adjusts_for_the_claims_of_all_models_as_its_table_does(as_planted):
    both = specs(as_planted)
    parts = [Part(spec, read_evaluations(spec)) for spec in both]
    verdicts = adjusted([one for part in parts for one in judge_all(part.spec, part.evaluations, CLAIMS)], 0.95)
    noisy = verdicts[-1]
    assert noisy.model == "large" and noisy.p_adjusted != adjusted([*verdicts[3:]], 0.95)[-1].p_adjusted
    [line] = explain(both, both[1], "gdpo", COLUMNS[2]).data["claims"]
    assert line == claim_line(both[1], noisy)


def test_two_builds_are_identical(as_planted, tmp_path):
    elsewhere = shutil.copytree(as_planted, tmp_path / "elsewhere" / "runs")
    for tree, out in ((as_planted, "a"), (elsewhere, "b")):
        report(tree, tmp_path / out)
    first, second = (
        {path.name: path.read_bytes() for path in sorted((tmp_path / out).iterdir())} for out in ("a", "b")
    )
    assert first == second and len(first) == 5


# ---- the band


def evaluation(values_Q_N, groups=None):
    values = np.asarray(values_Q_N, dtype=float)
    names = tuple(f"q{q}" for q in range(len(values)))
    return Evaluation("arm/seed0", None, names, groups or (None,) * len(values), {"correct": values})


def test_band_by_hand():
    column = Column("c", "C", "correct", share=True)
    paper = REFERENCE.cell("small", "grpo", "easy")
    runs = [evaluation([[1.0]] * hits + [[0.0]] * (100 - hits)) for hits in (40, 50, 60)]
    # Means 40, 50, 60: v_run = 100. One sample: v_sample is the spread over questions, about 25 % over 100 questions.
    v_sample = 1e4 * np.mean([p * (1 - p) / 99 for p in (0.4, 0.5, 0.6)])
    t, z = scipy.stats.t.ppf(0.975, 2), scipy.stats.norm.ppf(0.975)
    half = 0.05 + np.sqrt(max(t**2 * 100, z**2 * v_sample) * (1 / 3 + 1 / 5))
    got = band(paper, 5, runs, column, 0.95, base=False)
    assert (got.low, got.high) == pytest.approx((40 - half, 40 + half))
    # The same value in every seed: luck, since sampling alone makes seeds differ.
    half = 0.05 + np.sqrt(z**2 * 1e4 * 0.25 / 99 * (1 / 3 + 1 / 5))
    got = band(paper, 5, [runs[1]] * 3, column, 0.95, base=False)
    assert (got.low, got.high) == pytest.approx((40 - half, 40 + half))
    # The base model: one on either side.
    half = 0.05 + z * np.sqrt(1e4 * 0.25 / 99 * 2)
    got = band(paper, 5, [runs[1]], column, 0.95, base=True)
    assert (got.low, got.high) == pytest.approx((40 - half, 40 + half))
    assert band(paper, 5, [runs[1]], column, 0.95, base=False) is None
    assert band(paper, 5, [], column, 0.95, base=True) is None


def test_repeated_samples_tell_sampling_from_difficulty():
    column = Column("c", "C", "correct", share=True)
    paper = REFERENCE.cell("small", "grpo", "easy")
    sure = [evaluation([[1.0, 1.0]] * 50 + [[0.0, 0.0]] * 49 + [[1.0, 0.0]])] * 2
    unsure = [evaluation([[1.0, 0.0]] * 100)] * 2
    narrow, wide = (band(paper, 5, runs, column, 0.95, base=False) for runs in (sure, unsure))
    assert narrow.high - narrow.low < 0.2 * (wide.high - wide.low)


def test_a_share_that_nobody_reached_has_a_band_of_the_papers_share():
    column = Column("c", "C", "correct", share=True)
    paper = REFERENCE.cell("small", "gdpo", "long")
    got = band(paper, 5, [evaluation([[0.0]] * 64)], column, 0.95, base=True)
    half = 0.05 + 1.959964 * np.sqrt(1e4 * 0.2 * 0.8 / 64 * 2)
    assert (got.low, got.high) == pytest.approx((20 - half, 20 + half), rel=1e-5)


def test_weighted_groups_weigh_in_the_band():
    column = Column("c", "C", "correct", strata={"a": 0.9, "b": 0.1}, share=True)
    paper = REFERENCE.cell("small", "grpo", "easy")
    run = evaluation([[1.0], [0.0]] * 5 + [[0.0], [0.0]] * 5, ("a",) * 10 + ("b",) * 10)
    got = band(paper, 5, [run], column, 0.95, base=True)
    half = 0.05 + 1.959964 * np.sqrt(1e4 * 0.81 * (10 / 36) / 10 * 2)
    assert (got.low, got.high) == pytest.approx((40 - half, 40 + half), rel=1e-5)


@pytest.mark.parametrize(
    ("value", "limits", "effects", "expected"),
    [
        (None, (0, 1), [5.0], "not_run"),
        (10.0, None, [5.0], "underpowered"),
        (10.0, (8, 12), [5.0], "reproduced"),
        (10.0, (8, 12), [], "reproduced"),
        (10.0, (4, 16), [5.0], "underpowered"),
        (10.0, (4, 16), [50.0, -5.0], "underpowered"),
        (20.0, (8, 12), [5.0], "not_reproduced"),
    ],
)
def test_verdict_of_a_cell(value, limits, effects, expected):
    interval = limits and Interval(*limits, 0.95, "band")
    assert cell_verdict(value, interval, effects, []) == expected
