"""Runs with evaluations written by hand, for tests of reports."""

import csv
import io
import json
import shutil
from dataclasses import replace

import numpy as np

from gdpo_nemo.evaluation.store import EvaluationStore
from gdpo_nemo.report.spec import Column, Deviation, ReportSpec
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.types import NOT_APPLICABLE

NUM_QUESTIONS = 60
COLUMNS = (
    Column("format", "Correct format", "format", at_least=1.0),
    Column("correct", "Correctness", "correct", unit="", digits=2),
)
# Planted: strong beats weak in every seed, twin is strong under another name, erratic flips from seed to seed.
SHARES = {
    "strong": (0.9, 0.92, 0.88),
    "weak": (0.2, 0.25, 0.22),
    "erratic": (1.0, 0.1, 1.0),
    "twin": (0.9, 0.92, 0.88),
}
ARMS = tuple(SHARES)


def write_evaluation(run, num_samples, questions, scores):
    shutil.rmtree(run.evaluation_path("heldout"), ignore_errors=True)
    header = {"benchmark": {"name": "heldout"}, "grader": "default", "model": {}, "sampling": {}}
    store = EvaluationStore.create(run.evaluation_path("heldout"), header | {"samples_per_question": num_samples})
    store.write_questions(questions)
    store.append_scores(scores)


def score(row_id, index, values):
    idle = [name for name, value in values.items() if value == NOT_APPLICABLE]
    given = values | dict.fromkeys(idle)
    return {"row_id": row_id, "index": index, "values": given, "reasons": {name: [NOT_APPLICABLE] for name in idle}}


def write_run(path, values, *, finish=True, order=None):
    """A run whose final evaluation gave these values: reward -> one list of samples per question.

    None is ungraded, ``NOT_APPLICABLE`` a score that does not apply.
    """
    run = RunDir.claim(path, {"kind": "train"}, {})
    run.append_metrics({"step": 1, **{f"reward/{name}/mean": 0.5 for name in values}})
    num_questions, num_samples = len(next(iter(values.values()))), len(next(iter(values.values()))[0])
    write_evaluation(
        run,
        num_samples,
        [{"row_id": f"q{q:03d}", "messages": [], "gold": ""} for q in order or range(num_questions)],
        [
            score(f"q{q:03d}", i, {name: values[name][q][i] for name in values})
            for q in order or range(num_questions)
            for i in range(num_samples)
        ],
    )
    if finish:
        run.finish({"steps": 1, "evaluation": {"questions": num_questions, "samples_per_question": num_samples}})
    return run


def planted(arm, seed, ungraded=()):
    rng = np.random.default_rng([ARMS.index(arm), seed])
    hit_Q = rng.random(NUM_QUESTIONS) < SHARES[arm][seed]
    formats = [[None if q in ungraded else float(hit)] for q, hit in enumerate(hit_Q)]
    return {"format": formats, "correct": [[3.0 if hit else -1.5] for hit in rng.random(NUM_QUESTIONS) < 0.6]}


def make_spec(root, arms=ARMS, seeds=(0, 1, 2), **changes):
    spec = ReportSpec(
        experiment="planted_effects",
        title="Planted effects",
        scale="embedded",
        model="tiny",
        runs={(arm, seed): root / arm / f"seed{seed}" for arm in arms for seed in seeds},
        base=root / "base" / "abc123",
        columns=COLUMNS,
        claims=(),
        deviations=(Deviation("kl", "no KL penalty in 100% of the runs", expected="a_b slightly up"),),
        curves=(),
        labels={arm: arm.title() for arm in (*ARMS, "absent")},
        reward_ranges={"format": (0.0, 1.0), "correct": (-3.0, 3.0)},
    )
    return replace(spec, **changes)


def write_all(root, arms=ARMS, seeds=(0, 1, 2), **options):
    write_run(
        root / "base" / "abc123", {"format": [[float(q < 6)] for q in range(NUM_QUESTIONS)], "correct": [[0.0]] * 60}
    )
    for arm in arms:
        for seed in seeds:
            write_run(root / arm / f"seed{seed}", planted(arm, seed), **options)


def cells(out):
    rows = csv.DictReader(io.StringIO((out / "table.csv").read_text("utf-8")))
    return {(row["arm"], row["column"]): row for row in rows}


def verdicts(out):
    """What a report says of each claim."""
    return json.loads((out / "verdict.json").read_text("utf-8"))["claims"]
