"""Per-sample rewards of the final evaluations, read from finished run directories.

The bridge from a printed cell back to its samples: a cell is a column of some runs, a column is one
value per question, and ``row_ids`` names the questions in the order of those values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gdpo_nemo.errors import InputError, UnknownNameError
from gdpo_nemo.evaluation.store import EvaluationStore
from gdpo_nemo.report.spec import Column, ReportSpec
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.stats.intervals import FloatArray

ROUNDING = 1e-9
STATE_WORDS = {"missing": "not started", "started": "unfinished", "running": "still running"}


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The final evaluation of one run.

    Attributes:
        run: name of the run, its last two folders.
        row_ids: the questions, sorted.
        values: reward -> values_Q_N, NaN where ungraded.
    """

    run: str
    row_ids: tuple[str, ...]
    values: Mapping[str, FloatArray]

    @property
    def samples_per_question(self) -> int:
        """N."""
        return int(next(iter(self.values.values())).shape[1])

    def samples_Q_N(self, column: Column) -> FloatArray:
        """The column's value of each sample, a share's as 0 or 1.

        Raises:
            UnknownNameError: the evaluation has no such reward.
        """
        if column.reward not in self.values:
            raise UnknownNameError(f"reward in the scores of {self.run}", column.reward, self.values)
        values_Q_N = self.values[column.reward]
        if column.at_least is None:
            return values_Q_N
        hits_Q_N = (values_Q_N >= column.at_least - ROUNDING).astype(np.float64)
        return np.where(np.isnan(values_Q_N), np.nan, hits_Q_N)

    def questions_Q(self, column: Column) -> FloatArray:
        """The mean over each question's graded samples, NaN where none is graded."""
        samples_Q_N = self.samples_Q_N(column)
        graded_Q = (~np.isnan(samples_Q_N)).sum(axis=1)
        return np.where(graded_Q > 0, np.nansum(samples_Q_N, axis=1) / np.maximum(graded_Q, 1), np.nan)

    def num_ungraded(self, column: Column) -> int:
        """Samples without a grade."""
        return int(np.isnan(self.samples_Q_N(column)).sum())


@dataclass(frozen=True, eq=False)
class Evaluations:
    """All runs of one report.

    Attributes:
        base: the model all arms start from, None where it is not finished or not asked for.
        arms: arm -> seed -> evaluation, finished runs only, in the order of the table.
        planned: arm -> seeds asked for.
        states: run name -> ``missing``, ``started``, ``running`` or ``finished``.
    """

    base: Evaluation | None
    arms: Mapping[str, Mapping[int, Evaluation]]
    planned: Mapping[str, tuple[int, ...]]
    states: Mapping[str, str]

    def graded(self, arm: str, column: Column) -> dict[int, FloatArray]:
        """Seed -> values_Q of the arm's finished runs, less those in which nothing is graded."""
        values = {seed: evaluation.questions_Q(column) for seed, evaluation in self.arms.get(arm, {}).items()}
        return {seed: values_Q for seed, values_Q in sorted(values.items()) if not np.isnan(values_Q).all()}

    def missing(self) -> list[str]:
        """Runs without a result, and why."""
        return [f"{run} ({STATE_WORDS[state]})" for run, state in self.states.items() if state != "finished"]


def column_bounds(spec: ReportSpec, column: Column) -> tuple[float, float]:
    """Lowest and highest value that one sample of the column can take, before the unit."""
    if column.at_least is not None:
        return 0.0, 1.0
    return spec.reward_ranges.get(column.reward, (-np.inf, np.inf))


def run_name(path: Path) -> str:
    """``<arm>/seed<N>``: how files that may travel name a run."""
    return f"{path.parent.name}/{path.name}"


def read_evaluations(spec: ReportSpec) -> Evaluations:
    """Read every finished run of a report.

    Raises:
        InputError: a finished run has no evaluation, or two runs answered different questions.
    """
    planned: dict[str, tuple[int, ...]] = {}
    arms: dict[str, dict[int, Evaluation]] = {}
    states: dict[str, str] = {}
    base = None
    if spec.base is not None:
        states[run_name(spec.base)] = RunDir(spec.base).state()
        base = _read(spec.base)
    first: Evaluation | None = None
    for (arm, seed), path in spec.runs.items():
        planned[arm] = (*planned.get(arm, ()), seed)
        states[run_name(path)] = RunDir(path).state()
        evaluation = _read(path)
        if evaluation is None:
            arms.setdefault(arm, {})
            continue
        first = first or evaluation
        _check_same_questions(first, evaluation)
        arms.setdefault(arm, {})[seed] = evaluation
    return Evaluations(base, arms, planned, states)


def _read(path: Path) -> Evaluation | None:
    run = RunDir(path)
    result = run.result() if run.exists() else None
    if result is None:
        return None
    store = EvaluationStore(run.evaluation_path("heldout"))
    if not store.exists():
        raise InputError(f"{path} is finished but holds no evaluation; run it again from its last checkpoint")
    matrix = store.score_matrix()
    order = np.argsort(np.array(matrix.row_ids))
    values = {name: values_Q_N[order] for name, values_Q_N in matrix.values.items()}
    return Evaluation(run_name(path), tuple(sorted(matrix.row_ids)), values)


def _check_same_questions(first: Evaluation, other: Evaluation) -> None:
    for what, left, right in (
        ("questions", len(first.row_ids), len(other.row_ids)),
        ("samples per question", first.samples_per_question, other.samples_per_question),
    ):
        if left != right:
            raise InputError(
                f"{first.run} has {left} {what}, {other.run} has {right}: they cannot be paired; "
                "use one evaluation setting for all runs (--fresh starts them again)"
            )
    if first.row_ids != other.row_ids:
        odd = sorted(set(first.row_ids) ^ set(other.row_ids))[0]
        raise InputError(f"{first.run} and {other.run} answered different questions, e.g. only one has {odd!r}")
