"""The result table as one object; ``render`` turns it into Markdown, LaTeX, CSV and plain text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from gdpo_nemo.report.samples import STATE_WORDS, Evaluation, Evaluations, column_bounds, run_name
from gdpo_nemo.report.spec import Column, ReportSpec
from gdpo_nemo.report.verdict import Verdict, compare, supports
from gdpo_nemo.stats import RESAMPLES, Interval, bootstrap_questions, crossed_t, mean_over_seeds, wilson
from gdpo_nemo.stats.intervals import FloatArray

BASE = "base"
BASE_LABEL = "Before RL (base)"
SCALES = {
    "embedded": "Embedded scale: the numbers are of a small model and not comparable with the paper's.",
    "paper": "Paper scale.",
}


CellVerdict = Literal["reproduced", "direction", "not_reproduced", "underpowered", "not_run"]


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
        best: better than every other arm by the paired interval.
        note: ``not run`` or ``ungraded``, else empty.
        key: ``<exhibit>:<model>/<arm>/<column>``, what ``gdpo explain`` takes.
        paper: the paper's number in the printed unit; None at embedded scale and where it is not known.
        band: where our number should fall if it reproduces the paper's, see ``gdpo_nemo.report.band``; None without
            a number of the paper's or without a spread to derive it from.
        verdict: of our number against the paper's; None where there is no number of the paper's.
        runs: the runs behind it, as ``<model>/<arm>/seed<N>``: their folders below ``<runs>/<experiment>/<scale>/``.
    """

    value: float | None = None
    interval: Interval | None = None
    one_model: bool = False
    num_seeds: int = 0
    num_questions: int = 0
    num_samples: int = 0
    num_ungraded: int = 0
    best: bool = False
    note: str = ""
    key: str = ""
    paper: float | None = None
    band: Interval | None = None
    verdict: CellVerdict | None = None
    runs: tuple[str, ...] = ()


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
        """``3 x 512``, or ``2 of 3 x 512`` while seeds are missing."""
        used, planned = len(self.seeds_used), len(self.seeds_planned)
        seeds = f"{used}" if used == planned else f"{used} of {planned}"
        return f"{seeds} x {self.num_questions}" if used else f"{seeds} seeds" if planned > 1 else seeds


@dataclass(frozen=True)
class Table:
    """Everything that the renderings print.

    Attributes:
        name: for labels and anchors.
        title: one line.
        caption: sentences.
        best_note: what the mark of a best value means; empty with a single arm.
        columns: headings and digits.
        rows: the base model, then the arms.
        claims: one line per verdict.
        power: what the runs can and cannot tell, one line per claim; stands first.
        synthetic: whether the runs were made up; every rendering says so.
        missing: runs without a result, one line per arm and reason.
        deviations: known differences from the paper.
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


def build_table(spec: ReportSpec, evaluations: Evaluations, verdicts: tuple[Verdict, ...]) -> Table:
    """Compute every cell."""
    rows = []
    if spec.base is not None:
        one = {0: evaluations.base} if evaluations.base else {}
        cells = tuple(_cell(spec, column, one) for column in spec.columns)
        label = spec.labels.get(BASE, BASE_LABEL)
        rows.append(TableRow(run_name(spec.base), label, (0,), tuple(one), _num_questions(one), cells))
    for arm, planned in evaluations.planned.items():
        runs = dict(sorted(evaluations.arms[arm].items()))
        cells = tuple(
            _cell(spec, column, runs, best=_is_best(spec, evaluations, column, arm)) for column in spec.columns
        )
        rows.append(TableRow(arm, spec.labels.get(arm, arm), planned, tuple(runs), _num_questions(runs), cells))
    return Table(
        name=f"{spec.experiment}-{spec.scale}-{spec.model}",
        title=spec.title,
        caption=_caption(spec, evaluations, rows),
        best_note=f"better than every other arm, each by its paired {_percent(spec.level)} interval."
        if len(evaluations.planned) > 1
        else "",
        columns=spec.columns,
        rows=tuple(rows),
        claims=tuple(claim_line(spec, verdict) for verdict in verdicts),
        missing=_missing(spec, evaluations),
        deviations=tuple(
            (one.name, one.text + (f" (expected: {one.expected})" if one.expected else "")) for one in spec.deviations
        ),
    )


def claim_line(spec: ReportSpec, verdict: Verdict) -> str:
    """A verdict in one line."""
    claim = verdict.claim
    column = next(column for column in spec.columns if column.name == claim.on)
    left, right = (spec.labels.get(arm, arm) for arm in (claim.left, claim.right))
    head = f"{verdict.status.replace('_', ' ')}: {left} {claim.relation} {right} on {column.title}"
    if verdict.difference is None:
        return f"{head}: {verdict.reason}"
    unit = " points" if verdict.unit == "%" else ""
    span = "no interval"
    if verdict.interval:
        low, high = (f"{limit:+.{column.digits}f}" for limit in (verdict.interval.low, verdict.interval.high))
        span = f"[{low}, {high}]"
    seeds = len(verdict.by_seed or {})
    of = "" if seeds == verdict.seeds_planned else f" of {verdict.seeds_planned}"
    return (
        f"{head}: difference {verdict.difference:+.{column.digits}f}{unit} {span}, claimed sign in "
        f"{verdict.seeds_agreeing} of {seeds} seeds, n = {seeds}{of} x {verdict.num_questions}"
    )


def _cell(spec: ReportSpec, column: Column, runs: dict[int, Evaluation], best: bool = False) -> Cell:
    if not runs:
        return Cell(note="not run")
    num_samples = sum(run.samples_Q_N(column).size for run in runs.values())
    num_ungraded = sum(run.num_ungraded(column) for run in runs.values())
    graded = [values_Q for run in runs.values() if not np.isnan(values_Q := run.questions_Q(column)).all()]
    if not graded:
        return Cell(num_samples=num_samples, num_ungraded=num_ungraded, note="ungraded")
    values_S_Q = np.stack(graded)
    per_question = next(iter(runs.values())).samples_per_question
    factor = 100.0 if column.unit == "%" else 1.0
    interval = _interval(spec, column, values_S_Q, num_samples - num_ungraded, per_question)
    return Cell(
        value=mean_over_seeds(values_S_Q) * factor,
        interval=interval and interval.times(factor),
        one_model=len(graded) == 1,
        num_seeds=len(graded),
        num_questions=int((~np.isnan(values_S_Q)).any(axis=0).sum()),
        num_samples=num_samples,
        num_ungraded=num_ungraded,
        best=best,
    )


def _interval(
    spec: ReportSpec, column: Column, values_S_Q: FloatArray, num_graded: int, per_question: int
) -> Interval | None:
    """A share is never narrower than Wilson's interval of as many independent samples, the least that chance allows."""
    share = column.at_least is not None
    independent = wilson(mean_over_seeds(values_S_Q) * num_graded, num_graded, spec.level) if share else None
    if len(values_S_Q) == 1:
        if independent and per_question == 1:
            return independent
        interval = bootstrap_questions(values_S_Q[0], level=spec.level)
    elif (~np.isnan(values_S_Q)).any(axis=0).sum() < 2:
        return None
    else:
        interval = crossed_t(values_S_Q, level=spec.level)
    if independent:
        interval = interval.covering(independent)
    return interval.within(*column_bounds(spec, column))


