"""vLLM in this process: its asynchronous engine batches whatever is under way."""

from __future__ import annotations

import itertools
from typing import Any

from gdpo_nemo.errors import InputError, PrerequisiteError
from gdpo_nemo.evaluation.samplers.chat_template import ChatTemplate
from gdpo_nemo.evaluation.sampling import (
    Completion,
    ContextOverflowError,
    Messages,
    RejectedError,
    SamplingParams,
    TransientError,
)


class Vllm:
    """A model folder or hub id on vLLM."""

    def __init__(self, name: str, *, dtype: str = "auto", **engine: Any) -> None:
        """Prepare the engine; it starts with the first request.

        Args:
            name: of the model.
            dtype: of the weights.
            engine: further arguments of vLLM's ``AsyncEngineArgs``, e.g. ``tensor_parallel_size``.

        Raises:
            PrerequisiteError: vLLM is missing.
        """
        try:
            import vllm
        except ImportError as error:
            raise PrerequisiteError("--engine vllm needs vLLM: pip install 'gdpo-nemo[vllm]'") from error
        self._vllm, self._ids = vllm, itertools.count()
        self.name, self.dtype, self.options = name, dtype, engine
        self._engine: Any = None
        self._tokenizer: Any = None
        self._template: Any = None

    def describe(self) -> dict[str, Any]:
        """The model's name and precision, and the engine's release."""
        return {"kind": "vllm", "name": self.name, "dtype": self.dtype, "vllm": self._vllm.__version__}

    async def complete(self, messages: Messages, params: SamplingParams) -> Completion:
        """Answer one conversation.

        Raises:
            ContextOverflowError: prompt and answer are longer than the model's context.
            TransientError: the engine gave the request up.
            RejectedError: it does not take the request.
            PrerequisiteError: it has died, or as ``ChatTemplate.prompt``.
            InputError: ``params`` asks for what this sampler cannot do.
        """
        if set(params.extra) - {"tools"}:
            raise InputError("vLLM in this process takes no further keys of a request")
        if self._engine is None:
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.v1.engine.async_llm import AsyncLLM

            arguments = AsyncEngineArgs(model=self.name, dtype=self.dtype, **self.options)
            self._engine = AsyncLLM.from_engine_args(arguments)
            self._tokenizer = self._engine.get_tokenizer()
            self._template = ChatTemplate(self._tokenizer, self.name)
        text = self._template.prompt(messages, params.extra.get("tools", ()))
        ids = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        longest = self._engine.model_config.max_model_len
        if len(ids) + params.max_tokens > longest:
            raise ContextOverflowError(
                f"{len(ids)} tokens of prompt and {params.max_tokens} of answer exceed the context of {longest}; "
                "lower --max-tokens"
            )
        wanted = self._vllm.SamplingParams(
            temperature=params.temperature,
            top_p=params.top_p,
            max_tokens=params.max_tokens,
            seed=params.seed,
            stop=list(params.stop) or None,
            skip_special_tokens="tools" not in params.extra,  # the tags of a call are special in some vocabularies
            output_kind=self._vllm.sampling_params.RequestOutputKind.FINAL_ONLY,
        )
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            answers = [a async for a in self._engine.generate({"prompt_token_ids": ids}, wanted, str(next(self._ids)))]
        except EngineDeadError as error:
            raise PrerequisiteError(f"vLLM's engine has died ({error}); the same command goes on") from error
        except ValueError as error:
            raise RejectedError(f"vLLM refuses the request: {error}") from error
        said = answers[-1].outputs[0]
        if said.finish_reason not in ("stop", "length"):
            raise TransientError(f"vLLM gave up in the middle of an answer ({said.finish_reason})")
        ended = bool(said.token_ids) and said.finish_reason == "stop" and not params.stop
        return Completion(said.text, said.finish_reason, len(ids), len(said.token_ids) - ended)

    async def close(self) -> None:
        """Stop the engine."""
        if self._engine is not None:
            self._engine.shutdown()
            self._engine = None
