"""``gdpo power``: what the runs at hand could have found, and how many seeds the paper's effects take."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gdpo_nemo.arguments import positive
from gdpo_nemo.errors import PrerequisiteError, UsageError
from gdpo_nemo.report.spec import Column, ReportSpec
from gdpo_nemo.suite import exhibits, programs, selecting
from gdpo_nemo.suite.answer import Answer
from gdpo_nemo.suite.experiment import EMBEDDED
from gdpo_nemo.terminal import sentences, table_rows

NOTE = (
    "Power 0.8 at the 95 % level, paired by seed and question. 'seeds needed': the fewest that find an effect of the "
    "paper's size. Measured: from the spread of the finished runs. Stated: --spread, the standard deviation of one "
    "seed's difference in points, questions left out. Not known: nothing ran and none is stated, so no answer."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A table or experiment, and the spread where nothing ran."""
    parser.add_argument("target", help="an experiment (gdpo list), or one of the paper's tables: table1")
    parser.add_argument(
        "--scale",
        default=EMBEDDED,
        choices=[EMBEDDED, exhibits.PAPER],
        help="of an experiment: embedded, the runs of this machine (default), or paper, its tables",
    )
    selecting.add_arguments(parser)
    parser.add_argument(
        "--spread",
        type=positive,
        metavar="POINTS",
        help="standard deviation of one seed's difference, where nothing ran",
    )
    parser.add_argument("--model", default="tiny", help="of an embedded experiment (default: tiny)")
    parser.add_argument(
        "--out", type=Path, default=Path("runs"), metavar="DIR", help="folder of all runs (default: runs)"
    )


def answer(options: argparse.Namespace) -> Answer:
    """The seeds that each claim takes.

    Raises:
        UsageError: the target has no claims, or a spread that is not positive.
        UnknownNameError: nothing answers to the target.
    """
    known = programs.exhibits()
    if options.target in known:
        program, exhibit = known[options.target]
        tables = [exhibit]
    else:
        program = programs.find(options.target)
        if options.scale == EMBEDDED:
            return power([(EMBEDDED, [_embedded(program, options)])], options.spread)
        tables = [exhibit for exhibit in program.experiment.exhibits if exhibit.claims]
    tables = exhibits.narrowed(program.experiment, tables, selecting.arms(options))
    seeds = selecting.seeds(options)
    return power(
        [(one.name, exhibits.specs(program.experiment, one, options.out, seeds)) for one in tables], options.spread
    )


def power(chosen: Sequence[tuple[str, Sequence[ReportSpec]]], spread: float | None) -> Answer:
    """One line per claim: the paper's effect, what was measured, the seeds needed.

    Raises:
        UsageError: no claim at all.
    """
    from gdpo_nemo.report.captions import model_label
    from gdpo_nemo.report.loading import SMOKE, examined, is_smoke, read_evaluations
    from gdpo_nemo.report.verdict import judge_all

    rows: list[dict[str, Any]] = []
    for name, specs in chosen:
        for spec in specs:
            columns = {column.name: column for column in spec.columns}
            for verdict in judge_all(spec, read_evaluations(examined(spec)), spec.claims):
                column = columns[verdict.claim.on]
                row: dict[str, Any] = {
                    "exhibit": name,
                    "model": model_label(spec),
                    "claim": f"{verdict.claim.left} {verdict.claim.relation} {verdict.claim.right} on {column.title}",
                    "papers_effect": verdict.effect,
                    "seeds": len(verdict.by_seed or {}),
                    "difference": verdict.difference,
                    "detectable": verdict.detectable,
                }
                rows.append(row | _needed(verdict.effect, verdict.detectable, verdict.seeds_needed, column, spread))
    if not rows:
        raise UsageError("no claim there; see gdpo list for the tables that have some")
    lines = [["claim", "paper's effect", "seeds", "detectable", "seeds needed", "spread"]]
    heads: dict[int, str] = {}
    for row in rows:
        if (head := f"{row['exhibit']}, {row['model']}") not in heads.values():
            heads[len(lines)] = head
        lines.append(
            [
                row["claim"],
                "-" if row["papers_effect"] is None else f"{row['papers_effect']:+g}",
                str(row["seeds"]),
                "-" if row["detectable"] is None else f"{row['detectable']:.2f}",
                row["needed"],
                row["spread"],
            ]
        )
    printed = [
        f"\n{heads[i]}\n{line}" if i in heads else line for i, line in enumerate(map("\n".join, table_rows(lines)))
    ]
    notes = dict.fromkeys(note for _, specs in chosen for spec in specs for note in spec.notes)
    if any(is_smoke(spec) for _, specs in chosen for spec in specs):
        printed.insert(0, SMOKE)
    return Answer("\n".join([*printed, "", sentences([*notes, NOTE])]), rows)


def _needed(
    effect: float | None, detectable: float | None, measured: int | None, column: Column, spread: float | None
) -> dict[str, str]:
    from gdpo_nemo.stats import detectable_with_spread, seeds_needed

    if not effect:
        return {"needed": "-", "spread": "the paper has none" if effect is None else "no effect to find"}
    if detectable is not None:
        return {"needed": str(measured) if measured else "more questions", "spread": "measured"}
    if spread is None or column.unit != "%":
        return {"needed": "-", "spread": "not known"}
    seeds = seeds_needed(effect, lambda num_seeds: detectable_with_spread(spread, num_seeds))
    return {"needed": str(seeds) if seeds else "more than 1000", "spread": f"stated: {spread:g}"}


def _embedded(program: programs.Program, options: argparse.Namespace) -> ReportSpec:
    from gdpo_nemo.suite.reporting import embedded_spec

    try:
        return embedded_spec(selecting.selection(program, options))
    except PrerequisiteError as error:
        raise PrerequisiteError(f"{error}. The paper's tables have --scale paper, with or without runs") from error
