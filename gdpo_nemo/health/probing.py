"""Rollouts sampled now from the configured model, scored with the configured rewards, and what each of those costs."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from gdpo_nemo.config import RunConfig
from gdpo_nemo.health.rollouts import Rollouts
from gdpo_nemo.method import Method
from gdpo_nemo.models import load
from gdpo_nemo.models.sampling import sample
from gdpo_nemo.randomness import stream, stream_seed
from gdpo_nemo.rewards import BatchReward
from gdpo_nemo.rewards.own import OwnReward
from gdpo_nemo.rewards.scoring import Scorer, is_failure
from gdpo_nemo.source import row_source
from gdpo_nemo.types import RewardVector, Rollout, Row

ROLLOUTS_AT_ONCE = 256


@dataclass(frozen=True)
class Cost:
    """Wall time of one reward function, in seconds.

    Attributes:
        name: of an own reward; of a task for its rewards, which are computed together.
        calls: how often it was called.
        per_call: rollouts in one call.
        p50_s, p99_s, total_s: of the calls; they may overlap.
        frac_failed: rollouts on which it raised or was late.
    """

    name: str
    calls: int
    per_call: float
    p50_s: float
    p99_s: float
    total_s: float
    frac_failed: float


@dataclass(frozen=True)
class Probe:
    """What was sampled.

    Attributes:
        rollouts: with their rewards.
        costs: of each reward function.
        sample_s: wall seconds of sampling.
    """

    rollouts: Rollouts
    costs: tuple[Cost, ...]
    sample_s: float


def probe(config: RunConfig, checkpoint: Path | None, prompts: int, rollouts_per_prompt: int, seed: int = 0) -> Probe:
    """Sample training prompts and score the answers.

    Args:
        config: of a run.
        checkpoint: the model; None: as the configuration builds or names it.
        prompts: how many; at most the training rows that there are.
        rollouts_per_prompt: G.
        seed: of rows and samples.

    Raises:
        RewardError: an own reward is wrong, outside its range, or fails throughout.
        GdpoError: the model, the data or the rewards are not there.
    """
    import torch
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.set_num_threads(config.embedded.threads)
    method, train = Method(config.gdpo), config.embedded.train
    timers = _timed(method, config.gdpo.task)
    source = row_source(config.gdpo, config.embedded.data)
    model, tokenizer = load(config.embedded, checkpoint, config.gdpo)
    count = min(prompts, source.num_rows("train") or prompts)
    rows = list(islice(source.rows("train", stream(seed, "health")), count))
    vectors: list[RewardVector] = []
    sample_s = 0.0
    size = max(1, ROLLOUTS_AT_ONCE // rollouts_per_prompt)
    for start in range(0, count, size):
        chunk, started = rows[start : start + size], time.perf_counter()
        samples = sample(
            model,
            tokenizer,
            [source.prompt(row) for row in chunk],
            rollouts_per_prompt=rollouts_per_prompt,
            max_new_tokens=train.max_new_tokens,
            temperature=train.temperature,
            seed=stream_seed(seed, "health", start),
        )
        sample_s += time.perf_counter() - started
        vectors += method.score([row for row in chunk for _ in range(rollouts_per_prompt)], samples.rollouts)
    where = str(checkpoint) if checkpoint else f"{config.embedded.model.name}, untrained"
    failed = np.array([[any(map(is_failure, v.reasons.get(name, ()))) for name in method.names] for v in vectors])
    found = Rollouts(
        method.names,
        np.array([[vector[name] for name in method.names] for vector in vectors], dtype=float),
        np.arange(count).repeat(rollouts_per_prompt),
        f"{count} prompts x {rollouts_per_prompt} rollouts of {where}",
        failed,
    )
    return Probe(found, tuple(timer.cost(vectors) for timer in timers), sample_s)


class _Timer:
    """Wall times of the calls of one function, from any thread."""

    def __init__(self, name: str, rewards: Sequence[str]) -> None:
        self.name, self.rewards = name, tuple(rewards)
        self._seconds: list[float] = []
        self._lock = threading.Lock()

    def add(self, started: float) -> None:
        """Note a call that began then and ends now."""
        with self._lock:
            self._seconds.append(time.perf_counter() - started)

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed."""

        @functools.wraps(function)
        def timed(*arguments: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*arguments)
            finally:
                self.add(started)

        return timed

    def around_async(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The coroutine function, timed."""

        @functools.wraps(function)
        async def timed(*arguments: Any) -> Any:
            started = time.perf_counter()
            try:
                return await function(*arguments)
            finally:
                self.add(started)

        return timed

    def cost(self, vectors: Sequence[RewardVector]) -> Cost:
        """The times, and failures among what was scored."""
        p50_s, p99_s = np.quantile(self._seconds or [0.0], (0.5, 0.99))
        failed = sum(
            any(is_failure(code) for name in self.rewards for code in v.reasons.get(name, ())) for v in vectors
        )
        calls = len(self._seconds)
        per_call = len(vectors) / max(calls, 1)
        total_s = float(sum(self._seconds))
        return Cost(self.name, calls, per_call, float(p50_s), float(p99_s), total_s, failed / max(len(vectors), 1))


class _TimedReward:
    """A task's reward, timed per rollout."""

    def __init__(self, reward: Any, timer: _Timer) -> None:
        self.names, self.ranges = reward.names, reward.ranges
        self._score = timer.around(reward)

    def __call__(self, row: Row, rollout: Rollout) -> RewardVector:
        vector: RewardVector = self._score(row, rollout)
        return vector


class _TimedBatchReward(_TimedReward):
    """The same of one that scores many at once."""

    def __init__(self, reward: BatchReward, timer: _Timer) -> None:
        super().__init__(reward, timer)
        self._score_many = timer.around(reward.score_many)

    def score_many(self, rows: Sequence[Row], rollouts: Sequence[Rollout]) -> list[RewardVector]:
        """See ``BatchReward``."""
        vectors: list[RewardVector] = self._score_many(rows, rollouts)
        return vectors


def _timed(method: Method, task: str | None) -> list[_Timer]:
    """Put a timer around every reward function of a method."""
    timers = []
    if method.reward is not None:
        timers.append(_Timer(f"task {task}", method.reward.names))
        if isinstance(method.reward, BatchReward):
            method.reward = _TimedBatchReward(method.reward, timers[-1])
        else:
            method.reward = _TimedReward(method.reward, timers[-1])
    if method.scorer is not None:
        method.scorer = Scorer([_timed_own(reward, timers) for reward in method.scorer.rewards])
    return timers


def _timed_own(reward: OwnReward, timers: list[_Timer]) -> OwnReward:
    timers.append(_Timer(reward.name, [reward.name]))
    around = timers[-1].around_async if reward.is_async else timers[-1].around
    return replace(reward, function=around(reward.function))
