"""From run directories to the files of a report. The same runs give the same bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gdpo_nemo.errors import InputError
from gdpo_nemo.files import write_text
from gdpo_nemo.report import render, stability, weights
from gdpo_nemo.report.captions import SYNTHETIC, model_label
from gdpo_nemo.report.figures import curves, groups, tradeoff
from gdpo_nemo.report.loading import examined, read_evaluations
from gdpo_nemo.report.samples import run_name
from gdpo_nemo.report.spec import Exhibit, ReportSpec
from gdpo_nemo.report.stability import ArmStability
from gdpo_nemo.report.table import Part, Table, build_table
from gdpo_nemo.report.training import Training, read_training
from gdpo_nemo.report.verdict import Verdict, adjusted, judge_all
from gdpo_nemo.terminal import sentences


@dataclass(frozen=True)
class Report:
    """What was written.

    Attributes:
        text: table, claims and notes for a terminal.
        verdicts: one per claim, in the order of the spec, model by model.
        missing: runs without a result, and why.
        unreadable: what of the runs cannot be read, why, and what to do.
        table: the table that all renderings print; None of curves alone.
        stability: per model and arm; empty where no run logged a step.
    """

    text: str
    verdicts: list[Verdict]
    missing: list[str]
    table: Table | None
    stability: Mapping[str, list[ArmStability]]
    unreadable: tuple[str, ...] = ()


def build(spec: ReportSpec, out: Path, *, page: bool = False) -> Report:
    """Write table.md, .tex, .csv, .html, verdict.json, stability.md, .csv and curves.csv, .png and .pdf under ``out``.

    With ``spec.tradeoff`` and runs of arms that differ in a weight also weights.csv and tradeoff.csv, .png and .pdf.

    Reads finished runs, and the curves of unfinished ones. Each file is replaced in one move; the figures come last.

    Raises:
        InputError: the spec has no run or no column, or runs answered different questions.
        UnknownNameError: a claim, a column or a curve names something that does not exist.
        PrerequisiteError: matplotlib is missing; everything but pictures has been written.
    """
    return build_table_report([spec], out, page=page)


def build_exhibit(exhibit: Exhibit, specs: Sequence[ReportSpec], out: Path, *, page: bool = False) -> Report:
    """Write everything of one table or figure under ``out``, one ``spec`` per model; ``page``: report.html as well.

    Raises:
        InputError, UnknownNameError, PrerequisiteError: as ``build``.
    """
    match exhibit.kind:
        case "table":
            return build_table_report(specs, out, page=page)
        case "tradeoff":
            report = build_table_report(specs, out, page=page)
            assert report.table is not None
            tradeoff.write_tradeoff(report.table, out / exhibit.name)
            return report
        case "curves":
            return _build_curves(exhibit, specs, out, page)
        case "groups":
            out.mkdir(parents=True, exist_ok=True)
            counts = groups.all_counts()
            groups.write_groups(counts, out / exhibit.name)
            return Report(sentences([exhibit.title, groups.in_words(counts), groups.NOTE]), [], [], None, {})


def build_table_report(specs: Sequence[ReportSpec], out: Path, *, page: bool = False) -> Report:
    """Write the table of one or several models, its verdicts, and what their runs logged.

    Raises:
        InputError, UnknownNameError, PrerequisiteError: as ``build``.
    """
    for spec in specs:
        if not spec.runs or not spec.columns:
            raise InputError(f"report of {spec.experiment}: {len(spec.runs)} runs and {len(spec.columns)} columns")
    specs = [examined(spec) for spec in specs]
    parts = [Part(spec, read_evaluations(spec)) for spec in specs]
    judged = [verdict for part in parts for verdict in judge_all(part.spec, part.evaluations, part.spec.claims)]
    verdicts = adjusted(judged, specs[0].level)
    table = build_table(parts, verdicts)
    trainings = {spec.model: read_training(spec.readable) for spec in specs if spec.curves}
    specs = _marked(specs, trainings, table.synthetic)
    lines = {spec.model: curves.curves_of(spec, trainings[spec.model]) for spec in specs if spec.curves}
    steady = _stability(specs, trainings)
    shifts = [shift for part in parts for shift in weights.shifts(part.spec, part.evaluations)]

    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "table.md", render.to_markdown(table))
    write_text(out / "table.tex", render.to_latex(table))
    write_text(out / "table.html", render.to_html(table))
    write_text(out / "table.csv", render.to_csv(table))
    document = json.dumps(_document(parts, verdicts, table.synthetic), indent=2, allow_nan=False)
    write_text(out / "verdict.json", document + "\n")
    _write_stability(specs, steady, out)
    if shifts:
        write_text(out / "weights.csv", weights.to_csv(shifts))
    if page:
        from gdpo_nemo.report.page.build import Findings, build_page

        build_page(Findings(specs, trainings, steady, parts, table, verdicts), out)
    for spec in specs:
        if spec.tradeoff and tradeoff.has_weights(table):
            tradeoff.write_tradeoff(tradeoff.narrowed(table, spec.tradeoff), out / "tradeoff")
        if spec.curves:
            stem = "curves" if len(specs) == 1 else f"curves-{spec.model}"
            curves.write_curves(spec, lines[spec.model], out / stem)
    missing = [_named(part.spec, line, len(parts) > 1) for part in parts for line in part.evaluations.missing()]
    text = render.to_text(table)
    if shifts:
        text = f"{text.rstrip()}\n\nWeights:\n{sentences(weights.lines(shifts, specs[0].labels), '  ')}"
    unreadable = tuple(line for part in parts for line in part.evaluations.unreadable)
    return Report(text, verdicts, missing, table, steady, unreadable)


def _build_curves(exhibit: Exhibit, specs: Sequence[ReportSpec], out: Path, page: bool) -> Report:
    specs = [examined(spec) for spec in specs]
    trainings = {spec.model: read_training(spec.readable) for spec in specs}
    specs = _marked(specs, trainings, False)
    lines = {spec.model: curves.curves_of(spec, trainings[spec.model]) for spec in specs}
    steady = _stability(specs, trainings)
    out.mkdir(parents=True, exist_ok=True)
    _write_stability(specs, steady, out)
    if page:
        from gdpo_nemo.report.page.build import Findings, build_page

        build_page(Findings(specs, trainings, steady), out)
    text, missing, unreadable = [*([SYNTHETIC] if specs[0].synthetic else []), exhibit.title], list[str](), list[str]()
    for spec in specs:
        curves.write_curves(spec, lines[spec.model], out / f"{exhibit.name}-{spec.model}")
        unreadable += spec.unreadable.values()
        absent = [run_name(path) for key, path in spec.runs.items() if key not in trainings[spec.model]]
        missing += [f"{spec.model}/{run} (not started)" for run in absent]
        text.append(f"  {model_label(spec)}: {len(spec.runs) - len(absent)} of {len(spec.runs)} runs have steps")
    text += dict.fromkeys(f"  {note}" for spec in specs for note in spec.notes)
    return Report("\n".join(text), [], missing, None, steady, tuple(unreadable))


def _marked(
    specs: Sequence[ReportSpec], trainings: Mapping[str, Mapping[tuple[str, int], Training]], synthetic: bool
) -> list[ReportSpec]:
    """The specs, told whether their runs were made up.

    Raises:
        InputError: some were and others were not.
    """
    made_up = {one.synthetic: one.run for own in trainings.values() for one in own.values()}
    if len(made_up) > 1:
        raise InputError(f"{made_up[True]} is synthetic and {made_up[False]} is not; they never share a report")
    return [replace(spec, synthetic=synthetic or True in made_up) for spec in specs]


def _stability(
    specs: Sequence[ReportSpec], trainings: Mapping[str, Mapping[tuple[str, int], Training]]
) -> dict[str, list[ArmStability]]:
    measured = {
        spec.model: stability.measure(trainings[spec.model], spec.curves, spec.reward_ranges)
        for spec in specs
        if trainings.get(spec.model)
    }
    return {model: arms for model, arms in measured.items() if arms}


def _write_stability(specs: Sequence[ReportSpec], steady: Mapping[str, list[ArmStability]], out: Path) -> None:
    for spec in specs:
        if spec.model in steady:
            stem = "stability" if len(specs) == 1 else f"stability-{spec.model}"
            write_text(out / f"{stem}.csv", stability.to_csv(steady[spec.model]))
            note = SYNTHETIC if spec.synthetic else ""
            write_text(out / f"{stem}.md", stability.to_markdown(steady[spec.model], spec.labels, note=note))


def _document(parts: Sequence[Part], verdicts: Sequence[Verdict], synthetic: bool) -> dict[str, Any]:
    spec = parts[0].spec
    several = len(parts) > 1
    runs, bases = [], []
    for part in parts:

        def line(path: Path, part: Part = part) -> dict[str, Any]:
            name = run_name(path)
            return {"run": _named(part.spec, name, several), "state": part.evaluations.state(name)}

        runs += [line(path) | {"arm": arm, "seed": seed} for (arm, seed), path in part.spec.runs.items()]
        bases += [line(part.spec.base)] if part.spec.base else []
    return {
        **({"synthetic": SYNTHETIC} if synthetic else {}),
        "experiment": spec.experiment,
        "exhibit": spec.exhibit,
        "scale": spec.scale,
        "model": ", ".join(part.spec.model for part in parts),
        "claims": [verdict.to_json() for verdict in verdicts],
        "base": (bases if several else bases[0]) if bases else None,
        "runs": runs,
    }


def _named(spec: ReportSpec, run: str, several: bool) -> str:
    return f"{spec.model}/{run}" if several else run
