"""A page to test: invented numbers, and texts from models that try to be markup."""

import numpy as np

from gdpo_nemo.report.figures.curves import Curve
from gdpo_nemo.report.page.document import Grid, Health, PageDocument, Question, RunLine, Sample, Trace
from gdpo_nemo.report.spec import Claim, Column
from gdpo_nemo.report.table import Cell, Table, TableRow
from gdpo_nemo.report.verdict import Verdict
from gdpo_nemo.stats import Interval

LABELS = {"grpo": "GRPO", "grpo_no_std": "GRPO w/o std", "gdpo": "GDPO"}
COLUMNS = (
    Column("format", "Correct format", "format", at_least=1.0),
    Column("correct", "Correctness", "correct", unit="", digits=2),
)
LEVELS = {"grpo": 0.3, "grpo_no_std": 0.1, "gdpo": 0.95}
HOSTILE = (
    "</script><script>window.planted = 1</script>",
    "<img src=x onerror='window.planted = 2'>",
    "<!--<script>",
    "\u2028\u2029 ]]> &lt;b&gt; ${window.planted = 3}",
    "\ud800 half a pair, \x00 and \u202e turned round",
)


def key(arm, column):
    return f"embedded:tiny/{arm}/{column.name}"


def interval(value, half):
    return Interval(value - half, value + half, 0.95, "crossed t")


def make_cell(arm, column):
    value = LEVELS[arm] * (100 if column.unit else 3)
    return Cell(
        value, interval(value, value / 20), False, 3, 40, 120, 0, best=arm == "gdpo", key=key(arm, column),
        paper=value + 1 if column.unit else None, paper_digits=2, verdict="reproduced" if column.unit else None,
    )  # fmt: skip


def make_table():
    rows = [
        TableRow(arm, label, (0, 1, 2), (0, 1, 2), 40, tuple(make_cell(arm, column) for column in COLUMNS))
        for arm, label in LABELS.items()
    ]
    empty = TableRow("mine", "Mine <b>", (0, 1, 2), (), 0, tuple(Cell(note="not run") for _ in COLUMNS))
    return Table("t", "Results & such", ("Model tiny.",), "better.", COLUMNS, (*rows, empty), (), ("Mine: x",), ())


def make_curves(num_steps):
    steps = np.arange(1, num_steps + 1, dtype=np.float64)
    return tuple(
        Curve(arm, seed, name, steps, top * level * (1 - np.exp(-steps / num_steps * (4 + seed))))
        for arm, level in LEVELS.items()
        for seed in range(3)
        for name, top in (("format", 1.0), ("correct", 3.0))
    )


def make_document(num_steps=30, responses=HOSTILE, synthetic=False):
    questions = tuple(
        Question(f"world/{i} <i>", (("system", "Use tools."), ("user", f"{text} ?")), f"gold {text}")
        for i, text in enumerate(responses)
    )
    samples = tuple(
        Sample(i, f"{arm}/seed{i % 3}", 0, f"{arm}: {text}", {"format": 1.0, "correct": None if i else -3.0},
               {"format": (), "correct": ("inexact_match",)}, 12, i == 1, f"../{arm}/seed{i % 3}/generations.jsonl:{i}")
        for arm in LABELS
        for i, text in enumerate(responses)
    )  # fmt: skip
    traces = {
        key(arm, column): Trace(
            runs=tuple(RunLine(f"{arm}/seed{s}", "finished", "95.0", f"../{arm}/seed{s}") for s in range(3)),
            samples=tuple(i for i, sample in enumerate(samples) if sample.run.split("/")[0] == arm),
            num_samples=120,
            files=(f"../{arm}/seed0/eval/heldout/generations.jsonl",),
        )
        for arm in LABELS
        for column in COLUMNS
    }
    curves = make_curves(num_steps)
    steps = curves[0].steps_T
    health = Health(
        "constant groups: format", "Groups that teach nothing about format.", True, dict.fromkeys(LABELS, steps),
        {arm: 1 - level * steps / steps[-1] for arm, level in LEVELS.items()}, dict(LEVELS),
    )  # fmt: skip
    return PageDocument(
        title="Tool calling: <two> rewards",
        lead=("Embedded scale.", "Model tiny."),
        labels=LABELS,
        verdicts=(
            Verdict(
                Claim("gdpo", ">", "grpo", "format"), "supported", "the interval excludes 0", "%", 65.0,
                interval(65.0, 9.0), {0: 60.0, 1: 65.0, 2: 70.0}, 3, 3, 40, 240, 0,
            ),
            Verdict(Claim("grpo", ">", "grpo_no_std", "correct"), "not_run", "no graded run of grpo_no_std"),
        ),
        tables=(make_table(),),
        curves={"tiny": curves},
        ranges={"format": (0.0, 1.0), "correct": (-3.0, 3.0)},
        stability={"tiny": Grid(("arm", "collapsed seeds"), (("GRPO", "1 of 3"), ("GDPO", "0")))},
        health={"tiny": (health,)},
        deviations=(("model & data", "a small model"),),
        provenance=(("All runs", Grid(("", "value"), (("commit", "abc123"), ("torch", "2.13.0")))),),
        questions=questions,
        samples=samples,
        traces=traces,
        synthetic=synthetic,
    )  # fmt: skip
