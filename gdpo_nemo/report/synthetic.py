"""Made-up runs at paper scale with planted values, to test a report with. Marked as such, and never mixed with others.

Each evaluation says ``"synthetic": true`` in its evaluation.json and each run in its provenance.json; every rendering
prints it, and a report refuses to show made-up runs beside real ones.

A planted value is met to within half a question: that share of a group's questions, drawn at random, is right. What
differs from seed to seed is planted as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gdpo_nemo.evaluation.store import EvaluationStore
from gdpo_nemo.files import append_jsonl
from gdpo_nemo.randomness import stream
from gdpo_nemo.report.references import ReferenceTable
from gdpo_nemo.report.samples import SYNTHETIC
from gdpo_nemo.report.spec import Column, Exhibit, is_metric
from gdpo_nemo.report.table import BASE
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.stats.strata import FloatArray

MARK = {SYNTHETIC: True, "note": "made up by gdpo_nemo.report.synthetic; not a result"}
UNKNOWN = 50.0


@dataclass(frozen=True)
class Plan:
    """What to plant. All in the unit of the paper's tables (points).

    Attributes:
        questions: per question group, or per benchmark without groups.
        samples: per question.
        seeds: of every arm.
        offsets: (arm, column) -> added to the paper's number, 0 where not named; ``(arm, "*")`` for all columns.
        spreads: column -> standard deviation from seed to seed, ``spread`` where not named.
        spread: see ``spreads``.
        steps: of training, written to metrics.jsonl; 0 for none.
        seed: of all draws.
    """

    questions: int = 40
    samples: int = 1
    seeds: Sequence[int] = range(5)
    offsets: Mapping[tuple[str, str], float] = field(default_factory=dict)
    spreads: Mapping[str, float] = field(default_factory=dict)
    spread: float = 0.0
    steps: int = 0
    seed: int = 0

    def target(self, reference: ReferenceTable | None, model: str, arm: str, column: Column) -> float:
        """The planted value of a cell."""
        paper = reference.cell(model, arm, column.reference) if reference else None
        offset = self.offsets.get((arm, column.name), self.offsets.get((arm, "*"), 0.0))
        return (paper.value if paper else UNKNOWN) + offset


def write_exhibit(exhibit: Exhibit, reference: ReferenceTable | None, tree: Path, plan: Plan) -> None:
    """Write runs and evaluations for a table under ``<tree>/<model>/<arm>/seed<N>/`` and ``<tree>/<model>/base/``.

    Args:
        exhibit: models, arms and columns.
        reference: the paper's numbers; 50 stands where one is not known.
        tree: ``<runs>/<experiment>/paper``.
        plan: what to plant.
    """
    for model in exhibit.models:
        if exhibit.base:
            write_run(tree / model / BASE, exhibit, reference, model, BASE, 0, plan)
        for arm in exhibit.arms:
            for seed in plan.seeds:
                write_run(tree / model / arm / f"seed{seed}", exhibit, reference, model, arm, seed, plan)


def write_run(
    path: Path, exhibit: Exhibit, reference: ReferenceTable | None, model: str, arm: str, seed: int, plan: Plan
) -> None:
    """Write one run with all its evaluations."""
    run = RunDir.claim(path, {"kind": "synthetic", "arm": arm, "seed": seed}, MARK)
    if plan.steps and arm != BASE:
        append_jsonl(path / "metrics.jsonl", _metrics(exhibit.rewards or ("format", "correct"), arm, seed, plan))
    for benchmark in dict.fromkeys(column.benchmark for column in exhibit.columns):
        columns = [column for column in exhibit.columns if column.benchmark == benchmark]
        targets = {column.name: plan.target(reference, model, arm, column) for column in columns}
        _write_evaluation(run.evaluation_path(benchmark), columns, targets, f"{model} {arm}", seed, plan)


def _write_evaluation(
    path: Path, columns: Sequence[Column], targets: Mapping[str, float], who: str, seed: int, plan: Plan
) -> None:
    store = EvaluationStore.create(
        path,
        {
            "benchmark": {"name": path.name, "revision": None, "hashes": {}},
            "grader": "default",
            "model": {"name": who},
            "sampling": {"temperature": 1.0},
            "samples_per_question": plan.samples,
            **MARK,
        },
    )
    groups: list[str | None] = list(dict.fromkeys(group for column in columns for group in column.strata or (None,)))
    asked = [(f"{group or path.name}-{q:04d}", group) for group in groups for q in range(plan.questions)]
    values = {
        reward: _values(reward, columns, targets, groups, who, seed, plan)
        for reward in dict.fromkeys(column.reward for column in columns)
    }
    store.write_questions(
        {"row_id": row_id, "messages": [{"role": "user", "content": f"made-up question {row_id}"}], "gold": "made up"}
        | ({"group": group} if group else {})
        for row_id, group in asked
    )
    keys = [{"row_id": row_id, "index": n} for row_id, _ in asked for n in range(plan.samples)]
    answer = {"response": "made-up response", "length_tokens": 2, "truncated": False, "finish_reason": "stop"}
    store.append_generations(key | answer for key in keys)
    flat = {
        reward: [None if value != value else value for value in values_Q_N.reshape(-1).tolist()]
        for reward, values_Q_N in values.items()
    }
    store.append_scores(
        key | {"values": {reward: own[i] for reward, own in flat.items()}, "reasons": {}} for i, key in enumerate(keys)
    )
    store.finish("complete", {"questions": len(asked), **MARK})


def _values(
    reward: str,
    columns: Sequence[Column],
    targets: Mapping[str, float],
    groups: Sequence[str | None],
    who: str,
    seed: int,
    plan: Plan,
) -> FloatArray:
    """values_Q_N of one reward: in each group the share of the first column that weighs it."""
    blocks = []
    for group in groups:
        column = next((c for c in columns if c.reward == reward and (c.strata is None or group in c.strata)), None)
        count = plan.questions * plan.samples
        if column is None:
            blocks.append(np.full((plan.questions, plan.samples), np.nan))
            continue
        moved = 0.0
        if not who.endswith(f" {BASE}"):  # the same draw for all groups and models: a seed is good or bad as a whole
            draw = stream(plan.seed, "synthetic", column.name, who.split()[-1], seed).standard_normal()
            moved = float(draw) * plan.spreads.get(column.name, plan.spread)
        share = float(np.clip((targets[column.name] + moved) / 100, 0, 1))
        own = np.zeros(count)
        own[: round(share * count)] = 1.0
        stream(plan.seed, "synthetic", who, seed, column.name, str(group)).shuffle(own)
        blocks.append(own.reshape(plan.questions, plan.samples))
    return np.concatenate(blocks)


def _metrics(rewards: Sequence[str], arm: str, seed: int, plan: Plan) -> list[dict[str, Any]]:
    rng = stream(plan.seed, "synthetic", "metrics", arm, seed)
    steps_T = np.arange(1, plan.steps + 1)
    rows: list[dict[str, Any]] = [{"step": int(step)} for step in steps_T]
    for name in rewards:
        key = name if is_metric(name) else f"reward/{name}/mean"
        values_T = 1 - np.exp(-3 * steps_T / plan.steps) + 0.05 * rng.standard_normal(plan.steps)
        for row, value in zip(rows, values_T.tolist(), strict=True):
            row[key] = value
    for row, loss, norm in zip(
        rows, rng.standard_normal(plan.steps).tolist(), rng.random(plan.steps).tolist(), strict=True
    ):
        row |= {"loss": 0.01 * loss, "grad_norm": 1 + norm}
    return rows
