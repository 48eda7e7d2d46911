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
