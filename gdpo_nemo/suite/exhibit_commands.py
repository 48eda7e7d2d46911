"""``report`` and ``check`` of the paper's tables and figures, run or not."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from gdpo_nemo.errors import GdpoError, OutsideBandError, PrerequisiteError, UsageError
from gdpo_nemo.report.spec import Exhibit, ReportSpec
from gdpo_nemo.suite import exhibits, programs, selecting
from gdpo_nemo.suite.answer import Answer, shortened
from gdpo_nemo.suite.experiment import Experiment
from gdpo_nemo.suite.reporting import written
from gdpo_nemo.terminal import commands_to_copy, sentences


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What ``report`` takes besides a selection of runs."""
    parser.add_argument("--html", action="store_true", help="write report.html too: one file, no network")
    parser.add_argument(
        "--allow-incomplete", action="store_true", help="use evaluations with failed requests, and show how many"
    )
    parser.add_argument(
        "--learning-rates",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="a folder of the same runs with another learning rate, to compare with; may be given several times",
    )


def answer(options: argparse.Namespace, experiment: Experiment | None, target: str) -> Answer | None:
    """The answer about tables and figures of the paper; None where the command is about another scale."""
    chosen: Sequence[Exhibit]
    if experiment is None and target in (known := programs.exhibits()):
        program, exhibit = known[target]
        found, chosen = program.experiment, [exhibit]
    elif options.scale == exhibits.PAPER:
        found = experiment or programs.find(target).experiment
        chosen = found.exhibits
    else:
        return None
    out = options.out or Path("runs")
    seeds = selecting.seeds(options)
    chosen = exhibits.narrowed(found, chosen, selecting.arms(options))
    if options.command == "check":
        return check_exhibits(found, chosen, out, seeds)
    return report_exhibits(found, chosen, out, seeds, options.allow_incomplete, options.html)


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
        built = build_exhibit(exhibit, specs, folder, page=page)
        answers.append(_led(written(folder, built), experiment, exhibit, specs, built.missing))
    text = "\n\n\n".join(answer.text for answer in answers)
    return Answer(text, [answer.data for answer in answers], max(answer.exit_code for answer in answers))


def _led(
    answer: Answer, experiment: Experiment, exhibit: Exhibit, specs: Sequence[ReportSpec], missing: Sequence[str]
) -> Answer:
    """The answer, led by what is missing and how to make it where no run of the exhibit is there."""
    if not specs or len(missing) < sum(len(spec.runs) + (spec.base is not None) for spec in specs):
        return answer
    commands = exhibits.commands(experiment, exhibit)
    cells = " Below are the paper's cells." if exhibit.reference and exhibit.columns else ""
    head = sentences([f"{exhibit.name}: nothing of it has run yet. It needs {exhibit.needs}.{cells}"])
    text = f"{head}\n{commands_to_copy(commands)}\n\n{answer.text}"
    return Answer(text, answer.data | {"needs": exhibit.needs, "commands": list(commands.values())}, answer.exit_code)


def check_exhibits(
    experiment: Experiment, chosen: Sequence[Exhibit], out: Path, seeds: Sequence[int] | None = None
) -> Answer:
    """Judge every cell and claim of paper-scale tables.

    Exit code 0: all are as in the paper; 1: a run cannot be read; 3: runs are missing; else 4.

    A cell is as in the paper when it is reproduced, a claim when it is supported.
    """
    from gdpo_nemo.report.builder import build_exhibit
    from gdpo_nemo.report.captions import claim_line

    lines: list[str] = []
    cells: dict[str, int] = {}
    statuses: list[str] = []
    missing: list[str] = []
    unreadable: list[str] = []
    for exhibit in chosen:
        if exhibit.kind != "table":
            continue
        specs = exhibits.specs(experiment, exhibit, out, seeds)
        built = build_exhibit(exhibit, specs, exhibits.report_path(experiment, exhibit, out))
        lines += [claim_line(specs[0], verdict, named=len(specs) > 1) for verdict in built.verdicts]
        lines += [note for spec in specs for note in spec.notes]
        statuses += [verdict.status for verdict in built.verdicts]
        missing += built.missing
        unreadable += built.unreadable
        assert built.table is not None
        for cell in (cell for row in built.table.rows for cell in row.cells if cell.verdict):
            cells[str(cell.verdict)] = cells.get(str(cell.verdict), 0) + 1
    counted = ", ".join(f"{number} {words.replace('_', ' ')}" for words, number in cells.items())
    lines.append(f"cells: {counted or 'none'}; claims: {statuses.count('supported')} of {len(statuses)} supported")
    exit_code = 0
    if missing:
        exit_code = GdpoError.exit_code if unreadable else PrerequisiteError.exit_code
        lines += [f"cannot judge everything yet: {shortened(missing)}", *unreadable]
    elif statuses.count("supported") < len(statuses) or set(cells) - {"reproduced"}:
        exit_code = OutsideBandError.exit_code
    data = {"as_in_the_paper": exit_code == 0, "cells": cells, "claims": statuses}
    data |= {"missing": missing, "unreadable": unreadable}
    return Answer(sentences(lines), data, exit_code)
