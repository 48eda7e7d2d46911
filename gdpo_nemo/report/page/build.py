"""From what a report has read to its page."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gdpo_nemo.files import write_text
from gdpo_nemo.report import stability
from gdpo_nemo.report.captions import SCALES, model_label
from gdpo_nemo.report.figures.curves import curves_of
from gdpo_nemo.report.page.document import Grid, PageDocument
from gdpo_nemo.report.page.health import read_alarms, read_health
from gdpo_nemo.report.page.history import provenance_grids
from gdpo_nemo.report.page.render import render_page
from gdpo_nemo.report.page.traces import trace_cells
from gdpo_nemo.report.samples import run_name
from gdpo_nemo.report.spec import ReportSpec
from gdpo_nemo.report.stability import ArmStability
from gdpo_nemo.report.table import Part, Table
from gdpo_nemo.report.training import Training
from gdpo_nemo.report.verdict import Verdict
from gdpo_nemo.run_dir import RunDir

NAME = "report.html"
FILES = (".yaml", ".yml", ".py")


@dataclass(frozen=True)
class Findings:
    """What a report has read, measured and judged.

    Attributes:
        specs: one per model.
        trainings: model -> what its runs logged.
        steady: model -> stability of its arms.
        parts: those that the table was built from; none for curves alone.
        table: of all parts; None for curves alone.
        verdicts: on the claims of all parts.
    """

    specs: Sequence[ReportSpec]
    trainings: Mapping[str, Mapping[tuple[str, int], Training]]
    steady: Mapping[str, Sequence[ArmStability]]
    parts: Sequence[Part] = ()
    table: Table | None = None
    verdicts: Sequence[Verdict] = ()


def build_page(found: Findings, out: Path) -> Path:
    """Write ``report.html`` under ``out``, the folder of the report, and return its path."""
    path = out / NAME
    write_text(path, render_page(collect(found, out)))
    return path


def collect(found: Findings, out: Path) -> PageDocument:
    """What the page shows; paths on it start at ``out``."""
    specs, table = found.specs, found.table
    first = specs[0]
    names = {spec.model: model_label(spec) for spec in specs}
    traced = trace_cells(found.parts, out)
    arms = dict.fromkeys(arm for spec in specs for arm, _ in spec.runs)
    curves = {spec.model: curves_of(spec, found.trainings.get(spec.model, {})) for spec in specs}
    health = {model: read_health(own) for model, own in found.trainings.items()}
    alarms = {spec.model: read_alarms(spec.readable.values()) for spec in specs}
    return PageDocument(
        title=first.title,
        lead=(f"Experiment {first.experiment}, model {', '.join(names.values())}.", SCALES[first.scale]),
        labels={arm: first.labels.get(arm, arm) for arm in arms},
        verdicts=tuple(replace(verdict, model=names.get(verdict.model, verdict.model)) for verdict in found.verdicts),
        tables=(table,) if table else (),
        curves={names[model]: tuple(own) for model, own in curves.items() if own},
        ranges=first.reward_ranges,
        stability={names[model]: _stability(own, first.labels) for model, own in found.steady.items()},
        health={names[model]: own for model, own in health.items() if own},
        alarms={names[model]: own for model, own in alarms.items() if own},
        deviations=tuple(
            (one.name, one.text + (f" (expected: {one.expected})" if one.expected else "")) for one in first.deviations
        ),
        provenance=provenance_grids(_records(specs)),
        questions=traced.questions,
        samples=traced.samples,
        traces=traced.traces,
        experiment=_experiment(first) if first.scale == "embedded" else "",
        synthetic=first.synthetic or bool(table and table.synthetic),
    )


def _stability(arms: Sequence[ArmStability], labels: Mapping[str, str]) -> Grid:
    headings, lines = stability.rows(arms, labels)
    return Grid(tuple(headings), tuple(map(tuple, lines)), (stability.NOTE,))


def _experiment(spec: ReportSpec) -> str:
    """What ``gdpo explain`` takes: the file that ``run`` was given, else its name; arms, seeds and folder too."""
    commands = (str(RunDir(path).provenance().get("command") or "") for path in spec.readable.values() if path.is_dir())
    words = shlex.split(next(filter(None, commands), ""))[1:]
    named = next((word for word in words if word.endswith(FILES) and "=" not in word), spec.experiment)
    out = ["--out", "runs/smoke"] if "--smoke" in words else []
    if "--out" in words[:-1]:
        out = ["--out", words[words.index("--out") + 1]]
    return shlex.join([named, *spec.options, *out])


def _records(specs: Sequence[ReportSpec]) -> dict[str, dict[str, object]]:
    records = {}
    for spec in specs:
        for path in ([spec.base] if spec.base else []) + [*spec.runs.values()]:
            name = f"{spec.model}/{run_name(path)}" if len(specs) > 1 else run_name(path)
            records[name] = {} if path in spec.unreadable else RunDir(path).provenance()
    return records
