"""From answers to scores: of those that came since, or of all of them again with another grader. Nothing is asked."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Container, Iterator
from itertools import islice
from typing import Any

from gdpo_nemo.errors import UnknownNameError
from gdpo_nemo.evaluation.benchmark import Benchmark, Sample
from gdpo_nemo.evaluation.store import EvaluationStore
from gdpo_nemo.types import RewardVector

SCORES_AT_ONCE = 100  # rows per append


def grade_new(benchmark: Benchmark, store: EvaluationStore, grader: str) -> None:
    """Grade the answers that have no scores yet, and write the scores as they come."""
    graded = frozenset((row["row_id"], row["index"]) for row in store.scores())
    if all((row["row_id"], row["index"]) in graded for row in store.each_generation()):
        return
    rows = _graded(benchmark, store, grader, graded)
    while some := list(islice(rows, SCORES_AT_ONCE)):
        store.append_scores(some, grader)


def rescore(benchmark: Benchmark, store: EvaluationStore, grader: str) -> tuple[str, dict[str, int]]:
    """Grade all answers (again) without asking for any; scores that are there are never overwritten.

    Returns:
        The name of the scores: the grader's, or ``<grader>@2`` and so on where it had graded these answers otherwise;
        and score -> number of samples whose value differs from the default grader's.

    Raises:
        UnknownNameError: the benchmark has no such grader.
    """
    if grader not in benchmark.graders:
        raise UnknownNameError(f"grader of {benchmark.name}", grader, benchmark.graders)
    with store.lock():
        new = list(_graded(benchmark, store, grader))
        name, version = grader, 1
        while name in store.graders() and store.scores(name) != new:
            version += 1
            name = f"{grader}@{version}"
        if name not in store.graders():
            store.append_scores(new, name)
        return name, _changes(store, name)


def _changes(store: EvaluationStore, grader: str) -> dict[str, int]:
    """Score -> number of samples whose value under ``grader`` differs from that of the header's grader."""
    first = {(row["row_id"], row["index"]): row["values"] for row in store.scores()}
    differing: Counter[str] = Counter()
    for row in store.scores(grader):
        before = first.get((row["row_id"], row["index"]), {})
        differing.update({name: before.get(name) != value for name, value in row["values"].items()})
    return dict(differing)


def _graded(
    benchmark: Benchmark, store: EvaluationStore, grader: str, without: Container[tuple[str, int]] = ()
) -> Iterator[dict[str, Any]]:
    """Rows of scores of all answers but some, as the grader gives them."""
    by_id = {row["row_id"]: row for row in store.questions()}
    under_way: deque[tuple[str, int]] = deque()

    def samples() -> Iterator[Sample]:
        for row in store.each_generation():
            key = (row["row_id"], row["index"])
            if key not in without:
                under_way.append(key)
                yield Sample(by_id[key[0]], row)

    for vector in benchmark.grade(samples(), grader):
        if not under_way:
            raise RuntimeError(f"grader {grader} of {benchmark.name} gave more scores than there are answers")
        yield score_row(*under_way.popleft(), vector)
    if under_way:
        raise RuntimeError(f"grader {grader} of {benchmark.name} gave no score for {under_way[0]}")


def score_row(row_id: str, index: int, vector: RewardVector) -> dict[str, Any]:
    """The row of one sample's scores; NaN, which JSON has no word for, is null."""
    values = {name: None if math.isnan(value) else value for name, value in vector.values.items()}
    reasons = {name: list(codes) for name, codes in vector.reasons.items()}
    return {"row_id": row_id, "index": index, "values": values, "reasons": reasons}
