"""The way down from cells: runs, files, and a few samples with their full texts.

The samples of a benchmark are drawn once, with a seed that depends on nothing but its name, so every arm shows its
answers to the same questions, and every column of a benchmark shows the same samples. A page holds each text once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gdpo_nemo.evaluation.lookup import find_rows
from gdpo_nemo.evaluation.store import EvaluationStore
from gdpo_nemo.randomness import stream
from gdpo_nemo.report.grid import number
from gdpo_nemo.report.page.document import Question, RunLine, Sample, Trace
from gdpo_nemo.report.samples import FINISHED, STATE_WORDS, Evaluation, run_name
from gdpo_nemo.report.spec import Column
from gdpo_nemo.report.table import BASE, Part
from gdpo_nemo.stats import mean_over_seeds

MAX_SAMPLES = 20
MAX_TEXT_BYTES = 16_000_000
"""Of all prompts and responses on a page; beyond it, every cell shows fewer samples."""


@dataclass(frozen=True)
class Traced:
    """What a page holds of the runs behind its cells."""

    questions: tuple[Question, ...]
    samples: tuple[Sample, ...]
    traces: Mapping[str, Trace]


@dataclass(frozen=True)
class _Drawn:
    """A sample that was drawn, and where its texts are."""

    run: str
    store: EvaluationStore
    row_id: str
    index: int


def trace_cells(parts: Sequence[Part], report: Path) -> Traced:
    """Trace every cell of the parts; paths are written from the folder ``report``."""
    limit = MAX_SAMPLES
    while True:
        traced, size = _trace(parts, report, limit)
        if size <= MAX_TEXT_BYTES or limit == 1:
            return traced
        limit = max(1, min(limit - 1, int(limit * MAX_TEXT_BYTES / size)))


def _trace(parts: Sequence[Part], report: Path, limit: int) -> tuple[Traced, int]:
    pool = _Pool(report)
    traces: dict[str, Trace] = {}
    for part in parts:
        arms: dict[str, list[tuple[int, Path]]] = {BASE: [(0, part.spec.base)]} if part.spec.base else {}
        for (arm, seed), path in part.spec.runs.items():
            arms.setdefault(arm, []).append((seed, path))
        for arm, runs in arms.items():
            for column in part.spec.columns:
                key = f"{part.spec.exhibit}:{part.spec.model}/{arm}/{column.name}"
                traces[key] = _trace_cell(part, arm, runs, column, pool, limit)
    return Traced(tuple(pool.questions), tuple(pool.samples), traces), pool.size


def _trace_cell(
    part: Part, arm: str, runs: Sequence[tuple[int, Path]], column: Column, pool: _Pool, limit: int
) -> Trace:
    if arm == BASE:
        base = part.evaluations.of_base(column)
        found = {0: base} if base else {}
    else:
        found = part.evaluations.of_arm(arm, column)
    lines = []
    for seed, path in runs:
        state = part.evaluations.states[run_name(path)].get(column.benchmark, "missing")
        words = FINISHED if state == FINISHED else STATE_WORDS[state]
        lines.append(RunLine(run_name(path), words, _value(found.get(seed), column), pool.relative(path)))
    return Trace(
        runs=tuple(lines),
        samples=pool.add(part.spec.model, column, list(found.values()), limit),
        num_samples=sum(one.samples_Q_N(column).size for one in found.values()),
        files=tuple(pool.relative(EvaluationStore(one.path).file("generations")) for one in found.values()),
    )


def _value(evaluation: Evaluation | None, column: Column) -> str:
    values_Q = evaluation.graded_Q(column) if evaluation else None
    if evaluation is None or values_Q is None:
        return "-"
    return number(mean_over_seeds(values_Q[None], evaluation.strata(column)) * column.factor, column.digits)


class _Pool:
    """Questions and samples, each once."""

    def __init__(self, report: Path) -> None:
        self.questions: list[Question] = []
        self.samples: list[Sample] = []
        self.size = 0
        self._report = report
        self._question_at: dict[tuple[str, str], int] = {}
        self._sample_at: dict[tuple[Path, str, int], int] = {}

    def relative(self, path: Path) -> str:
        return Path(os.path.relpath(path, self._report)).as_posix()

    def add(self, model: str, column: Column, evaluations: Sequence[Evaluation], limit: int) -> tuple[int, ...]:
        """Positions of the samples of a cell, one after the other from each of its evaluations."""
        drawn = _draw(column, evaluations, limit)
        new = [one for one in drawn if (one.store.path, one.row_id, one.index) not in self._sample_at]
        by_store: dict[Path, list[_Drawn]] = {}
        for one in new:
            by_store.setdefault(one.store.path, []).append(one)
        for own in by_store.values():
            self._read(own)
        keys = [(one.store.path, one.row_id, one.index) for one in drawn]
        return tuple(self._sample_at[key] for key in keys if key in self._sample_at)

    def _read(self, drawn: Sequence[_Drawn]) -> None:
        store = drawn[0].store
        wanted = {(one.row_id, one.index) for one in drawn}
        answers = find_rows(store.file("generations"), wanted)
        scores = find_rows(store.file(f"scores/{store.header['grader']}"), wanted)
        asked = {(one.row_id, 0) for one in drawn if (store.path.name, one.row_id) not in self._question_at}
        for (row_id, _), (_, row) in find_rows(store.file("questions"), asked).items():
            self._add_question(store.path.name, row_id, row)
        path = self.relative(store.file("generations"))
        for one in drawn:
            if (one.row_id, one.index) not in answers or (store.path.name, one.row_id) not in self._question_at:
                continue  # its request failed, and nothing was answered
            line, row = answers[one.row_id, one.index]
            _, score = scores.get((one.row_id, one.index), (0, {"values": {}}))
            self._sample_at[store.path, one.row_id, one.index] = len(self.samples)
            self.size += len(row["response"])
            self.samples.append(
                Sample(
                    question=self._question_at[store.path.name, one.row_id],
                    run=one.run,
                    index=one.index,
                    response=row["response"],
                    values=score["values"],
                    reasons={name: tuple(codes) for name, codes in score.get("reasons", {}).items()},
                    length_tokens=row.get("length_tokens"),
                    truncated=bool(row.get("truncated")),
                    path=f"{path}:{line}",
                )
            )

    def _add_question(self, benchmark: str, row_id: str, row: Mapping[str, Any]) -> None:
        messages = tuple((str(one["role"]), _text(one["content"])) for one in row.get("messages", ()))
        question = Question(row_id, messages, _text(row.get("gold", "")))
        self.size += len(question.gold) + sum(len(content) for _, content in messages)
        self._question_at[benchmark, row_id] = len(self.questions)
        self.questions.append(question)


def _draw(column: Column, evaluations: Sequence[Evaluation], limit: int) -> list[_Drawn]:
    if not evaluations:
        return []
    first = evaluations[0]
    asked = first.questions_of(column)
    rng = stream(0, "page", column.benchmark, *sorted(column.strata or ()))
    chosen = rng.permutation(len(asked))[:MAX_SAMPLES]
    indices = rng.integers(first.samples_per_question, size=len(chosen))
    stores = [EvaluationStore.open(one.path) for one in evaluations]
    drawn = []
    for i, (q, index) in enumerate(zip(chosen.tolist(), indices.tolist(), strict=True)):
        turn = i % len(evaluations)
        drawn.append(_Drawn(evaluations[turn].run, stores[turn], first.row_ids[asked[q]], index))
    return drawn[:limit]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
