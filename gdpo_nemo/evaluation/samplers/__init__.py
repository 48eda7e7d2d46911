"""Ways to a model: an endpoint, or a model in this process by vLLM or by transformers."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

from gdpo_nemo.errors import PrerequisiteError
from gdpo_nemo.evaluation.samplers.chat_template import ChatTemplate
from gdpo_nemo.evaluation.samplers.endpoint import Endpoint
from gdpo_nemo.evaluation.sampling import Sampler


def endpoint(url: str, model: str | None = None, *, tokenizer: str | None = None, **options: Any) -> Endpoint:
    """An OpenAI-compatible server; with ``tokenizer``, its chat template makes prompts for ``/completions``.

    Raises:
        PrerequisiteError: httpx, transformers or the tokenizer is missing.
    """
    if tokenizer is None:
        return Endpoint(url, model, **options)
    try:
        from transformers import AutoTokenizer

        chat = AutoTokenizer.from_pretrained(tokenizer)
    except (ImportError, OSError, ValueError) as error:
        raise PrerequisiteError(f"cannot load the tokenizer {tokenizer!r} (--completions): {error}") from error

    return Endpoint(url, model, template=ChatTemplate(chat, tokenizer), **options)


def local(
    name: str,
    engine: str | None = None,
    *,
    device: str | None = None,
    dtype: str | None = None,
    vllm: Mapping[str, Any] | None = None,
) -> Sampler:
    """A model in this process; without ``engine`` by vLLM where it is installed.

    Raises:
        PrerequisiteError: the engine is not installed, or the model cannot be loaded.
    """
    if engine == "vllm" or (engine is None and importlib.util.find_spec("vllm") is not None):
        from gdpo_nemo.evaluation.samplers.vllm import Vllm

        return Vllm(name, dtype=dtype or "auto", **(vllm or {}))
    from gdpo_nemo.evaluation.samplers.transformers import Transformers

    return Transformers(name, device=device, dtype=dtype or "float32")
