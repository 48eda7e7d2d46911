"""Slurm: one readable batch file per job around NeMo RL's own ``ray.sub``.

``ray.sub`` (v0.7.0 and main of August 2026) starts Ray in one container per node and runs ``COMMAND`` on the first. It
reads everything from variables of the environment and lies outside the container, so a batch file can set them and
start it. Environment variables of the driver, ``PYTHONPATH`` among them, reach all of NeMo RL's processes
(``init_ray`` passes them on), whatever virtual environment they run in.

A run goes on over any number of jobs: the same command resumes at the newest checkpoint. Training is told to save and
stop before the time limit (``checkpointing.checkpoint_must_save_by``), and the job then puts itself back into the queue
under the same id, so that jobs that wait for it keep waiting; it does so only when it has got further.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template

from gdpo_nemo.errors import PrerequisiteError, UsageError
from gdpo_nemo.launch.job import IN_IMAGE, MODULE, TrainingJob, check_package, missing_options, package_root
from gdpo_nemo.launch.options import option
from gdpo_nemo.provenance import SECRET_NAME

RAY_SUB = "ray.sub"
SIGNAL_S = 120
REQUIRED = {
    "account": "ACCOUNT: that your jobs are charged to (sacctmgr show associations user=$USER format=account)",
    "partition": "PARTITION: with GPUs (sinfo)",
    "time": "4:00:00: the partition's limit or less; a longer run goes on in further jobs",
    "container": "IMAGE: of NeMo RL v0.7.0, in a registry or a squashfs file (docker/Dockerfile adds this package)",
    "nemo_rl": "DIR: a NeMo RL checkout with ray.sub, on a file system that all nodes share (or set NEMO_RL_PATH)",
}
TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<parts>\d+(?::\d+){0,2})")
TEMPLATES = "templates"


@dataclass(frozen=True)
class SlurmOptions:
    """What a job needs beside the run's configuration."""

    account: str = option("", "account that the jobs are charged to")
    partition: str = option("", "partition with GPUs")
    time: str = option("", "time limit of one job, as Slurm writes it, e.g. 4:00:00", "LIMIT")
    container: str = option("", "image of NeMo RL: in a registry, or a squashfs file", "IMAGE")
    nemo_rl: str = option("", "NeMo RL checkout with ray.sub, on a shared file system (default: NEMO_RL_PATH)", "DIR")
    code: str = option(
        "/opt/nemo-rl", "NeMo RL's code inside the container; the checkout's path to use that one", "DIR"
    )
    package: str = option(
        "", "this package inside the container (default: this checkout, mounted); - when the image has it", "DIR"
    )
    mount: tuple[str, ...] = option((), "mount FROM:TO in the containers, beside what the run needs", "FROM:TO")
    export: tuple[str, ...] = option(
        (), "environment variable of the job, e.g. HF_HOME=/shared/hf; folders are mounted", "NAME=VALUE"
    )
    sbatch: tuple[str, ...] = option((), "further option of sbatch, e.g. --sbatch=--qos=high", "OPTION")
    gres: str = option("gpu:{gpus}", "--gres of a job; give an empty one where the cluster does not know gres", "GRES")
    margin_min: int = option(
        30, "minutes before the limit by which training saves: start-up, one step and the save", "N"
    )

    def check(self) -> None:
        """Complete, and fit to be written into a batch file.

        Raises:
            UsageError: an option is missing or cannot be used; the message says what it is.
            PrerequisiteError: there is no ray.sub.
        """
        given = vars(self) | {"nemo_rl": self.named_checkout}
        missing = {name: what for name, what in REQUIRED.items() if not given[name]}
        if missing:
            raise missing_options("slurm", missing)
        limit = parse_time(self.time)
        if limit <= self.margin_min * 60:
            raise UsageError(
                f"--time {self.time} is not longer than the {self.margin_min} minutes that --margin-min keeps for the "
                "start, one step and the save"
            )
        for assignment in self.export:
            name, equals, _ = assignment.partition("=")
            if not equals or not name.isidentifier():
                raise UsageError(f"--export {assignment!r} is not of the form NAME=VALUE")
            if SECRET_NAME.search(name):
                raise UsageError(
                    f"--export {name}=... would be written into a file; set {name} in the environment of this command, "
                    "Slurm passes it on"
                )
        for text in (*self.sbatch, *self.mount, self.account, self.partition, self.container, str(self.checkout)):
            if re.search(r"[\s'\"]", text):
                raise UsageError(f"{text!r} cannot stand in a batch file: it has spaces or quotes")
        check_package(self.package)
        if not (self.checkout / RAY_SUB).is_file():
            raise PrerequisiteError(f"{self.checkout} is no NeMo RL checkout: it has no {RAY_SUB}; check --nemo-rl")

    def seen_as(self, run: Path, out: Path) -> Path:
        """A run directory as its jobs see it: mounted at its own path."""
        return run.resolve()

    @property
    def named_checkout(self) -> str:
        """The NeMo RL checkout as given, or the first that NEMO_RL_PATH names; empty: none."""
        return self.nemo_rl or os.environ.get("NEMO_RL_PATH", "").split(os.pathsep)[0]

    @property
    def checkout(self) -> Path:
        """The NeMo RL checkout outside the container."""
        return Path(self.named_checkout).expanduser().resolve()

    @property
    def python_path(self) -> list[str]:
        """What comes first on ``PYTHONPATH`` inside the container."""
        own = [] if self.package == IN_IMAGE else [self.package or str(package_root())]
        return [*own, self.code]


