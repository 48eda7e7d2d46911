"""A NeMo RL environment that answers with named rewards: one Ray actor for every task of this package."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import ray
import torch
from nemo_rl.environments.interfaces import EnvironmentInterface, EnvironmentReturn

from gdpo_nemo.backends.nemo_rl import upstream
from gdpo_nemo.config import GdpoConfig, validate
from gdpo_nemo.method import Method
from gdpo_nemo.types import Rollout, Row

ACTOR = f"{__name__}.RewardActor"
CALLS_AT_ONCE = 64
"""NeMo RL's asynchronous rollouts call once for each sample: one by one, each would wait for every other's judge."""


class RewardEnvironment(EnvironmentInterface[dict[str, Any]]):
    """One turn: the response is scored and the episode ends.

    A reward that crashes or answers late makes the sample ungraded: NaN in every reward, so that the estimator
    masks it. It is never a score of 0.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Take ``env.gdpo``: the ``gdpo:`` block under ``gdpo``, the tokenizer's name, the most new tokens."""
        self.method = Method(validate(GdpoConfig, config["gdpo"], "env.gdpo.gdpo"))
        self.max_new_tokens = int(config["max_new_tokens"])
        self.tokenizer: Any = _tokenizer(config["tokenizer"])
        self._tokenizing = threading.Lock()

    def step(
        self, message_log_batch: list[list[dict[str, Any]]], metadata: list[dict[str, Any]]
    ) -> EnvironmentReturn[dict[str, Any]]:
        """Score the last message of each log; ``metadata`` holds the row that was asked."""
        rows = [Row(**item["row"]) for item in metadata]
        rollouts = [
            self._rollout(row, index, log[-1]["content"])
            for index, (row, log) in enumerate(zip(rows, message_log_batch, strict=True))
        ]
        vectors = self.method.score(rows, rollouts)
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

    def shutdown(self) -> bool:
        """Nothing to end: rewards run in this process."""
        return True

    def _rollout(self, row: Row, index: int, response: str) -> Rollout:
        """The index is the place in the call, for messages: NeMo RL does not say which rollout of a prompt this is."""
        with self._tokenizing:
            length = len(self.tokenizer(response, add_special_tokens=False)["input_ids"])
        return Rollout(row.id, index, response, length, truncated=length >= self.max_new_tokens)


RewardActor = ray.remote(max_concurrency=CALLS_AT_ONCE)(RewardEnvironment)


def _tokenizer(name: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(name)
