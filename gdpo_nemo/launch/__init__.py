"""A run or a whole experiment becomes files that can be read, then a submission: Slurm, KubeRay or this machine.

job       one run: its resolved configuration, its own paths, seed and names
slurm     a batch file around NeMo RL's ray.sub
scheduler sbatch, squeue and sacct
kuberay   a RayJob manifest; kubectl
local     a command of this machine
matrix    model x arm x seed, then exports, evaluations and the report; jobs.json
options   an options dataclass as arguments of a command line
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gdpo_nemo.errors import UsageError
from gdpo_nemo.launch import kuberay, local, matrix, scheduler
from gdpo_nemo.launch.job import TrainingJob, training_job
from gdpo_nemo.launch.kuberay import KubeRayOptions
from gdpo_nemo.launch.local import LocalOptions
from gdpo_nemo.launch.matrix import Evaluation
from gdpo_nemo.launch.options import add_options, read_options
from gdpo_nemo.launch.scheduler import SubmissionError
from gdpo_nemo.launch.slurm import SlurmOptions
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.run_tree import RunTree

__all__ = [
    "TARGETS",
    "Evaluation",
    "KubeRayOptions",
    "Launched",
    "LocalOptions",
    "SlurmOptions",
    "SubmissionError",
    "TrainingJob",
    "add_options",
    "launch",
    "read_options",
    "states",
    "training_job",
]

TARGETS = {"slurm": SlurmOptions, "kuberay": KubeRayOptions, "local": LocalOptions}
"""What ``--to`` takes, and the options of each."""


@dataclass(frozen=True)
class Launched:
    """What was written and, without ``dry_run``, handed in.

    Attributes:
        target: a name in ``TARGETS``.
        files: batch files, manifests or scripts.
        jobs: one row per step (``matrix.submit``) or run; empty after a dry run.
        command: for ``local``: what ``local.start`` takes, to become the training process.
    """

    target: str
    files: tuple[Path, ...]
    jobs: tuple[Mapping[str, Any], ...] = ()
    command: tuple[str, ...] = field(default=())

    @property
    def data(self) -> dict[str, Any]:
        """As JSON-able values."""
        return {"target": self.target, "files": [str(file) for file in self.files], "jobs": list(self.jobs)}

    @property
    def text(self) -> str:
        """For a person."""
        written = "\n".join(f"  {file}" for file in self.files)
        if self.command:
            return f"written:\n{written}"
        if not self.jobs:
            return f"written, nothing was submitted:\n{written}"
        lines = [" ".join(["  " + row["name"], row["state"].lower(), row["id"] or ""]).rstrip() for row in self.jobs]
        return "\n".join([*lines, matrix.summary(self.jobs)])


def launch(
    jobs: Sequence[TrainingJob],
    options: SlurmOptions | KubeRayOptions | LocalOptions,
    tree: RunTree,
    *,
    evaluations: Sequence[Evaluation] = (),
    report: Sequence[str] = (),
    dry_run: bool = False,
    provenance: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Launched:
    """Write the files of some runs and hand them in.

    Args:
        jobs: runs of one experiment with one model.
        options: of the target; its type says which.
        tree: where the runs lie.
        evaluations: after each export, and of the base model (Slurm only).
        report: command of the report, last of all (Slurm only).
        dry_run: write the files only; no directory is claimed.
        provenance: what claimed directories keep of this command.
        environment: for ``local``: variables of the training process (``Host.environment()``).

    Returns:
        What was written and submitted. For ``local`` nothing runs yet: pass ``command`` to ``local.start``.

    Raises:
        UsageError: options are missing or do not fit the runs.
        RunDirError: a directory was made for another configuration, or holds another run's checkpoints.
        PrerequisiteError: sbatch or kubectl is missing.
        SubmissionError: the scheduler refused.
    """
    for job in jobs:
        job.check()
    if isinstance(options, SlurmOptions):
        return _slurm(jobs, options, tree, evaluations, report, dry_run, provenance or {})
    if isinstance(options, KubeRayOptions):
        return _kuberay(jobs, options, tree, dry_run, provenance or {})
    return _local(jobs, options, dry_run, provenance or {}, environment or os.environ)


def _slurm(
    jobs: Sequence[TrainingJob],
    options: SlurmOptions,
    tree: RunTree,
    evaluations: Sequence[Evaluation],
    report: Sequence[str],
    dry_run: bool,
    provenance: Mapping[str, Any],
) -> Launched:
    planned = matrix.steps(jobs, tree, options, evaluations, report)
    slurm = None if dry_run else scheduler.Slurm()
    with tree.lock():
        for job in jobs:
            job.write_config()
        matrix.write(planned)
        files = tuple(step.script for step in planned)
        if slurm is None:
            return Launched("slurm", files)
        _claim(jobs, provenance)
        return Launched("slurm", files, tuple(matrix.submit(planned, tree, slurm)))


def _kuberay(
    jobs: Sequence[TrainingJob], options: KubeRayOptions, tree: RunTree, dry_run: bool, provenance: Mapping[str, Any]
) -> Launched:
    rendered = [kuberay.render(job, options) for job in jobs]
    if not dry_run:
        kuberay.check_client()
    with tree.lock():
        files = tuple(job.write("rayjob.yaml", text) for job, text in zip(jobs, rendered, strict=True))
        if dry_run:
            return Launched("kuberay", files)
        _claim(jobs, provenance)
        rows = [
            {
                "name": job.name,
                "kind": "train",
                "id": kuberay.object_name(job),
                "state": "SUBMITTED",
                "script": str(file),
            }
            | {"answer": kuberay.submit(job, file, options)}
            for job, file in zip(jobs, files, strict=True)
        ]
        return Launched("kuberay", files, tuple(rows))


def _local(
    jobs: Sequence[TrainingJob],
    options: LocalOptions,
    dry_run: bool,
    provenance: Mapping[str, Any],
    environment: Mapping[str, str],
) -> Launched:
    if len(jobs) != 1:
        raise UsageError(f"--to local starts one run, not {len(jobs)}: choose with --arms and --seeds")
    [job] = jobs
    file = job.write("train.sh", local.render(job, options, environment))
    if dry_run:
        return Launched("local", (file,))
    _claim(jobs, provenance)
    return Launched("local", (file,), command=("bash", str(file)))


def _claim(jobs: Sequence[TrainingJob], provenance: Mapping[str, Any]) -> None:
    for job in jobs:
        RunDir.claim(job.dir.path, job.settings, {**provenance, "seed": job.seed})


def states(tree: RunTree, *, ask: bool = True) -> list[dict[str, Any]]:
    """Rows of ``jobs.json`` with the scheduler's newest word, for ``status``. Starts and writes nothing.

    Args:
        tree: where the runs lie.
        ask: ask Slurm, where it is there; False: as the file stands.
    """
    slurm = scheduler.Slurm() if ask and scheduler.is_here() else None
    return [{"name": name} | row for name, row in matrix.refreshed(tree, slurm).items()]
