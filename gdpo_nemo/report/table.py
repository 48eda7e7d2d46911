"""The result table as one object; ``render`` turns it into Markdown, LaTeX, CSV, HTML and plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gdpo_nemo.report import captions
from gdpo_nemo.report.reproduction import CellVerdict as CellVerdict
from gdpo_nemo.report.reproduction import band, cell_verdict
from gdpo_nemo.report.samples import Evaluation, Evaluations, check_all_or_none_synthetic, column_bounds, run_name
from gdpo_nemo.report.spec import Column, ReportSpec
from gdpo_nemo.report.verdict import Verdict, compare, supports
from gdpo_nemo.stats import (
    Interval,
    bootstrap_questions,
    crossed_t,
    effective_size,
    iqm,
    mean_over_seeds,
    wilson,
)
from gdpo_nemo.stats.intervals import MIN_SEEDS_IQM
from gdpo_nemo.stats.strata import FloatArray, Strata, seed_means, split

BASE = "base"
BASE_LABEL = "Before RL (base)"


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
        num_ungraded: of them.
        num_failed: of the ungraded ones, those whose request failed for good.
        best: better than every other arm by the paired interval.
        note: ``not run`` or ``ungraded``, else empty.
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


@dataclass(frozen=True)
class TableRow:
    """One arm, or the model before training; ``group`` is the model, whose rows stand together."""

    arm: str
    label: str
    seeds_planned: tuple[int, ...]
    seeds_used: tuple[int, ...]
    num_questions: int
    cells: tuple[Cell, ...]
    group: str = ""

    @property
    def size(self) -> str:
        """``3 x 512``, or ``2 of 3 x 512`` while seeds are missing; seeds alone where columns differ in questions."""
        used, planned = len(self.seeds_used), len(self.seeds_planned)
        seeds = f"{used}" if used == planned else f"{used} of {planned}"
        if not used:
            return f"{seeds} seeds" if planned > 1 else seeds
        return f"{seeds} x {self.num_questions}" if self.num_questions else seeds


@dataclass(frozen=True)
class Table:
    """Everything that the renderings print.

    Attributes:
        name: for labels and anchors.
        title: one line.
        caption: sentences.
        best_note: what the mark of a best value means; empty with a single arm.
        columns: headings and digits.
        rows: for each model the base model, then the arms.
        claims: one line per verdict.
        missing: runs without a result, one line per arm and reason.
        deviations: known differences from the paper.
        power: what the runs can and cannot tell, one line per claim; stands first.
        synthetic: whether the runs were made up; every rendering says so.
        against_paper: whether it has the paper's numbers: a line per cell, with paper, ours, interval, n and verdict.
    """

    name: str
    title: str
    caption: tuple[str, ...]
    best_note: str
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]
    claims: tuple[str, ...]
    missing: tuple[str, ...]
    deviations: tuple[tuple[str, str], ...]
    power: tuple[str, ...] = ()
    synthetic: bool = False
    against_paper: bool = False

    @property
    def groups(self) -> tuple[str, ...]:
        """The models, in order; one empty name where they are not told apart."""
        return tuple(dict.fromkeys(row.group for row in self.rows))


@dataclass(frozen=True, eq=False)
class Part:
    """The runs of one model, as one group of rows."""

    spec: ReportSpec
    evaluations: Evaluations


def build_table(parts: Sequence[Part], verdicts: Sequence[Verdict]) -> Table:
    """Compute every cell.

    Args:
        parts: one per model; they share columns, claims and everything else that is not of a model.
        verdicts: on the claims of all models, adjusted for their number.

    Raises:
        InputError: some runs are made up and others are not.
    """
    spec = parts[0].spec
    synthetic = check_all_or_none_synthetic([one for part in parts for one in part.evaluations.all()])
    rows = [row for part in parts for row in _rows(part, verdicts, named=len(parts) > 1)]
    facts = captions.Facts(
        samples_per_question=tuple(
            sorted({one.samples_per_question for part in parts for one in part.evaluations.all()})
        ),
        samples=sum(cell.num_samples for row in rows for cell in row.cells),
        ungraded=sum(cell.num_ungraded for row in rows for cell in row.cells),
        failed=sum(cell.num_failed for row in rows for cell in row.cells),
        one_model=any(cell.one_model for row in rows for cell in row.cells),
        strata=any(column.strata for column in spec.columns),
        against_paper=_is_against_paper(spec),
        synthetic=synthetic,
    )
    models = [part.spec.model for part in parts]
    several = len(next(iter(part.evaluations.planned for part in parts))) > 1
    return Table(
        name=f"{spec.experiment}-{spec.scale}-{spec.model}" if len(parts) == 1 else f"{spec.experiment}-{spec.exhibit}",
        title=spec.title,
        caption=captions.caption(spec, models, facts),
        best_note=captions.best_note(spec) if several else "",
        columns=spec.columns,
        rows=tuple(rows),
        claims=tuple(captions.claim_line(spec, verdict, named=len(parts) > 1) for verdict in verdicts),
        missing=tuple(line for part in parts for line in _missing(part, named=len(parts) > 1)),
        deviations=tuple(
            (one.name, one.text + (f" (expected: {one.expected})" if one.expected else "")) for one in spec.deviations
        ),
        power=captions.power(spec, verdicts, named=len(parts) > 1),
        synthetic=synthetic,
        against_paper=facts.against_paper,
    )


def _is_against_paper(spec: ReportSpec) -> bool:
    known = spec.reference.models.values() if spec.reference and spec.scale == "paper" else ()
    return any(number is not None for model in known for row in model.cells.values() for number in row.values())


def _rows(part: Part, verdicts: Sequence[Verdict], named: bool) -> list[TableRow]:
    spec, evaluations = part.spec, part.evaluations
    group = captions.model_label(spec) if named or _is_against_paper(spec) else ""
    rows = []
    if spec.base is not None:
        cells = []
        for column in spec.columns:
            found = evaluations.of_base(column)
            cells.append(_cell(part, BASE, column, {0: found} if found else {}, verdicts))
        used = (0,) if evaluations.base else ()
        size = _num_questions(spec, list(evaluations.base.values()))
        label = spec.labels.get(BASE, BASE_LABEL)
        rows.append(TableRow(run_name(spec.base), label, (0,), used, size, tuple(cells), group))
    for arm, planned in evaluations.planned.items():
        runs = evaluations.arms[arm]
        cells = [
            _cell(part, arm, column, evaluations.of_arm(arm, column), verdicts, _is_best(part, column, arm))
            for column in spec.columns
        ]
        size = _num_questions(spec, [one for own in runs.values() for one in own.values()])
        label = spec.labels.get(arm, arm)
        rows.append(TableRow(arm, label, planned, tuple(sorted(runs)), size, tuple(cells), group))
    return rows


def _num_questions(spec: ReportSpec, evaluations: list[Evaluation]) -> int:
    """Questions of the one benchmark; 0 where columns differ in theirs."""
    several = len({column.benchmark for column in spec.columns}) > 1 or any(column.strata for column in spec.columns)
    return 0 if several or not evaluations else len(evaluations[0].row_ids)


def _cell(
    part: Part,
    arm: str,
    column: Column,
    runs: Mapping[int, Evaluation],
    verdicts: Sequence[Verdict],
    best: bool = False,
) -> Cell:
    spec = part.spec
    key = f"{spec.exhibit}:{spec.model}/{arm}/{column.name}"
    paper = spec.reference.cell(spec.model, arm, column.reference) if spec.reference and spec.scale == "paper" else None
    known = (paper.value, paper.decimals or 0) if paper else (None, 0)
    not_run: CellVerdict | None = "not_run" if paper else None
    if not runs:
        return Cell(note="not run", key=key, paper=known[0], paper_digits=known[1], verdict=not_run)
    num_samples = sum(run.samples_Q_N(column).size for run in runs.values())
    num_ungraded = sum(run.num_ungraded(column) for run in runs.values())
    names = tuple(f"{spec.model}/{run.run}" for run in runs.values())
    graded = {seed: values_Q for seed, run in runs.items() if (values_Q := run.graded_Q(column)) is not None}
    if not graded:
        return Cell(
            num_samples=num_samples, num_ungraded=num_ungraded, note="ungraded", key=key, paper=known[0],
            paper_digits=known[1], verdict=not_run, runs=names,
        )  # fmt: skip
    used = [runs[seed] for seed in graded]
    values_S_Q, strata = np.stack(list(graded.values())), used[0].strata(column)
    interval = _interval(spec, column, values_S_Q, strata, num_samples - num_ungraded, used[0].samples_per_question)
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


def _is_best(part: Part, column: Column, arm: str) -> bool:
    sign = 1 if column.better == "higher" else -1
    others = [other for other in part.evaluations.planned if other != arm]
    return bool(others) and all(
        supports(compare(part.evaluations, column, arm, other, part.spec.level), sign) for other in others
    )


def _missing(part: Part, named: bool) -> list[str]:
    """One line per arm and reason."""
    spec, evaluations = part.spec, part.evaluations
    prefix = f"{captions.model_label(spec)}, " if named else ""
    seeds: dict[tuple[str, str], list[int]] = {}
    for (arm, seed), path in spec.runs.items():
        words = evaluations.words(run_name(path))
        if words:
            seeds.setdefault((arm, words), []).append(seed)
    lines = [
        f"{prefix}{spec.labels.get(arm, arm)}: seed{'s' * (len(found) > 1)} {', '.join(map(str, found))} {words}"
        for (arm, words), found in seeds.items()
    ]
    if spec.base is not None and (words := evaluations.words(run_name(spec.base))):
        lines.insert(0, f"{prefix}{spec.labels.get(BASE, BASE_LABEL)}: {words}")
    return lines
