"""``gdpo eval NAME ...``: the programs of ``eval/`` without a checkout. Everything after the name is theirs."""

from __future__ import annotations

import ast
import runpy
import sys
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
    """Become one of the programs; without a name, or with --help, list them.

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
    before, sys.argv = sys.argv, [str(found[name]), *rest]
    try:
        runpy.run_path(str(found[name]), run_name="__main__")
    except SystemExit as stopped:
        return stopped.code if isinstance(stopped.code, int) else 0 if stopped.code is None else 1
    finally:
        sys.argv = before
    return 0


def _summary(script: Path) -> str:
    return (ast.get_docstring(ast.parse(script.read_text("utf-8"))) or "").split("\n")[0]
