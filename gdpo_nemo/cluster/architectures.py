"""Sizes of the models that the configurations name, and of any local Hugging Face directory. Dense models only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from gdpo_nemo.errors import InputError

KNOWN = Path(__file__).parent / "architectures.json"
DENSE = ("llama", "qwen2", "qwen3")


@dataclass(frozen=True)
class Architecture:
    """A decoder of the Llama family, in the words of its Hugging Face ``config.json``."""

    model_type: str
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    tie_word_embeddings: bool
    max_position_embeddings: int

    @property
    def query_size(self) -> int:
        """Width of all query heads together."""
        return self.num_attention_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of all key heads together; the values' is the same."""
        return self.num_key_value_heads * self.head_dim


def architecture_of(model: str) -> Architecture | None:
    """The sizes of a hub id that ships with this package, or of a local directory; None: not known.

    Raises:
        InputError: the directory's config.json does not describe a model.
    """
    if model in _known():
        return _read(_known()[model])
    config = Path(model) / "config.json"
    if not config.is_file():
        return None
    try:
        return _read(json.loads(config.read_text("utf-8")))
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise InputError(f"{config} does not describe a model: {error!r}") from error


@cache
def _known() -> dict[str, dict[str, Any]]:
    models: dict[str, dict[str, Any]] = json.loads(KNOWN.read_text("utf-8"))["models"]
    return models


def _read(config: Mapping[str, Any]) -> Architecture | None:
    if config["model_type"] not in DENSE:
        return None
    heads = config["num_attention_heads"]
    derived = {
        "num_key_value_heads": heads,
        "head_dim": config["hidden_size"] // heads,
        "tie_word_embeddings": False,
    }
    given = {key: value for key, value in config.items() if value is not None}
    return Architecture(**{field.name: (derived | given)[field.name] for field in fields(Architecture)})
