"""A conversation as the text that a model continues: its tokenizer's chat template, with or without tools.

A template that takes tools also says how the model writes calls. One form is read here, that of Hermes and of Qwen:
``{"name", "arguments"}`` as JSON, each between ``<tool_call>`` tags on lines of their own. Such calls stay in the text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gdpo_nemo.errors import PrerequisiteError
from gdpo_nemo.evaluation.sampling import Messages, RejectedError

CALL = '<tool_call>\n{"name": "probe_tool", "arguments": {"x": 1}}\n</tool_call>'
_PROPERTIES = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
_TOOL = {"type": "function", "function": {"name": "probe_tool", "description": "A tool.", "parameters": _PROPERTIES}}
_MADE = {"id": "call00000", "type": "function", "function": {"name": "probe_tool", "arguments": {"x": 1}}}
_QUESTION: list[dict[str, Any]] = [{"role": "user", "content": "Use it."}]
_DIALOGUE: list[dict[str, Any]] = [
    *_QUESTION,
    {"role": "assistant", "content": "", "tool_calls": [_MADE]},
    {"role": "tool", "tool_call_id": "call00000", "content": "1"},
]


class ChatTemplate:
    """The chat template of one tokenizer."""

    def __init__(self, tokenizer: Any, name: str) -> None:
        """Wrap a tokenizer; ``name`` is the model's, for messages."""
        self.tokenizer, self.name = tokenizer, name
        self._takes_tools = False

    def prompt(self, messages: Messages, tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """The conversation as text, up to where the model speaks.

        Args:
            messages: as in the OpenAI interface; arguments of calls as JSON text.
            tools: as in the OpenAI interface.

        Raises:
            PrerequisiteError: there are tools, and the template has no place for them or writes calls otherwise.
            RejectedError: the template refuses this conversation.
        """
        if not tools:
            return self._render(messages, None)
        if not self._takes_tools:
            self._check_tools()
            self._takes_tools = True
        return self._render(messages, tools)

    def _render(self, messages: Messages, tools: Sequence[Mapping[str, Any]] | None) -> str:
        from jinja2.exceptions import TemplateError

        offered = {} if tools is None else {"tools": [dict(tool) for tool in tools]}
        chat = [_as_templates_read(message) for message in messages]
        try:
            text = self.tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False, **offered)
        except TemplateError as error:
            raise RejectedError(f"the chat template of {self.name} refuses the conversation: {error}") from error
        return str(text)

    def _check_tools(self) -> None:
        instead = (
            "serve it with a parser of its calls (vllm serve MODEL --enable-auto-tool-choice --tool-call-parser NAME) "
            "and give --endpoint, or ask with --prompt toolrl"
        )
        if "probe_tool" not in self._render(_QUESTION, [_TOOL]):
            raise PrerequisiteError(
                f"the chat template of {self.name} has no place for tools, so there is no native way to ask it: "
                "ask with --prompt toolrl"
            )
        try:
            said = self._render(_DIALOGUE, [_TOOL])
        except RejectedError as error:
            raise PrerequisiteError(f"{error}. Its calls cannot be read in this process: {instead}") from error
        if CALL not in said:
            raise PrerequisiteError(
                f"the chat template of {self.name} does not write calls as JSON between <tool_call> tags, the one form "
                f"that is read in this process: {instead}"
            )


def _as_templates_read(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message with the arguments of its calls as a mapping; templates turn them into JSON themselves."""
    if "tool_calls" not in message:
        return dict(message)
    calls = [
        call | {"function": call["function"] | {"arguments": _mapping(call["function"]["arguments"])}}
        for call in message["tool_calls"]
    ]
    return {**message, "tool_calls": calls}


def _mapping(arguments: Any) -> Any:
    return json.loads(arguments) if isinstance(arguments, str) else arguments
