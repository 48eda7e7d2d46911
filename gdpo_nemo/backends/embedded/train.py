"""The reinforcement-learning loop: sample groups, score, advantages, clipped surrogate, AdamW.

Each step depends on the configuration, the seed and the weights alone (every random stream is named
by its step), so a run resumed from a checkpoint repeats what an uninterrupted run does.
"""

from __future__ import annotations

import time
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from gdpo_nemo.backends.embedded import base_checkpoint, preference
from gdpo_nemo.backends.embedded.finite import check_gradient, check_kl, check_loss, check_rewards, left_out
from gdpo_nemo.config import RunConfig, TrainConfig
from gdpo_nemo.errors import NonFiniteError
from gdpo_nemo.evaluation.heldout import evaluate
from gdpo_nemo.health.following import Monitor
from gdpo_nemo.health.repetition import repetition
from gdpo_nemo.losses import clipped_surrogate, kl_estimate, token_weights
from gdpo_nemo.method import Method
from gdpo_nemo.models import describe, load
from gdpo_nemo.models.log_probs import log_probs, response_kl
from gdpo_nemo.models.pretrained import reading, save
from gdpo_nemo.models.sampling import Samples, sample
from gdpo_nemo.randomness import stream, stream_seed
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.source import row_source


def train(run: RunDir, config: RunConfig) -> None:
    """Train from the base model or the last checkpoint, evaluate, and finish the run.

    Raises:
        RunDirError: the base model is not there or unfinished, or a checkpoint is damaged.
        RunHaltedError: an alarm stops the run, now or earlier.
        NonFiniteError: a value is no number, and ``on_non_finite`` is ``stop``.
    """
    spec = config.embedded.train
    method = Method(config.gdpo)
    start, checkpoint = run.resume_point()
    monitor = Monitor(run, config.gdpo, start)
    base = base_checkpoint(run.path, config.base)
    wanted = spec.loss.kl_coef or config.gdpo.kl_in_reward or config.gdpo.method == "preference"
    with reading(base):
        reference = load(config.embedded, base, config.gdpo)[0].eval() if wanted else None
    with reading(checkpoint or base):
        method.restore(checkpoint)
        model, tokenizer = load(config.embedded, checkpoint or base, config.gdpo)
        optimizer = new_optimizer(model, spec.lr, spec.weight_decay)
        if checkpoint:
            optimizer.load_state_dict(torch.load(checkpoint / "optimizer.pt", weights_only=True))
    print(f"{describe(model)}; steps {start + 1} to {spec.steps}")
    for step in range(start + 1, spec.steps + 1):
        started = time.perf_counter()
        try:
            metrics, timing = train_step(model, tokenizer, reference, optimizer, config, method, step)
        except NonFiniteError as error:
            metrics, timing = left_out(error, step, spec), {}
        run.append_metrics({"step": step} | metrics)
        halted = monitor.look({"step": step} | metrics)
        if step % spec.checkpoint_every == 0 or step == spec.steps or halted:
            with run.new_checkpoint(step, healthy_until=monitor.healthy_until) as folder:
                save(model, tokenizer, folder)
                torch.save(optimizer.state_dict(), folder / "optimizer.pt")
                method.save(folder)
        run.append_timing({"step": step, "step_s": time.perf_counter() - started} | timing)
        if halted:
            raise halted
    run.finish({"steps": spec.steps, "evaluation": evaluate(model, tokenizer, run, config, method)})


def new_optimizer(model: Any, lr: float, weight_decay: float) -> torch.optim.Optimizer:
    """AdamW over all parameters."""
    return torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=weight_decay, fused=True)


