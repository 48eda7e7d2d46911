"""Batched sampling with a KV cache: each prompt is read once, then its G rollouts decode together."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, Qwen2ForCausalLM

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
        rollouts: the decoded responses.
    """

    ids_B_T: Tensor
    attention_B_T: Tensor
    response_B_R: Tensor
    rollouts: tuple[Rollout, ...]


def encode(tokenizer: Any, prompts: Sequence[Prompt]) -> list[list[int]]:
    """Token ids of each prompt under the tokenizer's chat template, ready for a response."""
    conversations = [[{"role": m.role, "content": m.content} for m in prompt.messages] for prompt in prompts]
    texts = tokenizer.apply_chat_template(conversations, add_generation_prompt=True, tokenize=False)
    ids: list[list[int]] = tokenizer(texts, add_special_tokens=False)["input_ids"]
    return ids


def left_pad(sequences: Sequence[Sequence[int]], pad_id: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Ids [P, T] and a bool mask [P, T] that is False on padding."""
    width = max(map(len, sequences))
    ids = torch.tensor([[pad_id] * (width - len(s)) + list(s) for s in sequences], device=device)
    mask = torch.tensor([[False] * (width - len(s)) + [True] * len(s) for s in sequences], device=device)
    return ids, mask


@torch.no_grad()
def sample(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[Prompt],
    *,
    rollouts_per_prompt: int,
    max_new_tokens: int,
    temperature: float,
    seed: int,
) -> Samples:
    """Draw rollouts; equal arguments and weights give equal rollouts on one machine.

    Args:
        model: a causal LM; sampled in eval mode, its own mode is restored.
        tokenizer: its tokenizer, with a chat template, an end and a pad token.
        prompts: P prompts.
        rollouts_per_prompt: G.
        max_new_tokens: longest response, end token included.
        temperature: of the softmax; 0 is greedy.
        seed: of this call's own generator.
    """
    device = model.device
    prompt_ids, prompt_mask = left_pad(encode(tokenizer, prompts), tokenizer.pad_token_id, device)
    generator = torch.Generator(device).manual_seed(seed)
    was_training = model.training
    model.eval()
    cache = DynamicCache()
    with_cache = {CACHE_ARGUMENT: cache, "use_cache": True}
    output = model(
        input_ids=prompt_ids, attention_mask=prompt_mask, position_ids=positions(prompt_mask), logits_to_keep=1,
        **with_cache,
    )  # fmt: skip
    cache.batch_repeat_interleave(rollouts_per_prompt)
    logits = output.logits[:, -1].repeat_interleave(rollouts_per_prompt, dim=0)
    prompt_ids = prompt_ids.repeat_interleave(rollouts_per_prompt, dim=0)
    prompt_mask = prompt_mask.repeat_interleave(rollouts_per_prompt, dim=0)
    batch, width = prompt_ids.shape
    response = torch.full((batch, max_new_tokens), tokenizer.pad_token_id, device=device)
    ended_at = torch.full((batch,), max_new_tokens, device=device)
    mask = torch.cat([prompt_mask, torch.ones(batch, max_new_tokens, dtype=torch.bool, device=device)], dim=1)
    next_position = prompt_mask.sum(dim=1)
    live = torch.arange(batch, device=device)
    for t in range(max_new_tokens):
        tokens = _draw(logits, temperature, generator)
        unended = ended_at[live] == max_new_tokens  # rows stay in the batch for a while after their end token
        running = unended & (tokens != tokenizer.eos_token_id)
        response[live[unended], t] = tokens[unended]
        ended_at[live[unended & ~running]] = t
        num_running = int(running.sum())
        if num_running == 0 or t + 1 == max_new_tokens:
            break
        if num_running <= 0.75 * len(live):  # shrink the batch once enough rollouts have ended
            kept = running.nonzero()[:, 0]
            cache.batch_select_indices(kept)
            live, tokens = live[kept], tokens[kept]
        output = model(
            input_ids=tokens[:, None],
            attention_mask=mask[live, None, None, : width + t + 1],
            position_ids=next_position[live, None] + t,
            **with_cache,
        )
        logits = output.logits[:, -1]
    model.train(was_training)
    return _collect(tokenizer, prompts, prompt_ids, prompt_mask, response, ended_at, rollouts_per_prompt)


def _draw(logits_B_V: Tensor, temperature: float, generator: torch.Generator) -> Tensor:
    if temperature == 0:
        return logits_B_V.argmax(dim=-1)
    probabilities = torch.softmax(logits_B_V.float() / temperature, dim=-1)
    return torch.multinomial(probabilities, 1, generator=generator)[:, 0]


def positions(mask_B_T: Tensor) -> Tensor:
    """Position ids [B, T] that start at 0 on the first token that is not padding."""
    return (mask_B_T.long().cumsum(dim=1) - 1).clamp(min=0)


def _collect(
    tokenizer: Any, prompts: Sequence[Prompt], prompt_ids: Tensor, prompt_mask: Tensor, response: Tensor,
    ended_at: Tensor, rollouts_per_prompt: int,
) -> Samples:  # fmt: skip
    limit = response.shape[1]
    truncated = (ended_at == limit).tolist()
    lengths = ended_at.tolist()
    longest = min(max(lengths) + 1, limit)
    steps = torch.arange(longest, device=response.device)
    response_mask = steps[None, :] <= ended_at[:, None]
    ids = torch.cat([prompt_ids, response[:, :longest]], dim=1)
    texts = tokenizer.batch_decode(
        [row[:n] for row, n in zip(response.tolist(), lengths, strict=True)], clean_up_tokenization_spaces=False
    )
    rollouts = tuple(
        Rollout(prompts[i // rollouts_per_prompt].row_id, i % rollouts_per_prompt, text, lengths[i], truncated[i])
        for i, text in enumerate(texts)
    )
    return Samples(ids, torch.cat([prompt_mask, response_mask], dim=1), response_mask, rollouts)
