"""Which checkpoints NeMo RL has written, and in which format their weights lie.

    <checkpoint_dir>/step_<N>/
        config.yaml            the configuration of the run that wrote it
        training_info.json     steps, and the metrics that checkpoints are compared by
        policy/tokenizer/      as used in training
        policy/weights/        iter_0000000/           Megatron
                               .metadata, *.distcp     DTensor (in model/ from its second version on)
                               model/consolidated/     DTensor with checkpointing.save_consolidated: Hugging Face
                               config.json, *.safetensors   a rehearsal on the CPU: Hugging Face

``tmp_step_<N>`` is being written, and does not count.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from gdpo_nemo.errors import InputError, NotARunError, PrerequisiteError, RunDirError

LATEST, BEST = "latest", "best"
MEGATRON, DCP, HUGGING_FACE = "Megatron", "DCP", "Hugging Face"
INFO = "training_info.json"


@dataclass(frozen=True)
class Checkpoint:
    """One complete checkpoint.

    Attributes:
        path: the folder ``step_<N>``.
        step: N.
    """

    path: Path
    step: int

    @cached_property
    def config(self) -> dict[str, Any]:
        """The configuration of the run that wrote it.

        Raises:
            RunDirError: there is none, or it cannot be read.
        """
        file = self.path / "config.yaml"
        try:
            config = yaml.safe_load(file.read_text("utf-8"))
        except FileNotFoundError as error:
            raise RunDirError(f"{self.path} is not a checkpoint of NeMo RL: it has no {file.name}") from error
        except yaml.YAMLError as error:
            raise RunDirError(f"{file} cannot be read: {error}") from error
        if not isinstance(config, dict) or not isinstance(config.get("policy"), dict):
            raise RunDirError(f"{file} is not a configuration of NeMo RL: it has no policy section")
        return config

    @property
    def weights(self) -> Path:
        """The folder of the policy's weights."""
        return self.path / "policy" / "weights"

    @property
    def tokenizer(self) -> Path:
        """The folder of the tokenizer as used in training."""
        return self.path / "policy" / "tokenizer"

    @cached_property
    def source(self) -> tuple[str, Path]:
        """Format of the weights, and the folder that a reader of this format takes.

        Raises:
            PrerequisiteError: no format that can be exported.
        """
        weights = self.weights
        iterations = sorted(weights.glob("iter_*"))
        if iterations:
            return MEGATRON, iterations[-1]
        for folder in (weights, weights / "model"):
            if (folder / ".metadata").exists():
                return DCP, folder
        for folder in (weights, weights / "model" / "consolidated"):
            if (folder / "config.json").exists() and any(folder.glob("*.safetensors")):
                return HUGGING_FACE, folder
        if any(weights.rglob("*.safetensors")):
            raise PrerequisiteError(
                f"{weights} holds shards of safetensors, which NeMo RL cannot convert; train with "
                "checkpointing.save_consolidated=true, or with checkpointing.model_save_format=torch_save"
            )
        found = ", ".join(sorted(path.name for path in weights.glob("*"))) if weights.is_dir() else "no such folder"
        raise PrerequisiteError(f"no weights that can be exported in {weights}: {found or 'it is empty'}")


def find(name: str) -> Checkpoint:
    """The checkpoint that ``RUN@STEP`` stands for.

    Args:
        name: RUN is a run directory, a checkpoint directory of NeMo RL or one of its ``step_<N>``; STEP is a number,
            ``latest`` (also when it is left out) or ``best``, by the metric that the run compares checkpoints by.

    Raises:
        InputError: STEP is something else, or goes with ``step_<N>``.
        NotARunError: RUN is no folder, or a run of the embedded backend.
        RunDirError: there is no such checkpoint; the message names those that there are.
    """
    run, at, wanted = name.rpartition("@")
    if not at or Path(name).is_dir():
        run, at, wanted = name, "", ""
    folder = Path(run).expanduser().resolve()
    if at and not re.fullmatch(rf"\d+|{LATEST}|{BEST}", wanted):
        raise InputError(f"step {wanted!r} of {name} is neither a number nor {LATEST} or {BEST}")
    if number := _number(folder):
        if at:
            raise InputError(f"{run} is one checkpoint already; leave @{wanted} out")
        return Checkpoint(folder, number)
    found = steps(folder)
    if not found:
        raise _nothing_in(folder)
    if wanted in ("", LATEST):
        return found[-1]
    if wanted == BEST:
        return _best(found)
    for checkpoint in found:
        if checkpoint.step == int(wanted):
            return checkpoint
    raise RunDirError(f"{run} has no checkpoint of step {wanted}; it has {_listed(found)}")


def steps(folder: Path) -> list[Checkpoint]:
    """All complete checkpoints of a run directory or of a checkpoint directory, oldest first."""
    for place in (folder / "checkpoints", folder):
        found = [Checkpoint(path, number) for path in place.glob("step_*") if (number := _number(path))]
        if found:
            return sorted(found, key=lambda checkpoint: checkpoint.step)
    return []


def newest_step(folder: Path) -> int:
    """The step of the latest checkpoint, 0 without one."""
    found = steps(folder)
    return found[-1].step if found else 0


def _number(path: Path) -> int | None:
    match = re.fullmatch(r"step_(\d+)", path.name)
    return int(match[1]) if match and path.is_dir() else None


def _best(found: list[Checkpoint]) -> Checkpoint:
    settings: Mapping[str, Any] = found[-1].config.get("checkpointing") or {}
    metric = settings.get("metric_name")
    if not metric:
        raise RunDirError(
            f"the run of {found[-1].path} compares no checkpoints (checkpointing.metric_name is not set), "
            f"so none is the {BEST}; take {LATEST} or a step: {_listed(found)}"
        )
    scores = {checkpoint.step: info[metric] for checkpoint in found if metric in (info := _info(checkpoint))}
    if not scores:
        raise RunDirError(f"no checkpoint in {found[-1].path.parent} has the metric {metric!r} in its {INFO}")
    scored = [checkpoint for checkpoint in found if checkpoint.step in scores]
    sign = 1 if settings.get("higher_is_better", True) else -1
    return max(scored, key=lambda checkpoint: (sign * scores[checkpoint.step], checkpoint.step))


def _info(checkpoint: Checkpoint) -> dict[str, Any]:
    try:
        info = json.loads((checkpoint.path / INFO).read_text("utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return info if isinstance(info, dict) else {}


def _nothing_in(folder: Path) -> RunDirError:
    if not folder.is_dir():
        return NotARunError(f"no folder {folder}")
    if any(folder.glob("checkpoints/step[0-9]*")):
        return NotARunError(
            f"{folder} is a run of the embedded backend; its checkpoints/step<N> are in Hugging Face format already, "
            "next to the optimiser's state"
        )
    return RunDirError(f"no checkpoint in {folder}: it has no step_<N>, nor has its folder checkpoints/")


def _listed(found: list[Checkpoint]) -> str:
    return ", ".join(str(checkpoint.step) for checkpoint in found)
