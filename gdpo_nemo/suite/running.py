"""``run``: warm-up, then arms x seeds in processes of their own, then the report."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gdpo_nemo.errors import GdpoError, PrerequisiteError, RunDirError
from gdpo_nemo.provenance import collect
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.suite.answer import Answer, shortened
from gdpo_nemo.suite.experiment import EMBEDDED
from gdpo_nemo.suite.grid import Grid, Run, Selection, resolve
from gdpo_nemo.suite.planning import INSTALL, missing_modules, side_by_side
from gdpo_nemo.suite.programs import programs_root
from gdpo_nemo.suite.progress import Progress
from gdpo_nemo.suite.reporting import report
from gdpo_nemo.suite.scheduler import Interrupted, Job, run_jobs
from gdpo_nemo.suite.selecting import MODEL
from gdpo_nemo.suite.stored import damage
from gdpo_nemo.terminal import commands_to_copy

ORPHANS_S = 10.0
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def run(selection: Selection, jobs: int | None, fresh: bool, again: str, track: Sequence[str] = ()) -> Answer:
    """Do what is not finished yet, then report.

    Args:
        selection: which runs.
        jobs: how many at once; None for what the cores carry.
        fresh: remove these runs first.
        again: the command that goes on after an interruption.
        track: trackers that mirror the metrics, see ``gdpo_nemo.tracking``.

    Raises:
        GdpoError: something is wrong before anything is computed.
        Interrupted: a signal asked to stop.
    """
    from gdpo_nemo.method import own_code

    grid = resolve(selection)
    grid.check(selection.tree, fresh)
    missing = missing_modules()
    if missing:
        raise PrerequisiteError(f"a run needs {', '.join(missing)}; install with: {INSTALL}")
    with selection.tree.lock():
        _wait_for_orphans([grid.base, *grid.runs])
        if fresh:
            _clear(selection, grid)
        damaged = grid.damaged()
        for name, text in damaged.items():
            say(f"{name} is left out: {text}")
        sound = replace(grid, runs=tuple(each for each in grid.runs if each.name not in damaged))
        gdpo = grid.base.config.gdpo
        data = gdpo.data.model_dump(mode="json") if gdpo.data else {}
        command = [Path(sys.argv[0]).name, *sys.argv[1:]]
        provenance = collect(command, own_code(gdpo), task=gdpo.task, data=data)
        for each in (sound.base, *sound.runs):
            RunDir.claim(each.dir.path, each.settings, provenance | {"seed": each.config.seed})
        finished = [each for each in sound.runs if each.dir.state() == "finished"]
        if finished:
            say(f"{len(finished)} of {len(grid.runs)} runs already finished, reused")
        try:
            if _perform([grid.base], 1, selection.tree.path, track, "trained once for this folder, for all its runs"):
                raise GdpoError(f"the warm-up failed, and every run starts from it. When mended, go on with: {again}")
            failed = _perform(sound.runs, side_by_side(grid, jobs), selection.tree.path, track)
        except Interrupted as error:
            raise Interrupted(f"{error}; nothing is lost. Go on with: {again}") from error
    if failed:
        names = shortened([each.name for each in failed])
        say(f"{len(failed)} of {len(grid.runs)} runs failed: {names}. When mended, go on with: {again}")
    answer = report(selection)
    further = {} if failed or damaged else next_commands(selection)
    data = {
        "reused": [each.name for each in finished],
        "failed": [each.name for each in failed],
        "damaged": damaged,
        "runs": [_told(each) for each in grid.runs],
        "report": answer.data,
        "next": list(further.values()),
    }
    text = "\n".join(filter(None, [answer.text, commands_to_copy(further)]))
    return Answer(text, data, exit_code=1 if failed or damaged else answer.exit_code)


def next_commands(selection: Selection) -> dict[str, str]:
    """What each shows -> a command about the runs of a selection, as the table shows them."""
    experiment, program = selection.experiment, selection.program
    named = experiment.name if program.script.parent == programs_root() / "repro" else str(program.script)
    model = () if selection.model == MODEL else ("--model", selection.model)
    out = () if selection.out == Path("runs") else ("--out", str(selection.out))
    where = ("--smoke",) if out == ("--out", "runs/smoke") and selection.smoke else out
    key = f"{EMBEDDED}:{selection.model_name}/{selection.arms[-1]}/{experiment.columns[0].name}"
    lines = {
        "as a page": ["report", named, "--html", *model, *where],
        "behind a number": ["explain", key, "--experiment", named, *out],
        "what more seeds would find": ["power", named, *model, *out],
    }
    if not experiment.claims:
        del lines["what more seeds would find"]
    return {shown: shlex.join([_gdpo(), *words, *selection.options]) for shown, words in lines.items()}


def _gdpo() -> str:
    """The program as it can be typed here: ``make demo`` makes an environment that nobody has activated."""
    beside = Path(sys.executable).with_name("gdpo")
    if shutil.which("gdpo") or not beside.exists():
        return "gdpo"
    return str(beside.relative_to(Path.cwd()) if beside.is_relative_to(Path.cwd()) else beside)


def say(text: str) -> None:
    """A line for the person, beside the answer on standard output."""
    print(text, file=sys.stderr, flush=True)


def _told(run: Run) -> dict[str, Any]:
    broken = damage(run.dir)
    state, result = ("unreadable", None) if broken else (run.dir.state(), run.dir.result())
    return {"name": run.name, "state": state, "path": str(run.dir.path), "result": result}


def _perform(runs: Sequence[Run], at_once: int, where: Path, track: Sequence[str], what: str = "") -> list[Run]:
    """Do what is unfinished of some runs; returns those that failed. ``what`` is said of them while they run."""
    pending = [each for each in runs if each.dir.state() != "finished"]
    if pending:
        say(f"{where}: {shortened([each.name for each in pending])}, {what or f'{min(at_once, len(pending))} at once'}")
        progress = Progress(pending, sys.stderr)
        try:
            run_jobs([_job(each, track) for each in pending], at_once, progress)
        finally:
            progress.close()
    return [each for each in pending if damage(each.dir) or each.dir.state() != "finished"]


def _job(run: Run, track: Sequence[str]) -> Job:
    environment = dict.fromkeys(THREAD_VARIABLES, str(run.config.embedded.threads)) | {
        "PYTHONUNBUFFERED": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    command = (sys.executable, "-m", "gdpo_nemo.backends.embedded", str(run.dir.path), *filter(None, [",".join(track)]))
    return Job(run.name, command, run.dir.log_path, environment)


def _clear(selection: Selection, grid: Grid) -> None:
    """Remove the selected runs, and the warm-up unless other runs started from it."""
    if selection.base_is_shared(grid.base.dir):
        say(f"the warm-up {grid.base.dir.path} is kept: other runs started from it")
    else:
        grid.base.dir.clear()
    for each in grid.runs:
        each.dir.clear()


def _wait_for_orphans(runs: Sequence[Run]) -> None:
    """Processes of a killed predecessor end by themselves within moments.

    Raises:
        RunDirError: one does not.
    """
    deadline = time.monotonic() + ORPHANS_S
    while busy := [run for run in runs if run.dir.is_locked()]:
        if time.monotonic() > deadline:
            raise RunDirError(f"{busy[0].dir.path} is in use by another process; wait for it or stop it")
        time.sleep(0.1)
