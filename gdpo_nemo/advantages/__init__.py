"""Rewards to advantages: GDPO, GRPO and what to log about them. Pure tensors, no configuration, no I/O.

    advantages_B = gdpo(rewards_B_K, group_ids_B)           arXiv 2601.05242, eq. 4-7
    advantages_B = grpo(rewards_B_K, group_ids_B)           eq. 1-2; ``scale_by_std=False``: GRPO w/o std
    diagnostics(rewards_B_K, group_ids_B, names=names)      the health of each reward, for the log
    informative(rewards_B_K, group_ids_B)                   the groups that dynamic sampling keeps
    weights = align_weights(names, mapping)                 weights by name, into the order of ``names``

``groups`` holds the statistics within groups and the conventions all of these share.
"""

from gdpo_nemo.advantages.diagnostics import Diagnostics, RewardDiagnostics, diagnostics
from gdpo_nemo.advantages.gdpo import gdpo
from gdpo_nemo.advantages.grpo import grpo
from gdpo_nemo.advantages.selection import informative
from gdpo_nemo.advantages.weights import align_weights

__all__ = ["Diagnostics", "RewardDiagnostics", "align_weights", "diagnostics", "gdpo", "grpo", "informative"]
