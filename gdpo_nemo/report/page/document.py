"""What the page shows, as plain data; ``render`` knows no run and no file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gdpo_nemo.report.figures.curves import Curve
from gdpo_nemo.report.table import Table
from gdpo_nemo.report.verdict import Verdict
from gdpo_nemo.stats.intervals import FloatArray


@dataclass(frozen=True)
class Grid:
    """A table of words.

    Attributes:
        headings: of the columns, the first that of the row names; may be empty.
        rows: as many words each as there are columns.
        notes: sentences below.
    """

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Question:
    """One question of a benchmark.

    Attributes:
        row_id: its name in the store.
        messages: (role, content), the whole prompt.
        gold: the reference answer, as the store has it.
    """

    row_id: str
    messages: tuple[tuple[str, str], ...]
    gold: str


@dataclass(frozen=True)
class Sample:
    """One response with its scores.

    Attributes:
        question: position in ``PageDocument.questions``.
        run: name of the run.
        index: which of the question's samples.
        response: its whole text.
        values: score name -> value, None where ungraded or where it does not apply (then its codes say so).
        reasons: score name -> codes.
        length_tokens: None where the store has none.
        truncated: whether it was cut at the length limit.
        path: file and line of the response, from the folder of the report.
    """

    question: int
    run: str
    index: int
    response: str
    values: Mapping[str, float | None]
    reasons: Mapping[str, tuple[str, ...]]
    length_tokens: int | None
    truncated: bool
    path: str


@dataclass(frozen=True)
class RunLine:
    """One run behind a cell: its state in words, its own value of the column, its folder from that of the report."""

    name: str
    state: str
    value: str
    path: str


@dataclass(frozen=True)
class Trace:
    """The way down from a cell.

    Attributes:
        runs: every run asked for, finished or not.
        samples: positions in ``PageDocument.samples``.
        num_samples: samples behind the cell in all.
        files: where all of them are, from the folder of the report.
    """

    runs: tuple[RunLine, ...]
    samples: tuple[int, ...] = ()
    num_samples: int = 0
    files: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Health:
    """One number about the rewards or the optimisation, over training.

    Attributes:
        title: its name.
        meaning: one sentence.
        percent: whether it is a share.
        steps_T, medians_T: arm -> median over the seeds at each step.
        late: arm -> median over the seeds of the mean over the last tenth of the steps.
    """

    title: str
    meaning: str
    percent: bool
    steps_T: Mapping[str, FloatArray]
    medians_T: Mapping[str, FloatArray]
    late: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class PageDocument:
    """Everything on the page.

    Attributes:
        title: one line.
        lead: sentences under it: model, scale, how far the runs are.
        labels: arm -> name, of all arms in the order of the tables.
        verdicts: one per claim.
        tables: each cell with a key that is in ``traces`` leads down to its runs.
        curves: model -> curves of rewards and other metrics, of all its arms and seeds.
        ranges: name of a curve -> the range its panel spans; others span their values.
        stability: model -> how steady its training was.
        health: model -> numbers in the order of the panel.
        alarms: model -> what its runs raised while they trained.
        deviations: name and text.
        provenance: what all runs share, and what differs.
        questions, samples: each text once.
        traces: key of a cell -> the way down.
        experiment: its name, which ``gdpo explain`` needs for keys that several experiments have.
        synthetic: whether the runs were made up; the page says so at the top.
    """

    title: str
    lead: tuple[str, ...]
    labels: Mapping[str, str]
    verdicts: tuple[Verdict, ...] = ()
    tables: tuple[Table, ...] = ()
    curves: Mapping[str, tuple[Curve, ...]] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    stability: Mapping[str, Grid] = field(default_factory=dict)
    health: Mapping[str, tuple[Health, ...]] = field(default_factory=dict)
    alarms: Mapping[str, Grid] = field(default_factory=dict)
    deviations: tuple[tuple[str, str], ...] = ()
    provenance: tuple[tuple[str, Grid], ...] = ()
    questions: tuple[Question, ...] = ()
    samples: tuple[Sample, ...] = ()
    traces: Mapping[str, Trace] = field(default_factory=dict)
    experiment: str = ""
    synthetic: bool = False
