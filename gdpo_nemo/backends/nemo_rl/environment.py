"""A NeMo RL environment that answers with named rewards: one Ray actor for every task of this package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import ray
import torch
from nemo_rl.environments.interfaces import EnvironmentInterface, EnvironmentReturn

from gdpo_nemo.backends.nemo_rl import upstream
from gdpo_nemo.config import GdpoConfig, validate
from gdpo_nemo.method import Method
from gdpo_nemo.rewards.scoring import is_failure
from gdpo_nemo.types import RewardVector, Rollout, Row

ACTOR = f"{__name__}.RewardActor"


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

    def step(
        self, message_log_batch: list[list[dict[str, Any]]], metadata: list[dict[str, Any]]
    ) -> EnvironmentReturn[dict[str, Any]]:
        """Score the last message of each log; ``metadata`` holds the row that was asked."""
        rows = [Row(**item["row"]) for item in metadata]
        rollouts = [self._rollout(row, log[-1]["content"]) for row, log in zip(rows, message_log_batch, strict=True)]
        vectors = self.method.score(rows, rollouts)
        rewards_B_K = torch.tensor([self._values(vector) for vector in vectors], dtype=torch.float32)
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

    def _rollout(self, row: Row, response: str) -> Rollout:
        length = len(self.tokenizer(response, add_special_tokens=False)["input_ids"])
        return Rollout(row.id, 0, response, length, truncated=length >= self.max_new_tokens)

    def _values(self, vector: RewardVector) -> Sequence[float]:
        failed = any(map(is_failure, chain.from_iterable(vector.reasons.values())))
        return [float("nan") if failed else vector[name] for name in self.method.names]


RewardActor = ray.remote(RewardEnvironment)


def _tokenizer(name: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(name)
