"""What NeMo RL logs, as the run directory keeps it: ``metrics.jsonl``, one row a step, as of the embedded backend.

NeMo RL's own trackers go on as configured. The row of a step is what it logs under ``train/`` when the step is over;
some of its numbers stand under the embedded backend's names as well, which reports and alarms read. It logs no share of
clipped tokens. A number of the loss is the sum over the optimiser's steps on one batch; here it is their mean.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from numbers import Real
from pathlib import Path
from typing import Any

from gdpo_nemo.run_dir import RunDir

SAME = {
    "length/mean": "mean_gen_tokens_per_sample",
    "length/max": "max_gen_tokens_per_sample",
    "frac_truncated": "truncation_rate",
}
"""Our name -> NeMo RL's."""
SUMS = {"entropy": "approx_entropy", "kl": "kl_penalty"}
"""The same, of numbers that NeMo RL adds up."""

Callback = Callable[[str, int, dict[str, float]], None]


def on_log(callback: Callback) -> None:
    """Call back with prefix, step and numbers after everything that NeMo RL logs in this process."""
    from nemo_rl.utils.logger import Logger

    original = Logger.log_metrics

    @functools.wraps(original)
    def log_metrics(self: Any, metrics: dict[str, Any], step: int, prefix: str = "", *rest: Any, **named: Any) -> None:
        original(self, metrics, step, prefix, *rest, **named)
        callback(prefix, step, {name: float(value) for name, value in metrics.items() if isinstance(value, Real)})

    Logger.log_metrics = log_metrics


def run_dir_of(config: Mapping[str, Any]) -> RunDir | None:
    """The run directory that a configuration writes its checkpoints into; None when it is not one of ours."""
    folder = (config.get("checkpointing") or {}).get("checkpoint_dir")
    run = RunDir(Path(folder).parent) if folder else None
    return run if run is not None and run.exists() else None


def updates_per_batch(config: Mapping[str, Any]) -> int:
    """Optimiser steps on one batch of rollouts, of a configuration of NeMo RL; 1 where it does not say."""
    grpo, policy = config.get("grpo") or {}, config.get("policy") or {}
    rollouts = grpo.get("num_prompts_per_step", 1) * grpo.get("num_generations_per_prompt", 1)
    return max(1, int(rollouts) // int(policy.get("train_global_batch_size", rollouts)))


def record_steps(run: RunDir, first_step: int, then: Callable[[dict[str, float]], None], updates: int = 1) -> None:
    """Keep the row of every step from here on; what an earlier process wrote past ``first_step`` is dropped.

    Args:
        run: the run directory.
        first_step: of the checkpoint that the run goes on from, 0 without one.
        then: is shown each row after it is kept.
        updates: optimiser steps on one batch.
    """
    run.drop_metrics_after(first_step)

    def keep(prefix: str, step: int, numbers: dict[str, float]) -> None:
        if prefix == "train" and "loss" in numbers:
            same = {ours: numbers[theirs] for ours, theirs in SAME.items() if theirs in numbers}
            means = {ours: numbers[theirs] / updates for ours, theirs in SUMS.items() if theirs in numbers}
            row = {"step": step, **numbers, **same, **means}
            run.append_metrics(row)
            then(row)

    on_log(keep)
