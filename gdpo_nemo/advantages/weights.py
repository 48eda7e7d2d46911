"""Weights of rewards: from a mapping by name to the order of the columns, and the checks on both forms.

``align_weights`` is the only place where a name becomes a position. Every name needs a weight and every
weight needs a name, so a typo cannot leave a reward at a silent default.

    NeMo RL orders its weights by the alphabetical order of the reward names; TRL by the order of the reward
    functions; verl (1dda039) does not compare the number of weights with the number of rewards.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from gdpo_nemo.errors import InputError, UnknownNameError

MAX_MAGNITUDE = 1e100
"""Weights and rewards stay below this, so that the square of their product fits float64."""


def align_weights(names: Sequence[str], mapping: Mapping[str, float]) -> tuple[float, ...]:
    """Put weights given by reward name into the order of ``names``.

    Args:
        names: the K reward names, in the order of the columns of ``rewards_B_K``.
        mapping: reward name -> weight, one for each name and no other.

    Returns:
        The K weights as floats, ready for ``weights=`` of ``gdpo``, ``grpo`` and ``diagnostics``.

    Raises:
        UnknownNameError: the mapping weighs a reward that is not in ``names``.
        InputError: a name has no weight or comes twice, or a weight is not a finite number.
    """
    check_names(names)
    if not isinstance(mapping, Mapping):
        raise InputError(
            f"weights by name are a {type(mapping).__name__}; expected a mapping such as "
            f"{{{', '.join(f'{name!r}: 1.0' for name in names)}}}."
        )
    for name in mapping:
        if name not in names:
            raise UnknownNameError("reward in weights", str(name), names)
    missing = [name for name in names if name not in mapping]
    if missing:
        raise InputError(
            f"no weight for reward {missing[0]!r}; weights are given for {', '.join(mapping) or 'none'}. "
            f"Add '{missing[0]}: 1.0' (0.0 switches the reward off)."
        )
    return tuple(_finite(mapping[name], f"weight of reward {name!r}") for name in names)


def check_names(names: Sequence[str], num_rewards: int | None = None) -> None:
    """Refuse names that are not distinct strings, or not ``num_rewards`` of them."""
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise InputError(f"names is {names!r}; expected a sequence of reward names such as ['correct', 'length'].")
    twice = [name for position, name in enumerate(names) if name in names[:position]]
    if twice:
        raise InputError(f"reward name {twice[0]!r} comes more than once in {list(names)}; rename one of them.")
    if num_rewards is not None and len(names) != num_rewards:
        raise InputError(
            f"names has {len(names)} entries ({', '.join(names)}) for {num_rewards} rewards; "
            f"expected one name per column of rewards_B_K."
        )


def check_weights(weights: Sequence[float] | None, num_rewards: int) -> tuple[float, ...]:
    """Weights by position as floats; ``None`` is 1 for every reward.

    Raises:
        InputError: not a sequence of ``num_rewards`` finite numbers.
    """
    if weights is None:
        return (1.0,) * num_rewards
    if isinstance(weights, Mapping):
        raise InputError("weights is a mapping; expected a sequence. Use weights=align_weights(names, mapping).")
    values = weights.tolist() if hasattr(weights, "tolist") else weights
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise InputError(f"weights is {weights!r}; expected a sequence of {num_rewards} numbers.")
    if len(values) != num_rewards:
        raise InputError(
            f"weights has {len(values)} entries for {num_rewards} rewards; expected one per column of rewards_B_K."
        )
    return tuple(_finite(value, f"weights[{position}]") for position, value in enumerate(values))


def _finite(value: object, what: str) -> float:
    if isinstance(value, bool | str | bytes) or not hasattr(value, "__float__"):
        raise InputError(f"{what} is {value!r}; expected a number.")
    number = float(value)
    if not math.isfinite(number) or abs(number) > MAX_MAGNITUDE:
        raise InputError(f"{what} is {number}; expected a finite number of at most {MAX_MAGNITUDE:g} in magnitude.")
    return number
