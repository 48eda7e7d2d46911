"""Sets a rehearsal up: a small model of the same architecture, and the configuration with small numbers in it.

Everything that decides whether a cluster job starts, scores, learns and resumes stays as it is: data, prompts, rewards,
conditions, estimator, loss, ratios of batch sizes, validation, checkpointing. Only sizes change, and where things go.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gdpo_nemo.config import EmbeddedConfig, GdpoConfig, RunConfig, WarmupConfig
from gdpo_nemo.errors import PrerequisiteError
from gdpo_nemo.worlds import world_of

GROUP = 4  # rollouts per prompt, at most
PROMPTS = 4  # per step, at least
NEW_TOKENS = 64
TRAIN_ROWS, HELDOUT_ROWS = 64, 16
TRACKERS = ("wandb", "swanlab", "mlflow")
WARM_UP = WarmupConfig(clean_steps=60, noisy_steps=0, batch_size=32, pool_rows=64)
"""Enough that responses of the small model differ in their rewards; without gold answers it stays random."""
STEP_TOKENS, ALL_TOKENS = 4096, 120_000
"""Prompt tokens of one step of that, and of all, at most: long prompts get smaller batches and fewer steps."""


def write_model(gdpo: GdpoConfig, architecture: Mapping[str, Any], folder: Path) -> tuple[Path, Path]:
    """A small random model over the rows' own words, trained for some seconds on their gold answers.

    Args:
        gdpo: names the rows.
        architecture: ``model_type`` and what else makes the architecture, with small sizes.
        folder: where ``model/`` and ``tokenizer/`` go. They stand apart because AutoTokenizer would build the class
            that usually goes with the architecture.

    Returns:
        Both paths.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from gdpo_nemo import models
    from gdpo_nemo.backends.embedded.train import new_optimizer
    from gdpo_nemo.backends.embedded.warmup import demonstration_pool, supervised_step
    from gdpo_nemo.randomness import stream
    from gdpo_nemo.source import settle

    if gdpo.data is not None:  # the small model's tokenizer comes of the rows, and so cannot choose them
        gdpo = gdpo.model_copy(update={"data": gdpo.data.model_copy(update={"prompt_limit": None})})
    run = settle(RunConfig(gdpo=gdpo, embedded=EmbeddedConfig(data=world_of(gdpo.task), warmup=WARM_UP)))
    _, tokenizer = models.load(run.embedded, gdpo=gdpo)
    torch.manual_seed(0)
    ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**architecture, vocab_size=len(tokenizer), **ids))
    optimizer = new_optimizer(model, WARM_UP.lr, 0.0)
    rng = stream(0, "rehearsal")
    pool = demonstration_pool(tokenizer, run, rng)
    run, steps = _within_budget(run, sum(len(prompt) for _, prompt in pool) // len(pool))
    for _ in range(steps):
        supervised_step(model, tokenizer, optimizer, run, pool, rng, clean=True)
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "tokenizer")
    return folder / "model", folder / "tokenizer"


def _within_budget(run: RunConfig, prompt_tokens: int) -> tuple[RunConfig, int]:
    """The run with its batch size, and the number of steps."""
    size = max(2, min(WARM_UP.batch_size, STEP_TOKENS // max(1, prompt_tokens)))
    steps = min(run.embedded.warmup.clean_steps, ALL_TOKENS // max(1, size * prompt_tokens))
    warmup = run.embedded.warmup.model_copy(update={"batch_size": size})
    return run.model_copy(update={"embedded": run.embedded.model_copy(update={"warmup": warmup})}), steps


def small_architecture(model_type: str) -> dict[str, Any]:
    """Sizes of a model of well under a million parameters, for any decoder that Hugging Face describes in these words.

    Raises:
        PrerequisiteError: transformers does not know the type.
    """
    from transformers import CONFIG_MAPPING

    if model_type not in CONFIG_MAPPING:
        raise PrerequisiteError(f"transformers knows no model type {model_type!r}; update transformers")
    return {
        "model_type": model_type,
        "hidden_size": 64,
        "intermediate_size": 192,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 16,
        "initializer_range": 0.08,
        "tie_word_embeddings": True,
    }


def shrink(whole: Mapping[str, Any], folder: Path, model: Path, tokenizer: Path, steps: int) -> dict[str, Any]:
    """The configuration of a cluster run with small sizes, one process, and everything it writes under ``folder``."""
    grpo, policy = whole["grpo"], whole["policy"]
    group = min(grpo["num_generations_per_prompt"], GROUP)
    updates = max(
        1, grpo["num_prompts_per_step"] * grpo["num_generations_per_prompt"] // policy["train_global_batch_size"]
    )
    prompts = math.lcm(PROMPTS, updates // math.gcd(updates, group))
    global_batch = prompts * group // updates
    colocated = policy["generation"]["colocated"]["enabled"]
    changes: dict[str, Any] = {
        "grpo": {
            "num_prompts_per_step": prompts,
            "num_generations_per_prompt": group,
            "max_num_epochs": 1000,
            "max_num_steps": steps,
            "max_val_samples": HELDOUT_ROWS,
            "val_batch_size": HELDOUT_ROWS,
            "val_period": 2 if whole["data"].get("validation") else 0,
        },
        "policy": {
            "model_name": str(model),
            "tokenizer": {"name": str(tokenizer)},
            "train_global_batch_size": global_batch,
            "train_micro_batch_size": math.gcd(global_batch, 8),
            "logprob_batch_size": math.gcd(prompts * group, 8),
            "generation": {"max_new_tokens": min(policy["generation"]["max_new_tokens"], NEW_TOKENS)},
        },
        "data": {"num_workers": 0, "train": {"num_rows": TRAIN_ROWS}, "default": {"tokenizer": str(tokenizer)}},
        "checkpointing": {"enabled": True, "checkpoint_dir": str(folder / "checkpoints"), "save_period": 2},
        "logger": {
            "log_dir": str(folder / "logs"),
            "monitor_gpus": False,
            "tensorboard_enabled": True,
            "num_val_samples_to_print": 0,
            **{f"{tracker}_enabled": False for tracker in TRACKERS},
        },
        "cluster": {"num_nodes": 1, "gpus_per_node": 1 if colocated else 2},
        "env": {"gdpo": {"tokenizer": str(tokenizer), "max_new_tokens": NEW_TOKENS}},
    }
    if whole["data"].get("validation"):
        changes["data"]["validation"] = {"num_rows": HELDOUT_ROWS}
    if not colocated:
        changes["policy"]["generation"]["colocated"] = {"resources": {"gpus_per_node": 1, "num_nodes": None}}
    return merged(whole, changes)


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with the leaves of ``changes`` in place of its own."""
    result = dict(base)
    for key, value in changes.items():
        below = result.get(key)
        nested = isinstance(value, Mapping) and isinstance(below, Mapping)
        result[key] = merged(below, value) if nested else value  # type: ignore[arg-type]
    return result
