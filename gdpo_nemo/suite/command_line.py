"""The command line of ``gdpo`` and of every script in ``repro/``: words, answers, exit codes."""

from __future__ import annotations

import argparse
import difflib
import importlib
import json
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from gdpo_nemo import tracking
from gdpo_nemo.arguments import exit_code
from gdpo_nemo.errors import UnknownNameError, UsageError
from gdpo_nemo.suite import evals, exhibit_commands, planning, programs, reporting, running, selecting, status
from gdpo_nemo.suite.answer import Answer
from gdpo_nemo.suite.commands import CLUSTER_COMMANDS, COMMANDS, TOOLS
from gdpo_nemo.suite.experiment import Experiment
from gdpo_nemo.suite.grid import Selection
from gdpo_nemo.suite.parsing import build_parser


def main(experiment: Experiment | None = None) -> NoReturn:
    """Run the command line of this process: of one experiment (in its script), or of ``gdpo``."""
    sys.exit(execute(sys.argv[1:], experiment))


def execute(arguments: Sequence[str], experiment: Experiment | None = None) -> int:
    """Carry out one command line and return its exit code."""
    return exit_code(lambda: _carry_out(arguments, experiment), arguments)


def _carry_out(arguments: Sequence[str], experiment: Experiment | None) -> int:
    try:
        if arguments[:1] == [evals.COMMAND] and experiment is None:
            return evals.run(arguments[1:])
        answer, as_json = _answer(list(arguments), experiment)
        print(json.dumps(answer.data, indent=2) if as_json else answer.text, flush=True)
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return answer.exit_code


def _answer(arguments: list[str], experiment: Experiment | None) -> tuple[Answer, bool]:
    program = f"python {sys.argv[0]}" if experiment else "gdpo"
    arguments = _as_launch(_with_command(arguments, experiment))
    options, rest = build_parser(program, experiment, arguments[0]).parse_known_args(arguments)
    overrides = (*getattr(options, "overrides", ()), *rest)
    for override in overrides:
        if override.startswith("-"):
            known = [name for name in _option_names(options) if name.startswith("--")]
            raise UnknownNameError(f"option of {options.command}", override.split("=")[0], known)
        if "=" not in override or not hasattr(options, "overrides"):
            raise UsageError(f"{options.command} does not take {override!r}; see {program} {options.command} --help")
    if options.command in ("report", "check"):
        about_paper = exhibit_commands.answer(options, experiment, _target(options, experiment))
        if about_paper is not None:
            return about_paper, options.json
    if options.command in CLUSTER_COMMANDS or _on_cluster(options, experiment):
        return _cluster_answer(experiment, options, overrides), options.json
    if options.command in TOOLS:
        return importlib.import_module(TOOLS[options.command].module).answer(options), options.json
    if options.command == "list":
        return status.list_programs(options.out or Path("runs")), options.json
    found = replace(programs.find(sys.argv[0]), experiment=experiment) if experiment else programs.find(options.target)
    selection = _selection(found, options, overrides)
    tracking.parse(getattr(options, "track", None))
    again = f"{program} {shlex.join(['run', *(part for part in arguments[1:] if part != '--fresh')])}"
    return _dispatch(selection, options, again), options.json


def _dispatch(selection: Selection, options: argparse.Namespace, again: str) -> Answer:
    match options.command:
        case "plan":
            return planning.plan(selection, options.jobs, options.fresh, again)
        case "run":
            return running.run(selection, options.jobs, options.fresh, again, tracking.parse(options.track))
        case "status":
            return status.status(selection)
        case "report":
            return reporting.report(selection, page=options.html, learning_rates=options.learning_rates)
        case _:
            return reporting.check(selection)


def _on_cluster(options: argparse.Namespace, experiment: Experiment | None) -> bool:
    """Whether plan or status is about a cluster: the paper's scale, or a file with sections of NeMo RL.

    Raises:
        UsageError: such runs do not start, or report, that way.
    """
    from gdpo_nemo.suite.cluster_targets import is_cluster_target

    if options.command not in COMMANDS or not is_cluster_target(_target(options, experiment), options.scale):
        return False
    if options.command in ("plan", "status"):
        return True
    instead = {"run": "run --scale paper --launch slurm, kuberay or local"}.get(options.command, "status --scale paper")
    raise UsageError(f"{options.command} is for this machine; runs on a cluster have {instead}")


def _cluster_answer(experiment: Experiment | None, options: argparse.Namespace, overrides: Sequence[str]) -> Answer:
    from gdpo_nemo.suite import cluster_commands, cluster_planning
    from gdpo_nemo.suite.cluster_targets import SCALE, Request

    request = Request(
        _target(options, experiment),
        scale=getattr(options, "scale", SCALE),
        model=getattr(options, "model", None),
        cluster=getattr(options, "cluster", None),
        gpu=getattr(options, "gpu", "h100"),
        arms=selecting.arms(options),
        seeds=selecting.seeds(options),
        overrides=tuple(overrides),
    )
    if options.command == "plan":
        return cluster_planning.plan(request)
    return cluster_commands.DO[options.command](options, request)


def _target(options: argparse.Namespace, experiment: Experiment | None) -> str:
    return getattr(options, "target", None) or (sys.argv[0] if experiment else "")


def _selection(program: programs.Program, options: argparse.Namespace, overrides: Sequence[str]) -> Selection:
    if getattr(options, "sweep", False) and not program.experiment.sweep:
        raise UsageError(f"--sweep adds the arms beyond the default ones, and {program.experiment.name} has none")
    for override in overrides:
        if override.startswith("embedded.model.name="):
            raise UsageError(f"name the model with --model {override.split('=', 1)[1]}; it is part of the runs' paths")
    return selecting.selection(program, options, overrides=overrides)


def _with_command(arguments: list[str], experiment: Experiment | None) -> list[str]:
    """The arguments with a command in front; a script without one runs."""
    commands = [*COMMANDS, *CLUSTER_COMMANDS, *([] if experiment else ["list", *TOOLS, evals.COMMAND])]
    first = arguments[0] if arguments else ""
    if first in commands or first in ("-h", "--help", "--version"):
        return arguments
    if experiment and (not first or first.startswith("-") or "=" in first):
        return ["run", *arguments]
    if not first or first.startswith("-"):
        raise UsageError(f"name a command: {', '.join(commands)}; gdpo --help shows examples")
    if experiment and first in ("list", *TOOLS, evals.COMMAND):
        raise UsageError(f"{first} is a command of gdpo, not of a script: gdpo {first} --help")
    meant = [] if experiment else difflib.get_close_matches(first, [*commands, *programs.targets()], n=1)
    if meant and meant[0] not in commands:
        raise UsageError(f"{first!r} is no command; did you mean `gdpo report {meant[0]}`?")
    raise UnknownNameError("command", first, commands)


def _as_launch(arguments: list[str]) -> list[str]:
    """``run --scale paper --launch slurm`` is ``launch --to slurm``."""
    words = [
        word for argument in arguments for word in (argument.split("=", 1) if "--launch=" in argument else [argument])
    ]
    if words[0] != "run" or "--launch" not in words:
        return arguments
    words = ["launch", *("--to" if word == "--launch" else word for word in words[1:])]
    if "--scale" in words:
        at = words.index("--scale")
        words[at : at + 2] = []
    return [word for word in words if not word.startswith("--scale=")]


def _option_names(options: argparse.Namespace) -> list[str]:
    return [f"--{name}" for name in vars(options) if name not in ("command", "target", "overrides")]
