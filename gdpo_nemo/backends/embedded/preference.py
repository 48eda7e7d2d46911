"""One step of group-wise preference training (``gdpo.method: preference``): pairs of the batch, DPO's loss on them.

Equations: ``gdpo_nemo.preference``; the algorithm and its options: docs/preference.md. The reference is the model that
the run starts from, log-probabilities are those of the sampling temperature. The loss is a mean over the pairs of a
mini-batch; a mini-batch without any pair makes no optimiser step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from gdpo_nemo.advantages import diagnostics
from gdpo_nemo.backends.embedded.finite import check_gradient, check_loss, check_rewards
from gdpo_nemo.conditioning import apply_conditions
from gdpo_nemo.config import RunConfig
from gdpo_nemo.losses import token_weights
from gdpo_nemo.method import Method
from gdpo_nemo.models.log_probs import log_probs
from gdpo_nemo.models.sampling import Samples
from gdpo_nemo.preference import Pairs, borda, dpo, quantile_scores, response_logp, select
from gdpo_nemo.randomness import stream
from gdpo_nemo.types import RewardVector, Rollout, Row
from gdpo_nemo.worlds import demonstrate


def learn(
    model: Any, tokenizer: Any, reference: Any, optimizer: torch.optim.Optimizer, config: RunConfig, method: Method,
    step: int, rows: Sequence[Row], samples: Samples, vectors: Sequence[RewardVector],
) -> dict[str, float]:  # fmt: skip
    """The optimiser steps on one batch of G rollouts for each of P rows, and their metrics.

    Args:
        model: learns.
        tokenizer: of the run.
        reference: the model that training started from.
        optimizer: of the run.
        config: of the run.
        method: of the run.
        step: counted from 1; names the random stream of the anchors.
        rows: P.
        samples: P * G rollouts, prompt-major.
        vectors: the rewards of each rollout.
    """
    group_ids_B = torch.arange(len(rows)).repeat_interleave(len(vectors) // len(rows))
    rewards_B_K = method.matrix(vectors)
    health = diagnostics(_conditioned(method, rewards_B_K), group_ids_B, names=method.names, weights=method.weights)
    metrics = {name: value for name, value in health.as_metrics().items() if name.startswith("reward/")}
    metrics["entropy"] = (samples.entropy_B_R * token_weights(samples.response_B_R, "token_mean")).sum().item()
    anchor_B = torch.zeros(len(vectors), dtype=torch.bool)
    if config.gdpo.preference.anchors == "gold":
        samples, anchors = with_anchors(samples, tokenizer, rows, gold_answers(config, rows, step))
        graded = method.score(rows, anchors)
        check_rewards(graded, anchors)
        rewards_B_K = torch.cat([rewards_B_K, method.matrix(graded)])
        group_ids_B = torch.cat([group_ids_B, torch.arange(len(rows))])
        anchor_B = torch.cat([anchor_B, torch.ones(len(rows), dtype=torch.bool)])
    pairs = _pairs(method, rewards_B_K, group_ids_B, anchor_B)
    metrics |= pairs.as_metrics() | {"groups/alive": float(len(pairs.gap_N)), "groups/total": float(pairs.num_groups)}
    return metrics | update(model, reference, optimizer, samples, pairs, group_ids_B, config)


def update(
    model: Any, reference: Any, optimizer: torch.optim.Optimizer, samples: Samples, pairs: Pairs, group_ids_B: Tensor,
    config: RunConfig,
) -> dict[str, float]:  # fmt: skip
    """The optimiser steps on some pairs, mini-batch by mini-batch of groups, micro-batch by micro-batch of pairs."""
    spec, wanted = config.embedded.train, config.gdpo.preference
    groups_N = group_ids_B[pairs.winner_N]
    per_minibatch = spec.minibatch_prompts or spec.prompts_per_step
    pairs_2_N = torch.stack([pairs.winner_N, pairs.loser_N]).to(samples.ids_B_T.device)
    losses, margins, norms = list[float](), list[float](), list[float]()
    for first in range(0, spec.prompts_per_step, per_minibatch):
        minibatch_2_n = pairs_2_N[:, (groups_N >= first) & (groups_N < first + per_minibatch)]
        num_pairs = minibatch_2_n.shape[1]
        if num_pairs == 0:
            continue
        optimizer.zero_grad(set_to_none=True)
        for part_2_n in minibatch_2_n.split(max((spec.microbatch_rollouts or 2 * num_pairs) // 2, 1), dim=1):
            rows = part_2_n.flatten()
            logp = log_probs(model, samples, rows, spec.temperature)
            with torch.no_grad():
                ref_logp = log_probs(reference, samples, rows, spec.temperature)
            mask, floor = samples.response_B_R[rows], wanted.min_logp
            sums = [response_logp(tokens, mask, min_logp=floor).chunk(2) for tokens in (logp, ref_logp)]
            loss, margin = dpo(*sums[0], *sums[1], beta=wanted.beta)
            total = loss.sum() / num_pairs
            check_loss(total.item(), samples, rows, log_probability=logp, reference_log_probability=ref_logp)
            total.backward()
            losses += loss.tolist()
            margins += margin.tolist()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), spec.grad_clip).item())
        check_gradient(norms[-1], model, samples, minibatch_2_n.flatten(), spec.temperature)
        optimizer.step()
    num_pairs = len(losses)
    return {
        "loss": sum(losses) / num_pairs if num_pairs else 0.0,
        "grad_norm": sum(norms) / len(norms) if norms else 0.0,
        "preference/margin_mean": sum(margins) / num_pairs if num_pairs else math.nan,
        "preference/accuracy": sum(margin > 0 for margin in margins) / num_pairs if num_pairs else math.nan,
    }


def with_anchors(
    samples: Samples, tokenizer: Any, rows: Sequence[Row], texts: Sequence[str]
) -> tuple[Samples, list[Rollout]]:
    """P rollouts behind the P * G of the batch: one given answer to each row. Returns all of them, and the new ones."""
    num_rollouts, num_drawn = len(samples.rollouts) // len(rows), samples.response_B_R.shape[1]
    said = [[*ids, tokenizer.eos_token_id] for ids in tokenizer(list(texts), add_special_tokens=False)["input_ids"]]
    longest = max(num_drawn, *map(len, said))
    device, pad_id = samples.ids_B_T.device, tokenizer.pad_token_id
    response = torch.tensor([ids + [pad_id] * (longest - len(ids)) for ids in said], device=device)
    is_response = torch.tensor([[t < len(ids) for t in range(longest)] for ids in said], device=device)
    width = samples.ids_B_T.shape[1] - num_drawn
    prompt, prompt_mask = (whole[::num_rollouts, :width] for whole in (samples.ids_B_T, samples.attention_B_T))
    wider = (0, longest - num_drawn)
    anchors = [
        Rollout(row.id, num_rollouts, text, len(ids) - 1) for row, text, ids in zip(rows, texts, said, strict=True)
    ]
    everything = Samples(
        torch.cat([pad(samples.ids_B_T, wider, value=pad_id), torch.cat([prompt, response], dim=1)]),
        torch.cat([pad(samples.attention_B_T, wider), torch.cat([prompt_mask, is_response], dim=1)]),
        torch.cat([pad(samples.response_B_R, wider), is_response]),
        torch.cat([pad(samples.entropy_B_R, wider), samples.entropy_B_R.new_zeros(is_response.shape)]),
        (*samples.rollouts, *anchors),
    )
    return everything, anchors


def gold_answers(config: RunConfig, rows: Sequence[Row], step: int) -> list[str]:
    """One anchor per row, which the warm-up shows as clean: the gold of a row of one's own, or a demonstration."""
    if config.gdpo.data is not None:
        return [row.gold for row in rows]
    rng = stream(config.seed, "anchors", step)
    return [demonstrate(config.embedded.data, row, rng, clean=True) for row in rows]


def _pairs(method: Method, rewards_B_K: Tensor, group_ids_B: Tensor, anchor_B: Tensor) -> Pairs:
    wanted, veto, ranked_B_K = method.config.preference, method.config.veto, _conditioned(method, rewards_B_K)
    return select(
        group_ids_B,
        borda(ranked_B_K, group_ids_B, weights=method.weights),
        quantile_scores(ranked_B_K, weights=method.weights),
        temperature=wanted.temperature,
        min_gap=wanted.min_gap,
        vetoed_B=None if veto is None else rewards_B_K[:, method.names.index(veto.reward)] < veto.below,
        anchor_B=anchor_B,
    )


def _conditioned(method: Method, rewards_B_K: Tensor) -> Tensor:
    return apply_conditions(rewards_B_K, method.names, method.conditions, ranges=method.ranges)
