"""One cell of a table: a number with its interval, its counts, and the paper's number beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gdpo_nemo.report.reproduction import CellVerdict, band, cell_verdict
from gdpo_nemo.report.samples import Evaluation, Evaluations, column_bounds
from gdpo_nemo.report.spec import Column, ReportSpec
from gdpo_nemo.report.verdict import Verdict
from gdpo_nemo.stats import (
    Interval,
    Strata,
    bootstrap_questions,
    crossed_t,
    effective_size,
    iqm,
    mean_over_seeds,
    wilson,
)
from gdpo_nemo.stats.intervals import MIN_SEEDS_IQM
from gdpo_nemo.stats.strata import FloatArray, seed_means, split

BASE = "base"


@dataclass(frozen=True)
class Cell:
    """One number with its interval and counts.

    Attributes:
        value: in the printed unit; None where there is none, and ``note`` says why.
        interval: None where the seeds or questions do not allow one.
        one_model: the interval is over questions alone.
        num_seeds: seeds with a graded value.
        num_questions: questions with a graded sample.
        num_samples: samples of all finished runs, graded or not.
        num_ungraded: of them, those that could not be graded.
        num_inapplicable: of ``num_samples``, those that the score does not apply to; not among the ungraded ones.
        num_failed: of the ungraded ones, those whose request failed for good.
        best: better than every other arm by the paired interval.
        note: ``not run``, ``ungraded`` or ``does not apply``, else empty.
        key: ``<exhibit>:<model>/<arm>/<column>``, what ``gdpo explain`` takes.
        paper: the paper's number in the printed unit; None at embedded scale and where it is not known.
        paper_digits: decimals that the paper prints.
        band: where our number should fall if it reproduces the paper's, see ``gdpo_nemo.report.reproduction``; None
            without a number of the paper's or without a spread to derive it from.
        verdict: of our number against the paper's; None where there is no number of the paper's.
        runs: the runs behind it, as ``<model>/<arm>/seed<N>``: their folders below ``<runs>/<experiment>/<scale>/``.
        iqm: interquartile mean over the seeds, from four on.
    """

    value: float | None = None
    interval: Interval | None = None
    one_model: bool = False
    num_seeds: int = 0
    num_questions: int = 0
    num_samples: int = 0
    num_ungraded: int = 0
    num_inapplicable: int = 0
    num_failed: int = 0
    best: bool = False
    note: str = ""
    key: str = ""
    paper: float | None = None
    paper_digits: int = 0
    band: Interval | None = None
    verdict: CellVerdict | None = None
    runs: tuple[str, ...] = ()
    iqm: float | None = None

    @property
    def without_value(self) -> str:
        """``3 ungraded, 2 of them failed, 5 do not apply``; empty where every sample has a value."""
        failed = f", {self.num_failed} of them failed" if self.num_failed else ""
        parts = [f"{self.num_ungraded} ungraded{failed}"] if self.num_ungraded else []
        parts += [f"{self.num_inapplicable} do not apply"] if self.num_inapplicable else []
        return ", ".join(parts)


@dataclass(frozen=True, eq=False)
class Part:
    """The runs of one model, as one group of rows."""

    spec: ReportSpec
    evaluations: Evaluations


def make_cell(
    part: Part,
    arm: str,
    column: Column,
    runs: Mapping[int, Evaluation],
    verdicts: Sequence[Verdict],
    best: bool = False,
) -> Cell:
    """Compute a cell.

    Args:
        part: the model's runs.
        arm: or ``base``.
        column: what to compute.
        runs: seed -> evaluation of the column's benchmark, finished ones only.
        verdicts: on the claims of all models, adjusted.
        best: whether it beats every other arm.
    """
    spec = part.spec
    key = f"{spec.exhibit}:{spec.model}/{arm}/{column.name}"
    paper = spec.reference.cell(spec.model, arm, column.reference) if spec.reference and spec.scale == "paper" else None
    known = (paper.value, paper.decimals or 0) if paper else (None, 0)
    not_run: CellVerdict | None = "not_run" if paper else None
    if not runs:
        return Cell(note="not run", key=key, paper=known[0], paper_digits=known[1], verdict=not_run)
    num_samples = sum(run.samples_Q_N(column).size for run in runs.values())
    num_ungraded = sum(run.num_ungraded(column) for run in runs.values())
    num_inapplicable = sum(run.num_inapplicable(column) for run in runs.values())
    names = tuple(f"{spec.model}/{run.run}" for run in runs.values())
    graded = {seed: values_Q for seed, run in runs.items() if (values_Q := run.graded_Q(column)) is not None}
    if not graded:
        return Cell(
            num_samples=num_samples, num_ungraded=num_ungraded, num_inapplicable=num_inapplicable, key=key,
            note="does not apply" if num_inapplicable == num_samples else "ungraded", paper=known[0],
            paper_digits=known[1], verdict=not_run, runs=names,
        )  # fmt: skip
    used = [runs[seed] for seed in graded]
    values_S_Q, strata = np.stack(list(graded.values())), used[0].strata(column)
    num_graded = num_samples - num_ungraded - num_inapplicable
    interval = _interval(spec, column, values_S_Q, strata, num_graded, used[0].samples_per_question)
    means_S = seed_means(values_S_Q, strata) * column.factor
    value = mean_over_seeds(values_S_Q, strata) * column.factor
    num_paper_runs = spec.reference.runs if spec.reference else 1
    limits = band(paper, num_paper_runs, used, column, spec.level, base=arm == BASE) if paper else None
    about = [verdict for verdict in verdicts if _is_about(verdict, spec.model, arm, column)]
    effects = [effect for verdict in about if (effect := verdict.effect)]
    return Cell(
        value=value,
        interval=interval and interval.times(column.factor),
        one_model=len(graded) == 1,
        num_seeds=len(graded),
        num_questions=int((~np.isnan(values_S_Q)).any(axis=0).sum()),
        num_samples=num_samples,
        num_ungraded=num_ungraded,
        num_inapplicable=num_inapplicable,
        num_failed=sum(run.num_failed for run in runs.values()),
        best=best,
        key=key,
        paper=known[0],
        paper_digits=known[1],
        band=limits,
        verdict=cell_verdict(value, limits, effects, about) if paper else None,
        runs=names,
        iqm=iqm(means_S) if len(means_S) >= MIN_SEEDS_IQM else None,
    )


def _is_about(verdict: Verdict, model: str, arm: str, column: Column) -> bool:
    claim = verdict.claim
    return verdict.model == model and claim.on == column.name and arm in (claim.left, claim.right)


def _interval(
    spec: ReportSpec,
    column: Column,
    values_S_Q: FloatArray,
    strata: Strata | None,
    num_graded: int,
    per_question: int,
) -> Interval | None:
    """A share is never narrower than Wilson's interval of as many independent samples, the least that chance allows."""
    independent = None
    if column.is_share:
        per_value = num_graded / int((~np.isnan(values_S_Q)).sum())
        size = effective_size(values_S_Q, strata) * per_value
        independent = wilson(mean_over_seeds(values_S_Q, strata) * size, size, spec.level)
    fewest = min(int((~np.isnan(own_S_Q)).any(axis=0).sum()) for _, own_S_Q in split(values_S_Q, strata))
    if len(values_S_Q) == 1:
        if independent and per_question == 1 and strata is None:
            return independent
        interval = bootstrap_questions(values_S_Q[0], strata=strata, level=spec.level)
    elif fewest < 2:
        return None
    else:
        interval = crossed_t(values_S_Q, strata=strata, level=spec.level)
    if independent:
        interval = interval.covering(independent)
    return interval.within(*column_bounds(spec, column))
