"""The advantage estimator that NeMo RL calls: named rewards of a rollout batch to advantages per token."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

import torch

from gdpo_nemo.advantages.kl_in_reward import sequence_kl
from gdpo_nemo.backends.nemo_rl import upstream
from gdpo_nemo.backends.nemo_rl.batches import check_finite, first_responses, prompt_groups, settle, totals
from gdpo_nemo.checkpoints.steps import steps
from gdpo_nemo.errors import PrerequisiteError, RunDirError
from gdpo_nemo.health.repetition import repetition
from gdpo_nemo.method import Method


class MethodEstimator:
    """GDPO or GRPO, as the ``gdpo:`` block says, behind NeMo RL's ``compute_advantage``.

    NeMo RL tells an estimator no step. It calls once for each, so the calls since the checkpoint that training goes on
    from are counted, and ``save`` compares.

    Attributes:
        method: rewards, weights, conditions and formula.
        step: the last step that advantages were made for; 0 before the first.
        last_metrics: numbers about the last batch, by name; NeMo RL's async trainer logs them by itself.
    """

    def __init__(self, method: Method, rollouts_per_prompt: int) -> None:
        self.method = method
        self.rollouts_per_prompt = rollouts_per_prompt
        self.step = 0
        self.last_metrics: dict[str, float] = {}

    def resume(self, checkpoint_dir: Path) -> None:
        """Go on from the newest checkpoint of a folder, as NeMo RL does; begin where there is none.

        Raises:
            RunDirError: it was written without what the method gathers over a run.
        """
        found = steps(checkpoint_dir)
        self.step = found[-1].step if found else 0
        self.method.restore(found[-1].path if found else None)

    def save(self, folder: Path, step: int) -> None:
        """Write what the method has gathered into the folder of a step's checkpoint.

        Raises:
            RunDirError: the method depends on the step, and NeMo RL is at another one.
        """
        if step != self.step and self.method.signals.follows_the_run:
            raise RunDirError(
                f"NeMo RL saves step {step} and has asked for advantages up to step {self.step}: weights or windows "
                "that follow the run are of another step. Leave schedules and normalise: quantile out"
            )
        self.method.save(folder)

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
            others: ``logprobs_policy`` and ``logprobs_reference`` [B, S] and, in the async trainer, ``sample_mask``.

        Raises:
            PrerequisiteError: the batch carries other rewards than the ``gdpo:`` block names, or ``gdpo.kl_in_reward``
                is set and it comes without log-probabilities.
            InputError: the rows of a prompt do not follow each other.
            NonFiniteError: a reward is infinite, or a log-probability no number.
        """
        ungraded_B = settle(repeated_batch, self.method.names).to(mask.device)
        asynchronous = "sample_mask" in others  # taken from the batch before this call, which is not settled yet
        if asynchronous:
            others["sample_mask"].masked_fill_(ungraded_B.to(others["sample_mask"].device), 0)
        rewards_B_K = upstream.from_batch(repeated_batch, self.method.names).to(mask.device)
        log_probs = {"the policy": others.get("logprobs_policy"), "the reference": others.get("logprobs_reference")}
        check_finite(repeated_batch, rewards_B_K, self.method.names, mask, log_probs)
        valid_B = mask.bool().any(dim=1) & ~ungraded_B
        group_ids_B = prompt_groups(prompt_ids.to(mask.device), valid_B, self.rollouts_per_prompt)
        kl_B = self._kl(mask, others) if self.method.config.kl_in_reward else None
        advantages_B, health = self.method.advantages(rewards_B_K, group_ids_B, valid_B, step=self.step + 1, kl_B=kl_B)
        self.step += 1
        counts = {"frac_ungraded": ungraded_B, "frac_masked": ~valid_B}
        self.last_metrics = health.as_metrics() | {
            f"reward/{name}": float(rows_B.double().mean()) for name, rows_B in counts.items()
        }
        self.last_metrics |= repetition(first_responses(repeated_batch, self.rollouts_per_prompt))
        if asynchronous:  # its collector, in another process, took the mean with NaN
            self.last_metrics |= totals(repeated_batch)
        return advantages_B.to(torch.float32)[:, None].expand(mask.shape)

    def _kl(self, mask: torch.Tensor, others: Mapping[str, Any]) -> torch.Tensor:
        """``sequence_kl`` of each rollout [B]; NeMo RL writes zeros where it skips a model's log-probabilities."""
        found = [others.get(key) for key in ("logprobs_policy", "logprobs_reference")]
        for of, logp_B_T in zip(("the policy", "the reference"), found, strict=True):
            if logp_B_T is None or (mask.any() and not logp_B_T.to(mask.device)[mask.bool()].any()):
                raise PrerequisiteError(
                    f"gdpo.kl_in_reward is {self.method.config.kl_in_reward:g}, and NeMo RL did not compute the "
                    f"log-probabilities of {of}; it needs loss_fn.use_kl_in_reward=true, "
                    "loss_fn.reference_policy_kl_penalty equal to it, loss_fn.force_on_policy_ratio=false and "
                    "grpo.skip_reference_policy_logprobs_calculation=false"
                )
        logp_B_T, ref_logp_B_T = (torch.as_tensor(logp).to(mask.device) for logp in found)
        return sequence_kl(logp_B_T, ref_logp_B_T, mask)
