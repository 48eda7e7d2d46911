"""The command line of NeMo RL's own converters to Hugging Face format, and the configuration that they read.

Facts (v0.7.0 and main of August 2026, ``examples/converters/``):

- ``convert_megatron_to_hf.py`` loads the whole model in one process; ``convert_megatron_to_hf_gpu.py`` runs under
  torchrun with the parallel sizes as arguments. Any sizes will do: the checkpoint is resharded on loading.
- They read ``policy.hf_overrides``, and training reads ``policy.hf_config_overrides``: rope scaling and the like would
  be lost, so they get a copy of the configuration in which both say the same.
"""

from __future__ import annotations

import copy
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import yaml

from gdpo_nemo.checkpoints.steps import DCP, Checkpoint
from gdpo_nemo.errors import PrerequisiteError
from gdpo_nemo.files import write_text

CONVERTERS = Path("examples", "converters")
IN_CONTAINER = "NRL_CONTAINER"
GPUS_PER_NODE = 8


class NemoRl(Protocol):
    """What is asked of ``gdpo_nemo.backends.nemo_rl.host.Host``."""

    @property
    def root(self) -> Path:
        """Folder that holds ``nemo_rl/`` and ``examples/``."""

    def environment(self) -> dict[str, str]:
        """Environment variables of a process in which ``nemo_rl`` can be imported."""


def overrides_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """What the run changed in the model's own config.json."""
    return dict(checkpoint.config["policy"].get("hf_config_overrides") or {})


def base_model(checkpoint: Checkpoint, named: str = "") -> str:
    """Hub id or folder of the model whose config.json the export builds on."""
    return named or str(checkpoint.config["policy"]["model_name"])


def check_adapters(checkpoint: Checkpoint) -> None:
    """Refuse what holds adapters only.

    Raises:
        PrerequisiteError: the run trained LoRA adapters; the message names NeMo RL's converter for them.
    """
    policy = checkpoint.config["policy"]
    for section, key in (("megatron_cfg", "peft"), ("dtensor_cfg", "lora_cfg")):
        settings: Mapping[str, Any] = policy.get(section) or {}
        if settings.get("enabled") and (settings.get(key) or {}).get("enabled"):
            raise PrerequisiteError(
                f"{checkpoint.path} holds LoRA adapters (policy.{section}.{key}.enabled), not whole weights; merge "
                f"them with NeMo RL's {CONVERTERS}/convert_lora_to_hf.py --base-ckpt ... --adapter-ckpt "
                f"{checkpoint.source[1]} --hf-model-name {policy['model_name']} --hf-ckpt-path DIR"
            )


def layout(checkpoint: Checkpoint, gpus: int = 0) -> dict[str, int]:
    """Parallel sizes for the conversion: those of training, with fewer pipeline stages where one node is too small.

    Args:
        checkpoint: in Megatron's format.
        gpus: of this machine; 0: ``cluster.gpus_per_node`` of the run; 1: one process, whatever the sizes.

    Returns:
        tp, pp, ep, etp. All 1: one process.
    """
    settings = checkpoint.config["policy"].get("megatron_cfg") or {}
    gpus = gpus or int((checkpoint.config.get("cluster") or {}).get("gpus_per_node") or GPUS_PER_NODE)
    tp, pp, ep, etp = (
        int(settings.get(f"{name}_parallel_size") or 1)
        for name in ("tensor_model", "pipeline_model", "expert_model", "expert_tensor")
    )
    per_stage = max(tp, ep * etp)
    if gpus < per_stage:
        return {"tp": 1, "pp": 1, "ep": 1, "etp": 1}
    stages = max(size for size in range(1, pp + 1) if pp % size == 0 and size * per_stage <= gpus)
    return {"tp": tp, "pp": stages, "ep": ep, "etp": etp}


def command(
    checkpoint: Checkpoint,
    config: Path,
    target: Path,
    host: NemoRl,
    *,
    gpus: int = 0,
    named: str = "",
    python: str = "",
) -> list[str]:
    """The command that converts a checkpoint.

    Args:
        checkpoint: in Megatron's or PyTorch's distributed format.
        config: as ``write_config`` gave it.
        target: must not exist yet.
        host: NeMo RL.
        gpus: see ``layout``.
        named: see ``base_model``.
        python: how to start Python; empty: ``uv run`` in NeMo RL's container, this Python elsewhere.
    """
    form, source = checkpoint.source
    contained = bool(host.environment().get(IN_CONTAINER))
    extra = [] if form == DCP else ["--extra", "mcore"]
    uv = ["uv", "run", "--project", str(host.root), *extra, "python"]
    start = shlex.split(python) or (uv if contained else [sys.executable])
    scripts, common = host.root / CONVERTERS, ["--config", str(config)]
    if form == DCP:
        script = str(scripts / "convert_dcp_to_hf.py")
        return [*start, script, *common, "--dcp-ckpt-path", f"{checkpoint.weights}/", "--hf-ckpt-path", str(target)]
    paths = ["--megatron-ckpt-path", str(source), "--hf-ckpt-path", str(target)]
    sizes = layout(checkpoint, gpus)
    processes = max(sizes["tp"], sizes["ep"] * sizes["etp"]) * sizes["pp"]
    if processes == 1:
        model = ["--hf-model-name", base_model(checkpoint, named)]
        return [*start, str(scripts / "convert_megatron_to_hf.py"), *common, *model, *paths]
    torchrun = ["-m", "torch.distributed.run", f"--nproc_per_node={processes}"]
    arguments = [part for name, size in sizes.items() for part in (f"--{name}", str(size))]
    return [*start, *torchrun, str(scripts / "convert_megatron_to_hf_gpu.py"), *common, *paths, *arguments]


def write_config(checkpoint: Checkpoint, file: Path, named: str = "") -> Path:
    """The configuration for a converter: the checkpoint's own file, or ``file`` where something has to be changed."""
    policy = copy.deepcopy(checkpoint.config["policy"])
    if overrides := overrides_of(checkpoint):
        policy["hf_overrides"] = {**(policy.get("hf_overrides") or {}), **overrides}
    if named:
        policy["model_name"] = named
    if policy == checkpoint.config["policy"]:
        return checkpoint.path / "config.yaml"
    write_text(file, yaml.safe_dump({**checkpoint.config, "policy": policy}, sort_keys=False))
    return file
