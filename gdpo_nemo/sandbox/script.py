"""Runs a script of your own in the sandbox: JSON in, JSON out, no network, no writes, another interpreter if you like.

For code that is trusted but heavy or careless: a scorer that evaluates model output, a package that pins its own
dependencies in another environment. The script reads one JSON value from standard input and prints one to standard
output; it may read the interpreter, its packages and the folders it is given, and write to its scratch folder.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gdpo_nemo.errors import InputError
from gdpo_nemo.sandbox import isolation
from gdpo_nemo.sandbox.jobs import ERROR, OK, Job, Limits, SandboxError
from gdpo_nemo.sandbox.keeper import Keeper
from gdpo_nemo.sandbox.worker import run_job

SCRIPT_LIMITS: Final = Limits(cpu_s=120.0, memory_mb=4096, output_mb=256.0, files=256, budget_s=120.0)
_BECOME: Final = """
import os
with open("script.py", "w", encoding="utf-8") as handle:
    handle.write({source!r})
os.dup2({report!r}, 2)
os.environ["PYTHONPATH"] = {paths!r}
os.execv({python!r}, [{python!r}, "-s", "script.py"])
"""


@dataclass(frozen=True, slots=True)
class ScriptResult:
    """What a script gave.

    Attributes:
        status: ok, error, timeout, memory or output_limit.
        value: the JSON value it printed; None unless the status is ok.
        stdout: what it printed.
        stderr: the end of what it wrote to standard error.
        cpu_s: CPU seconds.
        wall_s: wall-clock seconds.
    """

    status: str
    value: Any
    stdout: str
    stderr: str
    cpu_s: float
    wall_s: float


def run_script(
    script: str | Path,
    stdin: Any,
    *,
    python: str | None = None,
    paths: Sequence[str | Path] = (),
    limits: Limits = SCRIPT_LIMITS,
    mode: str = isolation.AUTO,
) -> ScriptResult:
    """Run a trusted script on one JSON value.

    Args:
        script: source text, or the path of a file.
        stdin: the value, anything that JSON has.
        python: the interpreter, for example of another virtual environment; this one by default.
        paths: folders that it may read and import from.
        limits: what it may use; processes cannot be started where ``mode`` has no namespaces.
        mode: the isolation, one of ``isolation.MODES``.

    Raises:
        InputError: no such interpreter.
        SandboxError: the isolation does not hold here, or failed.
    """
    python = python or sys.executable
    if not Path(python).is_file():
        raise InputError(f"there is no interpreter {python}; expected the path of a python")
    source = script.read_text("utf-8") if isinstance(script, Path) else script
    folders = [str(Path(path).resolve()) for path in paths]
    program = _BECOME.format(
        source=source, report=limits.files - 1, paths=":".join(folders), python=str(Path(python).absolute())
    )
    seen = (*folders, *isolation.paths_of(python))
    _, keeper = isolation.start(
        mode, lambda layers: Keeper(layers, imports=(), extra_paths=tuple(seen), allow_exec=True)
    )
    try:
        job = Job(program, (json.dumps(stdin),), limits=limits, prelude=False)
        result = run_job(job, lambda *files: keeper.run(job, *files))
    except OSError as error:
        raise SandboxError(f"the sandbox failed on a script: {error}") from error
    finally:
        keeper.close()
    if result.failure is not None:
        raise SandboxError(f"the sandbox failed on a script: {result.failure}")
    (run,) = result.runs
    stdout, status, value = run.stdout.decode("utf-8", "replace"), run.status, None
    stderr = run.report.decode("utf-8", "replace")
    if status == OK:
        try:
            value = json.loads(stdout)
        except ValueError as error:
            status, stderr = ERROR, f"{stderr}what it printed is not one JSON value: {error}"
    return ScriptResult(status, value, stdout, stderr, run.cpu_s, run.wall_s)
