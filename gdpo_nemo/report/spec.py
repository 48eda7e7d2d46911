"""What a report is asked to show. Plain data; the suite fills it in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Column:
    """One column of a table, computed from the samples of the final evaluation.

    Attributes:
        name: short name, used in claims and in files.
        title: heading.
        reward: which reward's per-sample values it reads.
        at_least: None for the mean of the values; a number for the share of samples
            with a value of at least that, less 1e-9 for rounding (printed in percent).
        unit: ``%`` (values are multiplied by 100) or empty.
        digits: decimals printed.
        better: which direction marks the best arm.
    """

    name: str
    title: str
    reward: str
    at_least: float | None = None
    unit: Literal["%", ""] = "%"
    digits: int = 1
    better: Literal["higher", "lower"] = "higher"


@dataclass(frozen=True)
class Claim:
    """``left`` is better than ``right`` on a column, e.g. ``Claim("gdpo", ">", "grpo", on="format")``."""

    left: str
    relation: Literal[">", "<"]
    right: str
    on: str


@dataclass(frozen=True)
class Deviation:
    """A known difference from the paper, printed under every table."""

    name: str
    text: str
    expected: str = ""


@dataclass(frozen=True)
class ReportSpec:
    """Everything needed to build one report.

    Attributes:
        experiment: its name.
        title: one line.
        scale: ``embedded`` or ``paper``; embedded numbers never stand in the paper's column.
        model: short model name, as in the directory names.
        runs: (arm, seed) -> run directory, in the order of the table; a run that was not
            started or is unfinished renders as "not run".
        base: run directory of the model that all arms start from, a row of its own.
        columns, claims, deviations: what to print and to judge.
        curves: reward names, one panel each.
        labels: arm -> name in tables and legends; an arm without runs may be named here and in a claim.
        reward_ranges: reward -> (lowest, highest) value it can give; intervals are cut there and curves span it.
        level: of every interval.
    """

    experiment: str
    title: str
    scale: Literal["embedded", "paper"]
    model: str
    runs: Mapping[tuple[str, int], Path]
    base: Path | None
    columns: tuple[Column, ...]
    claims: tuple[Claim, ...]
    deviations: tuple[Deviation, ...]
    curves: tuple[str, ...]
    labels: Mapping[str, str]
    reward_ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    level: float = 0.95
