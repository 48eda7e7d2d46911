"""The reinforcement-learning loop: sample groups, score, advantages, clipped surrogate, AdamW.

Each step depends on the configuration, the seed and the weights alone (every random stream is named
by its step), so a run resumed from a checkpoint repeats what an uninterrupted run does.
"""

from __future__ import annotations

import time
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gdpo_nemo.backends.embedded import base_dir
from gdpo_nemo.config import RunConfig, TrainConfig
from gdpo_nemo.errors import RunDirError
from gdpo_nemo.evaluation.heldout import evaluate
from gdpo_nemo.losses import clipped_surrogate, kl_estimate, token_weights
from gdpo_nemo.method import Method
from gdpo_nemo.models import describe, load
from gdpo_nemo.models.pretrained import save
from gdpo_nemo.models.sampling import Samples, additive_mask, positions, sample
from gdpo_nemo.prompts.tool_calling import build_prompt
from gdpo_nemo.randomness import stream, stream_seed
from gdpo_nemo.run_dir import RunDir


def train(run: RunDir, config: RunConfig) -> None:
    """Train from the base model or the last checkpoint, evaluate, and finish the run.

    Raises:
        RunDirError: the base model is not there or unfinished.
    """
    spec = config.embedded.train
    method = Method(config.gdpo)
    start, checkpoint = run.resume_point()
    base = _base_checkpoint(run, config)
    model, tokenizer = load(config.embedded, checkpoint or base)
    reference = load(config.embedded, base)[0].eval() if spec.loss.kl_coef else None
    optimizer = new_optimizer(model, spec.lr, spec.weight_decay)
    if checkpoint:
        optimizer.load_state_dict(torch.load(checkpoint / "optimizer.pt", weights_only=True))
    print(f"{describe(model)}; steps {start + 1} to {spec.steps}")
    for step in range(start + 1, spec.steps + 1):
        started = time.perf_counter()
        metrics, timing = train_step(model, tokenizer, reference, optimizer, config, method, step)
        run.append_metrics({"step": step} | metrics)
        if step % spec.checkpoint_every == 0 or step == spec.steps:
            with run.new_checkpoint(step) as folder:
                save(model, tokenizer, folder)
                torch.save(optimizer.state_dict(), folder / "optimizer.pt")
        run.append_timing({"step": step, "step_s": time.perf_counter() - started} | timing)
    run.finish({"steps": spec.steps, "evaluation": evaluate(model, tokenizer, run, config, method)})


def new_optimizer(model: Any, lr: float, weight_decay: float) -> torch.optim.Optimizer:
    """AdamW over all parameters."""
    return torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=weight_decay, fused=True)


def _base_checkpoint(run: RunDir, config: RunConfig) -> Path | None:
    if config.base is None:
        return None
    base = RunDir(base_dir(run.path, config.base))
    if not base.exists() or base.result() is None:
        raise RunDirError(f"the warm-up model {base.path} is missing or unfinished; `gdpo run` makes it first")
    return base.checkpoints()[-1][1]


def train_step(
    model: Any, tokenizer: Any, reference: Any | None, optimizer: torch.optim.Optimizer, config: RunConfig,
    method: Method, step: int,
) -> tuple[dict[str, float], dict[str, float]]:  # fmt: skip
    """One batch of rollouts and the optimiser steps on it; returns metrics and wall times in seconds."""
    spec = config.embedded.train
    rows = list(islice(config.embedded.data.rows("train", stream(config.seed, "data", step)), spec.prompts_per_step))
    started = time.perf_counter()
    samples = sample(
        model, tokenizer, [build_prompt(row) for row in rows], seed=stream_seed(config.seed, "sampling", step),
        rollouts_per_prompt=spec.rollouts_per_prompt, max_new_tokens=spec.max_new_tokens, temperature=spec.temperature,
    )  # fmt: skip
    sampled = time.perf_counter()
    group_ids_B = torch.arange(len(rows)).repeat_interleave(spec.rollouts_per_prompt)
    vectors = [method.reward(rows[int(g)], rollout) for g, rollout in zip(group_ids_B, samples.rollouts, strict=True)]
    advantages_B, health = method.advantages(method.matrix(vectors), group_ids_B)
    scored = time.perf_counter()
    updates = update(model, reference, optimizer, samples, advantages_B, spec)
    lengths = [rollout.length_tokens for rollout in samples.rollouts]
    metrics = health.as_metrics() | updates | {"length/mean": sum(lengths) / len(lengths)}
    metrics["frac_truncated"] = sum(r.truncated for r in samples.rollouts) / len(samples.rollouts)
    timing = {"sample_s": sampled - started, "score_s": scored - sampled, "update_s": time.perf_counter() - scored}
    return metrics, timing


