"""The prompt of every mathematics task, DeepScaleR's: the problem, and how to answer."""

from __future__ import annotations

from gdpo_nemo.prompts.tool_calling import template
from gdpo_nemo.types import Message


def build_messages(problem: str) -> tuple[Message, ...]:
    """The chat messages of a problem; the model's own chat template adds the rest."""
    return (Message("user", template("mathematics").replace("{problem}", problem)),)
