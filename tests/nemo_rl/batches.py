"""Rollout batches as NeMo RL's trainers hand them to an estimator."""

import torch
from nemo_rl.distributed.batched_data_dict import BatchedDataDict

from gdpo_nemo.backends.nemo_rl import upstream

LENGTH = 6


def rollout_batch(rewards, names=("format", "correct"), prompts=None, group=4, **extra):
    """Batch, prompt ids [B, 3], mask [B, S] and totals [B] of rewards [B][K], ``group`` rows per prompt."""
    rewards = torch.tensor(rewards, dtype=torch.float32)
    num_samples = len(rewards)
    prompts = torch.arange(num_samples // group) if prompts is None else torch.tensor(prompts)
    prompt_ids = prompts.repeat_interleave(group)[:, None].expand(-1, 3)
    given = upstream.to_environment_return(rewards, names)
    components = given if isinstance(given, dict) else {f"reward{k + 1}": rewards[:, k] for k in range(len(names))}
    batch = BatchedDataDict(
        {
            "message_log": [[{"role": "assistant", "content": str(i)}] for i in range(num_samples)],
            "total_reward": rewards.sum(dim=1),
            "loss_multiplier": torch.ones(num_samples),
            "idx": list(range(num_samples)),
            **({} if len(names) == 1 and not isinstance(given, dict) else components),
            **extra,
        }
    )
    return batch, prompt_ids, torch.ones(num_samples, LENGTH), batch["total_reward"]
