"""``gdpo eval NAME ...``: the programs of ``eval/`` without a checkout. Everything after the name is theirs."""

from __future__ import annotations

import ast
import runpy
from collections.abc import Sequence
from pathlib import Path

from gdpo_nemo.errors import PrerequisiteError, UnknownNameError
from gdpo_nemo.suite.programs import programs_root
from gdpo_nemo.terminal import listing

COMMAND = "eval"


def scripts() -> dict[str, Path]:
    """Every program by name.

    Raises:
        PrerequisiteError: there is none.
    """
    folder = programs_root() / "eval"
    found = {script.stem: script for script in sorted(folder.glob("*.py"))}
    if not found:
        raise PrerequisiteError(f"no programs in {folder}; reinstall gdpo-nemo")
    return found


def run(arguments: Sequence[str]) -> int:
    """Carry one of the programs out; without a name, or with --help, list them.

    Raises:
        UnknownNameError: no program of that name.
    """
    found = scripts()
    if not arguments or arguments[0] in ("-h", "--help"):
        listed = listing([(name, _summary(script)) for name, script in found.items()])
        print(f"usage: gdpo eval NAME ...\n\n{listed}\n\ngdpo eval NAME --help shows what each takes")
        return 0
    name, *rest = arguments
    if name not in found:
        raise UnknownNameError("evaluation", name, found)
    program = runpy.run_path(str(found[name]))["PROGRAM"]  # executes the file
    from gdpo_nemo.evaluation.command_line import execute

    return execute(program, rest, f"gdpo {COMMAND} {name}")


def _summary(script: Path) -> str:
    return (ast.get_docstring(ast.parse(script.read_text("utf-8"))) or "").split("\n")[0]
