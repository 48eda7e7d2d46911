"""A whole experiment on Slurm: every run, then its export, its evaluations and the report, and what became of them.

    training of each arm and seed  ->  export  ->  evaluations  ->  report
    the base model                             ->  evaluations  ->

Each arrow is a dependency of Slurm (afterok). ``jobs.json`` at the top of the runs keeps job ids and states, so that
the same command goes on: what is finished is not submitted again, what waits or runs is left alone, what failed is
handed in once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gdpo_nemo.checkpoints.export import exported_step
from gdpo_nemo.errors import UsageError
from gdpo_nemo.files import read_json, write_json, write_text
from gdpo_nemo.launch import slurm
from gdpo_nemo.launch.job import TrainingJob, slug
from gdpo_nemo.launch.slurm import SlurmOptions
from gdpo_nemo.run_tree import RunTree

JOBS = "jobs.json"
WAITING = ("PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "REQUEUED", "SUSPENDED", "RESIZING")
COMPLETED = "COMPLETED"
SUBMITTED, FINISHED, UNKNOWN = "SUBMITTED", "FINISHED", "UNKNOWN"
OPEN = (*WAITING, SUBMITTED)


@dataclass(frozen=True)
class Evaluation:
    """An evaluation of one checkpoint, as a template.

    Attributes:
        name: as in file names.
        command: the program and its arguments; ``{checkpoint}`` becomes the exported folder (or the base model's name
            or folder), ``{out}`` the folder for results: ``eval`` of the run or of the base model.
        results: the files in ``{out}`` that the program writes last, one per benchmark.
        gpus: of one node.
    """

    name: str
    command: tuple[str, ...]
    results: tuple[str, ...] = ()
    gpus: int = 8

    def arguments(self, checkpoint: str, out: Path) -> list[str]:
        """The command for one checkpoint."""
        return [part.replace("{checkpoint}", checkpoint).replace("{out}", str(out)) for part in self.command]


@dataclass(frozen=True)
class Step:
    """One job of the matrix.

    Attributes:
        name: as in ``jobs.json``.
        kind: ``train``, ``export``, ``eval`` or ``report``.
        script: where its batch file goes.
        text: of the batch file.
        after: names of the steps that must have succeeded.
        finished: whether its result is there.
    """

    name: str
    kind: str
    script: Path
    text: str
    after: tuple[str, ...] = ()
    finished: bool = False


class Scheduler(Protocol):
    """what is asked of ``scheduler.Slurm``."""

    def submit(self, script: Path, after: Sequence[str] = ()) -> str:
        """Hand a job in; its id."""

    def states(self, ids: Sequence[str]) -> Mapping[str, str]:
        """What is known of some jobs."""


def steps(
    jobs: Sequence[TrainingJob],
    tree: RunTree,
    options: SlurmOptions,
    evaluations: Sequence[Evaluation] = (),
    report: Sequence[str] = (),
) -> list[Step]:
    """All jobs of an experiment, each after those that it waits for.

    Args:
        jobs: runs that share a model.
        tree: where they lie.
        options: of the cluster.
        evaluations: of every run's last checkpoint, and of the model that the runs start from.
        report: the command that makes the report, run in the container; empty: none.
    """
    root = tree.path.resolve()
    planned: list[Step] = []
    if evaluations:
        planned += _base(jobs, root, options, evaluations)
    for job in jobs:
        planned += _run(job, options, evaluations)
    if report:
        last = tuple(step.name for step in planned if step.kind == ("eval" if evaluations else "export"))
        folder = root / "launch"
        text = slurm.render_step(slug(f"{jobs[0].experiment} report"), report, folder, [root], options, gpus=0)
        planned.append(Step("report", "report", folder / "report.sbatch", text, last))
    return planned


def _run(job: TrainingJob, options: SlurmOptions, evaluations: Sequence[Evaluation]) -> Iterator[Step]:
    train = Step(
        f"{job.name} train",
        "train",
        job.folder / "train.sbatch",
        slurm.render_training(job, options),
        finished=job.is_trained,
    )
    yield train
    target = job.export_path
    export = ["uv", "run", "python", "-m", "gdpo_nemo.cli", "checkpoint", "export", f"{job.dir.path}@latest"]
    needs = [job.dir.path, *job.inputs]
    gpus = job.gpus_per_node
    export_step = Step(
        f"{job.name} export",
        "export",
        job.folder / "export.sbatch",
        slurm.render_step(
            f"{job.slug}-export", [*export, "--replace", "--to", str(target)], job.folder, needs, options, gpus=gpus
        ),
        (train.name,),
        finished=train.finished and exported_step(target) == job.step > 0,
    )
    yield export_step
    for evaluation in evaluations:
        out = job.dir.path / "eval"
        yield _evaluation(
            job.name, job.slug, job.folder, evaluation, str(target), out, needs, options, after=export_step
        )


def _base(
    jobs: Sequence[TrainingJob], root: Path, options: SlurmOptions, evaluations: Sequence[Evaluation]
) -> Iterator[Step]:
    """Evaluations of the model before any training: a row of its own in the tables."""
    models = dict.fromkeys(job.model for job in jobs)
    if len(models) > 1:
        raise UsageError(f"the runs start from several models ({', '.join(models)}); launch one at a time")
    [model] = models
    folder, needs = root / "base" / "launch", [root, *jobs[0].inputs]
    for evaluation in evaluations:
        out = root / "base" / "eval"
        name = slug(f"{jobs[0].experiment} base")
        yield _evaluation("base", name, folder, evaluation, model, out, needs, options)


def _evaluation(
    name: str,
    job_name: str,
    folder: Path,
    evaluation: Evaluation,
    checkpoint: str,
    out: Path,
    needs: Sequence[Path],
    options: SlurmOptions,
    after: Step | None = None,
) -> Step:
    arguments = evaluation.arguments(checkpoint, out)
    title = f"{job_name}-{slug(evaluation.name)}"
    return Step(
        f"{name} {evaluation.name}",
        "eval",
        folder / f"eval-{evaluation.name}.sbatch",
        slurm.render_step(title, arguments, folder, needs, options, gpus=evaluation.gpus),
        (after.name,) if after else (),
        finished=(after is None or after.finished) and all((out / result).exists() for result in evaluation.results),
    )


def write(planned: Sequence[Step]) -> None:
    """Write the batch files."""
    for step in planned:
        (step.script.parent / "logs").mkdir(parents=True, exist_ok=True)
        write_text(step.script, step.text)


def submit(planned: Sequence[Step], tree: RunTree, scheduler: Scheduler) -> list[dict[str, Any]]:
    """Hand in what is neither finished nor under way; rows as in ``jobs.json``.

    The file is written after every job, so that a failure half way leaves nothing unknown.
    """
    rows, handed_in = refreshed(tree, scheduler), 0
    for step in planned:
        known = rows.get(step.name)
        if step.finished or (known and _is_over(step, known["state"], handed_in)):
            rows[step.name] = _row(step, known and known["id"], FINISHED)
        elif known is None or known["state"] not in OPEN:
            waits_for = [str(rows[name]["id"]) for name in step.after if rows[name]["state"] in OPEN]
            rows[step.name] = _row(step, scheduler.submit(step.script, waits_for), SUBMITTED)
            handed_in += 1
        write_json(tree.path / JOBS, {"scheduler": "slurm", "jobs": rows})
    return [{"name": step.name} | rows[step.name] for step in planned]


def _is_over(step: Step, state: str, handed_in: int) -> bool:
    """Whether a step needs no other job although its result does not say so.

    Training may end before ``grpo.max_num_steps``, when the epochs are over; a report is as new as what it reports.
    """
    return state in (COMPLETED, FINISHED) and (step.kind == "train" or (step.kind == "report" and not handed_in))


def refreshed(tree: RunTree, scheduler: Scheduler | None) -> dict[str, dict[str, Any]]:
    """Rows of ``jobs.json`` by name, with the scheduler's newest word; without a scheduler as they stand."""
    rows: dict[str, dict[str, Any]] = (read_json(tree.path / JOBS) or {}).get("jobs", {})
    open_ids = [row["id"] for row in rows.values() if row["id"] and row["state"] in (*OPEN, UNKNOWN)]
    found = scheduler.states(open_ids) if scheduler and open_ids else {}
    for row in rows.values():
        if scheduler and row["id"] in open_ids:
            row["state"] = found.get(row["id"], UNKNOWN)
    return rows


def _row(step: Step, number: Any, state: str) -> dict[str, Any]:
    return {"kind": step.kind, "id": number, "state": state, "after": list(step.after), "script": str(step.script)}


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many steps are in which state."""
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["state"]] = counts.get(row["state"], 0) + 1
    return ", ".join(f"{number} {state.lower()}" for state, number in counts.items())
