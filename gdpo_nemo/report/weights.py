"""What another weight of a reward changes: each arm of a sweep less the same method at weight 1, paired."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gdpo_nemo.files import csv_text
from gdpo_nemo.report.figures.tradeoff import split_arm
from gdpo_nemo.report.samples import Evaluations
from gdpo_nemo.report.spec import Column, ReportSpec
from gdpo_nemo.report.verdict import compare
from gdpo_nemo.stats import PairedDifference


@dataclass(frozen=True)
class Shift:
    """An arm less its method at weight 1 in one column, over the seeds and questions that both have."""

    arm: str
    method: str
    column: Column
    pair: PairedDifference


def shifts(spec: ReportSpec, evaluations: Evaluations) -> list[Shift]:
    """Every arm with a weight in its name against its method, in the columns of ``spec.tradeoff``, where both ran."""
    arms = dict.fromkeys(arm for arm, _ in spec.runs)
    columns = [column for name in spec.tradeoff for column in spec.columns if column.name == name]
    found = []
    for arm in arms:
        method = split_arm(arm)[0]
        for column in columns if method != arm and method in arms else ():
            pair = compare(evaluations, column, arm, method, spec.level)
            if pair is not None:
                found.append(Shift(arm, method, column, pair))
    return found


def lines(found: Sequence[Shift], labels: Mapping[str, str]) -> list[str]:
    """One sentence per arm and column."""
    return [_line(shift, labels) for shift in found]


def to_csv(found: Sequence[Shift]) -> str:
    """One row per arm and column, unrounded."""
    rows = []
    for shift in found:
        interval = shift.pair.interval
        ends = (interval.low, interval.high) if interval else ("", "")
        rows.append([shift.arm, shift.method, shift.column.name, shift.pair.value, *ends, len(shift.pair.by_seed)])
    return csv_text(["arm", "less", "column", "difference", "low", "high", "seeds"], rows)


def _line(shift: Shift, labels: Mapping[str, str]) -> str:
    digits, interval = shift.column.digits, shift.pair.interval
    span = "no interval" if interval is None else f"[{interval.low:+.{digits}f}, {interval.high:+.{digits}f}]"
    unit = " points" if shift.column.unit == "%" else ""
    return (
        f"{labels.get(shift.arm, shift.arm)} less {labels.get(shift.method, shift.method)}: {shift.column.title} "
        f"{shift.pair.value:+.{digits}f}{unit} {span}, {len(shift.pair.by_seed)} seeds"
    )
