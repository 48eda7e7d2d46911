"""Per-sample values of the evaluations of one model's runs; ``loading`` reads them.

The bridge from a printed cell back to its samples: a cell is a column of some runs, a column is one
value per question, and ``row_ids`` names the questions in the order of those values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gdpo_nemo.errors import UnknownNameError
from gdpo_nemo.report.spec import Column, ReportSpec
from gdpo_nemo.stats import Strata
from gdpo_nemo.stats.strata import FloatArray

ROUNDING = 1e-9
FINISHED = "finished"
STATE_WORDS = {
    "missing": "not started",
    "started": "unfinished",
    "running": "still running",
    "not_evaluated": "not evaluated",
    "lost": "finished, but its evaluation is not there; remove its result.json and start it again",
    "incomplete": "incomplete: some requests failed",
    "unreadable": "cannot be read",
}
SYNTHETIC = "synthetic"


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One run on one benchmark.

    Attributes:
        run: name of the run, see ``run_name``.
        path: of the store.
        row_ids: the questions, sorted.
        groups: group of each question, None where it has none.
        values: name -> values_Q_N, NaN where ungraded or where the score does not apply.
        num_failed: samples whose request failed for good; they are among the ungraded ones.
        num_without_score: samples that did not fail and have no line in the scores, as where a kill cut it off; they
            are among the ungraded ones.
        synthetic: whether the store says that it was made up.
        settings: benchmark, grader and sampling, which all runs of a table must share; empty where the store is of a
            version that does not know them.
        inapplicable: name -> bool [Q, N], True where the score does not apply; names without any are left out.
    """

    run: str
    path: Path
    row_ids: tuple[str, ...]
    groups: tuple[str | None, ...]
    values: Mapping[str, FloatArray]
    num_failed: int = 0
    num_without_score: int = 0
    synthetic: bool = False
    settings: Mapping[str, object] = field(default_factory=dict)
    inapplicable: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)

    @property
    def samples_per_question(self) -> int:
        """N."""
        return int(next(iter(self.values.values())).shape[1])

    def has(self, column: Column) -> bool:
        """Whether there are questions of every group that the column weighs."""
        return column.strata is None or set(column.strata) <= self._present

    @cached_property
    def _present(self) -> set[str | None]:
        return set(self.groups)

    def questions_of(self, column: Column) -> list[int]:
        """Positions of the questions that the column is about."""
        if column.strata is None:
            return list(range(len(self.row_ids)))
        return [q for q, group in enumerate(self.groups) if group in column.strata]

    def strata(self, column: Column) -> Strata | None:
        """Groups and weights of the questions of ``questions_of``."""
        if column.strata is None:
            return None
        return Strata.of([self.groups[q] for q in self.questions_of(column)], column.strata)

    def samples_Q_N(self, column: Column) -> FloatArray:
        """The column's value of each sample of its questions, a threshold's as 0 or 1.

        Raises:
            UnknownNameError: the evaluation has no such value.
        """
        if column.reward not in self.values:
            raise UnknownNameError(f"reward in the scores of {self.run}", column.reward, self.values)
        values_Q_N = self.values[column.reward]
        if column.strata is not None:
            values_Q_N = values_Q_N[self.questions_of(column)]
        if column.threshold is None:
            return values_Q_N
        reached_Q_N = values_Q_N >= column.threshold - ROUNDING
        hits_Q_N = (~reached_Q_N if column.below is not None else reached_Q_N).astype(np.float64)
        return np.where(np.isnan(values_Q_N), np.nan, hits_Q_N)

    def questions_Q(self, column: Column) -> FloatArray:
        """The mean over each question's graded samples, NaN where none is graded."""
        samples_Q_N = self.samples_Q_N(column)
        graded_Q = (~np.isnan(samples_Q_N)).sum(axis=1)
        return np.where(graded_Q > 0, np.nansum(samples_Q_N, axis=1) / np.maximum(graded_Q, 1), np.nan)

    def graded_Q(self, column: Column) -> FloatArray | None:
        """``questions_Q``, or None where nothing, or nothing of some group, is graded."""
        values_Q, strata = self.questions_Q(column), self.strata(column)
        groups_Q = np.zeros(len(values_Q), dtype=np.intp) if strata is None else strata.group_Q
        num_groups = 1 if strata is None else len(strata.names_G)
        graded = np.bincount(groups_Q[~np.isnan(values_Q)], minlength=num_groups)
        return values_Q if len(values_Q) and (graded > 0).all() else None

    def num_ungraded(self, column: Column) -> int:
        """Samples without a grade, those of failed requests among them; not those that the score does not apply to."""
        return int(np.isnan(self.samples_Q_N(column)).sum()) - self.num_inapplicable(column)

    def num_inapplicable(self, column: Column) -> int:
        """Samples that the column's score does not apply to."""
        marks_Q_N = self.inapplicable.get(column.reward)
        return 0 if marks_Q_N is None else int(marks_Q_N[self.questions_of(column)].sum())


