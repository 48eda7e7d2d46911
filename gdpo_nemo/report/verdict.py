"""Whether each claim of an experiment holds in its own runs.

A verdict rests on the p-value that belongs to ``crossed_t`` of the paired differences (same seed, same question),
adjusted by Holm's method for all claims of the exhibit that could be compared. The interval beside it is that of the
claim by itself. The paper's effect stands beside ours; at embedded scale it is of other models and data, and only the
direction can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from gdpo_nemo.errors import UnknownNameError
from gdpo_nemo.report.samples import Evaluations, column_bounds
from gdpo_nemo.report.spec import Claim, Column, ReportSpec
from gdpo_nemo.stats import (
    Interval,
    PairedDifference,
    Strata,
    holm,
    minimum_detectable_effect,
    paired_difference,
    seeds_needed,
)
from gdpo_nemo.stats.strata import FloatArray

Status = Literal["supported", "contradicted", "not_supported", "not_run"]


@dataclass(frozen=True)
class Verdict:
    """The outcome of one claim. Differences are left minus right, in the unit that the table prints.

    Attributes:
        claim: what was claimed.
        status: ``supported``: the adjusted p-value is below 1 - level and the difference has the claimed sign.
            ``contradicted``: below, with the other sign. ``not_supported``: it is not, or there is none.
            ``not_run``: nothing to compare.
        difference: mean over seeds; None when not run.
        interval: of the difference; None with fewer than two common seeds.
        unit: ``%`` (the differences are percentage points) or empty.
        by_seed: common seed -> difference.
        seeds_agreeing: common seeds whose difference has the claimed sign.
        seeds_planned: seeds asked for in both arms.
        num_questions: questions graded on both sides in at least one common seed.
        num_samples: samples of the compared runs, both arms together.
        num_ungraded: those of them that could not be graded.
        num_inapplicable: those of them that the score does not apply to.
        detectable: difference that these seeds would find with power 0.8; None without an interval.
        runs: names of the compared runs, left and right.
        reason: what the status rests on, for a reader.
        model: whose runs were compared.
        p: two-sided, of this comparison alone; None without an interval.
        p_adjusted: by Holm's method over the claims judged together.
        effects: the paper's difference by model, in the unit of its tables; of this model alone at paper scale.
        seeds_needed: seeds that would find the paper's effect with power 0.8, given this spread; None where there is
            no spread or no effect, or where no number of seeds does as the questions alone stand in the way.
    """

    claim: Claim
    status: Status
    reason: str
    unit: str = ""
    difference: float | None = None
    interval: Interval | None = None
    by_seed: Mapping[int, float] | None = None
    seeds_agreeing: int = 0
    seeds_planned: int = 0
    num_questions: int = 0
    num_samples: int = 0
    num_ungraded: int = 0
    num_inapplicable: int = 0
    detectable: float | None = None
    runs: tuple[str, ...] = ()
    model: str = ""
    p: float | None = None
    p_adjusted: float | None = None
    effects: Mapping[str, float] = field(default_factory=dict)
    seeds_needed: int | None = None

    @property
    def effect(self) -> float | None:
        """The paper's effect; the smallest where there are several."""
        return min(self.effects.values(), key=abs, default=None)

    @property
    def holds(self) -> bool | None:
        """True when supported, None when not run, otherwise False."""
        return None if self.status == "not_run" else self.status == "supported"

    def to_json(self) -> dict[str, Any]:
        """As written to verdict.json."""
        by_seed = self.by_seed or {}
        interval = self.interval and {
            "low": self.interval.low,
            "high": self.interval.high,
            "level": self.interval.level,
            "method": self.interval.method,
        }
        return {
            "model": self.model,
            "left": self.claim.left,
            "relation": self.claim.relation,
            "right": self.claim.right,
            "on": self.claim.on,
            "status": self.status,
            "holds": self.holds,
            "reason": self.reason,
            "unit": self.unit,
            "difference": self.difference,
            "interval": interval,
            "p": self.p,
            "p_adjusted": self.p_adjusted,
            "n": {
                "seeds": len(by_seed),
                "seeds_planned": self.seeds_planned,
                "questions": self.num_questions,
                "samples": self.num_samples,
                "ungraded": self.num_ungraded,
                "does_not_apply": self.num_inapplicable,
            },
            "difference_by_seed": {str(seed): value for seed, value in by_seed.items()},
            "seeds_agreeing": self.seeds_agreeing,
            "minimum_detectable_effect": self.detectable,
            "paper_effects": dict(self.effects),
            "seeds_needed_for_the_papers_effect": self.seeds_needed,
            "runs": list(self.runs),
        }


def compare(evaluations: Evaluations, column: Column, left: str, right: str, level: float) -> PairedDifference | None:
    """Left minus right in the unit of the table, or None when no common seed has a pair of graded samples."""
    sides = [evaluations.graded(arm, column) for arm in (left, right)]
    strata = evaluations.strata(column)
    common = [seed for seed in sides[0] if seed in sides[1] and _pairs(sides[0][seed] - sides[1][seed], strata)]
    if not common:
        return None
    scaled = [{seed: side[seed] * column.factor for seed in common} for side in sides]
    return paired_difference(scaled[0], scaled[1], strata=strata, level=level)


def _pairs(difference_Q: FloatArray, strata: Strata | None) -> bool:
    """Whether something, and something of every group, is graded on both sides."""
    graded_Q = ~np.isnan(difference_Q)
    if strata is None:
        return bool(graded_Q.any())
    return set(strata.group_Q[graded_Q].tolist()) == set(range(len(strata.names_G)))


