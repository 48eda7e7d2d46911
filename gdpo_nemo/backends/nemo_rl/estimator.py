"""The advantage estimator that NeMo RL calls: named rewards of a rollout batch to advantages per token."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import torch

from gdpo_nemo.backends.nemo_rl import upstream
from gdpo_nemo.backends.nemo_rl.batches import prompt_groups, settle, totals
from gdpo_nemo.method import Method


class MethodEstimator:
    """GDPO or GRPO, as the ``gdpo:`` block says, behind NeMo RL's ``compute_advantage``.

    Attributes:
        method: rewards, weights, conditions and formula.
        last_metrics: numbers about the last batch, by name; NeMo RL's async trainer logs them by itself.
    """

    def __init__(self, method: Method, rollouts_per_prompt: int) -> None:
        self.method = method
        self.rollouts_per_prompt = rollouts_per_prompt
        self.last_metrics: dict[str, float] = {}

    def compute_advantage(
        self,
        prompt_ids: torch.Tensor,
        rewards: torch.Tensor,
        mask: torch.Tensor,
        repeated_batch: MutableMapping[str, Any],
        **others: Any,
    ) -> torch.Tensor:
        """Advantages [B, S], the same for every token of a rollout.

        Args:
            prompt_ids: padded prompt tokens [B, S_prompt].
            rewards: unweighted totals [B]; not read, the single rewards are.
            mask: 1 on the tokens that the loss sees [B, S]. A rollout without any (overlong filtering, a masked
                prompt, a too large log-prob error) is in no statistic.
            repeated_batch: the rollouts, with their single rewards.
            others: log-probabilities and, in the async trainer, ``sample_mask``.

        Raises:
            PrerequisiteError: the batch carries other rewards than the ``gdpo:`` block names.
            InputError: the rows of a prompt do not follow each other.
        """
        ungraded_B = settle(repeated_batch, self.method.names).to(mask.device)
        asynchronous = "sample_mask" in others  # taken from the batch before this call, which is not settled yet
        if asynchronous:
            others["sample_mask"].masked_fill_(ungraded_B.to(others["sample_mask"].device), 0)
        rewards_B_K = upstream.from_batch(repeated_batch, self.method.names).to(mask.device)
        valid_B = mask.bool().any(dim=1) & ~ungraded_B
        group_ids_B = prompt_groups(prompt_ids.to(mask.device), valid_B, self.rollouts_per_prompt)
        advantages_B, health = self.method.advantages(rewards_B_K, group_ids_B, valid_B)
        counts = {"frac_ungraded": ungraded_B, "frac_masked": ~valid_B}
        self.last_metrics = health.as_metrics() | {
            f"reward/{name}": float(rows_B.double().mean()) for name, rows_B in counts.items()
        }
        if asynchronous:  # its collector, in another process, took the mean with NaN
            self.last_metrics |= totals(repeated_batch)
        return advantages_B.to(torch.float32)[:, None].expand(mask.shape)