def _is_best(spec: ReportSpec, evaluations: Evaluations, column: Column, arm: str) -> bool:
    sign = 1 if column.better == "higher" else -1
    others = [other for other in evaluations.planned if other != arm]
    return bool(others) and all(
        supports(compare(evaluations, column, arm, other, spec.level), sign) for other in others
    )


def _missing(spec: ReportSpec, evaluations: Evaluations) -> tuple[str, ...]:
    """One line per arm and reason."""
    seeds: dict[tuple[str, str], list[int]] = {}
    for (arm, seed), path in spec.runs.items():
        state = evaluations.states[run_name(path)]
        if state != "finished":
            seeds.setdefault((arm, STATE_WORDS[state]), []).append(seed)
    lines = [
        f"{spec.labels.get(arm, arm)}: seed{'s' * (len(found) > 1)} {', '.join(map(str, found))} {words}"
        for (arm, words), found in seeds.items()
    ]
    if spec.base is not None and evaluations.base is None:
        lines.insert(0, f"{spec.labels.get(BASE, BASE_LABEL)}: {STATE_WORDS[evaluations.states[run_name(spec.base)]]}")
    return tuple(lines)


def _num_questions(runs: dict[int, Evaluation]) -> int:
    return len(next(iter(runs.values())).row_ids) if runs else 0


def _caption(spec: ReportSpec, evaluations: Evaluations, rows: list[TableRow]) -> tuple[str, ...]:
    level = _percent(spec.level)
    finished = [run for runs in evaluations.arms.values() for run in runs.values()]
    finished += [evaluations.base] if evaluations.base else []
    per_question = " or ".join(str(n) for n in sorted({run.samples_per_question for run in finished}))
    samples = sum(cell.num_samples for row in rows for cell in row.cells)
    ungraded = sum(cell.num_ungraded for row in rows for cell in row.cells)
    sentences = [
        f"Model {spec.model}. {SCALES[spec.scale]}",
        f"Mean over seeds, in brackets the {level} interval for the mean over new seeds and new questions "
        "(crossed t over seeds and questions; a share's is at least as wide as Wilson's).",
        "n = seeds x questions" + (f", samples per question: {per_question}." if per_question else "."),
        f"Ungraded values: {ungraded} of {samples}"
        + (", counted in their cells, not in the means." if ungraded else "."),
    ]
    if any(cell.one_model for row in rows for cell in row.cells):
        sentences.append(
            f"(q): one model, so its {level} interval is over questions alone (Wilson for a share with one sample "
            f"per question, else a bootstrap with {RESAMPLES} resamples) and says nothing about other seeds."
        )
    return tuple(sentences)


def _percent(level: float) -> str:
    return f"{level * 100:g} %"
