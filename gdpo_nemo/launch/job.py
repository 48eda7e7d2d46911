"""What is launched: the resolved configuration of one run, put into its own directory."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

import gdpo_nemo
from gdpo_nemo.checkpoints import check_resume, newest_step
from gdpo_nemo.errors import UsageError
from gdpo_nemo.files import write_text
from gdpo_nemo.run_dir import RunDir

MODULE = "gdpo_nemo.backends.nemo_rl"
CONFIG = "config.yaml"
IN_IMAGE = "-"
"""As ``--package``: the image has this package."""
TRACKERS = {
    "wandb": ("project", "name"),
    "swanlab": ("project", "name"),
    "mlflow": ("experiment_name", "run_name"),
}
LOCAL_INPUTS = (
    ("policy", "model_name"),
    ("policy", "tokenizer", "name"),
    ("gdpo", "python_path"),
    ("gdpo", "data", "train", "path"),
    ("gdpo", "data", "heldout", "path"),
)
"""Keys that may name a file or folder of the machine that launches."""


@dataclass(frozen=True)
class TrainingJob:
    """One run on a cluster.

    Attributes:
        experiment, arm, seed: which.
        settings: the whole resolved configuration, see ``place``.
        dir: where it lies.
    """

    experiment: str
    arm: str
    seed: int
    settings: dict[str, Any]
    dir: RunDir

    @property
    def name(self) -> str:
        """As in lists of jobs: arm and seed."""
        return f"{self.arm} seed{self.seed}"

    @property
    def slug(self) -> str:
        """As one word that a scheduler takes."""
        return slug(f"{self.experiment}-{self.arm}-seed{self.seed}")

    @property
    def folder(self) -> Path:
        """Where rendered files go; `launch` owns it."""
        return self.dir.path / "launch"

    @property
    def config_path(self) -> Path:
        """The configuration that the job reads."""
        return self.folder / CONFIG

    @property
    def export_path(self) -> Path:
        """Where the last checkpoint goes in Hugging Face format."""
        return self.dir.path / "export"

    @property
    def checkpoint_dir(self) -> Path:
        """Where NeMo RL writes checkpoints."""
        return Path(self.settings["checkpointing"]["checkpoint_dir"])

    @property
    def model(self) -> str:
        """Hub id or folder of the model that training starts from."""
        return str(self.settings["policy"]["model_name"])

    @property
    def nodes(self) -> int:
        """Nodes of the cluster."""
        return int(self.settings["cluster"]["num_nodes"])

    @property
    def gpus_per_node(self) -> int:
        """GPUs of each."""
        return int(self.settings["cluster"]["gpus_per_node"])

    @property
    def total_steps(self) -> int:
        """Steps of the whole run."""
        return int(self.settings["grpo"]["max_num_steps"])

    @property
    def step(self) -> int:
        """Of the newest checkpoint, 0 without one."""
        return newest_step(self.checkpoint_dir)

    @property
    def is_trained(self) -> bool:
        """Whether the last step has its checkpoint, or the run has a result, and no alarm has stopped it there."""
        return self.dir.result() is not None or (self.step >= self.total_steps and self.dir.halted_by() is None)

    @cached_property
    def text(self) -> str:
        """The configuration as YAML, as NeMo RL's entry point reads it."""
        return yaml.safe_dump(self.settings, sort_keys=False, width=120)

    @property
    def inputs(self) -> list[Path]:
        """Files and folders of this machine that the configuration names; the job needs them, too."""
        found = []
        for key in LOCAL_INPUTS:
            value: Any = self.settings
            for part in key:
                value = value.get(part) if isinstance(value, Mapping) else None
            if isinstance(value, str) and value.startswith("/") and Path(value).exists():
                found.append(Path(value))
        return found

    def check(self) -> None:
        """Refuse a directory that was made for another configuration, and a checkpoint of another run. Writes nothing.

        Raises:
            RunDirError: the message names the keys that differ.
        """
        self.dir.check_config(self.settings)
        check_resume(self.settings)

    def write_config(self) -> None:
        """Write the configuration that the job reads, and make the folder of its output."""
        (self.folder / "logs").mkdir(parents=True, exist_ok=True)
        write_text(self.config_path, self.text)

    def write(self, name: str, text: str) -> Path:
        """Write the configuration and a file that refers to it."""
        self.write_config()
        write_text(self.folder / name, text)
        return self.folder / name


def training_job(
    experiment: str, arm: str, seed: int, whole: Mapping[str, Any], run: RunDir, seen_as: Path | None = None
) -> TrainingJob:
    """A run in its directory.

    Args:
        experiment: its name.
        arm: its name.
        seed: of the run.
        whole: of ``gdpo_nemo.cluster.recipes.ClusterRun``.
        run: its directory, which need not exist.
        seen_as: the directory as the job's processes see it, where that is another path.
    """
    path = run.path.resolve()
    return TrainingJob(experiment, arm, seed, place(whole, experiment, arm, seed, seen_as or path), RunDir(path))


def place(whole: Mapping[str, Any], experiment: str, arm: str, seed: int, folder: Path) -> dict[str, Any]:
    """The configuration of one run: its own seed, and everything that it writes under ``folder``."""
    settings = copy.deepcopy(dict(whole))
    settings["grpo"]["seed"] = seed
    for section in (settings["policy"], settings["policy"].get("tokenizer") or {}):
        for key in ("model_name", "name"):
            if isinstance(section.get(key), str) and Path(section[key]).is_dir():
                section[key] = str(Path(section[key]).resolve())
    settings["checkpointing"]["checkpoint_dir"] = str(folder / "checkpoints")
    logger = settings.setdefault("logger", {})
    logger["log_dir"] = str(folder / "logs" / "nemo_rl")
    for tracker, (project, run) in TRACKERS.items():
        if isinstance(logger.get(tracker), dict):
            logger[tracker] |= {project: experiment, run: f"{arm}-seed{seed}"}
    return settings


def package_root() -> Path:
    """The folder to put on ``PYTHONPATH`` so that this package can be imported."""
    return Path(gdpo_nemo.__file__).resolve().parents[1]


def check_package(package: str) -> None:
    """Refuse to take this package along from where other packages lie beside it.

    Args:
        package: where it lies in the containers, as given; empty: it is taken from here.

    Raises:
        UsageError: it is installed among the packages of this Python.
    """
    if not package and package_root().name in ("site-packages", "dist-packages"):
        raise UsageError(
            f"gdpo_nemo is installed in {package_root()}, whose other packages must not reach the containers; give "
            f"--package the folder of a checkout, or --package={IN_IMAGE} with an image from docker/Dockerfile"
        )


def slug(text: str) -> str:
    """Letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def missing_options(target: str, missing: Mapping[str, str]) -> UsageError:
    """One error for all options that a target cannot do without: name -> what it is."""
    listing = "\n".join(f"  --{name.replace('_', '-')} {what}" for name, what in missing.items())
    return UsageError(f"--to {target} needs\n{listing}")
