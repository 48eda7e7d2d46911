"""``--arms`` and ``--seeds``: the same words, with the same meaning, for every command about runs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from gdpo_nemo.errors import UsageError
from gdpo_nemo.suite.experiment import EMBEDDED
from gdpo_nemo.suite.grid import Selection, split_names
from gdpo_nemo.suite.programs import Program
from gdpo_nemo.suite.seeds import parse_seeds

MODEL = "tiny"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``--arms`` and ``--seeds``."""
    parser.add_argument(
        "--arms",
        metavar="A,B",
        help="some arms by name, or all (default: those that the paper compares; in a report also those with runs)",
    )
    parser.add_argument("--seeds", metavar="0-2", help="0-2 or 0,1,5 (default: those that the experiment declares)")


def seeds(options: argparse.Namespace) -> tuple[int, ...] | None:
    """The seeds that a command line names; None where it leaves them to the experiment.

    Raises:
        UsageError: they are no seeds.
    """
    named: str | None = getattr(options, "seeds", None)
    return parse_seeds(named) if named else None


def arms(options: argparse.Namespace) -> Sequence[str] | None:
    """The arms that a command line names; None where it leaves them to the experiment.

    Raises:
        UsageError: it names some and asks for the sweep too.
    """
    named: str | None = getattr(options, "arms", None)
    if not getattr(options, "sweep", False):
        return split_names(named) if named else None
    if named and named != "all":
        raise UsageError(f"--sweep takes all arms and --arms {named} some; leave one of them out")
    return ["all"]


def selection(
    program: Program, options: argparse.Namespace, *, model: str | None = None, overrides: Sequence[str] = ()
) -> Selection:
    """The runs of an experiment that a command line is about.

    Args:
        program: the experiment.
        options: the command line; what it does not have is left to the experiment.
        model: instead of that of the options.
        overrides: dotted ``key=value``.

    Raises:
        UsageError: a value that is none.
        UnknownNameError: an arm or a scale that the experiment does not have.
    """
    experiment, named, scale = program.experiment, arms(options), getattr(options, "scale", EMBEDDED)
    declared = experiment.default_seeds(scale)
    smoke = getattr(options, "smoke", False)
    return Selection(
        program,
        scale=scale,
        arms=experiment.pick_arms(named or program.arms, scale),
        seeds=seeds(options) or declared,
        model=model or options.model or MODEL,
        out=options.out or Path("runs/smoke" if smoke else "runs"),
        smoke=smoke,
        overrides=tuple(overrides),
        arms_named=named is not None or (program.arms is not None and not program.is_free),
        seeds_named=seeds(options) is not None,
    )