def judge_all(spec: ReportSpec, evaluations: Evaluations, claims: Sequence[Claim]) -> list[Verdict]:
    """The verdicts on the claims of one model, not adjusted yet: see ``adjusted``.

    Raises:
        UnknownNameError: a claim names an arm or a column that the report does not know.
    """
    return [judge(spec, evaluations, claim) for claim in claims]


def adjusted(verdicts: Sequence[Verdict], level: float) -> list[Verdict]:
    """The same verdicts with p-values and status adjusted for their number (Holm)."""
    judged = [verdict for verdict in verdicts if verdict.p is not None]
    p_values = iter(holm([verdict.p for verdict in judged if verdict.p is not None]))
    return [
        verdict if verdict.p is None else _with_status(replace(verdict, p_adjusted=next(p_values)), level)
        for verdict in verdicts
    ]


def judge(spec: ReportSpec, evaluations: Evaluations, claim: Claim) -> Verdict:
    """The verdict on one claim by itself.

    Raises:
        UnknownNameError: the claim names an arm or a column that the report does not know.
    """
    column = _column(spec, claim.on)
    for arm in (claim.left, claim.right):
        if arm not in evaluations.planned and arm not in spec.labels:
            raise UnknownNameError("arm in a claim", arm, [*evaluations.planned, *spec.labels])
    planned = set(evaluations.planned.get(claim.left, ())) & set(evaluations.planned.get(claim.right, ()))
    effects = paper_effects(spec, claim, column)
    pair = compare(evaluations, column, claim.left, claim.right, spec.level)
    if pair is None:
        absent = [arm for arm in (claim.left, claim.right) if not evaluations.graded(arm, column)]
        reason = f"no graded run of {' and '.join(absent)}" if absent else "no seed is finished in both arms"
        return Verdict(
            claim, "not_run", reason, column.unit, seeds_planned=len(planned), model=spec.model, effects=effects
        )
    sign = 1 if claim.relation == ">" else -1
    compared = [evaluations.of_arm(arm, column)[seed] for arm in (claim.left, claim.right) for seed in pair.by_seed]
    low, high = column_bounds(spec, column)
    reach = (high - low) * column.factor
    verdict = Verdict(
        claim=claim,
        status="not_supported",
        reason="no interval: it takes two seeds and two graded questions that both arms have",
        unit=column.unit,
        difference=pair.value,
        interval=pair.interval and pair.interval.within(-reach, reach),
        by_seed=pair.by_seed,
        seeds_agreeing=pair.num_seeds_with_sign(sign),
        seeds_planned=len(planned),
        num_questions=int((~np.isnan(pair.values_S_Q)).any(axis=0).sum()),
        num_samples=sum(one.samples_Q_N(column).size for one in compared),
        num_ungraded=sum(one.num_ungraded(column) for one in compared),
        num_inapplicable=sum(one.num_inapplicable(column) for one in compared),
        detectable=_detectable(pair, spec.level, len(pair.by_seed)) if pair.interval else None,
        runs=tuple(one.run for one in compared),
        model=spec.model,
        p=pair.p,
        p_adjusted=pair.p,
        effects=effects,
    )
    if pair.interval is None:
        return verdict
    needed = verdict.effect and seeds_needed(verdict.effect, lambda seeds: _detectable(pair, spec.level, seeds))
    return _with_status(replace(verdict, seeds_needed=needed or None), spec.level)


def paper_effects(spec: ReportSpec, claim: Claim, column: Column) -> dict[str, float]:
    """The paper's left minus right: of this model at paper scale, of all its models at embedded scale."""
    if spec.reference is None or column.reference is None:
        return {}
    effects = spec.reference.effects(claim.left, claim.right, column.reference)
    if spec.scale == "embedded":
        return effects
    own = spec.reference.models.get(spec.model)
    return {label: effect for label, effect in effects.items() if own and label == own.label}


def supports(pair: PairedDifference | None, sign: int) -> bool:
    """Whether the interval lies wholly on the side of that sign."""
    if pair is None or pair.interval is None:
        return False
    return pair.interval.low > 0 if sign > 0 else pair.interval.high < 0


def _detectable(pair: PairedDifference, level: float, num_seeds: int) -> float:
    return minimum_detectable_effect(pair.values_S_Q, strata=pair.strata, num_seeds=num_seeds, level=level)


def _with_status(verdict: Verdict, level: float) -> Verdict:
    assert verdict.p is not None and verdict.p_adjusted is not None and verdict.difference is not None
    claimed = (verdict.difference > 0) == (verdict.claim.relation == ">")
    if verdict.p_adjusted < 1 - level:
        way = "claimed" if claimed else "other"
        status: Status = "supported" if claimed else "contradicted"
        return replace(verdict, status=status, reason=f"the interval excludes 0 in the {way} direction")
    if verdict.p < 1 - level:
        reason = "the interval excludes 0, but not after the correction for the number of claims (Holm)"
        return replace(verdict, status="not_supported", reason=reason)
    return replace(verdict, status="not_supported", reason="the interval includes 0")


def _column(spec: ReportSpec, name: str) -> Column:
    for column in spec.columns:
        if column.name == name:
            return column
    raise UnknownNameError("column in a claim", name, [column.name for column in spec.columns])
