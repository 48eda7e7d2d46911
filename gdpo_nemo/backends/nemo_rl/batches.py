"""What the plug-in reads from NeMo RL's rollout batches, and what it repairs in them.

A reward that does not apply to a sample is NaN. A sample that could not be graded at all has NaN in every reward; it
is taken out of the loss, counted, and enters no statistic. NeMo RL adds the rewards up for its own log, where one NaN
would hide every mean; ``settle`` writes a finite total instead.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import torch

from gdpo_nemo.backends.nemo_rl import upstream
from gdpo_nemo.errors import InputError, NonFiniteError


def prompt_groups(prompt_ids_B_T: torch.Tensor, valid_B: torch.Tensor, rollouts_per_prompt: int) -> torch.Tensor:
    """Group labels [B]: every ``rollouts_per_prompt`` rows that follow each other are one group.

    NeMo RL repeats each prompt in place and keeps that order in every trainer. It then finds the groups again by
    comparing prompt tokens, which merges two data set rows with the same prompt; here they stay apart.

    Raises:
        InputError: the batch is not made of such blocks, so the labels would be wrong.
    """
    num_samples = len(prompt_ids_B_T)
    if num_samples % rollouts_per_prompt:
        raise InputError(
            f"a batch of {num_samples} rollouts is not made of groups of {rollouts_per_prompt} "
            "(grpo.num_generations_per_prompt)"
        )
    blocks_P_G_T = prompt_ids_B_T.reshape(-1, rollouts_per_prompt, prompt_ids_B_T.shape[1])
    valid_P_G = valid_B.reshape(-1, rollouts_per_prompt)
    first_P = valid_P_G.to(torch.int8).argmax(dim=1)  # an overlong prompt is cut, masked, and equal to nothing
    first_P_1_T = blocks_P_G_T[torch.arange(len(first_P)), first_P][:, None]
    differs_P_G = (blocks_P_G_T != first_P_1_T).any(dim=2) & valid_P_G
    if differs_P_G.any():
        row = int(differs_P_G.flatten().nonzero()[0])
        raise InputError(
            f"row {row} of the batch has another prompt than the group of {rollouts_per_prompt} rows it stands in; "
            "rollouts of one prompt must follow each other"
        )
    return torch.arange(num_samples, device=prompt_ids_B_T.device) // rollouts_per_prompt


def settle(batch: MutableMapping[str, Any], names: Sequence[str]) -> torch.Tensor:
    """Take ungraded samples out of the loss and make ``total_reward`` finite, in place. Returns them, bool [B].

    ``total_reward`` becomes the sum of the rewards that apply; a sample without any gets the mean of the others, so
    that every mean NeMo RL logs is the mean over graded samples. The single rewards keep their NaN. After dynamic
    sampling ``total_reward`` belongs to the unfiltered rows, and ``filtered_reward`` is the total of these.
    """
    upstream.keep_single_reward(batch, names)
    rewards_B_K = upstream.from_batch(batch, names)
    ungraded_B = rewards_B_K.isnan().all(dim=1)
    total_B = torch.as_tensor(batch["filtered_reward" if "filtered_reward" in batch else "total_reward"])
    if rewards_B_K.isnan().any():
        sums_B = rewards_B_K.nan_to_num(nan=0.0).sum(dim=1)
        mean = sums_B[~ungraded_B].mean() if (~ungraded_B).any() else sums_B.new_zeros(())
        total_B.copy_(torch.where(ungraded_B, mean, sums_B))
    if "loss_multiplier" in batch and ungraded_B.any():
        batch["loss_multiplier"].masked_fill_(ungraded_B, 0.0)
    return ungraded_B


def totals(batch: Mapping[str, Any]) -> dict[str, float]:
    """What NeMo RL's asynchronous rollouts say of the totals, once these are settled."""
    total_B = torch.as_tensor(batch["total_reward"])
    return {
        "mean_total_reward": float(total_B.mean()),
        "max_total_reward": float(total_B.max()),
        "min_total_reward": float(total_B.min()),
    }


def first_responses(batch: Mapping[str, Any], rollouts_per_prompt: int) -> list[str]:
    """The first response to each prompt; none where the batch has no texts, as with NeMo RL's data plane."""
    logs = batch.get("message_log", [])[::rollouts_per_prompt]
    said = ([message["content"] for message in log if message["role"] == "assistant"] for log in logs)
    return [texts[-1] for texts in said if texts]


def check_finite(
    batch: Mapping[str, Any],
    rewards_B_K: torch.Tensor,
    names: Sequence[str],
    mask_B_T: torch.Tensor,
    log_probs: Mapping[str, torch.Tensor | None],
) -> None:
    """No reward of a sample that the loss sees is infinite, and no log-probability of its tokens is NaN or +inf.

    NeMo RL itself masks tokens at -inf, which sampling with top-p or top-k can leave behind.

    Args:
        batch: the rollouts, for the names of their rows.
        rewards_B_K: of the batch.
        names: K rewards.
        mask_B_T: 1 on the tokens that the loss sees.
        log_probs: what they are of -> [B, T]; None where NeMo RL computes none.

    Raises:
        NonFiniteError: one is; its row, and its reward or token, are named.
    """
    seen_B_T = mask_B_T.bool()
    wrong = (rewards_B_K.isinf() & seen_B_T.any(dim=1, keepdim=True)).nonzero()
    if len(wrong):
        i, k = wrong[0].tolist()
        raise NonFiniteError(f"reward {names[k]!r} of {_name(batch, i)} is {rewards_B_K[i, k].item():g}")
    for of, logp_B_T in log_probs.items():
        if logp_B_T is not None:
            logp_B_T = torch.as_tensor(logp_B_T).to(seen_B_T.device)
            wrong = ((logp_B_T.isnan() | logp_B_T.isposinf()) & seen_B_T).nonzero()
            if len(wrong):
                i, t = wrong[0].tolist()
                token = int(seen_B_T[i, : t + 1].sum())
                value = logp_B_T[i, t].item()
                raise NonFiniteError(
                    f"the log-probability of token {token} of {_name(batch, i)} under {of} is {value:g}"
                )


def _name(batch: Mapping[str, Any], i: int) -> str:
    infos = batch.get("extra_env_info")
    row = f"row {infos[i]['row']['id']!r}, " if infos is not None and "row" in (infos[i] or {}) else ""
    return f"{row}rollout {i} of the batch"
