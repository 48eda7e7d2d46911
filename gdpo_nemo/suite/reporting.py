"""``report`` and ``check``: from finished runs to tables, figures and verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from gdpo_nemo.errors import OutsideBandError, PrerequisiteError, UsageError
from gdpo_nemo.report.spec import Exhibit, ReportSpec
from gdpo_nemo.suite import exhibits
from gdpo_nemo.suite.answer import Answer, shortened
from gdpo_nemo.suite.experiment import Experiment
from gdpo_nemo.suite.grid import Selection, bases, check_comparable

if TYPE_CHECKING:
    from gdpo_nemo.report.builder import Report


def report(selection: Selection, *, page: bool = False) -> Answer:
    """Write tables, figures and verdicts, and show the table; ``page``: report.html as well.

    Raises:
        PrerequisiteError: no run has been started.
        RunDirError: the runs on disk were made with settings that cannot be compared.
    """
    spec = embedded_spec(selection)
    return _written(selection.tree.report_path, _build(spec, selection.tree.report_path, page))


def report_exhibits(
    experiment: Experiment,
    chosen: Sequence[Exhibit],
    out: Path,
    seeds: Sequence[int] | None = None,
    allow_incomplete: bool = False,
    page: bool = False,
) -> Answer:
    """Write paper-scale tables and figures, run or not, and show them.

    Raises:
        UsageError: none is chosen.
    """
    if not chosen:
        raise UsageError(f"{experiment.name} declares no table or figure of the paper; see gdpo list")
    from gdpo_nemo.report.builder import build_exhibit

    answers = []
    for exhibit in chosen:
        folder = exhibits.report_path(experiment, exhibit, out)
        specs = exhibits.specs(experiment, exhibit, out, seeds, allow_incomplete)
        answers.append(_written(folder, build_exhibit(exhibit, specs, folder, page=page)))
    return Answer("\n\n\n".join(answer.text for answer in answers), [answer.data for answer in answers])


def check(selection: Selection) -> Answer:
    """Judge every claim: exit code 0 when all are supported, 3 when runs are missing, 4 otherwise.

    Raises:
        PrerequisiteError: no run has been started.
        RunDirError: the runs on disk were made with settings that cannot be compared.
    """
    from gdpo_nemo.report.captions import claim_line

    spec = embedded_spec(selection)
    built = _build(spec, selection.tree.report_path)
    lines = [claim_line(spec, verdict) for verdict in built.verdicts]
    statuses = [verdict.status for verdict in built.verdicts]
    lines.append(
        f"{statuses.count('supported')} of {len(statuses)} claims supported at {1 - spec.level:.0%} after Holm's "
        "correction for their number"
    )
    exit_code = 0
    if built.missing or "not_run" in statuses:
        exit_code = PrerequisiteError.exit_code
        absent = shortened(built.missing) or "some claims are about arms that were not run"
        lines.append(f"cannot judge everything yet: {absent}; `run` does what is missing")
    elif statuses.count("supported") < len(statuses):
        exit_code = OutsideBandError.exit_code
    return Answer("\n".join(lines), {"supported": exit_code == 0, **_as_data(built)}, exit_code)


def check_exhibits(
    experiment: Experiment, chosen: Sequence[Exhibit], out: Path, seeds: Sequence[int] | None = None
) -> Answer:
    """Judge every cell and claim of paper-scale tables: 0: all as in the paper, 3: runs are missing, else 4.

    A cell is as in the paper when it is reproduced, a claim when it is supported.
    """
    from gdpo_nemo.report.builder import build_exhibit
    from gdpo_nemo.report.captions import claim_line

    lines: list[str] = []
    cells: dict[str, int] = {}
    statuses: list[str] = []
    missing: list[str] = []
    for exhibit in chosen:
        if exhibit.kind != "table":
            continue
        specs = exhibits.specs(experiment, exhibit, out, seeds)
        built = build_exhibit(exhibit, specs, exhibits.report_path(experiment, exhibit, out))
        lines += [claim_line(specs[0], verdict, named=len(specs) > 1) for verdict in built.verdicts]
        statuses += [verdict.status for verdict in built.verdicts]
        missing += built.missing
        assert built.table is not None
        for cell in (cell for row in built.table.rows for cell in row.cells if cell.verdict):
            cells[str(cell.verdict)] = cells.get(str(cell.verdict), 0) + 1
    counted = ", ".join(f"{number} {words.replace('_', ' ')}" for words, number in cells.items())
    lines.append(f"cells: {counted or 'none'}; claims: {statuses.count('supported')} of {len(statuses)} supported")
    exit_code = 0
    if missing:
        exit_code = PrerequisiteError.exit_code
        lines.append(f"cannot judge everything yet: {shortened(missing)}")
    elif statuses.count("supported") < len(statuses) or set(cells) - {"reproduced"}:
        exit_code = OutsideBandError.exit_code
    data = {"as_in_the_paper": exit_code == 0, "cells": cells, "claims": statuses, "missing": missing}
    return Answer("\n".join(lines), data, exit_code)


def embedded_spec(selection: Selection) -> ReportSpec:
    """What a report on the runs of a selection shows.

    Raises:
        PrerequisiteError: no run has been started.
        RunDirError: the runs on disk were made with settings that cannot be compared.
    """
    from gdpo_nemo.config import GdpoConfig, validate
    from gdpo_nemo.method import reward_ranges

    experiment, runs = selection.experiment, selection.covered()
    configs = {run.path: run.config() for run in runs.values() if run.exists()}
    if not configs:
        raise PrerequisiteError(f"no runs in {selection.tree.path} yet; `run` makes them")
    check_comparable(configs)
    path, config = next(iter(configs.items()))
    return ReportSpec(
        experiment=experiment.name,
        title=experiment.title,
        scale=cast("Literal['embedded', 'paper']", selection.scale),
        model=selection.model_name,
        runs={key: run.path for key, run in runs.items()},
        base=next((base.path for base in bases(runs.values())), None),
        columns=tuple(experiment.columns),
        claims=tuple(experiment.claims),
        deviations=experiment.deviations_at(selection.scale),
        curves=tuple(experiment.curves),
        labels={arm.name: arm.label for arm in experiment.arms},
        reward_ranges=reward_ranges(validate(GdpoConfig, config["gdpo"], origin=str(path))),
        reference=exhibits.reference_table(experiment.reference),
    )


def _build(spec: ReportSpec, folder: Path, page: bool = False) -> Report:
    from gdpo_nemo.report.builder import build

    return build(spec, folder, page=page)


def _written(folder: Path, built: Report) -> Answer:
    files = sorted(path.name for path in folder.iterdir())
    data = {"path": str(folder), "files": files, **_as_data(built)}
    return Answer(f"{built.text.rstrip()}\n\nFiles in {folder}: {', '.join(files)}", data)


def _as_data(built: Report) -> dict[str, Any]:
    return {"verdicts": [verdict.to_json() for verdict in built.verdicts], "missing": list(built.missing)}
