"""This machine: the command of NeMo RL's entry point, started in place of this process."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from gdpo_nemo.errors import UsageError
from gdpo_nemo.launch.job import MODULE, TrainingJob
from gdpo_nemo.launch.options import option


@dataclass(frozen=True)
class LocalOptions:
    """How Python is started."""

    python: str = option(
        "", "how to start Python (default: this one; in NeMo RL's container: uv run python)", "COMMAND"
    )

    def seen_as(self, run: Path, out: Path) -> Path:
        """A run directory as its process sees it."""
        return run.resolve()


def command(job: TrainingJob, options: LocalOptions, environment: Mapping[str, str]) -> list[str]:
    """The command that trains on this machine.

    Raises:
        UsageError: the run wants several nodes.
    """
    if job.nodes != 1:
        raise UsageError(
            f"{job.name} is a run on {job.nodes} nodes (cluster.num_nodes); --to local has one: "
            "cluster.num_nodes=1 with a layout that fits, or --to slurm"
        )
    contained = ["uv", "run", "python"] if environment.get("NRL_CONTAINER") else [sys.executable]
    return [*(shlex.split(options.python) or contained), "-m", MODULE, "--config", str(job.config_path)]


def render(job: TrainingJob, options: LocalOptions, environment: Mapping[str, str]) -> str:
    """A script with that command, and what has to be set for it."""
    variables = {name: environment[name] for name in ("NEMO_RL_PATH", "PYTHONPATH") if environment.get(name)}
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    return "\n".join(
        [
            "#!/bin/bash",
            f"# {job.experiment}: {job.name}, {job.model} on the {job.gpus_per_node} GPUs of this machine.",
            "# Start it again, and training goes on at the newest checkpoint.",
            "set -euo pipefail",
            *lines,
            *([f"cd {shlex.quote(variables['NEMO_RL_PATH'])}"] if "NEMO_RL_PATH" in variables else []),
            f"exec {shlex.join(command(job, options, environment))}",
            "",
        ]
    )


def start(script: Sequence[str]) -> NoReturn:
    """Become that process."""
    sys.stdout.flush()
    os.execvp(script[0], list(script))
