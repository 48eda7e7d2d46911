"""The calls in a model's text, as the released handlers read them, and whether an attempt at a call was broken.

ToolRL's handler reads the last ``<tool_call>`` block, closed or not, inside ``<think>`` or not, and leaves out every
line that it cannot read. It takes the name "None" as no call. A call without parameters counts for nothing where calls
are compared, and as one without arguments where they are carried out.

Native calls stand in blocks of their own, ``{"name", "arguments"}`` in each; a server that has read them out of the
text is written back into that form. One block that cannot be read voids all, and what stands before the last
``</think>`` is no call, as in the release's handler for Qwen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gdpo_nemo.rewards.tool_calling.sections import CALL, outline_of

Call = dict[str, Any]  # {"name", "arguments"}
NATIVE_BLOCK = re.compile(r"<tool_call>\n(.*?)\n</tool_call>", re.DOTALL)
OPENING = "<tool_call>"
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True)
class Decoded:
    """What a text holds.

    Attributes:
        calls: {name: parameters} each, as the handler reads them; parameters may be anything.
        broken: an attempt at a call, or a part of one, could not be read.
    """

    calls: list[dict[str, Any]]
    broken: bool


def toolrl_calls(text: str) -> Decoded:
    """The calls that are compared."""
    calls = []
    for line in _last_block(text):
        try:
            call = json.loads(line)
            name = call["name"]
            if name.strip().lower() != "none":
                calls.append({name: call["parameters"]})
        except UNREADABLE:
            continue
    return Decoded(calls, _toolrl_is_broken(text))


def toolrl_steps(text: str) -> list[Call]:
    """The calls that are carried out; none where the handler fails on the text."""
    calls: list[Call] = []
    try:
        for line in _last_block(text):
            try:
                call = json.loads(line)
            except UNREADABLE:
                continue
            if isinstance(call, dict):
                name, arguments = call.get("name", ""), call.get("parameters", {})
                if name.strip().lower() != "none":
                    calls.append({"name": name, "arguments": dict(arguments.items())})
    except AttributeError:  # a name that is no text, parameters that are no object: the handler fails on all calls
        return []
    return calls


def _last_block(text: str) -> list[str]:
    if OPENING not in text:
        return []
    return text.split(OPENING)[-1].split("</tool_call>")[0].strip().split("\n")


def _toolrl_is_broken(text: str) -> bool:
    """Whether the last block outside think is open-ended, empty, or holds a line that is no call."""
    blocks = outline_of(text).of_kind(CALL)
    if not blocks:
        return False
    return not blocks[-1].closed or not all(map(_is_toolrl_call, blocks[-1].body.strip().split("\n")))


def _is_toolrl_call(line: str) -> bool:
    try:
        call = json.loads(line)
        name, parameters = call["name"], call.get("parameters")
        return bool(name.strip().lower() == "none" or isinstance(parameters, dict))
    except UNREADABLE:
        return False


def native_calls(text: str) -> Decoded:
    """The calls that are compared."""
    calls = native_steps(text)
    return Decoded([{call["name"]: call["arguments"]} for call in calls], not calls and OPENING in _said(text))


def native_steps(text: str) -> list[Call]:
    """The calls that are carried out; none where one block cannot be read."""
    calls = []
    for body in NATIVE_BLOCK.findall(_said(text)):
        try:
            call = json.loads(body)
            calls.append({"name": call["name"].strip(), "arguments": dict(call["arguments"].items())})
        except UNREADABLE:
            return []
    return calls


def _said(text: str) -> str:
    return text.rpartition("</think>")[2]


def native_text(text: str, tool_calls: Sequence[Mapping[str, Any]]) -> str:
    """A text with the calls that a server has taken out of it written back."""
    parts = [text] if text else []
    for call in tool_calls:
        function = call["function"]
        arguments = function.get("arguments") or "{}"
        arguments = arguments if isinstance(arguments, str) else json.dumps(arguments)
        parts.append(f'<tool_call>\n{{"name": {json.dumps(function["name"])}, "arguments": {arguments}}}\n</tool_call>')
    return "\n".join(parts)
