"""The rollouts that every layout trains on, and this project's GDPO loss on any rows of them.

B rollouts of T predicted tokens, in groups whose members lie in different micro-batches.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gdpo_nemo.advantages import gdpo
from gdpo_nemo.losses import clipped_surrogate, token_weights

VOCABULARY = 96
NUM_GROUPS, GROUP_SIZE, NUM_TOKENS = 3, 4, 20
NUM_MICRO_BATCHES = 4
WEIGHTS = (1.0, 0.5)
CLIP_LOW, CLIP_HIGH = 0.2, 0.28


@dataclass(frozen=True)
class Batch:
    """Input ids and next ids [B, T], response mask [B, T], advantages [B], weights of the token mean [B, T]."""

    inputs_B_T: Tensor
    targets_B_T: Tensor
    response_B_T: Tensor
    advantages_B: Tensor
    weights_B_T: Tensor

    def micro_batches(self) -> list[Tensor]:
        """Row numbers of each micro-batch."""
        return list(torch.arange(len(self.advantages_B)).chunk(NUM_MICRO_BATCHES))


def make() -> Batch:
    """The same batch in every process: responses of 3 to 14 tokens, rewards 0/1 and -3..3."""
    generator = torch.Generator().manual_seed(7)
    size = NUM_GROUPS * GROUP_SIZE
    ids = torch.randint(VOCABULARY, (size, NUM_TOKENS + 1), generator=generator)
    start = torch.randint(3, 6, (size, 1), generator=generator)
    length = torch.randint(3, 15, (size, 1), generator=generator)
    place = torch.arange(NUM_TOKENS)
    response = (place >= start) & (place < start + length)
    group_ids = torch.arange(size) % NUM_GROUPS
    shape = (torch.rand(size, generator=generator) < 0.5).float()
    correctness = torch.rand(size, generator=generator) * 6 - 3
    advantages = gdpo(torch.stack([shape, correctness], dim=1), group_ids, weights=WEIGHTS)
    return Batch(ids[:, :-1], ids[:, 1:], response, advantages, token_weights(response, "token_mean"))


def loss(batch: Batch, rows: Tensor, logp_b_T: Tensor, old_logp_B_T: Tensor) -> Tensor:
    """Share of these rows in the loss of the whole batch."""
    policy, _ = clipped_surrogate(
        logp_b_T, old_logp_B_T[rows], batch.advantages_B[rows], clip_low=CLIP_LOW, clip_high=CLIP_HIGH
    )
    return (policy * batch.weights_B_T[rows]).sum()
