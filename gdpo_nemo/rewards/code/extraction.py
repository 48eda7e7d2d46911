"""The program in a response: the last fenced block of Python after the reasoning.

Policy, in order:

1. Only the text after the last ``</think>`` counts. A response that opens ``<think>`` and never closes it has no
   program; nor has, with thinking "required" (for prompts that open the tag themselves), one without ``</think>``.
   With "ignored" the tag is text like any other.
2. The last block marked as Python wins; without one, the last block without a mark. Blocks marked as anything else
   (shell, text, another language) are never the program.
3. A block that the end of the response cuts off ends there, as in CommonMark; and as there, a fence that stands four
   columns or more to the right of the opening one, in a docstring, say, closes nothing. A tag (``</answer>``, a special
   token) may follow the closing fence on its line.
4. Without a block there is no program. Prose is never run.
"""

from __future__ import annotations

import re
from typing import Final

from gdpo_nemo.errors import UnknownNameError

_PYTHON = re.compile(r"(python|py|pypy)[\d.]*", re.ASCII)
"""Marks of Python in lower case, with a version or without."""
_TAB = 4
_ITEM = re.compile(r"[ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?", re.ASCII)
"""White space, with a list item's mark or without."""
_TAGS = re.compile(r"(?:[ \t]*<[^<>]+>)*")
"""Tags, or nothing."""
_OPEN = re.compile(r"^(?P<before>[^`~\n]*?)(?P<fence>`{3,}|~{3,})[ \t]*(?P<mark>[\w+#.-]*)(?P<rest>[^`\n]*)$")


THINKING: Final = ("auto", "required", "ignored")
"""How ``</think>`` is read: where there is one; there has to be one; never."""


def extract_code(response: str, *, thinking: str = "auto") -> str | None:
    """The program of a response, or None when there is none.

    Args:
        response: the decoded response.
        thinking: one of ``THINKING``.

    Raises:
        UnknownNameError: no such way of thinking.
    """
    if thinking not in THINKING:
        raise UnknownNameError("thinking", thinking, THINKING)
    answer = response
    if thinking != "ignored":
        _, closed, answer = response.rpartition("</think>")
        if not closed and (thinking == "required" or "<think>" in response):
            return None
    chosen: dict[bool, str] = {}
    for mark, body in _blocks(answer):
        if not mark or _PYTHON.fullmatch(mark):
            chosen[bool(mark)] = body
    return chosen.get(True, chosen.get(False))


def _blocks(text: str) -> list[tuple[str, str]]:
    """(mark in lower case, body) of every fenced block."""
    found: list[tuple[str, str]] = []
    lines: list[str] | None = None
    fence = mark = ""
    indent = 0
    for line in text.replace("\r\n", "\n").split("\n"):
        if lines is None:
            opening = _OPEN.match(line)
            if opening is None:
                continue
            fence, mark = opening["fence"], opening["mark"].lower()
            in_sentence = _ITEM.fullmatch(opening["before"]) is None
            if in_sentence and not _PYTHON.fullmatch(mark):  # a run of backticks
                continue
            indent = 0 if in_sentence else len(opening["before"].expandtabs(_TAB))
            lines = []
            continue
        content, closes = _before_close(_dedent(line, indent), fence)
        if content is not None:
            lines.append(content)
        if closes:
            found.append((mark, "\n".join([*lines, ""])))
            lines = None
    if lines is not None:
        found.append((mark, "\n".join(lines)))
    return found


def _before_close(line: str, fence: str) -> tuple[str | None, bool]:
    """What a line adds to a block, and whether it closes it."""
    bare = line.strip()
    after = bare.lstrip(fence[0])
    if len(bare) - len(after) >= len(fence) and _TAGS.fullmatch(after):
        lead = line[: -len(line.lstrip())].expandtabs(_TAB)
        return (None, True) if len(lead) < _TAB else (line, False)
    stripped = line.rstrip()
    if stripped.endswith(fence) and stripped.count(fence[0]) == len(fence):
        return stripped[: -len(fence)], True
    return line, False


def _dedent(line: str, indent: int) -> str:
    """A line without its first columns, as far as they are white space."""
    column = place = 0
    while column < indent and line[place : place + 1] in (" ", "\t"):
        column += _TAB - column % _TAB if line[place] == "\t" else 1
        place += 1
    return line[place:]
