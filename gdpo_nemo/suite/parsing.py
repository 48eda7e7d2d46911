"""The arguments of ``gdpo`` and of every script in ``repro/``, and the help that shows them."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping
from pathlib import Path

import gdpo_nemo
from gdpo_nemo.arguments import Parser, count
from gdpo_nemo.suite import exhibit_commands, selecting
from gdpo_nemo.suite.commands import CLUSTER_COMMANDS, COMMANDS, EVAL, GROUPS, LIST, TOOLS, Command, Tool
from gdpo_nemo.suite.experiment import Experiment
from gdpo_nemo.terminal import listing

TARGET_HELP = "an experiment (gdpo list), a script, or the config of one arm"
EXHIBIT_HELP = ", or a table or figure of the paper such as table1"
EXIT_CODES = """\
exit codes:
  0    done; for check: every claim is supported
  1    something failed, or health or monitor advises against going on; the text says why
  2    the command line or a configuration is wrong
  3    something is missing: a package, or for check runs that are not finished
  4    check: a claim is not supported
  5    train: an alarm stopped the run
  130  interrupted; nothing is lost, the same command goes on
"""


def build_parser(program: str, experiment: Experiment | None, wanted: str = "") -> argparse.ArgumentParser:
    """The parser of ``gdpo`` (with a TARGET) or of one experiment's script (without).

    Cluster commands and tools have arguments only when ``wanted``: their modules are not imported for nothing.
    """
    target = "" if experiment else " tool_calling"
    commands: dict[str, Command | Tool] = {**COMMANDS, **CLUSTER_COMMANDS}
    if not experiment:
        commands |= {"list": LIST, **TOOLS}
    parser = Parser(
        prog=program,
        description=experiment.title if experiment else gdpo_nemo.__doc__.splitlines()[0],
        epilog=_overview(program, target, commands if experiment else commands | {"eval": EVAL}),
    )
    parser.add_argument("--version", action="version", version=f"gdpo-nemo {gdpo_nemo.__version__}")
    sub = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, help="one of those below")
    for name, command in commands.items():
        own = sub.add_parser(
            name,
            description=command.summary,
            epilog=f"example:\n  {program} {command.example.format(target)}\n\n{EXIT_CODES}",
        )
        if isinstance(command, Tool):
            if name == wanted:
                importlib.import_module(command.module).add_arguments(own)
        elif name in CLUSTER_COMMANDS:
            if name == wanted:
                _add_cluster_arguments(name, own, in_script=experiment is not None)
        elif name != "list":
            if not experiment:
                own.add_argument("target", help=TARGET_HELP + (EXHIBIT_HELP if name in ("report", "check") else ""))
            _add_selection(own)
        if isinstance(command, Command) and command.starts_runs:
            _add_running(own)
        if name == "report":
            exhibit_commands.add_arguments(own)
        if name == "plan":
            own.add_argument(
                "--cluster", metavar="4n8g", help="a file of configs/cluster/ (default: the smallest that fits)"
            )
            own.add_argument("--gpu", default="h100", metavar="h100", help="a100, h100 (default), h200 or b200")
        if name not in CLUSTER_COMMANDS and name not in TOOLS:
            own.add_argument(
                "--out",
                type=Path,
                metavar="DIR",
                help=f"folder of all runs (default: runs{'' if name == 'list' else '; with --smoke runs/smoke'})",
            )
        own.add_argument("--json", action="store_true", help="print JSON on standard output")
        own.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def _overview(program: str, target: str, commands: Mapping[str, Command | Tool]) -> str:
    """The commands by what they are for, a line to copy for each, and the exit codes."""
    parts = [
        f"{title}:\n{listing([(name, commands[name].summary) for name in names if name in commands])}"
        for title, names in GROUPS.items()
        if any(name in commands for name in names)
    ]
    grouped = [name for names in GROUPS.values() for name in names if name in commands]
    lines = [f"  {program} {commands[name].example.format(target)}" for name in grouped]
    return "\n\n".join([*parts, "\n".join(["examples:", *lines]), EXIT_CODES])


def _add_cluster_arguments(command: str, parser: argparse.ArgumentParser, *, in_script: bool) -> None:
    from gdpo_nemo.suite import cluster_commands

    cluster_commands.add_arguments(command, parser, in_script)


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scale", default="embedded", help="embedded: this machine (default); paper: a cluster (plan); see gdpo list"
    )
    parser.add_argument(
        "--model", help="tiny (default), smollm2, a local Hugging Face directory, or owner/name; see configs/model/"
    )
    selecting.add_arguments(parser)
    parser.add_argument(
        "--smoke", action="store_true", help="a few tiny steps of every stage; the numbers mean nothing"
    )


def _add_running(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sweep",
        action="store_true",
        help="also the arms beyond the default ones, such as the weights of the length reward in math_length; the "
        "same as --arms all",
    )
    parser.add_argument("--jobs", type=count, metavar="N", help="runs at once (default: as many as the cores carry)")
    parser.add_argument(
        "--track", metavar="A,B", help="mirror the metrics in tensorboard or wandb, under each run's logs/"
    )
    parser.add_argument("--fresh", action="store_true", help="remove what these runs have so far, and start them again")
    parser.add_argument(
        "overrides", nargs="*", default=[], metavar="key.sub=value", help="change the configuration of all arms"
    )
