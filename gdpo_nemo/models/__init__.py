"""Causal LMs in Hugging Face form: where they come from, how they sample, how they are saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gdpo_nemo.config import EmbeddedConfig, GdpoConfig


def load(config: EmbeddedConfig, checkpoint: Path | None = None, gdpo: GdpoConfig | None = None) -> tuple[Any, Any]:
    """The model and tokenizer to train: from a checkpoint of ours, or else from where the config says.

    ``tiny`` begins with a vocabulary of the tool world, or of the rows that ``gdpo.data`` names.

    Raises:
        PrerequisiteError: the model cannot be found or read.
    """
    import torch

    from gdpo_nemo.models.pretrained import load_pretrained, load_saved
    from gdpo_nemo.models.tiny import build_tiny, build_tokenizer, learn_tokenizer
    from gdpo_nemo.source import TableSource, row_source

    if checkpoint is not None:
        model, tokenizer = load_saved(checkpoint)
    elif config.model.name == "tiny":
        source = None if gdpo is None else row_source(gdpo, config.data)
        tokenizer = learn_tokenizer(source.texts()) if isinstance(source, TableSource) else build_tokenizer(config.data)
        model = build_tiny(config.model, len(tokenizer), config.warmup.seed)
    else:
        model, tokenizer = load_pretrained(config.model.name)
    return model.to(config.model.device, getattr(torch, config.model.dtype)), tokenizer


def describe(model: Any) -> str:
    """One line for logs."""
    return f"{model.config.model_type} with {sum(p.numel() for p in model.parameters()):,} parameters"
