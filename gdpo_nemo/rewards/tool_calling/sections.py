"""Where the think, tool_call and response sections of a completion begin and end.

The text is read once, left to right. Inside ``<think>`` and ``<tool_call>`` only the
matching closing tag counts; every other tag there is ordinary text (a thought may name
``<tool_call>``, an argument may hold ``<response>``). A ``<response>`` hides nothing: a
call opened inside it is a call. Linear in the length of the text.
"""

from __future__ import annotations

import re
from typing import NamedTuple

THINK, CALL, RESPONSE = "think", "tool_call", "response"
"""The section kinds, in the order in which a completion holds them."""

_TAG = re.compile(r"<(/?)(think|tool_call|response)>")


class Section(NamedTuple):
    """One tagged section.

    Attributes:
        kind: ``think``, ``tool_call`` or ``response``.
        start: index of the opening tag.
        end: index after the closing tag, or the length of the text when it is missing.
        body: the text between the tags.
        closed: whether the closing tag is there.
        nested: whether it lies inside a response.
    """

    kind: str
    start: int
    end: int
    body: str
    closed: bool
    nested: bool


class Outline(NamedTuple):
    """The sections of one text, ordered by where they open, and the kinds of tags that belong to none."""

    sections: tuple[Section, ...]
    stray: frozenset[str]

    def of_kind(self, kind: str) -> list[Section]:
        """The sections of one kind, nested ones included, in order."""
        return [section for section in self.sections if section.kind == kind]


def outline_of(text: str) -> Outline:
    """Split a completion into its sections."""
    found: list[Section] = []
    stray: set[str] = set()
    open_tags: list[re.Match[str]] = []  # never more than a response with one section inside

    def close(end: int, body_end: int, closed: bool) -> None:
        tag = open_tags.pop()
        body = text[tag.end() : body_end]
        found.append(Section(tag[2], tag.start(), end, body, closed, nested=bool(open_tags)))

    for tag in _TAG.finditer(text):
        closing, kind = tag[1] == "/", tag[2]
        inside = open_tags[-1][2] if open_tags else None
        if closing and kind == inside:
            close(tag.end(), tag.start(), closed=True)
        elif inside in (THINK, CALL):
            continue
        elif closing or kind == inside:
            stray.add(kind)
        else:
            open_tags.append(tag)
    while open_tags:
        close(len(text), len(text), closed=False)
    found.sort(key=lambda section: section.start)
    return Outline(tuple(found), frozenset(stray))