def update(
    model: Any,
    reference: Any | None,
    optimizer: torch.optim.Optimizer,
    samples: Samples,
    advantages_B: Tensor,
    spec: TrainConfig,
) -> dict[str, float]:
    """The optimiser steps on one batch, mini-batch by mini-batch, micro-batch by micro-batch."""
    everything = torch.arange(len(advantages_B), device=samples.ids_B_T.device)
    advantages_B = advantages_B.to(everything.device)
    per_minibatch = (spec.minibatch_prompts or spec.prompts_per_step) * spec.rollouts_per_prompt
    per_microbatch = spec.microbatch_rollouts or per_minibatch
    old_logp = None  # one step per batch: the policy that sampled is the one that learns
    if per_minibatch < len(everything):
        with torch.no_grad():
            old_logp = torch.cat([_log_probs(model, samples, rows, spec) for rows in everything.split(per_microbatch)])
    totals = dict.fromkeys(("loss", "kl", "entropy", "clip_fraction", "grad_norm"), 0.0)
    minibatches = everything.split(per_minibatch)
    for minibatch in minibatches:
        weights = token_weights(samples.response_B_R[minibatch], spec.loss.aggregation)
        totals["entropy"] += (samples.entropy_B_R[minibatch] * weights).sum().item()
        if reference is None:  # then rows with advantage 0 have gradient 0; one is kept, so that there is a gradient
            learning = advantages_B[minibatch] != 0
            learning[0] = True
            minibatch, weights = minibatch[learning], weights[learning]
        optimizer.zero_grad(set_to_none=True)
        for rows, weight in zip(minibatch.split(per_microbatch), weights.split(per_microbatch), strict=True):
            logp = _log_probs(model, samples, rows, spec)
            old = logp.detach() if old_logp is None else old_logp[rows]
            policy, clipped = clipped_surrogate(
                logp, old, advantages_B[rows], clip_low=spec.loss.clip_low, clip_high=spec.loss.clip_high
            )
            loss = (policy * weight).sum()
            if reference is not None:
                with torch.no_grad():
                    reference_logp = _log_probs(reference, samples, rows, spec)
                kl = (kl_estimate(logp, reference_logp, spec.loss.kl_estimator) * weight).sum()
                loss = loss + spec.loss.kl_coef * kl
                totals["kl"] += kl.item()
            loss.backward()
            totals["loss"] += loss.item()
            totals["clip_fraction"] += (clipped * weight).sum().item()
        totals["grad_norm"] += torch.nn.utils.clip_grad_norm_(model.parameters(), spec.grad_clip).item()
        optimizer.step()
    return {name: total / len(minibatches) for name, total in totals.items()}


def _log_probs(model: Any, samples: Samples, rows: Tensor, spec: TrainConfig) -> Tensor:
    """Log-probabilities [b, R] of the response tokens of some rollouts, at the sampling temperature; 0 on padding.

    Responses to one prompt stand in one line behind it, and a mask lets each see the prompt and itself alone: the
    prompt is read once for all of them, and little of the batch is padding.
    """
    ids, attention, is_response = samples.ids_B_T[rows], samples.attention_B_T[rows], samples.response_B_R[rows]
    width = ids.shape[1] - is_response.shape[1]
    # In a line of 6 hidden sizes, attention costs as much as the matrix products: two thirds of that at most.
    per_line = max(1, 4 * model.config.hidden_size // is_response.shape[1])
    group, place = rows // spec.rollouts_per_prompt, rows % spec.rollouts_per_prompt
    _, line, counts = torch.unique_consecutive(
        group * spec.rollouts_per_prompt + place // per_line, return_inverse=True, return_counts=True
    )
    first = counts.cumsum(0) - counts  # the row that opens each line
    nth = is_response.flatten().cumsum(0).view_as(is_response)
    column = width + nth - nth[first, 0][line, None]
    owner = attention.long() - 1  # 0 is the prompt, -1 padding
    owner[:, width:] = torch.arange(1, len(rows) + 1, device=ids.device)[:, None]
    tokens = torch.stack([ids, positions(attention), owner], dim=-1)
    at = line[:, None].expand_as(column)[is_response], column[is_response]
    packed = tokens.new_zeros(len(first), int(at[1].max()) + 1, 3)
    packed[:, :width], packed[at] = tokens[first, :width], tokens[:, width:][is_response]
    packed_ids, position_ids, owner = packed.unbind(dim=-1)
    sees = ((owner[:, None] == 0) | (owner[:, None] == owner[:, :, None])).tril()
    before = column - width
    before[:, 0] = 0  # the prompt's last token predicts the first of each response
    logits = model(
        input_ids=packed_ids, attention_mask=additive_mask(sees, model.dtype), position_ids=position_ids,
        logits_to_keep=packed.shape[1] - width + 1, use_cache=False,
    ).logits[at[0], before[is_response]]  # fmt: skip
    logp = torch.log_softmax(logits.float() / spec.temperature, dim=-1).gather(-1, packed_ids[at][:, None])[:, 0]
    return logp.new_zeros(is_response.shape).masked_scatter(is_response, logp)
