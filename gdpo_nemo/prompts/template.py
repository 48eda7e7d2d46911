"""Prompts of your own data: templates with ``{field}``, or a field that already holds chat messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gdpo_nemo.errors import InputError
from gdpo_nemo.templates import as_text, fill, placeholders
from gdpo_nemo.types import Message, Prompt, Row


@dataclass(frozen=True)
class PromptTemplate:
    """How a row becomes a prompt; either ``user`` or ``messages`` is given.

    Attributes:
        user: template of the user message.
        system: template of the system message, none by default.
        messages: name of a field that holds the whole chat, a list of ``{role, content}``.
    """

    user: str | None = None
    system: str | None = None
    messages: str | None = None

    def __post_init__(self) -> None:
        if (self.user is None) == (self.messages is None) or (self.messages and self.system):
            raise InputError("prompt needs user (and perhaps system), or messages alone: a field with chat messages")
        for template in (self.system, self.user):
            placeholders(template or "")

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that a row must have."""
        if self.messages is not None:
            return (self.messages,)
        return tuple(dict.fromkeys(placeholders(self.system or "") + placeholders(self.user or "")))

    def build(self, row: Row) -> Prompt:
        """The chat messages of a row.

        Raises:
            UnknownNameError: the row lacks a field.
            InputError: the field with messages holds something else.
        """
        if self.messages is not None:
            return Prompt(row.id, _chat(row, self.messages))
        filled = [
            (role, fill(text, row.fields)) for role, text in (("system", self.system), ("user", self.user)) if text
        ]
        return Prompt(row.id, tuple(Message(role, text) for role, text in filled))


def _chat(row: Row, field: str) -> tuple[Message, ...]:
    turns = row.fields[field]
    if hasattr(turns, "tolist"):  # parquet
        turns = turns.tolist()
    if not isinstance(turns, list) or not turns:
        raise InputError(f"row {row.id!r}: field {field!r} is {turns!r}; expected a list of {{role, content}}")
    for turn in turns:
        if not isinstance(turn, Mapping) or not {"role", "content"} <= set(turn):
            raise InputError(f"row {row.id!r}: field {field!r} holds {turn!r}; expected {{role, content}}")
    return tuple(Message(str(turn["role"]), as_text(turn["content"])) for turn in turns)
