r"""The final answer of a response: the last ``\boxed{}`` after the last ``</think>``, or nothing.

An answer that is not boxed is no answer, and neither is a box that never closes: numbers of the derivation are not
guessed at.
"""

from __future__ import annotations

import re
from typing import Final, Literal, get_args

from gdpo_nemo.errors import InputError, UnknownNameError

Thinking = Literal["auto", "required", "ignored"]
THINKING: Final[tuple[str, ...]] = get_args(Thinking)
"""How ``</think>`` is read: where there is one; there has to be one; never."""

_OPEN, _CLOSE = "<think>", "</think>"
_BOX = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])\s*")
_BARE = re.compile(r"[^\s{}$\\]+|\\[a-zA-Z]+")
_MOST_NESTED = 8


def before_the_cut(response: str, truncated: bool) -> str:
    """What may be graded of a response: one that its token limit cut off before ``</think>`` was still thinking.

    Templates that open ``<think>`` in the prompt leave no trace of it in the response, so that a box in an unfinished
    thought would look like an answer.
    """
    return _OPEN if truncated and _CLOSE not in response else response


def final_answer(response: str, thinking: str = "auto") -> tuple[str | None, str]:
    r"""The text of the last box, and a code that says why there is none ("" when there is one).

    Args:
        response: the decoded response. Any text will do.
        thinking: ``auto``: the text after the last ``</think>`` if there is one, and nothing when ``<think>`` is never
            closed. ``required``: no ``</think>`` means that the model is still thinking, so there is no answer; for
            templates that open ``<think>`` in the prompt. ``ignored``: the whole text.

    Raises:
        InputError: the response is not a string.
        UnknownNameError: no such value of ``thinking``.
    """
    if not isinstance(response, str):
        raise InputError(f"response is a {type(response).__name__}, expected a str: the decoded text.")
    if thinking not in THINKING:
        raise UnknownNameError("thinking", str(thinking), THINKING)
    if thinking != "ignored":
        end = response.rfind(_CLOSE)
        if end >= 0:
            response = response[end + len(_CLOSE) :]
        elif thinking == "required" or _OPEN in response:
            return None, "unfinished_thinking"
    boxes = [found for command in (r"\boxed", r"\fbox") if (found := response.rfind(command)) >= 0]
    if not boxes:
        return None, "no_box"
    inner = _contents(response, max(boxes))
    if inner is None:
        return None, "unclosed_box"
    start, end = inner
    start, end = _outermost(response, start, end)
    text = _without_boxes(response[start:end]).strip()
    return (text, "") if text.strip("$ ") else (None, "empty_box")


def _contents(text: str, at: int) -> tuple[int, int] | None:
    """Where the contents of the box that begins at ``at`` lie; None when it never closes."""
    command = _BOX.match(text, at)
    if command is None:  # \boxedfoo
        return None
    start = command.end()
    if not text.startswith("{", start):
        bare = _BARE.match(text, start)
        if bare is None:
            return None
        return start, start + len(bare.group().rstrip(".,;:!?)"))
    depth, position = 0, start
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 1
        elif character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                return start + 1, position
        position += 1
    return None


def _outermost(text: str, start: int, end: int) -> tuple[int, int]:
    """The contents of the box around the last one, if the last one lies inside another."""
    at = start
    for _ in range(_MOST_NESTED):
        at = text.rfind(r"\boxed", 0, at - 1)
        if at < 0:
            break
        outer = _contents(text, at)
        if outer is not None and outer[0] < start and outer[1] >= end:
            start, end = outer
    return start, end


def _without_boxes(text: str) -> str:
    """The text with boxes inside it replaced by their contents."""
    for _ in range(_MOST_NESTED):
        found = _BOX.search(text)
        inner = found and _contents(text, found.start())
        if not found or not inner:
            break
        start, end = inner
        after = end + 1 if text[start - 1 : start] == "{" else end
        text = f"{text[: found.start()]} {text[start:end]} {text[after:]}"
    return text
