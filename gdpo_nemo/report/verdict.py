"""Whether each claim of an experiment holds in its own runs.

A verdict rests on one interval: ``crossed_t`` of the paired differences (same seed, same question).
Claims are judged one by one; the level is not divided among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gdpo_nemo.errors import UnknownNameError
from gdpo_nemo.report.samples import Evaluations, column_bounds
from gdpo_nemo.report.spec import Claim, Column, ReportSpec
from gdpo_nemo.stats import Interval, PairedDifference, minimum_detectable_effect, paired_difference

Status = Literal["supported", "contradicted", "not_supported", "not_run"]


@dataclass(frozen=True)
class Verdict:
    """The outcome of one claim. Differences are left minus right, in the unit that the table prints.

    Attributes:
        claim: what was claimed.
        status: ``supported``: the interval excludes 0 in the claimed direction. ``contradicted``: it excludes 0
            in the other one. ``not_supported``: it includes 0, or there is none. ``not_run``: nothing to compare.
        difference: mean over seeds; None when not run.
        interval: of the difference; None with fewer than two common seeds.
        unit: ``%`` (the differences are percentage points) or empty.
        by_seed: common seed -> difference.
        seeds_agreeing: common seeds whose difference has the claimed sign.
        seeds_planned: seeds asked for in both arms.
        num_questions: questions graded on both sides in at least one common seed.
        num_samples: samples of the compared runs, both arms together.
        num_ungraded: those of them that have no grade.
        detectable: difference that these seeds would find with power 0.8; None without an interval.
        runs: names of the compared runs, left and right.
        reason: what the status rests on, for a reader.
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
    detectable: float | None = None
    runs: tuple[str, ...] = ()

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
            "n": {
                "seeds": len(by_seed),
                "seeds_planned": self.seeds_planned,
                "questions": self.num_questions,
                "samples": self.num_samples,
                "ungraded": self.num_ungraded,
            },
            "difference_by_seed": {str(seed): value for seed, value in by_seed.items()},
            "seeds_agreeing": self.seeds_agreeing,
            "minimum_detectable_effect": self.detectable,
            "runs": list(self.runs),
        }


def compare(evaluations: Evaluations, column: Column, left: str, right: str, level: float) -> PairedDifference | None:
    """Left minus right in the unit of the table, or None when no common seed has a pair of graded samples."""
    factor = 100.0 if column.unit == "%" else 1.0
    sides = [evaluations.graded(arm, column) for arm in (left, right)]
    common = [seed for seed in sides[0] if seed in sides[1] and not np.isnan(sides[0][seed] - sides[1][seed]).all()]
    if not common:
        return None
    scaled = [{seed: side[seed] * factor for seed in common} for side in sides]
    return paired_difference(scaled[0], scaled[1], level=level)


def judge(spec: ReportSpec, evaluations: Evaluations, claim: Claim) -> Verdict:
    """The verdict on one claim.

    Raises:
        UnknownNameError: the claim names an arm or a column that the report does not know.
    """
    column = _column(spec, claim.on)
    for arm in (claim.left, claim.right):
        if arm not in evaluations.planned and arm not in spec.labels:
            raise UnknownNameError("arm in a claim", arm, [*evaluations.planned, *spec.labels])
    planned = set(evaluations.planned.get(claim.left, ())) & set(evaluations.planned.get(claim.right, ()))
    pair = compare(evaluations, column, claim.left, claim.right, spec.level)
    if pair is None:
        absent = [arm for arm in (claim.left, claim.right) if not evaluations.graded(arm, column)]
        reason = f"no graded run of {' and '.join(absent)}" if absent else "no seed is finished in both arms"
        return Verdict(claim, "not_run", reason, column.unit, seeds_planned=len(planned))
    sign = 1 if claim.relation == ">" else -1
    compared = [evaluations.arms[arm][seed] for arm in (claim.left, claim.right) for seed in pair.by_seed]
    status, reason = _status(pair, sign)
    low, high = column_bounds(spec, column)
    reach = (high - low) * (100.0 if column.unit == "%" else 1.0)
    return Verdict(
        claim=claim,
        status=status,
        reason=reason,
        unit=column.unit,
        difference=pair.value,
        interval=pair.interval and pair.interval.within(-reach, reach),
        by_seed=pair.by_seed,
        seeds_agreeing=pair.num_seeds_with_sign(sign),
        seeds_planned=len(planned),
        num_questions=int((~np.isnan(pair.values_S_Q)).any(axis=0).sum()),
        num_samples=sum(one.values[column.reward].size for one in compared),
        num_ungraded=sum(one.num_ungraded(column) for one in compared),
        detectable=minimum_detectable_effect(pair.values_S_Q, level=spec.level) if pair.interval else None,
        runs=tuple(one.run for one in compared),
    )


def supports(pair: PairedDifference | None, sign: int) -> bool:
    """Whether the interval lies wholly on the side of that sign."""
    if pair is None or pair.interval is None:
        return False
    return pair.interval.low > 0 if sign > 0 else pair.interval.high < 0


def _status(pair: PairedDifference, sign: int) -> tuple[Status, str]:
    if pair.interval is None:
        return "not_supported", "no interval: it takes two seeds and two graded questions that both arms have"
    if supports(pair, sign):
        return "supported", "the interval excludes 0 in the claimed direction"
    if supports(pair, -sign):
        return "contradicted", "the interval excludes 0 in the other direction"
    return "not_supported", "the interval includes 0"


def _column(spec: ReportSpec, name: str) -> Column:
    for column in spec.columns:
        if column.name == name:
            return column
    raise UnknownNameError("column in a claim", name, [column.name for column in spec.columns])
