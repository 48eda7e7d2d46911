"""A model in this process: batches of conversations through ``transformers``, on the CPU or one GPU.

Requests that wait together are answered together. Each has a random stream of its own, so that an answer does not
depend on its neighbours in the batch, but for rounding.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gdpo_nemo.errors import InputError, PrerequisiteError
from gdpo_nemo.evaluation.samplers.chat_template import ChatTemplate
from gdpo_nemo.evaluation.sampling import Completion, ContextOverflowError, Messages, SamplingParams

if TYPE_CHECKING:
    from torch import Tensor

Waiting = tuple[list[int], SamplingParams, "asyncio.Future[Completion]"]


class Transformers:
    """A causal LM in Hugging Face form."""

    def __init__(self, name: str, *, device: str | None = None, dtype: str = "float32", batch_size: int = 16) -> None:
        """Load the model.

        Args:
            name: a folder (a checkpoint of the embedded backend, too), a hub id, or ``smollm2``.
            device: of torch; None: the GPU where there is one.
            dtype: of the weights.
            batch_size: conversations that are answered together.

        Raises:
            PrerequisiteError: torch or transformers is missing, or the model cannot be loaded.
        """
        try:
            import torch

            from gdpo_nemo.models.pretrained import load_pretrained, load_saved
        except ImportError as error:
            raise PrerequisiteError(
                "a model in this process needs torch and transformers: pip install 'gdpo-nemo[embedded]'"
            ) from error
        ours = (Path(name) / "optimizer.pt").exists()
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        model, self.tokenizer = load_saved(Path(name)) if ours else load_pretrained(name)
        self.model = model.to(device, getattr(torch, dtype)).eval()
        self.name, self.dtype, self.batch_size = name, dtype, batch_size
        self.template = ChatTemplate(self.tokenizer, name)
        self._waiting: list[Waiting] = []
        self._worker: asyncio.Task[None] | None = None

    def describe(self) -> dict[str, Any]:
        """The model's name and precision."""
        return {"kind": "transformers", "name": self.name, "dtype": self.dtype}

    async def complete(self, messages: Messages, params: SamplingParams) -> Completion:
        """Answer one conversation, together with others that wait.

        Raises:
            ContextOverflowError: prompt and answer are longer than the model's positions.
            PrerequisiteError, RejectedError: as ``ChatTemplate.prompt``.
            InputError: ``params`` asks for what this sampler cannot do.
        """
        if params.stop or set(params.extra) - {"tools"}:
            raise InputError("transformers in this process takes neither stop texts nor further keys of a request")
        text = self.template.prompt(messages, params.extra.get("tools", ()))
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        longest = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        if longest is not None and len(ids) + params.max_tokens > longest:
            raise ContextOverflowError(
                f"{len(ids)} tokens of prompt and {params.max_tokens} of answer exceed the model's {longest}; "
                "lower --max-tokens"
            )
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiting.append((ids, params, future))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await future

    async def close(self) -> None:
        """Stop answering."""
        if self._worker is not None:
            self._worker.cancel()
            self._worker = None
        self._waiting.clear()

    async def _work(self) -> None:
        while self._waiting:
            await asyncio.sleep(0)  # let those in that ask at the same time
            kind = _kind(self._waiting[0][1])
            batch = [waiting for waiting in self._waiting if _kind(waiting[1]) == kind][: self.batch_size]
            self._waiting = [waiting for waiting in self._waiting if waiting not in batch]
            try:
                answers = await asyncio.to_thread(self._generate, [w[0] for w in batch], [w[1] for w in batch])
            except Exception as error:  # belongs to those who asked
                for _, _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, _, future), answer in zip(batch, answers, strict=True):
                if not future.done():
                    future.set_result(answer)

    def _generate(self, prompts: Sequence[list[int]], params: Sequence[SamplingParams]) -> list[Completion]:
        import torch

        from gdpo_nemo.models.sampling import left_pad

        tokenizer = self.tokenizer
        ids, mask = left_pad(prompts, tokenizer.pad_token_id, self.model.device)
        draw = _Draw(params, ids.shape[1])
        with torch.inference_mode():
            output = self.model.generate(
                input_ids=ids,
                attention_mask=mask.long(),
                max_new_tokens=params[0].max_tokens,
                do_sample=False,
                logits_processor=[draw],
                pad_token_id=tokenizer.pad_token_id,
                eos_token_id=tokenizer.eos_token_id,
                **NEUTRAL,
            )
        answers = []
        for prompt, said in zip(prompts, output[:, ids.shape[1] :].tolist(), strict=True):
            ended = tokenizer.eos_token_id in said
            said = said[: said.index(tokenizer.eos_token_id)] if ended else said
            text = tokenizer.decode(said, skip_special_tokens=False, clean_up_tokenization_spaces=False)
            answers.append(Completion(text, "stop" if ended else "length", len(prompt), len(said)))
        return answers


# A model's generation_config must not add penalties of its own to what was asked for.
NEUTRAL = {"repetition_penalty": 1.0, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "no_repeat_ngram_size": 0}


def _kind(params: SamplingParams) -> tuple[Any, ...]:
    return params.temperature, params.top_p, params.max_tokens


class _Draw:
    """Leaves ``generate`` one token per row to choose: drawn at temperature and top-p from the row's own stream."""

    def __init__(self, params: Sequence[SamplingParams], width: int) -> None:
        import torch

        self.params, self.width = params[0], width
        self.generators = [torch.Generator() for _ in params]
        for generator, own in zip(self.generators, params, strict=True):
            generator.seed() if own.seed is None else generator.manual_seed(own.seed)

    def __call__(self, input_ids: Tensor, scores_B_V: Tensor) -> Tensor:
        """Logits that are 0 at the drawn token and minus infinity elsewhere."""
        import torch

        if self.params.temperature == 0:
            return scores_B_V
        ordered, tokens = torch.softmax(scores_B_V.float() / self.params.temperature, dim=-1).sort(descending=True)
        before = ordered.cumsum(dim=-1) - ordered
        kept = ordered.masked_fill(before >= self.params.top_p, 0).cumsum(dim=-1, dtype=torch.float64)
        chances = torch.stack([torch.rand((), generator=own, dtype=torch.float64) for own in self.generators])
        at = torch.searchsorted(kept, chances[:, None].to(kept.device) * kept[:, -1:], right=True)
        drawn = tokens.gather(1, at.clamp(max=tokens.shape[1] - 1))
        return torch.full_like(scores_B_V, -torch.inf).scatter_(1, drawn, 0.0)
