"""What is asked, turn by turn, as the official programs do it.

In a turn the model is asked again after each step of calls with what the tools answered, until it calls nothing. A turn
with more steps than ``MAX_STEPS`` ends the dialogue, and so does one that no longer fits the model: both are wrong. One
whose calls the tools do not survive, such as a power with a trillion digits, has no verdict: the official process would
not end.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from gdpo_nemo.evaluation.benchmark import Ask
from gdpo_nemo.evaluation.bfcl.checkers import CheckerError
from gdpo_nemo.evaluation.bfcl.decoding import (
    Call,
    Decoded,
    native_calls,
    native_steps,
    native_text,
    toolrl_calls,
    toolrl_steps,
)
from gdpo_nemo.evaluation.sampling import Completion, ContextOverflowError
from gdpo_nemo.prompts import toolrl

MAX_STEPS = 20
MORE_TOOLS = "I have updated some more functions you can choose from. What about now?"  # bfcl-eval, both releases
Turn = dict[str, Any]
Execute = Callable[[Sequence[Sequence[Call]]], Awaitable[list[str]]]
"""All steps of a dialogue so far -> what the tools answer to the last one."""


class Style(Protocol):
    """One way to put a dialogue to a model and to read its answers."""

    name: str

    def request(
        self, tools: Sequence[Any], dialogue: Sequence[Turn], *, multi_turn: bool
    ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Messages, and changes of the sampling parameters."""

    def text(self, completion: Completion) -> str:
        """The answer with its calls."""

    def calls(self, text: str) -> Decoded:
        """The calls that are compared."""

    def steps(self, text: str) -> list[Call]:
        """The calls that are carried out."""

    def more_tools(self, tools: list[Any], new: list[Any]) -> tuple[list[Any], str]:
        """Tools to offer from now on, and what the user says, where tools were held back until this turn."""

    def answered(self, text: str, calls: Sequence[Call], results: Sequence[str] | None, number: int) -> list[Turn]:
        """What joins the dialogue after a step: the answer and, unless None, the tools' results."""


class ToolRLStyle:
    """ToolRL's prompt, and calls as its handler reads them.

    Attributes:
        deviations: of the released handler from the rows of the training set.
    """

    name = "toolrl"

    def __init__(self, deviations: Collection[str] = toolrl.HANDLER) -> None:
        self.deviations = frozenset(deviations)
        toolrl.system_message((), self.deviations)

    def request(
        self, tools: Sequence[Any], dialogue: Sequence[Turn], *, multi_turn: bool
    ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Two messages: the whole dialogue is one of the user's."""
        chat = toolrl.build_chat(tools, dialogue, self.deviations, multi_turn=multi_turn)
        return [{"role": message.role, "content": message.content} for message in chat], {}

    def text(self, completion: Completion) -> str:
        """As it was said."""
        return completion.text

    def calls(self, text: str) -> Decoded:
        """The calls that are compared."""
        return toolrl_calls(text)

    def steps(self, text: str) -> list[Call]:
        """The calls that are carried out."""
        return toolrl_steps(text)

    def more_tools(self, tools: list[Any], new: list[Any]) -> tuple[list[Any], str]:
        """The user tells of the new tools; the list stays as it was."""
        return tools, f"{new}\n{MORE_TOOLS}"

    def answered(self, text: str, calls: Sequence[Call], results: Sequence[str] | None, number: int) -> list[Turn]:
        """The answer, and each result under its call as Python text."""
        turns: list[Turn] = [{"role": "assistant", "content": text}]
        for call, result in zip(calls, results or (), strict=False):
            arguments = ", ".join(f"{key}={value!r}" for key, value in call["arguments"].items())
            called = {"name": f"{call['name']}({arguments})", "tool": call["name"]}
            turns.append({"role": "tool", "content": result} | called)
        return turns


class NativeStyle:
    """The model's own template for tools, through the OpenAI interface."""

    name = "native"

    def request(
        self, tools: Sequence[Any], dialogue: Sequence[Turn], *, multi_turn: bool
    ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """The dialogue, with tools beside it."""
        return list(dialogue), {"extra": {"tools": list(tools)}}

    def text(self, completion: Completion) -> str:
        """With the calls that the server took out."""
        return native_text(completion.text, completion.tool_calls)

    def calls(self, text: str) -> Decoded:
        """The calls that are compared."""
        return native_calls(text)

    def steps(self, text: str) -> list[Call]:
        """The calls that are carried out."""
        return native_steps(text)

    def more_tools(self, tools: list[Any], new: list[Any]) -> tuple[list[Any], str]:
        """The new tools join the list."""
        return [*tools, *new], MORE_TOOLS

    def answered(self, text: str, calls: Sequence[Call], results: Sequence[str] | None, number: int) -> list[Turn]:
        """The answer with its calls apart, and each result under the call's id."""
        if not calls or results is None:
            return [{"role": "assistant", "content": text}]
        ids = [f"call_{number}_{index}" for index in range(len(calls))]
        tool_calls = [
            {
                "id": own,
                "type": "function",
                "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
            }
            for own, call in zip(ids, calls, strict=True)
        ]
        said = text.partition("<tool_call>")[0].rstrip("\n")
        turns: list[Turn] = [{"role": "assistant", "content": said, "tool_calls": tool_calls}]
        turns += [
            {"role": "tool", "tool_call_id": own, "content": result} for own, result in zip(ids, results, strict=True)
        ]
        return turns


async def single_turn(entry: Mapping[str, Any], ask: Ask, style: Style) -> dict[str, Any]:
    """One answer to one entry."""
    messages, changes = style.request(entry["tools"], entry["turns"][0], multi_turn=False)
    return {"response": style.text(await ask(messages, **changes))}


async def multi_turn(entry: Mapping[str, Any], ask: Ask, style: Style, execute: Execute) -> dict[str, Any]:
    """A whole dialogue.

    Returns:
        ``response``: all that the model said; ``turns``: per turn the texts of its steps; ``ended``: ``done``,
        ``too_many_steps``, ``context_overflow`` where the dialogue no longer fits the model, or ``tools_failed``.
    """
    tools, dialogue = list(entry["tools"]), list[Turn]()
    turns: list[list[str]] = []
    carried_out: list[list[Call]] = []
    ended = "done"
    for number, messages in enumerate(entry["turns"]):
        said = [dict(message) for message in messages]
        if str(number) in entry["held_out"]:
            tools, words = style.more_tools(tools, entry["held_out"][str(number)])
            said = [{"role": "user", "content": words}]
        dialogue += said
        turns.append([])
        for _ in range(MAX_STEPS + 1):
            request, changes = style.request(tools, dialogue, multi_turn=True)
            try:
                text = style.text(await ask(request, **changes))
            except ContextOverflowError:
                ended = "context_overflow"
                break
            turns[-1].append(text)
            calls = style.steps(text)
            if not calls:
                dialogue += style.answered(text, calls, None, len(carried_out))
                break
            carried_out.append(calls)
            try:
                results = await execute(carried_out)
            except CheckerError:
                ended = "tools_failed"
                break
            dialogue += style.answered(text, calls, results, len(carried_out))
        else:
            ended = "too_many_steps"
        if ended != "done":
            break
    response = "\n\n".join(text for turn in turns for text in turn)
    return {"response": response, "turns": turns, "ended": ended}
