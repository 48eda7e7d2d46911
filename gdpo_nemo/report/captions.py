"""The sentences of a table: what its numbers are, what each claim came to, what the runs could have found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gdpo_nemo.report.spec import Column, ReportSpec
from gdpo_nemo.report.verdict import Verdict
from gdpo_nemo.stats import RESAMPLES

SYNTHETIC = "SYNTHETIC: these runs were made up by a program to test the report. No number here is a result."
SCALES = {
    "embedded": "Embedded scale: the numbers are of a small model and not comparable with the paper's. Only the "
    "direction of differences can be.",
    "paper": "Paper scale.",
}
LARGEST_DIFFERENCE = 100.0  # of two shares, points
BAND = (
    "Band: the paper's number plus or minus rounding + sqrt(max(t(S-1)^2 v_run, z^2 v_sample) (1/S + 1/R)), with half "
    "a unit of its last decimal for rounding, the variance v_run of our S seeds, the variance v_sample that sampling "
    "answers alone gives one run, and R = {runs} runs of the paper's ({source}); of the base model v_sample alone, "
    "S = R = 1. Verdict: reproduced: inside a band narrower than the paper's effect. underpowered: inside a wider one, "
    "or no band as there is one seed. direction: outside, and the comparisons of that cell are supported with the "
    "paper's sign. not reproduced: outside."
)


@dataclass(frozen=True)
class Facts:
    """What a caption must mention."""

    samples_per_question: tuple[int, ...]
    samples: int
    ungraded: int
    inapplicable: int
    failed: int
    without_score: int
    one_model: bool
    strata: bool
    against_paper: bool
    synthetic: bool


def caption(spec: ReportSpec, models: Sequence[str], facts: Facts) -> tuple[str, ...]:
    """The sentences under a table."""
    level = percent(spec.level)
    per_question = " or ".join(map(str, facts.samples_per_question))
    sentences = [SYNTHETIC] if facts.synthetic else []
    sentences += [
        f"Model{'s' * (len(models) > 1)} {', '.join(models)}. {SCALES[spec.scale]}",
        f"Mean over seeds, in brackets the {level} interval for the mean over new seeds and new questions "
        "(crossed t over seeds and questions; a share's is at least as wide as Wilson's).",
        "n = seeds x questions"
        + (", or seeds alone where columns differ in questions" if facts.strata else "")
        + (f", samples per question: {per_question}." if per_question else "."),
        f"Ungraded values: {facts.ungraded} of {facts.samples}"
        + (", counted in their cells, not in the means." if facts.ungraded else "."),
    ]
    if facts.inapplicable:
        sentences.append(
            f"Values that do not apply to their sample, as its reward says: {facts.inapplicable} of {facts.samples}, "
            "counted in their cells, not in the means."
        )
    if facts.failed:
        sentences.append(f"{facts.failed} of these are requests that failed for good: the evaluations are incomplete.")
    if facts.without_score:
        sentences.append(
            f"{facts.without_score} samples have no line in the scores, cut off or never written: grade them again."
        )
    if facts.strata:
        sentences.append("A value over several question groups is the weighted sum of the groups' means.")
    if facts.one_model:
        sentences.append(
            f"(q): one model, so its {level} interval is over questions alone (Wilson for a share with one sample "
            f"per question, else a bootstrap with {RESAMPLES} resamples) and says nothing about other seeds."
        )
    if facts.against_paper and spec.reference:
        sentences.append(BAND.format(runs=spec.reference.runs, source=spec.reference.runs_source))
        sentences += [f"Of the paper's numbers: {spec.reference.note}."] if spec.reference.note else []
    for bound in spec.reference.bounds if spec.reference and spec.scale == "paper" else ():
        labels = [spec.labels.get(arm, arm) for arm in (bound.arm, bound.from_)]
        sentences.append(
            f"The paper's text: {bound.column} of {labels[0]} lies {bound.shift:g} points from that of {labels[1]}."
        )
    return tuple(sentences)


def best_note(spec: ReportSpec) -> str:
    """What the mark of a best value means."""
    by = f"its paired {percent(spec.level)} interval"
    return f"better than every other arm, each by {f'the adjusted claim about the two or {by}' if spec.claims else by}."


def claim_line(spec: ReportSpec, verdict: Verdict, *, named: bool = False) -> str:
    """A verdict in one line; ``named``: with its model."""
    column = _column(spec, verdict)
    head = f"{verdict.status.replace('_', ' ')}: {_claim(spec, verdict, column, named)}"
    if verdict.difference is None:
        return f"{head}: {verdict.reason}{_beside(spec, verdict)}"
    span = "no interval"
    if verdict.interval:
        low, high = (f"{limit:+.{column.digits}f}" for limit in (verdict.interval.low, verdict.interval.high))
        span = f"[{low}, {high}]"
    seeds = len(verdict.by_seed or {})
    of = "" if seeds == verdict.seeds_planned else f" of {verdict.seeds_planned}"
    adjusted = "" if verdict.p_adjusted is None else f", p = {verdict.p_adjusted:.2g} after Holm"
    return (
        f"{head}: difference {verdict.difference:+.{column.digits}f}{_unit(column)} {span}{adjusted}, claimed sign in "
        f"{verdict.seeds_agreeing} of {seeds} seeds, n = {seeds}{of} x {verdict.num_questions}"
        f"{_beside(spec, verdict)}"
    )


def power(spec: ReportSpec, verdicts: Sequence[Verdict], *, named: bool = False) -> tuple[str, ...]:
    """What the seeds at hand could have found, and what the paper's effects would take: one line per claim that ran."""
    lines = []
    for verdict in verdicts:
        if verdict.detectable is None:
            continue
        column, seeds = _column(spec, verdict), len(verdict.by_seed or {})
        size = f"{verdict.detectable:.{column.digits}f}{_unit(column)}"
        found = f"find a difference of {size} four times in five"
        if column.unit == "%" and verdict.detectable > LARGEST_DIFFERENCE:
            found = f"this far apart find no difference of shares (it would take {size})"
        line = f"{_claim(spec, verdict, column, named)}: {seeds} seeds {found}"
        if verdict.effect:
            effect = f"{verdict.effect:+.{max(column.digits, 1)}f}"
            need = f"{verdict.seeds_needed} seeds" if verdict.seeds_needed else "more questions, not more seeds"
            which = "the paper's smallest effect" if len(verdict.effects) > 1 else "an effect of the paper's size"
            line += f"; {which} ({effect}{_unit(column)}) takes {need}"
        lines.append(line)
    idle = sum(verdict.detectable is None for verdict in verdicts)
    if idle and verdicts:
        lines.append(f"not known for {idle} of {len(verdicts)} claims: they need two finished seeds in both arms")
    return tuple(lines)


