"""The values that pass between the stages of a run, and the legend of shapes.

    dataset row -> Prompt -> Rollout -> RewardVector -> conditioned -> advantage -> loss

Shape suffixes used in every name of this package:

    B samples (rollouts) of a batch      P prompts       G rollouts per prompt
    K rewards                            T tokens        S seeds
    Q evaluation questions               N samples per question

No torch and no I/O here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

NOT_APPLICABLE = "does_not_apply"
"""The code of a reward that does not apply to its sample; a NaN with other codes, or none, is a failed grading."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat: ``role`` is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a data set, before any prompt template.

    Attributes:
        id: unique within its data set and stable across runs.
        fields: what the task's prompt template needs (strings, numbers, lists).
        gold: the reference answer in the form that the task's reward expects.
    """

    id: str
    fields: Mapping[str, Any]
    gold: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the model is asked: the chat messages of one row.

    Attributes:
        row_id: of the row.
        messages: the chat.
        keep_last: of its tokens, chat markup included, only the last so many are asked; None: all.
    """

    row_id: str
    messages: tuple[Message, ...]
    keep_last: int | None = None


@dataclass(frozen=True, slots=True)
class Rollout:
    """One sampled response.

    Attributes:
        row_id: the row it answers.
        index: 0..G-1 within the group of that row.
        response: decoded text without the end token.
        length_tokens: response tokens, the end token excluded.
        truncated: True when the length limit ended it instead of the end token.
    """

    row_id: str
    index: int
    response: str
    length_tokens: int
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class RewardVector:
    """Named rewards of one rollout. NaN means "does not apply or could not be graded"; 0 is a score.

    Attributes:
        values: reward name -> value, in the reward's declared order.
        reasons: reward name -> machine-readable codes that explain the value.
    """

    values: Mapping[str, float]
    reasons: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> float:
        """The value of one reward."""
        return self.values[name]
