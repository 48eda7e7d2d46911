"""A NeMo RL environment that answers with named rewards: one Ray actor for every task of this package.

With asynchronous generation NeMo RL calls ``step`` for each response as soon as it is complete, and the rewards are
computed while the others are still being generated. With synchronous generation it calls once, at the end, for all.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, runtime_checkable

import ray
import torch
from nemo_rl.environments.interfaces import EnvironmentInterface, EnvironmentReturn

from gdpo_nemo.backends.nemo_rl import upstream
from gdpo_nemo.backends.nemo_rl.grading import CALLS_AT_ONCE, GradingLog
from gdpo_nemo.cluster.environment import EnvironmentConfig
from gdpo_nemo.config import validate
from gdpo_nemo.deadline import OVER_BUDGET, deadline
from gdpo_nemo.method import Method
from gdpo_nemo.rewards.math.pool import close_pools
from gdpo_nemo.sandbox.opening import close_all
from gdpo_nemo.types import RewardVector, Rollout, Row

ACTOR = f"{__name__}.RewardActor"


@runtime_checkable
class _Started(Protocol):
    """A reward with workers that can be started before the first response comes."""

    def start(self) -> None: ...


class RewardEnvironment(EnvironmentInterface[dict[str, Any]]):
    """One turn: the response is scored and the episode ends.

    A reward that crashes or answers late makes the sample ungraded: NaN in every reward, so that the estimator
    masks it. It is never a score of 0. So does the end of ``grading_budget_s``, which begins when a response comes:
    a step waits for grades at most that long after its last response.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Take ``env.gdpo`` (``EnvironmentConfig``), and start the workers that the rewards need.

        Raises:
            ConfigError: an unknown or wrong key.
            SandboxError: programs cannot be kept apart here.
        """
        self.config = validate(EnvironmentConfig, dict(config), "env.gdpo")
        self.method = Method(self.config.gdpo)
        self.tokenizer: Any = _tokenizer(self.config.tokenizer)
        self.log = GradingLog()
        self._tokenizing = threading.Lock()
        if isinstance(self.method.reward, _Started):
            self.method.reward.start()

    def step(
        self, message_log_batch: list[list[dict[str, Any]]], metadata: list[dict[str, Any]]
    ) -> EnvironmentReturn[dict[str, Any]]:
        """Score the last message of each log; ``metadata`` holds the row that was asked."""
        self.log.came(len(metadata))
        return self._step(message_log_batch, metadata, time.monotonic())

    def _step(
        self, message_log_batch: list[list[dict[str, Any]]], metadata: list[dict[str, Any]], came: float
    ) -> EnvironmentReturn[dict[str, Any]]:
        vectors: Sequence[RewardVector] = ()
        try:
            rows = [Row(**item["row"]) for item in metadata]
            rollouts = [
                self._rollout(row, index, log[-1]["content"])
                for index, (row, log) in enumerate(zip(rows, message_log_batch, strict=True))
            ]
            budget_s = self.config.grading_budget_s
            with deadline(None if budget_s is None else came + budget_s):
                vectors = self.method.score(rows, rollouts)
        finally:
            self.log.done(len(metadata), sum(map(_is_over_budget, vectors)))
        rewards_B_K = self.method.matrix(vectors).to(torch.float32)
        return EnvironmentReturn(
            observations=[{"role": "environment", "content": ""} for _ in rows],
            metadata=metadata,
            next_stop_strings=[None] * len(rows),
            rewards=upstream.to_environment_return(rewards_B_K, self.method.names),
            terminateds=torch.ones(len(rows)),
            answers=None,
        )

    def global_post_process_and_metrics(self, batch: Any) -> tuple[Any, dict[str, float]]:
        """Nothing to add: the estimator logs every reward."""
        return batch, {}

    def grading_metrics(self) -> dict[str, float]:
        """What grading cost since the last call."""
        return self.log.take()

    def shutdown(self) -> bool:
        """End the processes that graded: the sandbox's on every node, the mathematics grader's."""
        close_all()
        close_pools()
        return True

    def _rollout(self, row: Row, index: int, response: str) -> Rollout:
        """The index is the place in the call, for messages: NeMo RL does not say which rollout of a prompt this is."""
        with self._tokenizing:
            length = len(self.tokenizer(response, add_special_tokens=False)["input_ids"])
        return Rollout(row.id, index, response, length, truncated=length >= self.config.max_new_tokens)


class AsyncRewardEnvironment(RewardEnvironment):
    """The environment as an asynchronous actor: a slow program holds up a thread, and nothing else."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """As ``RewardEnvironment``."""
        super().__init__(config)
        self._threads = ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix="gdpo-grading")

    async def step(  # type: ignore[override]
        self, message_log_batch: list[list[dict[str, Any]]], metadata: list[dict[str, Any]]
    ) -> EnvironmentReturn[dict[str, Any]]:
        """As ``RewardEnvironment.step``, for any number of calls at once."""
        self.log.came(len(metadata))
        step = asyncio.get_running_loop().run_in_executor
        return await step(self._threads, self._step, message_log_batch, metadata, time.monotonic())


RewardActor = ray.remote(max_concurrency=2 * CALLS_AT_ONCE, max_restarts=-1, max_task_retries=2)(AsyncRewardEnvironment)


def _is_over_budget(vector: RewardVector) -> bool:
    return any(OVER_BUDGET in codes for codes in vector.reasons.values())


def _tokenizer(name: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(name)
