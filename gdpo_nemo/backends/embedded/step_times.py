"""How long a run takes on this machine, from real steps timed now."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch

from gdpo_nemo.backends.embedded.train import new_optimizer, train_step
from gdpo_nemo.backends.embedded.warmup import demonstration_pool, supervised_step
from gdpo_nemo.config import RunConfig, TrainConfig
from gdpo_nemo.method import Method, reward_ranges
from gdpo_nemo.models import load
from gdpo_nemo.randomness import stream
from gdpo_nemo.source import row_source
from gdpo_nemo.types import RewardVector, Rollout, Row
from gdpo_nemo.worlds import demonstrate

SMALL_MODEL = 5_000_000  # parameters; above, a whole step is too slow to time


class DrawnRewards(Method):
    """Draws values from the ranges of own rewards: calling them to time a step could cost money or minutes."""

    def score(self, rows: Sequence[Row], rollouts: Sequence[Rollout]) -> list[RewardVector]:
        """See ``Method``."""
        if self.scorer is None:
            return super().score(rows, rollouts)
        rng, ranges = stream(0, "estimate"), reward_ranges(self.config)
        reasons: dict[str, tuple[str, ...]] = dict.fromkeys(ranges, ())
        return [RewardVector({name: rng.uniform(*ends) for name, ends in ranges.items()}, reasons) for _ in rollouts]


def estimate(config: RunConfig) -> dict[str, Any]:
    """Parameters, tokens_per_step, warmup_s and run_s (wall seconds of one process, without evaluation), basis."""
    torch.set_num_threads(config.embedded.threads)
    model, tokenizer = load(config.embedded, gdpo=config.gdpo)
    parameters = sum(p.numel() for p in model.parameters())
    shrunk = config.model_dump()
    basis = "one step timed now"
    if parameters > SMALL_MODEL:
        shrunk["embedded"]["train"] |= dict(prompts_per_step=1, rollouts_per_prompt=2, max_new_tokens=16)
        shrunk["embedded"]["train"] |= dict(minibatch_prompts=None)
        shrunk["embedded"]["warmup"] |= dict(batch_size=2, pool_rows=2)
        basis = "a step of 2 rollouts x 16 tokens timed now and scaled up: an upper bound"
    if any(spec.is_own for spec in config.gdpo.rewards.values()):
        basis += "; without the time of your own rewards, which were not called"
    timed = RunConfig(**shrunk)
    spec, warmup, method, rng = (
        config.embedded.train,
        config.embedded.warmup,
        DrawnRewards(config.gdpo),
        stream(0, "estimate"),
    )
    optimizer = new_optimizer(model, spec.lr, spec.weight_decay)
    pool = demonstration_pool(tokenizer, timed, rng)
    train_s = _fastest(lambda: train_step(model, tokenizer, model, optimizer, timed, method, 1))
    if config.gdpo.data is None:  # the answers of an untrained model are quickly scored: no programs, no numbers
        train_s += _fastest(lambda: method.score(*demonstrated(timed, rng)))
    warmup_s = _fastest(lambda: supervised_step(model, tokenizer, optimizer, timed, pool, rng, clean=True))
    return {
        "parameters": parameters,
        "tokens_per_step": tokens_per_step(spec),
        "warmup_s": warmup_s * (warmup.clean_steps + warmup.noisy_steps) * warmup.batch_size
        / timed.embedded.warmup.batch_size,
        "run_s": train_s * spec.steps * tokens_per_step(spec) / tokens_per_step(timed.embedded.train),
        "basis": basis,
    }  # fmt: skip


def demonstrated(config: RunConfig, rng: np.random.Generator) -> tuple[list[Row], list[Rollout]]:
    """The rollouts of one step as the world's mix demonstrates them, and the row of each."""
    spec, world = config.embedded.train, config.embedded.data
    rows = list(islice(row_source(config.gdpo, world).rows("train", rng), spec.prompts_per_step))
    pairs = [(row, i) for row in rows for i in range(spec.rollouts_per_prompt)]
    rollouts = [
        Rollout(row.id, i, demonstrate(world, row, rng, clean=False), spec.max_new_tokens // 2) for row, i in pairs
    ]
    return [row for row, _ in pairs], rollouts


def tokens_per_step(spec: TrainConfig) -> int:
    """Most new tokens of one step."""
    return spec.prompts_per_step * spec.rollouts_per_prompt * spec.max_new_tokens


def _fastest(action: Callable[[], Any]) -> float:
    seconds = []
    for _ in range(2):
        started = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - started)
    return min(seconds)