def model_label(spec: ReportSpec) -> str:
    """A model as the paper writes it, else as the run directories do."""
    known = spec.reference.models.get(spec.model) if spec.reference else None
    return known.label if known else spec.model


def percent(level: float) -> str:
    """``95 %``."""
    return f"{level * 100:g} %"


def _claim(spec: ReportSpec, verdict: Verdict, column: Column, named: bool) -> str:
    left, right = (spec.labels.get(arm, arm) for arm in (verdict.claim.left, verdict.claim.right))
    words = f"{left} {verdict.claim.relation} {right} on {column.title}"
    known = spec.reference.models.get(verdict.model) if spec.reference else None
    return f"{words}, {known.label if known else verdict.model}" if named else words


def _beside(spec: ReportSpec, verdict: Verdict) -> str:
    """The paper's effect; at embedded scale with the models that it is of."""
    if not verdict.effects:
        return ""
    parts = []
    for label, effect in verdict.effects.items():
        of = f" ({label})" if spec.scale == "embedded" else ""
        parts.append(f"{effect:+g} points{of}")
    elsewhere = ", on other models and data" if spec.scale == "embedded" else ""
    return f"; paper{elsewhere}: {', '.join(parts)}"


def _unit(column: Column) -> str:
    return " points" if column.unit == "%" else ""


def _column(spec: ReportSpec, verdict: Verdict) -> Column:
    return next(column for column in spec.columns if column.name == verdict.claim.on)
