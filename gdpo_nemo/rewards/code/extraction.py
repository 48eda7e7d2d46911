"""The program in a response: the last fenced block of Python after the reasoning.

Policy, in order:

1. Only the text after the last ``</think>`` counts. A response that opens ``<think>`` and never closes it has no
   program; nor has, with thinking "required" (for prompts that open the tag themselves), one without ``</think>``.
   With "ignored" the tag is text like any other.
2. The last block marked as Python wins; without one, the last block without a mark. Blocks marked as anything else
   (shell, text, another language) are never the program.
3. A block that the end of the response cuts off ends there, as in CommonMark.
4. Without a block there is no program. Prose is never run.
"""

from __future__ import annotations

import re
from typing import Final

from gdpo_nemo.errors import UnknownNameError

PYTHON_MARKS: Final = frozenset({"python", "python3", "py", "py3", "python2", "pypy", "pypy3"})
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
        if mark in PYTHON_MARKS or not mark:
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
            if opening["before"].strip() and mark not in PYTHON_MARKS:  # a run of backticks in a sentence
                continue
            indent = len(opening["before"]) if not opening["before"].strip() else 0
            lines = []
            continue
        content, closes = _before_close(line, fence)
        if content is not None:
            lines.append(_dedent(content, indent))
        if closes:
            found.append((mark, "\n".join([*lines, ""])))
            lines = None
    if lines is not None:
        found.append((mark, "\n".join(lines)))
    return found


def _before_close(line: str, fence: str) -> tuple[str | None, bool]:
    """What a line adds to a block, and whether it closes it."""
    bare = line.strip()
    if len(bare) >= len(fence) and set(bare) == {fence[0]}:
        return None, True
    stripped = line.rstrip()
    if stripped.endswith(fence) and stripped.count(fence[0]) == len(fence):
        return stripped[: -len(fence)], True
    return line, False


def _dedent(line: str, indent: int) -> str:
    lead = len(line) - len(line.lstrip(" \t"))
    return line[min(indent, lead) :]
