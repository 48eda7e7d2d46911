"""A small readable trainer for one machine: CPU, or one GPU.

``python -m gdpo_nemo.backends.embedded RUN_DIR`` performs the run that the directory describes.
This module itself imports no torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gdpo_nemo.config import EmbeddedConfig, RunConfig, content_hash
from gdpo_nemo.errors import RunDirError
from gdpo_nemo.prompts.tool_calling import template
from gdpo_nemo.run_dir import RunDir

WARMUP_VERSION = 2  # raise when a change of code changes what a warm-up produces


def base_hash(config: EmbeddedConfig) -> str:
    """Names the warm-up model by all that determines it, so that runs can share it."""
    blocks = config.model_dump(mode="json", include={"data", "model", "warmup", "evaluation", "threads"})
    return content_hash(WARMUP_VERSION, template(), blocks)


def estimate(config: RunConfig) -> dict[str, Any]:
    """Seconds and sizes of a run on this machine, from steps timed now; see ``step_times.py``. Needs torch."""
    from gdpo_nemo.backends.embedded.step_times import estimate as measure

    return measure(config)


def base_dir(run_dir: Path, base: str) -> Path:
    """Where the warm-up run lies for a run directory ``<model>/<arm>/seed<N>``."""
    return run_dir.resolve().parent.parent / "base" / base


def base_checkpoint(run_dir: Path, base: str | None) -> Path | None:
    """The warm-up model that a run starts from; None for a run that starts from scratch.

    Raises:
        RunDirError: it is not there or unfinished, or its checkpoint is gone.
    """
    if base is None:
        return None
    warmup = RunDir(base_dir(run_dir, base))
    if not warmup.exists() or warmup.result() is None:
        raise RunDirError(f"the warm-up model {warmup.path} is missing or unfinished; `gdpo run` makes it first")
    if not (found := warmup.checkpoints()):
        raise RunDirError(f"the checkpoint of {warmup.path} is gone; remove that folder, and `gdpo run` makes it again")
    return found[-1][1]
