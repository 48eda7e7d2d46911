"""How rollouts divide into optimiser steps, replicas and micro-batches, as data. Line numbers as in ``constraints``."""

from __future__ import annotations

from collections.abc import Callable

from gdpo_nemo.cluster.layouts import nearest
from gdpo_nemo.cluster.rules import Rule
from gdpo_nemo.cluster.settings import Settings

GBS = "policy.train_global_batch_size"


def _global_batch(s: Settings) -> int:
    """The nearest size that divides the rollout batch and that the replicas divide."""
    return nearest(s.gbs, lambda size: s.samples % size == 0 and size % s.dp == 0, s.samples)


def _too_short(key: str) -> Callable[[Settings], bool]:
    return lambda s: s.packing and (s[key] or s.seq) < s.seq


BATCHES: tuple[Rule[Settings], ...] = (
    Rule(
        GBS,
        lambda s: s.samples % s.gbs,
        "{s.prompts} prompts x {s.rollouts} rollouts = {s.samples} is no multiple of "
        "policy.train_global_batch_size {s.gbs}",
        _global_batch,
        "batched_data_dict.py:395",
    ),
    Rule(
        GBS,
        lambda s: s.train_gpus % s.model_parallel == 0 and s.gbs % s.dp,  # else the layout is wrong, not the batch
        "policy.train_global_batch_size {s.gbs} is no multiple of the data parallel size {s.dp}",
        _global_batch,
        "batched_data_dict.py:400",
    ),
    Rule(
        "policy.train_micro_batch_size",
        lambda s: not (s.packing or s.dynamic_batching or s.gbs % s.dp) and s.gbs // s.dp % s.mbs,
        "policy.train_global_batch_size {s.gbs} over {s.dp} replicas is no multiple of "
        "policy.train_micro_batch_size {s.mbs}",
        lambda s: nearest(s.mbs, lambda size: s.gbs // s.dp % size == 0, s.mbs),
        "batched_data_dict.py:831",
    ),
    Rule(
        "policy.logprob_batch_size",
        lambda s: not (s.packing or s.dynamic_batching or s.samples % s.dp) and s.samples // s.dp % s.lbs,
        "{s.samples} rollouts over {s.dp} replicas is no multiple of policy.logprob_batch_size {s.lbs}",
        lambda s: nearest(s.lbs, lambda size: s.samples // s.dp % size == 0, s.lbs),
        "batched_data_dict.py:831",
    ),
    Rule(
        "policy.logprob_batch_size",
        lambda s: s.tp >= 4 and s.mbs != s.lbs and not s["loss_fn.force_on_policy_ratio"],
        "with tensor parallel size {s.tp} (4 or more), log-probabilities depend on the micro-batch: "
        "policy.logprob_batch_size {s.lbs} differs from policy.train_micro_batch_size {s.mbs}",
        lambda s: s.mbs,
        "lm_policy.py:178",
    ),
    *(
        Rule(
            f"policy.sequence_packing.{name}",
            _too_short(f"policy.sequence_packing.{name}"),
            f"a sample of policy.max_total_sequence_length {{s.seq}} tokens does not fit a pack of "
            f"{{s[policy.sequence_packing.{name}]}}",
            lambda s: s.seq,
            "data/packing/algorithms.py:243",
        )
        for name in ("train_mb_tokens", "logprob_mb_tokens")
    ),
)
