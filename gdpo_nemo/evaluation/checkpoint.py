"""The folder in Hugging Face format that ``RUN@STEP`` stands for, of either backend."""

from __future__ import annotations

import re
from pathlib import Path

from gdpo_nemo.checkpoints import find
from gdpo_nemo.checkpoints.export import exported_step
from gdpo_nemo.checkpoints.steps import HUGGING_FACE, LATEST
from gdpo_nemo.errors import InputError, PrerequisiteError, RunDirError
from gdpo_nemo.run_dir import RunDir


def model_folder(name: str) -> tuple[Path, Path]:
    """The model's folder, and the run that it belongs to.

    Args:
        name: RUN is a run directory of either backend; STEP a number or ``latest`` (also when it is left out), of
            NeMo RL's also ``best``.

    Raises:
        InputError: STEP is something else.
        RunDirError: there is no such checkpoint.
        PrerequisiteError: its weights are in another format; the message names the command that exports them.
    """
    run, _, wanted = name.rpartition("@") if "@" in name and not Path(name).is_dir() else (name, "", LATEST)
    embedded = RunDir(Path(run)).checkpoints()
    if embedded:
        return _embedded(run, wanted, embedded), Path(run)
    checkpoint = find(name)
    folder = Path(run)
    export = folder / "export"
    if exported_step(export) == checkpoint.step:
        return export, folder
    form, source = checkpoint.source
    if form != HUGGING_FACE:
        raise PrerequisiteError(
            f"{checkpoint.path} holds weights in {form} format; export them first:\n"
            f"  gdpo checkpoint export {run}@{checkpoint.step} --to {export}"
        )
    return source, folder


def _embedded(run: str, wanted: str, found: list[tuple[int, Path]]) -> Path:
    if wanted in ("", LATEST):
        return found[-1][1]
    if not re.fullmatch(r"\d+", wanted):
        raise InputError(f"step {wanted!r} of {run} is neither a number nor {LATEST}")
    steps = dict(found)
    if int(wanted) not in steps:
        raise RunDirError(f"{run} has no checkpoint of step {wanted}; it has {', '.join(map(str, steps))}")
    return steps[int(wanted)]
