"""The tool-calling prompt: tools and output format as system message, the dialogue as user message.

The compact template keeps the parts of ToolRL's prompt (arXiv 2504.13958) that the rewards rely
on, at a length that suits a small model: **Available Tools**, **Output Format**, and the history
under **Dialogue Records History**.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from gdpo_nemo.data import tool_world
from gdpo_nemo.data.tool_world import ToolWorld
from gdpo_nemo.types import Message, Prompt, Row


@cache
def template(name: str = "tool_calling_compact") -> str:
    """The text of a template."""
    return resources.files("gdpo_nemo.prompts").joinpath("templates", f"{name}.txt").read_text("utf-8").strip()


def tool_entry(tool: Mapping[str, Any]) -> str:
    """One tool as it stands in the system message."""
    return f"Name: {tool['name']}\nDescription: {tool['description']}\nParameters: {json.dumps(tool['parameters'])}"


def build_prompt(row: Row) -> Prompt:
    """The chat messages of a row with fields ``tools`` and ``user``."""
    tools = "\n".join(tool_entry(tool) for tool in row.fields["tools"])
    system = template().format(tools=tools)
    user = f"**Dialogue Records History**\n<user> {row.fields['user']} </user>"
    return Prompt(row.id, (Message("system", system), Message("user", user)))


def phrases(world: ToolWorld) -> list[str]:
    """Every phrase of the world's prompts and responses, one token each."""
    head, tail = template().split("{tools}\n")
    transports = tool_world.TRANSPORTS[: world.num_tools]
    before_user = tail.format() + "\n<|user|>\n**Dialogue Records History**\n<user> "
    after_user = " </user>\n<|assistant|>\n"
    return [
        f"<|system|>\n{head}",
        *(tool_entry(tool_world.tool_description(name)) + "\n" for name in transports),
        *(before_user, f"{before_user}Start at", ", follow ", ". Book my trip to the city I reach, for "),
        *(after_user, f".{after_user}"),
        *tool_world.SMALL_TALK,
        *(*world.cities, *(f" {city}" for city in world.cities), *world.relations, *tool_world.DAYS, ", ", " ", "\n"),
        *("<think> ", " </think>", "<response> ", " </response>", "no tool is needed", tool_world.SMALL_TALK_REPLY),
        *('<tool_call>\n{"name": "', '", "parameters": {"to": "', '", "day": "', '"}}\n</tool_call>'),
        *(f"book_{name}" for name in transports),
    ]
