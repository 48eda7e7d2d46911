"""The result table as one object; ``render`` turns it into Markdown, LaTeX, CSV, HTML and plain text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gdpo_nemo.report import captions
from gdpo_nemo.report.cells import BASE as BASE
from gdpo_nemo.report.cells import Cell as Cell
from gdpo_nemo.report.cells import Part as Part
from gdpo_nemo.report.cells import make_cell
from gdpo_nemo.report.loading import check_all_or_none_synthetic
from gdpo_nemo.report.samples import Evaluation, run_name
from gdpo_nemo.report.spec import Column, ReportSpec
from gdpo_nemo.report.verdict import Verdict, compare, supports

BASE_LABEL = "Before RL (base)"


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
        power: what the runs can and cannot tell, one line per claim; stands below the claims.
        synthetic: whether the runs were made up; every rendering says so.
        notes: of the spec.
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
    notes: tuple[str, ...] = ()

    @property
    def groups(self) -> tuple[str, ...]:
        """The models, in order; one empty name where they are not told apart."""
        return tuple(dict.fromkeys(row.group for row in self.rows))


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
        inapplicable=sum(cell.num_inapplicable for row in rows for cell in row.cells),
        failed=sum(cell.num_failed for row in rows for cell in row.cells),
        without_score=sum(one.num_without_score for part in parts for one in part.evaluations.all()),
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
        notes=tuple(note for part in parts for note in part.spec.notes),
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
            cells.append(make_cell(part, BASE, column, {0: found} if found else {}, verdicts))
        used = (0,) if evaluations.base else ()
        size = _num_questions(spec, list(evaluations.base.values()))
        label = spec.labels.get(BASE, BASE_LABEL)
        rows.append(TableRow(run_name(spec.base), label, (0,), used, size, tuple(cells), group))
    for arm, planned in evaluations.planned.items():
        runs = evaluations.arms[arm]
        cells = [
            make_cell(
                part, arm, column, evaluations.of_arm(arm, column), verdicts, _is_best(part, verdicts, column, arm)
            )
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


def _is_best(part: Part, verdicts: Sequence[Verdict], column: Column, arm: str) -> bool:
    others = [other for other in part.evaluations.planned if other != arm]
    return bool(others) and all(_beats(part, verdicts, column, arm, other) for other in others)


def _beats(part: Part, verdicts: Sequence[Verdict], column: Column, arm: str, other: str) -> bool:
    """By the adjusted verdict on a claim about the two, else by their paired interval."""
    sign = 1 if column.better == "higher" else -1
    for verdict in verdicts:
        claim = verdict.claim
        if (verdict.model, claim.on, {claim.left, claim.right}) == (part.spec.model, column.name, {arm, other}):
            difference = (verdict.difference or 0.0) * (1 if claim.left == arm else -1)
            return verdict.status in ("supported", "contradicted") and difference * sign > 0
    return supports(compare(part.evaluations, column, arm, other, part.spec.level), sign)


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
