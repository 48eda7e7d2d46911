"""ToolRL's prompt: its tools and output format as system message, the whole dialogue so far as one user message.

The wording is that of github.com/qiancheng0/ToolRL at 8cee13e (Apache-2.0): the rows of ``dataset/rlla_4k`` and
``benchmarks/BFCL/rlla_qwen.py``, its handler for BFCL. The two differ; ``DEVIATIONS`` names what the handler does
otherwise than the rows that a model was trained on, and each can be switched off.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, Final

from gdpo_nemo.errors import UnknownNameError
from gdpo_nemo.types import Message

DEVIATIONS: Final[dict[str, str]] = {
    "user_instruction": "every user message ends in an instruction: use tools, or say that none fits, or call 'None'",
    "single_turn_instruction": "in multi-turn dialogues, too, that instruction is the one for single turns; nothing "
    "selects the handler's other one",
    "trailing_newline": "the system message ends in a line break that the rows lack",
    "system_dropped": "system messages of BFCL's own are left out; otherwise they stand in front of the system message",
    "properties_only": "a tool's parameters are its properties, without the list of required ones",
    "obs_sentence": "a tool's result is told in a sentence, and an instruction follows the last one; otherwise it is "
    "the rows' list of names and results",
}
"""What the released handler does -> how it differs from the rows; ``properties_only`` is so in the rows as well."""
HANDLER: Final = frozenset(DEVIATIONS)
AS_TRAINED: Final = frozenset({"properties_only"})

TEMPLATES: Final = ("system", "user", "user_multi_turn", "after_results")
Turn = Mapping[str, Any]


@cache
def _text(name: str) -> str:
    return resources.files("gdpo_nemo.prompts").joinpath("templates", f"toolrl_{name}.txt").read_text("utf-8")


def template_hashes() -> dict[str, str]:
    """SHA-256 of each template."""
    return {f"toolrl_{name}": hashlib.sha256(_text(name).encode()).hexdigest() for name in TEMPLATES}


def system_message(tools: Sequence[Mapping[str, Any]], deviations: Collection[str] = AS_TRAINED) -> str:
    """The system message that offers some tools.

    Args:
        tools: ``name``, ``description`` and ``parameters``, a JSON schema of an object.
        deviations: of the released handler to follow.

    Raises:
        UnknownNameError: no such deviation.
    """
    _check(deviations)
    entries = []
    for number, tool in enumerate(tools, start=1):
        schema = tool["parameters"]
        shown = schema.get("properties", {}) if "properties_only" in deviations else schema
        entries.append(
            f"{number}. Name: {tool['name']}\nDescription: {tool['description']}\nParameters: {json.dumps(shown)}"
        )
    text = _text("system").format(tools="\n".join(entries))
    return text if "trailing_newline" in deviations else text.removesuffix("\n")


def build_chat(
    tools: Sequence[Mapping[str, Any]],
    dialogue: Sequence[Turn],
    deviations: Collection[str] = AS_TRAINED,
    *,
    multi_turn: bool = False,
) -> tuple[Message, Message]:
    """The two chat messages of a dialogue so far.

    Args:
        tools: as ``system_message``.
        dialogue: ``{role, content}`` of system, user and assistant, and of ``tool``: one result, with ``name``, the
            call as Python text, and ``tool``, the tool's name.
        deviations: of the released handler to follow.
        multi_turn: whether the user comes back.

    Raises:
        UnknownNameError: no such deviation.
    """
    system = system_message(tools, deviations)
    own = [turn["content"] for turn in dialogue if turn["role"] == "system"]
    if own and "system_dropped" not in deviations:
        system = "\n\n".join([*own, system])
    return Message("system", system), Message("user", _history(dialogue, deviations, multi_turn))


def _history(dialogue: Sequence[Turn], deviations: Collection[str], multi_turn: bool) -> str:
    instruction = ""
    if "user_instruction" in deviations:
        single = not multi_turn or "single_turn_instruction" in deviations
        instruction = "\n" + _text("user" if single else "user_multi_turn").strip()
    sentences = "obs_sentence" in deviations
    text = "**Dialogue Records History**\n"
    results: list[Turn] = []
    before = None
    for index, turn in enumerate(dialogue):
        role, content = turn["role"], turn["content"].strip()
        if role == "user":
            gap = "\n" if before in ("assistant", "tool") and not sentences else ""
            text += f"{gap}<user> {content}{instruction} </user>\n"
        elif role == "assistant":
            text += f"\n{content}\n"
        elif role == "tool" and sentences:
            text += f"<obs> You have made the tool call {turn['name'].strip()}. Execution returns: {content} </obs>\n"
            if index == len(dialogue) - 1:
                text += f"\n<user> {_text('after_results').strip()} </user>\n"
        elif role == "tool":
            results.append(turn)
            if index == len(dialogue) - 1 or dialogue[index + 1]["role"] != "tool":
                text += f"<obs> {json.dumps([_result(result) for result in results])} </obs>\n"
                results = []
        before = role
    return text.strip()


def _result(turn: Turn) -> dict[str, Any]:
    try:
        value = json.loads(turn["content"])
    except ValueError:
        value = turn["content"]
    return {"name": turn.get("tool", turn["name"]), "results": value}


def _check(deviations: Collection[str]) -> None:
    for name in deviations:
        if name not in DEVIATIONS:
            raise UnknownNameError("deviation of ToolRL's handler", name, DEVIATIONS)
