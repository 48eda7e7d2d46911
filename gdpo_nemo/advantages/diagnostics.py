"""What a training run should log about its rewards, per batch.

With a_k = w_k A_k and s = sum_k a_k, the terms and the sum of ``gdpo`` (ddof 1):

    mean, std          of r_k over the valid rows that have it; std divides by n - 1
    frac_dead_groups   groups in which A_k is 0 (no variance, or one row), of those with a row that has r_k
    frac_missing       valid rows without r_k, of all valid rows
    advantage share    cov(a_k, s) / var(s) over the scorable rows; the shares add to 1. 0 when s is 0 everywhere.
                       Negative: the reward is outvoted by the others. a_k and s have mean 0 in exact arithmetic.
    groups total       P: groups with at least one scorable row
    groups alive       P_alive: those in which s is not 0 everywhere
    amplification      sqrt(P / P_alive). The batch step of GDPO brings the whole batch to unit variance, so with
                       equal groups the rows that carry a signal are scaled up by this much. 1 when none is alive.
    frac_conflict      scorable rows with one a_k above 0 and another below 0

A value without any row behind it is NaN (0 is a score): mean, std and frac_dead_groups of a reward that no row
has, std of a single row, frac_missing without valid rows, frac_conflict without scorable rows.

TRL f2cd577 logs mean and std of each reward, and its ``frac_reward_zero_std`` looks at the standard deviation of
the batch, so it shows 0 while groups are dead; verl 1dda039 logs mean, std and extremes in its legacy trainer;
NeMo RL v0.7.0 logs no single reward.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from gdpo_nemo.advantages.gdpo import cancelled_sum
from gdpo_nemo.advantages.groups import standardise
from gdpo_nemo.advantages.inputs import Batch, prepare
from gdpo_nemo.advantages.weights import check_names


@dataclass(frozen=True, slots=True)
class RewardDiagnostics:
    """One reward over one batch; the module docstring defines each number."""

    mean: float
    std: float
    frac_dead_groups: float
    frac_missing: float
    advantage_share: float


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """All rewards over one batch; the module docstring defines each number.

    Attributes:
        rewards: reward name -> its numbers, in the order of the columns.
        groups_total: groups with a scorable row.
        groups_alive: groups whose weighted sum is not 0 everywhere.
        amplification: sqrt(groups_total / groups_alive), 1 when none is alive.
        frac_conflict: share of scorable rows whose rewards pull in both directions.
        signals: more numbers for the log, of what a configuration adds to the method.
    """

    rewards: Mapping[str, RewardDiagnostics]
    groups_total: int
    groups_alive: int
    amplification: float
    frac_conflict: float
    signals: dict[str, float] = field(default_factory=dict)

    def with_values(self, values: Mapping[str, RewardDiagnostics]) -> Diagnostics:
        """The same with mean, std and frac_missing of these rewards, whose columns the method saw mapped or added up.

        A reward without a column of its own has no share of the advantage (NaN), and its own dead groups.
        """
        rewards = {
            name: replace(one, advantage_share=math.nan)
            if name not in self.rewards
            else replace(self.rewards[name], mean=one.mean, std=one.std, frac_missing=one.frac_missing)
            for name, one in values.items()
        }
        return replace(self, rewards={**rewards, **{n: one for n, one in self.rewards.items() if n not in values}})

    def as_metrics(self) -> dict[str, float]:
        """Flat names for a tracker; always the same keys, NaN where no row stands behind a value."""
        metrics: dict[str, float] = {}
        for name, reward in self.rewards.items():
            metrics[f"reward/{name}/mean"] = reward.mean
            metrics[f"reward/{name}/std"] = reward.std
            metrics[f"reward/{name}/frac_dead_groups"] = reward.frac_dead_groups
            metrics[f"reward/{name}/frac_missing"] = reward.frac_missing
            metrics[f"advantage/{name}/share"] = reward.advantage_share
        metrics["groups/alive"] = float(self.groups_alive)
        metrics["groups/total"] = float(self.groups_total)
        metrics["advantage/amplification"] = self.amplification
        metrics["advantage/frac_conflict"] = self.frac_conflict
        return metrics | self.signals


def diagnostics(
    rewards_B_K: torch.Tensor,
    group_ids_B: torch.Tensor,
    *,
    names: Sequence[str],
    weights: Sequence[float] | None = None,
    valid_B: torch.Tensor | None = None,
) -> Diagnostics:
    """Numbers about the rewards and the advantages that ``gdpo`` makes of them.

    Args:
        rewards_B_K: float32 or float64 [B, K]. NaN: this reward does not apply to this sample.
        group_ids_B: int64 [B], one label per prompt group.
        names: K distinct names, one per column.
        weights: K numbers, all 1 unless given.
        valid_B: bool [B]; False takes the row out.

    Returns:
        Plain Python numbers, read from the device in one copy.

    Raises:
        InputError: a wrong shape, dtype, device, count or value; the message says which.
    """
    batch = prepare(rewards_B_K, group_ids_B, weights, valid_B)
    check_names(names, rewards_B_K.shape[1])
    advantages_K_B = standardise(batch.rewards_K_B, batch.entries, ddof=1)
    terms_K_B = advantages_K_B * batch.weights_K_1
    sum_B = cancelled_sum(batch, terms_K_B)

    variance = sum_B.square().sum()
    share_K = (terms_K_B * sum_B).sum(1) / variance.where(variance > 0, 1.0)
    conflict_B = (terms_K_B > 0).any(0) & (terms_K_B < 0).any(0)
    per_reward_5_K = torch.stack([*_moments(batch), *_fractions(batch, advantages_K_B), share_K])
    overall_3 = torch.stack([*_groups(batch, sum_B), conflict_B.sum(dtype=torch.float64) / batch.num_scorable])

    numbers = torch.cat([per_reward_5_K.t().flatten(), overall_3]).tolist()
    num_total, num_alive, frac_conflict = int(numbers[-3]), int(numbers[-2]), numbers[-1]
    return Diagnostics(
        rewards={name: RewardDiagnostics(*numbers[5 * k : 5 * k + 5]) for k, name in enumerate(names)},
        groups_total=num_total,
        groups_alive=num_alive,
        amplification=math.sqrt(num_total / num_alive) if num_alive else 1.0,
        frac_conflict=frac_conflict,
    )


def _moments(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and standard deviation of each raw reward, [K] and [K]."""
    present_K_B = batch.entries.present_K_B
    count_K = present_K_B.sum(1, dtype=torch.float64)
    mean_K = batch.rewards_K_B.sum(1) / count_K
    centred_K_B = (batch.rewards_K_B - mean_K[:, None]) * present_K_B
    return mean_K, (centred_K_B.square().sum(1) / (count_K - 1)).sqrt()


def _fractions(batch: Batch, advantages_K_B: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Share of dead groups, from A_k because a weight of 0 does not kill a group, and share of missing entries."""
    count_K_P = batch.entries.count_K_P[:, :-1].expand(len(advantages_K_B), -1)
    num_groups_K = (count_K_P > 0).sum(1, dtype=torch.float64)
    num_alive_K = (batch.entries.total(advantages_K_B.abs()) > 0).sum(1)
    return (num_groups_K - num_alive_K) / num_groups_K, (batch.num_valid - count_K_P.sum(1)) / batch.num_valid


def _groups(batch: Batch, sum_B: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Number of groups with a scorable row, and of those with a sum that is not 0."""
    alive_P = batch.rows.total(sum_B.abs()[None])[0] > 0
    return (batch.rows.count_K_P[0, :-1] > 0).sum(), alive_P.sum()
