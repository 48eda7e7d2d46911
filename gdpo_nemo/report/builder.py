"""From run directories to the files of a report. The same runs give the same bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gdpo_nemo.errors import InputError
from gdpo_nemo.files import write_text
from gdpo_nemo.report import render
from gdpo_nemo.report.figures import curves
from gdpo_nemo.report.samples import Evaluations, read_evaluations, run_name
from gdpo_nemo.report.spec import ReportSpec
from gdpo_nemo.report.table import Part, Table, build_table
from gdpo_nemo.report.training import read_training
from gdpo_nemo.report.verdict import Verdict, adjusted, judge_all


@dataclass(frozen=True)
class Report:
    """What was written.

    Attributes:
        text: table, claims and notes for a terminal.
        verdicts: one per claim, in the order of the spec.
        missing: runs without a result, and why.
        table: the table that all renderings print.
    """

    text: str
    verdicts: list[Verdict]
    missing: list[str]
    table: Table


def build(spec: ReportSpec, out: Path) -> Report:
    """Write table.md, .tex, .csv, verdict.json, curves.csv, .png and .pdf under ``out``.

    Reads finished runs, and the curves of unfinished ones. Each file is replaced in one move; the figures come last.

    Raises:
        InputError: the spec has no run or no column, or runs answered different questions.
        UnknownNameError: a claim, a column or a curve names something that does not exist.
        PrerequisiteError: matplotlib is missing; everything but curves.png and curves.pdf has been written.
    """
    if not spec.runs or not spec.columns:
        raise InputError(f"report of {spec.experiment}: it has {len(spec.runs)} runs and {len(spec.columns)} columns")
    evaluations = read_evaluations(spec)
    verdicts = tuple(adjusted(judge_all(spec, evaluations, spec.claims), spec.level))
    table = build_table([Part(spec, evaluations)], verdicts)
    lines = curves.curves_of(spec, read_training(spec.runs))
    text = render.to_text(table)

    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "table.md", render.to_markdown(table))
    write_text(out / "table.tex", render.to_latex(table))
    write_text(out / "table.csv", render.to_csv(table))
    document = json.dumps(_document(spec, evaluations, verdicts), indent=2, allow_nan=False)
    write_text(out / "verdict.json", document + "\n")
    if spec.curves:
        curves.write_curves(spec, lines, out / "curves")
    return Report(text, list(verdicts), evaluations.missing(), table)


def _document(spec: ReportSpec, evaluations: Evaluations, verdicts: tuple[Verdict, ...]) -> dict[str, Any]:
    runs = [
        {"run": run_name(path), "arm": arm, "seed": seed, "state": evaluations.state(run_name(path))}
        for (arm, seed), path in spec.runs.items()
    ]
    base = spec.base and {"run": run_name(spec.base), "state": evaluations.state(run_name(spec.base))}
    return {
        "experiment": spec.experiment,
        "scale": spec.scale,
        "model": spec.model,
        "claims": [verdict.to_json() for verdict in verdicts],
        "base": base,
        "runs": runs,
    }