def parse_time(text: str) -> int:
    """Seconds of a time limit: ``minutes``, ``m:s``, ``h:m:s``, ``days-h``, ``days-h:m`` or ``days-h:m:s``.

    Raises:
        UsageError: anything else.
    """
    match = TIME.fullmatch(text)
    if not match:
        raise UsageError(f"--time {text!r} is not a limit as Slurm writes it, such as 4:00:00 or 1-12:00:00")
    parts = [int(part) for part in match["parts"].split(":")]
    if match["days"]:
        hours, minutes, seconds = (*parts, 0, 0)[:3]
        return ((int(match["days"]) * 24 + hours) * 60 + minutes) * 60 + seconds
    if len(parts) == 1:
        return parts[0] * 60
    return sum(part * unit for part, unit in zip(reversed(parts), (1, 60, 3600), strict=False))


def clock(seconds: int) -> str:
    """``DD:HH:MM:SS``, as ``checkpointing.checkpoint_must_save_by`` has it."""
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days:02}:{hours:02}:{minutes:02}:{seconds:02}"


def render_training(job: TrainingJob, options: SlurmOptions) -> str:
    """The batch file of a training run."""
    options.check()
    save_by = clock(parse_time(options.time) - options.margin_min * 60)
    command = [
        *("exec", "uv", "run", "python", "-m", MODULE, "--config", str(job.config_path)),
        f"checkpointing.checkpoint_must_save_by={save_by}",
    ]
    return _template("train.sbatch").substitute(
        title=f"{job.experiment}: {job.name}, {job.model} on {job.nodes} x {job.gpus_per_node} GPUs",
        headers=_headers(
            job.slug,
            job.folder,
            options,
            nodes=job.nodes,
            gpus=job.gpus_per_node,
            more=("--requeue", f"--signal=B:USR1@{SIGNAL_S}"),
        ),
        nemo_rl=shlex.quote(str(options.checkout)),
        checkpoints=shlex.quote(str(job.checkpoint_dir)),
        total_steps=job.total_steps,
        exports=_exports(options),
        container=shlex.quote(options.container),
        mounts=shlex.quote(_mounts([job.dir.path, *job.inputs], options)),
        gpus=job.gpus_per_node,
        logs=shlex.quote(str(job.folder / "logs")),
        driver="\n".join([*_inside(options), shlex.join(command)]),
    )


def render_step(
    name: str,
    command: Sequence[str],
    folder: Path,
    needs: Sequence[Path],
    options: SlurmOptions,
    *,
    gpus: int,
) -> str:
    """The batch file of a step on one node: an export, an evaluation or a report.

    Args:
        name: of the job.
        command: what runs in the container.
        folder: for its output.
        needs: folders and files to mount.
        options: of the cluster.
        gpus: of the node; 0: none, and the node is shared.
    """
    options.check()
    return _template("step.sbatch").substitute(
        title=name,
        headers=_headers(name, folder, options, nodes=1, gpus=gpus, more=("--requeue",)),
        exports=_exports(options),
        container=shlex.quote(options.container),
        mounts=shlex.quote(_mounts(needs, options)),
        workdir=shlex.quote(str(options.checkout)),
        command="\n".join([*_inside(options), f"exec {shlex.join(command)}"]),
    )


def _headers(name: str, folder: Path, options: SlurmOptions, *, nodes: int, gpus: int, more: Sequence[str]) -> str:
    if re.search(r"[\s'\"]", str(folder)):
        raise UsageError(f"{folder} cannot stand in a batch file: it has spaces or quotes; use another --out")
    lines = [
        f"--job-name={name}",
        f"--account={options.account}",
        f"--partition={options.partition}",
        f"--time={options.time}",
        f"--nodes={nodes}",
        *(["--exclusive"] if gpus else []),
        *([f"--gres={options.gres.format(gpus=gpus)}"] if gpus and options.gres else []),
        f"--output={folder / 'logs' / f'{name}-%j.log'}",
        "--open-mode=append",
        *more,
        *options.sbatch,
    ]
    return "\n".join(f"#SBATCH {line}" for line in lines)


def _inside(options: SlurmOptions) -> list[str]:
    """First lines of what runs in a container."""
    path = ":".join(options.python_path)
    return [
        f"cd {shlex.quote(options.code)}",
        f"export NEMO_RL_PATH={shlex.quote(options.code)}",
        f"export PYTHONPATH={shlex.quote(path)}${{PYTHONPATH:+:$PYTHONPATH}}",
    ]


def _exports(options: SlurmOptions) -> str:
    pairs = (assignment.partition("=") for assignment in options.export)
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, _, value in pairs)


def _mounts(needs: Sequence[Path], options: SlurmOptions) -> str:
    """``from:to`` pairs; what lies below another mounted folder is there already."""
    own = [] if options.package == IN_IMAGE else [Path(options.package or package_root())]
    exported = [Path(value) for _, _, value in (one.partition("=") for one in options.export) if value.startswith("/")]
    found = [path for path in exported if path.is_dir()]  # HF_HOME and the like
    wanted = sorted({path.resolve() for path in (*needs, options.checkout, *own, *found)})
    outer = [path for path in wanted if not any(path.is_relative_to(other) for other in wanted if other != path)]
    for path in outer:
        if re.search(r"[\s,:]", str(path)):
            raise UsageError(f"{path} cannot be mounted: its name has a space, a comma or a colon")
    return ",".join([*(f"{path}:{path}" for path in outer), *options.mount])


def _template(name: str) -> Template:
    class Rendered(Template):
        delimiter = "@"

    return Rendered((resources.files(__package__) / TEMPLATES / name).read_text("utf-8"))
