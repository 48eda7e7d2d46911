"""Rewards of the tool-calling task: is the response well formed, and are its calls right.

``score`` is the engine; ``ToolCallingReward`` puts it under the protocol of all rewards.
Both give ``format`` in {0, 1} and ``correct`` in [-3, 3]. NaN in ``correct`` means that the
reference cannot be read, so nothing can be graded.

Two modes: ``strict`` (the default; ``strict.py``) and ``toolrl`` (``released.py``), which
gives the values of the released code, holes included, for reproducing published runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from gdpo_nemo.errors import InputError, UnknownNameError
from gdpo_nemo.rewards.tool_calling.matching import HIGHEST, LOWEST
from gdpo_nemo.rewards.tool_calling.reasons import REASONS
from gdpo_nemo.rewards.tool_calling.released import score_released
from gdpo_nemo.rewards.tool_calling.strict import score_strict
from gdpo_nemo.types import RewardVector, Rollout, Row

__all__ = ["MODES", "REASONS", "ToolCallingReward", "score"]

MODES: Final[dict[str, Callable[[str, str], RewardVector]]] = {"strict": score_strict, "toolrl": score_released}
"""Mode -> scorer of (response, gold)."""


def score(response: str, gold: str, *, mode: str = "strict") -> RewardVector:
    """Score one response against the reference completion.

    Args:
        response: the decoded response, end token excluded. Any text will do.
        gold: the reference in the think / tool_call / response format of the data set.
        mode: ``strict`` or ``toolrl``.

    Returns:
        ``format`` (0 or 1) and ``correct`` (-3 to 3, NaN when the reference cannot be read),
        with the codes of ``REASONS`` that explain each. Full marks in strict mode carry no code.

    Raises:
        UnknownNameError: no such mode.
        InputError: the response, the reference or the mode is not a string.
    """
    for what, value in (("response", response), ("gold", gold)):
        if not isinstance(value, str):
            raise InputError(f"{what} is a {type(value).__name__}, expected a str: the decoded text.")
    return _scorer(mode)(response, gold)


class ToolCallingReward:
    """``format`` and ``correct`` of one rollout, under the ``Reward`` protocol.

    Attributes:
        names: ``("format", "correct")``.
        ranges: lowest and highest value of each.
        mode: ``strict`` or ``toolrl``.
    """

    names: tuple[str, ...] = ("format", "correct")
    ranges: Mapping[str, tuple[float, float]]

    def __init__(self, mode: str = "strict") -> None:
        """Choose the mode.

        Raises:
            UnknownNameError: no such mode.
        """
        _scorer(mode)
        self.mode = mode
        self.ranges = {"format": (0.0, 1.0), "correct": (LOWEST, HIGHEST)}

    def __call__(self, row: Row, rollout: Rollout) -> RewardVector:
        """Score the rollout's response against the row's reference completion."""
        return score(rollout.response, row.gold, mode=self.mode)


def _scorer(mode: str) -> Callable[[str, str], RewardVector]:
    if not isinstance(mode, str):
        raise InputError(f"mode is a {type(mode).__name__}, expected one of: {', '.join(MODES)}.")
    if mode not in MODES:
        raise UnknownNameError("mode", mode, MODES)
    return MODES[mode]
