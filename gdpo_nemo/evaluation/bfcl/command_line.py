"""What is BFCL's own in the command line of ``gdpo eval bfcl``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from gdpo_nemo.arguments import Parser
from gdpo_nemo.evaluation.benchmark import Benchmark
from gdpo_nemo.evaluation.bfcl import environment
from gdpo_nemo.evaluation.bfcl.benchmark import Bfcl
from gdpo_nemo.evaluation.bfcl.checkers import Checkers
from gdpo_nemo.evaluation.bfcl.conversation import NativeStyle, ToolRLStyle
from gdpo_nemo.evaluation.bfcl.releases import RELEASES
from gdpo_nemo.evaluation.command_line import EvalProgram
from gdpo_nemo.evaluation.sampling import SamplingParams
from gdpo_nemo.prompts import toolrl
from gdpo_nemo.sandbox.isolation import AUTO, MODES

SAMPLING = SamplingParams(temperature=0.0, top_p=1.0, max_tokens=4096)


def _set_up(typed: str, arguments: Sequence[str]) -> int:
    parser = Parser(prog=f"{typed} setup", description="Build the environment of the leaderboard's checkers, once.")
    parser.add_argument("--version", choices=list(RELEASES), default="v3", help="(%(default)s)")
    parser.add_argument("--environment", type=Path, metavar="DIR", help="where (default: build/bfcl-VERSION)")
    parser.add_argument("--python", default=sys.executable, help="interpreter, 3.11 or 3.12 (default: this one)")
    options = parser.parse_args(arguments)
    release = RELEASES[options.version]
    folder = options.environment or environment.folder_of(release)
    environment.set_up(release, folder, options.python)
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


PROGRAM = EvalProgram(
    description="BFCL by the leaderboard's own checkers. `setup --version V` builds their environment.",
    benchmarks=_benchmarks,
    add_arguments=_add_arguments,
    params=SAMPLING,
    further={"setup": _set_up},
)
