"""What a run and the checkpoint that it goes on from must have in common.

NeMo RL resumes from the newest checkpoint in ``checkpointing.checkpoint_dir`` whatever that came from. What makes the
result of a run (rewards, method, loss, batches, model, tokenizer, data) must not change on the way; how it is spread
over GPUs, how long it goes on, what it logs and what it keeps may.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from gdpo_nemo.checkpoints.steps import steps
from gdpo_nemo.config import GdpoConfig, validate
from gdpo_nemo.differences import ABSENT, differing_keys
from gdpo_nemo.errors import ConfigError, RunDirError

SECTIONS = ("gdpo", "policy", "loss_fn", "grpo", "data", "env")
FREE = (
    "grpo.max_num_steps",
    "grpo.max_num_epochs",
    "grpo.max_val_samples",
    "grpo.val_*",
    "data.num_workers",
    "data.validation*",
    "policy.*batch_size",
    "policy.make_sequence_length_divisible_by",
    "policy.*_chunk_size",
    "policy.offload_*",
    "policy.refit_*",
    "policy.dynamic_batching.*",
    "policy.sequence_packing.*",
    "policy.worker_*",
    "policy.*parallel*",
    "policy.*pipeline*",
    "policy.*activation_checkpointing",
    "policy.*cpu_offload*",
    "policy.*defer_fp32_logits",
    "policy.*empty_unused_memory_level",
    "policy.*env_vars*",
    "policy.megatron_cfg.distributed_data_parallel_config.*",
    "policy.megatron_cfg.train_iters",
    "policy.generation.backend",
    "policy.generation.colocated.*",
    "policy.generation.*_cfg.*",
    "policy.generation.*_config.*",
    "policy.generation.*kwargs*",
    "policy.generation.port_range_*",
)
"""Patterns of keys that may differ."""
BOUND = ("policy.train_global_batch_size",)
"""Keys that must agree although a pattern above covers them."""
SET_BY_NEMO_RL = (
    "policy.pretrained_checkpoint*",
    "policy.generation.model_name",
    "policy.generation.stop_token_ids",
    "policy.generation._*",
    "grpo.skip_reference_policy_logprobs_calculation",
)
"""Keys that NeMo RL fills in while it starts, before it writes the checkpoint's config.yaml."""


def check_resume(whole: Mapping[str, Any], checkpoint_dir: Path | str | None = None) -> int:
    """Refuse to go on from another run's checkpoint. Reads only.

    Args:
        whole: the resolved configuration, our ``gdpo:`` block and NeMo RL's sections.
        checkpoint_dir: where NeMo RL looks; None: ``checkpointing.checkpoint_dir``.

    Returns:
        The step that training goes on from; 0: it starts from the model of the configuration.

    Raises:
        RunDirError: the newest checkpoint came from a run that differs; the message names the keys.
    """
    folder = Path(checkpoint_dir or whole["checkpointing"]["checkpoint_dir"]).expanduser()
    found = steps(folder)
    if not found:
        return 0
    newest = found[-1]
    differing = list(_differing(newest.config, whole))
    if differing:
        listing = "\n".join(f"  {key}: {old!r} there, {new!r} now" for key, old, new in differing[:8])
        rest = f"\n  and {len(differing) - 8} more" if len(differing) > 8 else ""
        raise RunDirError(
            f"training would go on from {newest.path}, which another configuration wrote:\n{listing}{rest}\n"
            "Begin in another folder (--out), or go back to that configuration."
        )
    return newest.step


def _differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for section in SECTIONS:
        before, now = _view(section, old), _view(section, new)
        for key, was, wanted in differing_keys(before, now, section):
            yield from _that_count(key, was, wanted)


def _that_count(key: str, was: Any, wanted: Any) -> Iterator[tuple[str, Any, Any]]:
    """The difference, unless it may be one; a section that only one side has is taken apart first."""
    sides = {name: value for name, value in (("was", was), ("wanted", wanted)) if isinstance(value, Mapping)}
    if len(sides) == 1:
        [(side, subtree)] = sides.items()
        for name, value in subtree.items():
            yield from _that_count(f"{key}.{name}", *((value, ABSENT) if side == "was" else (ABSENT, value)))
    elif (was == ABSENT and not wanted) or (wanted == ABSENT and not was):
        return  # NeMo RL writes keys that nobody set, with what switches them off
    elif key in BOUND or not any(fnmatchcase(key, pattern) for pattern in (*FREE, *SET_BY_NEMO_RL)):
        yield key, was, wanted


def _view(section: str, config: Mapping[str, Any]) -> Any:
    """A section in the form in which two are compared."""
    block = config.get(section) or {}
    match section:
        case "gdpo":
            return _with_defaults(block)
        case "env":  # the tokenizer and the length of responses; gdpo stands there once more
            return {name: _without_gdpo(part) for name, part in block.items()}
        case "data":
            shared = block.get("default") or {}
            train = block.get("train")
            train = train if isinstance(train, list) else [train]
            parts = [_without_gdpo({**shared, **(part or {})}) for part in train]
            return {
                "train": parts[0] if len(parts) == 1 else dict(enumerate(parts)),
                **{key: value for key, value in block.items() if key not in ("train", "default", "validation")},
            }
    return block


def _without_gdpo(part: Any) -> Any:
    return {key: value for key, value in part.items() if key != "gdpo"} if isinstance(part, Mapping) else part


def _with_defaults(block: Mapping[str, Any]) -> Any:
    """The block with every key of this version, so that a default that was added later is no difference."""
    try:
        return validate(GdpoConfig, dict(block), origin="the gdpo: block").model_dump(mode="json")
    except ConfigError:  # written by a version with other keys: compared as it stands
        return block