def train_step(
    model: Any, tokenizer: Any, reference: Any | None, optimizer: torch.optim.Optimizer, config: RunConfig,
    method: Method, step: int,
) -> tuple[dict[str, float], dict[str, float]]:  # fmt: skip
    """One batch of rollouts and the optimiser steps on it; returns metrics and wall times in seconds."""
    spec = config.embedded.train
    source = row_source(config.gdpo, config.embedded.data)
    rows = list(islice(source.rows("train", stream(config.seed, "data", step)), spec.prompts_per_step))
    started = time.perf_counter()
    samples = sample(
        model, tokenizer, [source.prompt(row) for row in rows], seed=stream_seed(config.seed, "sampling", step),
        rollouts_per_prompt=spec.rollouts_per_prompt, max_new_tokens=spec.max_new_tokens, temperature=spec.temperature,
    )  # fmt: skip
    sampled = time.perf_counter()
    group_ids_B = torch.arange(len(rows)).repeat_interleave(spec.rollouts_per_prompt)
    vectors = method.score([rows[int(g)] for g in group_ids_B], samples.rollouts)
    check_rewards(vectors, samples.rollouts)
    kl_B = None
    if config.gdpo.kl_in_reward:
        kl_B = response_kl(model, reference, samples, spec.temperature, spec.microbatch_rollouts)
        check_kl(kl_B, samples.rollouts)
    if config.gdpo.method == "preference":
        scored = time.perf_counter()
        learned = preference.learn(model, tokenizer, reference, optimizer, config, method, step, rows, samples, vectors)
        metrics = learned | method.failures(vectors) | method.unused_means(vectors)
    else:
        rewards_B_K = method.matrix(vectors)
        advantages_B, health = method.advantages(rewards_B_K, group_ids_B, step=step, kl_B=kl_B)
        scored = time.perf_counter()
        metrics = health.as_metrics() | method.failures(vectors) | method.unused_means(vectors)
        graded_B, held = ~rewards_B_K.isnan().all(dim=1), reference if spec.loss.kl_coef else None
        metrics |= update(model, held, optimizer, samples, advantages_B, spec, graded_B)
    tokens, cut = zip(*((rollout.length_tokens, rollout.truncated) for rollout in samples.rollouts), strict=True)
    metrics |= {"length/mean": sum(tokens) / len(cut), "length/max": max(tokens), "frac_truncated": sum(cut) / len(cut)}
    metrics |= repetition([rollout.response for rollout in samples.rollouts[:: spec.rollouts_per_prompt]])
    return metrics, dict(sample_s=sampled - started, score_s=scored - sampled, update_s=time.perf_counter() - scored)


def update(
    model: Any, reference: Any | None, optimizer: torch.optim.Optimizer, samples: Samples, advantages_B: Tensor,
    spec: TrainConfig, graded_B: Tensor | None = None,
) -> dict[str, float]:  # fmt: skip
    """The optimiser steps on one batch, mini-batch by mini-batch, micro-batch by micro-batch.

    Rows that are not ``graded_B`` are in no mean of the loss, nor in its KL: as if they had not been drawn.
    """
    everything = torch.arange(len(advantages_B), device=samples.ids_B_T.device)
    advantages_B, drawn_B_R = advantages_B.to(everything.device), samples.response_B_R
    learned_B_R = drawn_B_R if graded_B is None else drawn_B_R & graded_B.to(everything.device)[:, None]
    per_minibatch = (spec.minibatch_prompts or spec.prompts_per_step) * spec.rollouts_per_prompt
    per_microbatch = spec.microbatch_rollouts or per_minibatch
    old_logp = None  # one step per batch: the policy that sampled is the one that learns
    if per_minibatch < len(everything):
        with torch.no_grad():
            parts = (log_probs(model, samples, rows, spec.temperature) for rows in everything.split(per_microbatch))
            old_logp = torch.cat([*parts])
    totals = dict.fromkeys(("loss", "kl", "entropy", "clip_fraction", "grad_norm"), 0.0)
    minibatches = everything.split(per_minibatch)
    for minibatch in minibatches:
        weights = token_weights(drawn_B_R[minibatch], spec.loss.aggregation)
        totals["entropy"] += (samples.entropy_B_R[minibatch] * weights).sum().item()
        weights = token_weights(learned_B_R[minibatch], spec.loss.aggregation)
        if reference is None:  # then rows with advantage 0 have gradient 0; one is kept, so that there is a gradient
            learning = advantages_B[minibatch] != 0
            learning[0] = True
            minibatch, weights = minibatch[learning], weights[learning]
        optimizer.zero_grad(set_to_none=True)
        for rows, weight in zip(minibatch.split(per_microbatch), weights.split(per_microbatch), strict=True):
            logp = log_probs(model, samples, rows, spec.temperature)
            old = logp.detach() if old_logp is None else old_logp[rows]
            policy, clipped = clipped_surrogate(
                logp, old, advantages_B[rows], clip_low=spec.loss.clip_low, clip_high=spec.loss.clip_high
            )
            loss, reference_logp = (policy * weight).sum(), None
            if reference is not None:
                with torch.no_grad():
                    reference_logp = log_probs(reference, samples, rows, spec.temperature)
                kl = (kl_estimate(logp, reference_logp, spec.loss.kl_estimator) * weight).sum()
                loss = loss + spec.loss.kl_coef * kl
                totals["kl"] += kl.item()
            check_loss(
                loss.item(), samples, rows, log_probability=logp, old_log_probability=old,
                reference_log_probability=reference_logp, policy_loss=policy,
            )  # fmt: skip
            loss.backward()
            totals["loss"] += loss.item()
            totals["clip_fraction"] += (clipped * weight).sum().item()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), spec.grad_clip).item()
        check_gradient(norm, model, samples, minibatch, spec.temperature)
        totals["grad_norm"] += norm
        optimizer.step()
    return {name: total / len(minibatches) for name, total in totals.items()}
