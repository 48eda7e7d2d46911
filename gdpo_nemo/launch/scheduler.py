"""Slurm's own commands: hand jobs in, ask what became of them."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from gdpo_nemo.errors import GdpoError, PrerequisiteError


class SubmissionError(GdpoError, RuntimeError):
    """The scheduler did not take a job; the message holds its words."""


def is_here() -> bool:
    """Whether Slurm's commands can be called."""
    return shutil.which("sbatch") is not None


class Slurm:
    """Slurm's own commands."""

    name = "slurm"

    def __init__(self) -> None:
        if not is_here():
            raise PrerequisiteError(
                "sbatch was not found: run this on a login node of a Slurm cluster; --dry-run writes the files anywhere"
            )

    def submit(self, script: Path, after: Sequence[str] = ()) -> str:
        """Hand a batch file in, to start when the jobs ``after`` have succeeded; its job id.

        Raises:
            SubmissionError: sbatch refused it.
        """
        waiting = [f"--dependency=afterok:{':'.join(after)}", "--kill-on-invalid-dep=yes"] if after else []
        return _run(["sbatch", "--parsable", *waiting, str(script)]).strip().split(";")[0]

    def states(self, ids: Sequence[str]) -> Mapping[str, str]:
        """Slurm's word for each job that it still knows, such as PENDING, RUNNING, COMPLETED or FAILED."""
        if not ids:
            return {}
        queued = _pairs(_run(["squeue", "--noheader", "--me", "--format=%i|%T"]))
        known = {number: state for number, state in queued.items() if number in ids}
        rest = [number for number in ids if number not in known]
        if rest and shutil.which("sacct"):
            known |= _pairs(_run(["sacct", "-n", "-P", "-X", "-j", ",".join(rest), "-o", "JobIDRaw,State"]))
        return known


def _pairs(text: str) -> dict[str, str]:
    """Lines ``id|STATE by someone`` as id -> STATE."""
    lines = (line.split("|") for line in text.splitlines() if "|" in line)
    return {number: state.split()[0] for number, state in lines if state}


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SubmissionError(
            f"{shlex.join(command)} ended with code {done.returncode}: {done.stderr.strip() or done.stdout.strip()}"
        )
    return done.stdout
