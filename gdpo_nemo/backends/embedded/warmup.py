"""Supervised warm-up: the world's facts and the format first, then a noisy mix of behaviours.

Rows of your own are their own demonstrations: the model is shown their gold answers, in one phase.
"""

from __future__ import annotations

import time
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from gdpo_nemo.backends.embedded.train import new_optimizer
from gdpo_nemo.config import RunConfig
from gdpo_nemo.evaluation.heldout import evaluate
from gdpo_nemo.method import Method
from gdpo_nemo.models import describe, load
from gdpo_nemo.models.pretrained import save
from gdpo_nemo.models.sampling import encode, left_pad, positions
from gdpo_nemo.randomness import stream
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.source import row_source
from gdpo_nemo.types import Row
from gdpo_nemo.worlds import demonstrate

REPORT_EVERY = 25


def warm_up(run: RunDir, config: RunConfig) -> None:
    """Train the model that every arm starts from, evaluate it, and finish the run.

    A killed warm-up starts again from the beginning, since it is short; one that has its checkpoint is evaluated.
    """
    spec = config.embedded.warmup
    method = Method(config.gdpo)
    start, checkpoint = run.resume_point()
    model, tokenizer = load(config.embedded, checkpoint, config.gdpo)
    print(f"warm-up of {describe(model)}: {spec.clean_steps} clean and {spec.noisy_steps} noisy steps")
    optimizer = new_optimizer(model, spec.lr, spec.weight_decay)
    rng = stream(spec.seed, "warmup")
    pool = demonstration_pool(tokenizer, config, rng)
    total, started = spec.clean_steps + spec.noisy_steps, time.perf_counter()
    for step in range(start + 1, total + 1):
        clean = step <= spec.clean_steps
        for group in optimizer.param_groups:
            group["lr"] = _learning_rate(step, spec.clean_steps, spec.lr) if clean else spec.noisy_lr
        loss = supervised_step(model, tokenizer, optimizer, config, pool, rng, clean=clean)
        if step % REPORT_EVERY == 0 or step == total:
            run.append_metrics({"step": step, "phase": "clean" if clean else "noisy", "loss": loss})
            run.append_timing({"step": step, "elapsed_s": time.perf_counter() - started})
    if checkpoint is None:
        with run.new_checkpoint(total) as folder:
            save(model, tokenizer, folder)
    run.finish({"steps": total, "evaluation": evaluate(model, tokenizer, run, config, method)})


Pool = list[tuple[Row, list[int]]]  # rows with the token ids of their prompts


def demonstration_pool(tokenizer: Any, config: RunConfig, rng: np.random.Generator) -> Pool:
    """The rows that demonstrations are drawn for; each prompt is encoded once."""
    source, most = row_source(config.gdpo, config.embedded.data), config.embedded.warmup.pool_rows
    rows = list(islice(source.rows("train", rng), min(most, source.num_rows("train") or most)))
    return list(zip(rows, encode(tokenizer, [source.prompt(row) for row in rows]), strict=True))


def supervised_step(
    model: Any,
    tokenizer: Any,
    optimizer: torch.optim.Optimizer,
    config: RunConfig,
    pool: Pool,
    rng: np.random.Generator,
    *,
    clean: bool,
) -> float:
    """One optimiser step on a batch of fresh demonstrations; returns the loss in nats per token."""
    model.train()
    spec, world = config.embedded.warmup, config.embedded.data
    batch = [pool[i] for i in rng.integers(len(pool), size=spec.batch_size)]
    if config.gdpo.data is not None:
        texts = [row.gold for row, _ in batch]
    else:
        texts = [demonstrate(world, row, rng, clean=clean) for row, _ in batch]
    loss = _supervised_loss(model, tokenizer, [prompt for _, prompt in batch], texts)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def _learning_rate(step: int, total: int, peak: float) -> float:
    """Linear ramp over the first 5 %, then linear decay to a tenth."""
    ramp = max(1, total // 20)
    return peak * min(step / ramp, 1 - 0.9 * max(0, step - ramp) / max(1, total - ramp))


def _supervised_loss(model: Any, tokenizer: Any, prompts: list[list[int]], texts: list[str]) -> torch.Tensor:
    """Mean negative log-likelihood of the response tokens, end token included."""
    responses = [[*ids, tokenizer.eos_token_id] for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]]
    whole = [prompt + response for prompt, response in zip(prompts, responses, strict=True)]
    ids, mask = left_pad(whole, tokenizer.pad_token_id, model.device)
    from_end = torch.arange(ids.shape[1], 0, -1, device=ids.device)
    lengths = torch.tensor([len(response) for response in responses], device=ids.device)
    longest = int(lengths.max())
    is_response = from_end[None, :] <= lengths[:, None]
    logits = model(
        input_ids=ids, attention_mask=mask, position_ids=positions(mask), logits_to_keep=longest + 1, use_cache=False
    ).logits[:, :-1]
    targets = ids[:, -longest:].masked_fill(~is_response[:, -longest:], -100)
    return functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
