"""The command line of ``eval/bfcl.py``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from gdpo_nemo.errors import GdpoError
from gdpo_nemo.evaluation import command_line
from gdpo_nemo.evaluation.benchmark import Benchmark
from gdpo_nemo.evaluation.bfcl import environment
from gdpo_nemo.evaluation.bfcl.benchmark import Bfcl
from gdpo_nemo.evaluation.bfcl.checkers import Checkers
from gdpo_nemo.evaluation.bfcl.conversation import NativeStyle, ToolRLStyle
from gdpo_nemo.evaluation.bfcl.releases import RELEASES
from gdpo_nemo.evaluation.sampling import SamplingParams
from gdpo_nemo.prompts import toolrl
from gdpo_nemo.sandbox.isolation import AUTO, MODES

SAMPLING = SamplingParams(temperature=0.0, top_p=1.0, max_tokens=4096)


def main() -> NoReturn:
    """Run the command line of this process."""
    sys.exit(execute(sys.argv[1:]))


def execute(arguments: Sequence[str]) -> int:
    """Carry out one command line and return its exit code."""
    if arguments[:1] == ["setup"]:
        return _set_up(arguments[1:])
    return command_line.execute(
        command_line.EvalProgram(
            description="BFCL by the leaderboard's own checkers. `setup --version V` builds their environment.",
            benchmarks=_benchmarks,
            add_arguments=_add_arguments,
            params=SAMPLING,
        ),
        arguments,
    )


def _set_up(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python eval/bfcl.py setup", allow_abbrev=False)
    parser.add_argument("--version", choices=list(RELEASES), default="v3", help="(%(default)s)")
    parser.add_argument("--environment", type=Path, metavar="DIR", help="where (default: build/bfcl-VERSION)")
    parser.add_argument("--python", default=sys.executable, help="interpreter, 3.11 or 3.12 (default: this one)")
    options = parser.parse_args(arguments)
    release = RELEASES[options.version]
    folder = options.environment or environment.folder_of(release)
    try:
        environment.set_up(release, folder, options.python)
    except GdpoError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"{release.requirement} is in {folder}")
    return 0


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("BFCL")
    group.add_argument("--version", choices=list(RELEASES), default="v3", help="of the leaderboard (%(default)s)")
    group.add_argument("--categories", nargs="+", metavar="NAME", help="or live, non_live, multi_turn, single_turn")
    group.add_argument("--prompt", choices=["toolrl", "native"], default="toolrl", help="(%(default)s)")
    group.add_argument(
        "--deviations",
        nargs="*",
        metavar="NAME",
        default=sorted(toolrl.HANDLER),
        help="what ToolRL's handler does otherwise than the prompts of training, to follow; properties_only alone: as "
        "trained (default: all, as released). "
        + "; ".join(f"{name}: {words}" for name, words in toolrl.DEVIATIONS.items()),
    )
    group.add_argument("--environment", type=Path, metavar="DIR", help="of the checkers (default: build/bfcl-VERSION)")
    group.add_argument(
        "--isolation", choices=MODES, default=AUTO, help="of the checkers, docs/sandbox.md (%(default)s)"
    )


def _benchmarks(options: argparse.Namespace) -> list[Benchmark]:
    release = RELEASES[options.version]
    interpreter = environment.find(release, options.environment or environment.folder_of(release))
    native = options.prompt == "native"
    style = NativeStyle() if native else ToolRLStyle(options.deviations)
    checkers = Checkers(release, interpreter, mode=options.isolation)
    return [Bfcl(checkers, style, release.chosen(options.categories))]
