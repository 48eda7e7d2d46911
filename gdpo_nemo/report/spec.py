"""What a report is asked to show. Plain data; the suite fills it in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gdpo_nemo.errors import InputError

if TYPE_CHECKING:
    from gdpo_nemo.report.references import ReferenceTable

HELDOUT = "heldout"
WEIGHTS_ROUNDING = 1e-6


PLAIN_METRICS = ("frac_truncated", "entropy", "kl", "clip_fraction", "loss", "grad_norm")
"""Keys of ``metrics.jsonl`` without a slash."""


def is_metric(name: str) -> bool:
    """Whether a curve's name is a key of ``metrics.jsonl``; else it is a reward, and its mean is drawn."""
    return "/" in name or name in PLAIN_METRICS


@dataclass(frozen=True)
class Column:
    """One column of a table, computed from the samples of one benchmark.

    Attributes:
        name: short name, used in claims and in files.
        title: heading.
        reward: which per-sample value of the scores it reads.
        at_least: None for the mean of the values; a number for the share of samples
            with a value of at least that, less 1e-9 for rounding (printed in percent).
        below: the opposite of ``at_least``: the share of samples with a value under that. A column has one of both.
        unit: ``%`` (values are multiplied by 100) or empty.
        digits: decimals printed.
        better: which direction marks the best arm.
        benchmark: the evaluation it reads, a folder below ``<run>/eval/``.
        strata: question group -> weight. The column is the weighted sum of the groups' means, and groups without
            a weight are no part of it. None: the mean over all questions.
        reference: name of the paper's column, in the table that the exhibit names; None where the paper has none.
        share: whether a sample's value is 0 or 1, so that the column is a share; implied by ``at_least`` and ``below``.
    """

    name: str
    title: str
    reward: str
    at_least: float | None = None
    below: float | None = None
    unit: Literal["%", ""] = "%"
    digits: int = 1
    better: Literal["higher", "lower"] = "higher"
    benchmark: str = HELDOUT
    strata: Mapping[str, float] | None = None
    reference: str | None = None
    share: bool = False

    def __post_init__(self) -> None:
        if self.at_least is not None and self.below is not None:
            raise InputError(f"column {self.name!r} has at_least {self.at_least:g} and below {self.below:g}; leave one")
        if self.strata is not None:
            weights = list(self.strata.values())
            if not weights or min(weights) <= 0 or abs(sum(weights) - 1) > WEIGHTS_ROUNDING:
                raise InputError(
                    f"column {self.name!r}: the weights of its strata must be positive and add up to 1, got {weights}"
                )

    @property
    def is_share(self) -> bool:
        """Whether each sample counts as 0 or 1."""
        return self.share or self.threshold is not None

    @property
    def threshold(self) -> float | None:
        """What a sample's value is compared with; None where the value itself counts."""
        return self.below if self.at_least is None else self.at_least

    @property
    def factor(self) -> float:
        """From a value to the printed unit."""
        return 100.0 if self.unit == "%" else 1.0


@dataclass(frozen=True)
class Claim:
    """``left`` is better than ``right`` on a column, e.g. ``Claim("gdpo", ">", "grpo", on="format")``."""

    left: str
    relation: Literal[">", "<"]
    right: str
    on: str


@dataclass(frozen=True)
class Exhibit:
    """One table or figure, of the paper or of the embedded scale, as an experiment declares it.

    Attributes:
        name: ``table1``, ``figure4``, ``embedded``; unique over all experiments but for ``embedded``.
        title: one line.
        kind: ``table``; ``curves``: rewards over training; ``tradeoff``: two columns against each other, one point per
            arm (figure 6); ``groups``: distinct advantage groups, computed and not run (figure 3).
        scale: of the runs it shows.
        models: as in the names of the run directories, one row group each; empty where it needs no run.
        arms: in the order of the rows; the base model stands above them where ``base`` is set.
        columns: of a table; the two axes (x, y) of a tradeoff.
        rewards: of curves, one panel each.
        claims: what its table judges.
        reference: the paper's table in ``repro/references/tables.json``; None where the paper's numbers are not known.
        needs: what it takes to run it, in words.
        base: whether the model before training is a row.
    """

    name: str
    title: str
    kind: Literal["table", "curves", "tradeoff", "groups"]
    scale: Literal["embedded", "paper"] = "paper"
    models: tuple[str, ...] = ()
    arms: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    rewards: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()
    reference: str | None = None
    needs: str = ""
    base: bool = True


@dataclass(frozen=True)
class Deviation:
    """A known difference from the paper, printed under every table; ``scale``: under those of one scale only."""

    name: str
    text: str
    expected: str = ""
    scale: Literal["embedded", "paper"] | None = None


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
        curves: names of rewards or keys of metrics, see ``is_metric``, one panel each.
        tradeoff: names of two columns (x, y) to draw against each other over arms that differ in a weight; or empty.
        labels: arm -> name in tables and legends; an arm without runs may be named here and in a claim.
        reward_ranges: reward -> (lowest, highest) value it can give; intervals are cut there and curves span it.
        level: of every interval.
        exhibit: name of the table or figure, the first part of every cell's key.
        reference: the paper's numbers; None at embedded scale for cells, where they serve for effects of claims only.
        allow_incomplete: whether evaluations with failed requests count, their failures shown as such.
        unreadable: path of a run, or of the base -> what is wrong with it; it is named, and not read.
        synthetic: whether the runs were found to be made up; pictures say so.
        notes: what a reader must know about these runs, such as seeds left out; stands under the table.
        options: of the command line that chose these runs, for ``gdpo explain`` to choose the same.
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
    exhibit: str = "embedded"
    reference: ReferenceTable | None = None
    allow_incomplete: bool = False
    unreadable: Mapping[Path, str] = field(default_factory=dict)

    @property
    def readable(self) -> dict[tuple[str, int], Path]:
        """The runs without those of ``unreadable``."""
        return {key: path for key, path in self.runs.items() if path not in self.unreadable}

    tradeoff: tuple[str, ...] = ()
    synthetic: bool = False
    notes: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
