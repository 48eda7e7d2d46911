"""Batched sampling with a KV cache: each prompt is read once, then its G rollouts decode together."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, Qwen2ForCausalLM

from gdpo_nemo.errors import InputError, NonFiniteError
from gdpo_nemo.types import Prompt, Rollout

# transformers renamed the argument in release 5.24
CACHE_ARGUMENT = "cache" if "cache" in inspect.signature(Qwen2ForCausalLM.forward).parameters else "past_key_values"


@dataclass(frozen=True)
class Samples:
    """G rollouts for each of P prompts, prompt-major (B = P * G).

    Attributes:
        ids_B_T: prompt (left-padded) and response (right-padded) token ids.
        attention_B_T: False on padding.
        response_B_R: True on response tokens, end token included; R = T minus the prompt width.
        entropy_B_R: of the distribution that each response token was drawn from, in nats; 0 on padding.
        rollouts: the decoded responses.
    """

    ids_B_T: Tensor
    attention_B_T: Tensor
    response_B_R: Tensor
    entropy_B_R: Tensor
    rollouts: tuple[Rollout, ...]


def encode(tokenizer: Any, prompts: Sequence[Prompt]) -> list[list[int]]:
    """Token ids of each prompt under the tokenizer's chat template, ready for a response."""
    conversations = [[{"role": m.role, "content": m.content} for m in prompt.messages] for prompt in prompts]
    texts = tokenizer.apply_chat_template(conversations, add_generation_prompt=True, tokenize=False)
    ids: list[list[int]] = tokenizer(texts, add_special_tokens=False)["input_ids"]
    return [own[-(prompt.keep_last or 0) :] for own, prompt in zip(ids, prompts, strict=True)]


