"""What differs between the supported versions of NeMo RL, found by looking, never by version strings.

v0.7.0 (81aa43d)            an environment returns rewards [B, K]; the batch has reward1..rewardK
main (7ea279a, 2026-08-22)  it returns {"reward/<name>": [B]}; the batch has these keys
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from functools import cache
from typing import Any

import torch
from nemo_rl.algorithms.utils import get_gdpo_reward_component_keys

from gdpo_nemo.errors import PrerequisiteError

PREFIX = "reward/"


@cache
def rewards_are_named() -> bool:
    """Whether environments return a mapping of named rewards, not a matrix."""
    return bool(get_gdpo_reward_component_keys({f"{PREFIX}probe": 0}))


def to_environment_return(rewards_B_K: torch.Tensor, names: Sequence[str]) -> Any:
    """Rewards [B, K] in the form that this version takes from an environment."""
    if rewards_are_named():
        return {f"{PREFIX}{name}": rewards_B_K[:, k].contiguous() for k, name in enumerate(names)}
    return rewards_B_K if len(names) > 1 else rewards_B_K[:, 0]


def keep_single_reward(batch: MutableMapping[str, Any], names: Sequence[str]) -> None:
    """Give the only reward of v0.7.0 a key of its own, once.

    It comes as ``total_reward``, which ``settle`` makes finite and dynamic sampling fills with other rows.
    """
    if len(names) == 1 and not get_gdpo_reward_component_keys(batch):
        batch["reward1"] = torch.as_tensor(batch["total_reward"]).clone()


def from_batch(batch: Mapping[str, Any], names: Sequence[str]) -> torch.Tensor:
    """Rewards [B, K] of a rollout batch, in the order of ``names``; float32, NaN where none was given.

    Raises:
        PrerequisiteError: the batch does not carry these rewards.
    """
    found = list(get_gdpo_reward_component_keys(batch))
    if rewards_are_named():
        keys = [f"{PREFIX}{name}" for name in names]
    elif len(names) == 1 and not found:
        keys = found = ["total_reward"]
    else:
        keys = [f"reward{k + 1}" for k in range(len(names))]
    if sorted(found) != sorted(keys):
        raise PrerequisiteError(
            f"the rollout batch carries {found or 'no single rewards'}, and the gdpo: block names {list(names)}. "
            "Use env_name gdpo for every data set; NeMo RL's single-controller trainer hands no single rewards to the "
            "estimator, so train with run_grpo.py's trainers (grpo.async_grpo included)."
        )
    return torch.stack([torch.as_tensor(batch[key], dtype=torch.float32) for key in keys], dim=1)


def as_dict(config: Any) -> dict[str, Any]:
    """A section of MasterConfig as plain values: a dict in v0.7.0, a pydantic model on main."""
    return dict(config) if isinstance(config, Mapping) else dict(config.model_dump())