@dataclass(frozen=True, eq=False)
class Evaluations:
    """All runs of one model.

    Attributes:
        base: benchmark -> evaluation of the model that all arms start from.
        arms: arm -> seed -> benchmark -> evaluation; finished ones only, in the order of the table.
        planned: arm -> seeds asked for.
        states: run name -> benchmark -> ``finished`` or a key of ``STATE_WORDS``.
        unreadable: what cannot be read, why, and what to do; the rest is shown without it.
    """

    base: Mapping[str, Evaluation]
    arms: Mapping[str, Mapping[int, Mapping[str, Evaluation]]]
    planned: Mapping[str, tuple[int, ...]]
    states: Mapping[str, Mapping[str, str]]
    unreadable: tuple[str, ...] = ()
    _graded: dict[tuple[str, str], dict[int, FloatArray]] = field(default_factory=dict, repr=False)

    def of_arm(self, arm: str, column: Column) -> dict[int, Evaluation]:
        """Seed -> evaluation of the column's benchmark, of the finished runs that have all its question groups."""
        runs = {seed: own[column.benchmark] for seed, own in self.arms.get(arm, {}).items() if column.benchmark in own}
        return {seed: one for seed, one in sorted(runs.items()) if one.has(column)}

    def of_base(self, column: Column) -> Evaluation | None:
        """The base model on the column's benchmark."""
        found = self.base.get(column.benchmark)
        return found if found is not None and found.has(column) else None

    def graded(self, arm: str, column: Column) -> dict[int, FloatArray]:
        """Seed -> values_Q of the arm's finished runs, less those in which nothing is graded."""
        key = (arm, column.name)
        if key not in self._graded:
            values = {seed: one.graded_Q(column) for seed, one in self.of_arm(arm, column).items()}
            self._graded[key] = {seed: values_Q for seed, values_Q in values.items() if values_Q is not None}
        return self._graded[key]

    def strata(self, column: Column) -> Strata | None:
        """Groups and weights of the column's questions, the same in all runs."""
        for evaluation in self.all():
            if evaluation.path.name == column.benchmark and evaluation.has(column):
                return evaluation.strata(column)
        return None

    def all(self) -> list[Evaluation]:
        """Every finished evaluation."""
        of_arms = [one for runs in self.arms.values() for own in runs.values() for one in own.values()]
        return [*self.base.values(), *of_arms]

    def state(self, run: str) -> str:
        """``finished``, or the state of a run's first benchmark that is not."""
        return next((state for state in self.states[run].values() if state != FINISHED), FINISHED)

    def missing(self) -> list[str]:
        """Runs without all results, and why."""
        return [f"{run} ({words})" for run in self.states if (words := self.words(run))]

    def words(self, run: str) -> str:
        """Why a run has no result on some benchmarks; empty where it has all."""
        states = self.states[run]
        left = {benchmark: STATE_WORDS[state] for benchmark, state in states.items() if state != FINISHED}
        if len(left) == len(states) and len(set(left.values())) == 1:
            return next(iter(left.values()))
        return ", ".join(f"{benchmark} {words}" for benchmark, words in left.items())


def column_bounds(spec: ReportSpec, column: Column) -> tuple[float, float]:
    """Lowest and highest value that one sample of the column can take, before the unit."""
    if column.is_share:
        return 0.0, 1.0
    return spec.reward_ranges.get(column.reward, (0.0, 1.0) if column.unit == "%" else (-np.inf, np.inf))


def run_name(path: Path) -> str:
    """``<arm>/seed<N>``, or ``base``: how files that may travel name a run of a model."""
    return path.name if path.name == "base" else f"{path.parent.name}/{path.name}"