def left_pad(sequences: Sequence[Sequence[int]], pad_id: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Ids [P, T] and a bool mask [P, T] that is False on padding."""
    width = max(map(len, sequences))
    ids = torch.tensor([[pad_id] * (width - len(s)) + list(s) for s in sequences], device=device)
    mask = torch.tensor([[False] * (width - len(s)) + [True] * len(s) for s in sequences], device=device)
    return ids, mask


def sample(
    model: Any, tokenizer: Any, prompts: Sequence[Prompt], *, rollouts_per_prompt: int, max_new_tokens: int,
    temperature: float, seed: int,
) -> Samples:  # fmt: skip
    """Draw rollouts; equal arguments and weights give equal rollouts on one machine.

    Args:
        model: a causal LM; sampled in eval mode, its own mode is restored.
        tokenizer: its tokenizer, with a chat template, an end and a pad token.
        prompts: P prompts.
        rollouts_per_prompt: G.
        max_new_tokens: longest response, end token included.
        temperature: of the softmax; 0 is greedy.
        seed: of this call's own generator.

    Raises:
        InputError: prompt and response do not fit the model's sliding attention window.
        NonFiniteError: the model's probabilities are no numbers.
    """
    device, pad_id, end_id = model.device, tokenizer.pad_token_id, tokenizer.eos_token_id
    prompt_ids, prompt_mask = left_pad(encode(tokenizer, prompts), pad_id, device)
    width = prompt_ids.shape[1]
    window = getattr(model.config.get_text_config(), "sliding_window", None)
    if window is not None and width + max_new_tokens > window:
        raise InputError(f"{width} + {max_new_tokens} tokens exceed the model's attention window of {window}")
    live = torch.arange(len(prompts) * rollouts_per_prompt, device=device)  # rollouts without an end token yet
    row = prompt_of = live // rollouts_per_prompt  # where in the batch each of them stands
    generator = torch.Generator(device).manual_seed(seed)
    chances = torch.rand(len(live), max_new_tokens, generator=generator, dtype=torch.float64, device=device)
    response = torch.full(chances.shape, pad_id, device=device)
    entropy, length = torch.zeros(chances.shape, device=device), torch.zeros_like(live)
    was_training = model.training
    model.eval()
    with torch.inference_mode():
        cache = DynamicCache()
        with_cache = {CACHE_ARGUMENT: cache, "use_cache": True, "logits_to_keep": 1}
        sees = prompt_mask[:, None] & torch.ones(width, width, dtype=torch.bool, device=device).tril()
        call = {"attention_mask": additive_mask(sees, model.dtype), "position_ids": positions(prompt_mask)}
        logits = model(input_ids=prompt_ids, **call, **with_cache).logits[:, -1]
        mask = torch.nn.functional.pad(additive_mask(prompt_mask[:, None], model.dtype), (0, max_new_tokens))
        position = prompt_mask.sum(dim=1, keepdim=True)
        for t in range(max_new_tokens):
            tokens, entropy[live, t] = _draw(logits[row], temperature, chances[live, t])
            if not (known := entropy[live, t].isfinite()).all():
                first = int(live[~known][0])
                whose = f"row {prompts[first // rollouts_per_prompt].row_id!r}, rollout {first % rollouts_per_prompt}"
                model.train(was_training)
                raise NonFiniteError(f"the model's probabilities for token {t + 1} of {whose} are no numbers")
            response[live, t] = tokens
            length[live] += 1
            going = tokens != end_id
            live = live[going]
            if len(live) == 0 or t + 1 == max_new_tokens:
                break
            # rollouts of one prompt that have said the same so far share a row of the batch
            number, row = torch.unique(row[going] * logits.shape[1] + tokens[going], return_inverse=True)
            parent, token = number // logits.shape[1], number % logits.shape[1]
            cache.batch_select_indices(parent)
            mask, position = mask[parent], position[parent]
            call = {"attention_mask": mask[..., : width + t + 1], "position_ids": position + t}
            logits = model(input_ids=token[:, None], **call, **with_cache).logits[:, -1]
    model.train(was_training)
    response_B_R = torch.arange(int(length.max()), device=device) < length[:, None]
    response, entropy = response[:, : response_B_R.shape[1]], entropy[:, : response_B_R.shape[1]]
    said = [ids[:n] for ids, n in zip(response.tolist(), length.tolist(), strict=True)]
    ended = [ids[-1] == end_id for ids in said]
    texts = tokenizer.batch_decode(
        [ids[: len(ids) - end] for ids, end in zip(said, ended, strict=True)], clean_up_tokenization_spaces=False
    )
    rollouts = tuple(
        Rollout(prompts[p].row_id, i % rollouts_per_prompt, texts[i], len(said[i]) - ended[i], not ended[i])
        for i, p in enumerate(prompt_of.tolist())
    )
    ids_B_T = torch.cat([prompt_ids[prompt_of], response], dim=1)
    attention_B_T = torch.cat([prompt_mask[prompt_of], response_B_R], dim=1)
    return Samples(ids_B_T, attention_B_T, response_B_R, entropy, rollouts)


def _draw(logits_B_V: Tensor, temperature: float, chances_B: Tensor) -> tuple[Tensor, Tensor]:
    """One token per row by inverting the cumulative distribution at a chance in [0, 1), and the entropy in nats."""
    if temperature == 0:
        return logits_B_V.argmax(dim=-1), torch.zeros(len(logits_B_V), device=logits_B_V.device)
    probabilities = torch.softmax(logits_B_V.float() / temperature, dim=-1)
    cumulative = probabilities.cumsum(dim=-1, dtype=torch.float64)
    tokens = torch.searchsorted(cumulative, (1 - chances_B[:, None]) * cumulative[:, -1:])[:, 0]
    return tokens, torch.special.entr(probabilities).sum(dim=-1)


def positions(mask_B_T: Tensor) -> Tensor:
    """Position ids [B, T] that start at 0 on the first token that is not padding."""
    return (mask_B_T.long().cumsum(dim=1) - 1).clamp(min=0)


def additive_mask(sees_B_Q_K: Tensor, dtype: torch.dtype) -> Tensor:
    """Attention mask [B, 1, Q, K]: 0 where a query sees a key, else very small; every attention code can add it."""
    return (~sees_B_Q_K).to(dtype).mul_(torch.finfo(dtype).min)[:, None]
