"""ToolRL's rlla_4k: prompts with tools and histories, and references of calls and responses (arXiv 2504.13958).

``sources`` names the published files. Their columns: ``prompt`` (a system and a user message), ``reward_model``
(``ground_truth``), and others that nothing here needs.

A reference can contradict its own prompt: a number written as a string where the tool declares a number, a call of a
tool that is not offered. ``statistics`` counts them; they are trained on as they are.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from gdpo_nemo.data.fitting import fit_prompts, token_counter
from gdpo_nemo.data.table import TableFile, read_table, to_rows
from gdpo_nemo.types import Message, Prompt, Row

COLUMNS: Final = {"gold": "reward_model.ground_truth", "chat": "prompt"}
PROMPT_LIMIT: Final = 2048  # tokens, chat markup included: max_prompt_length of the released scripts
NUMERIC: Final = frozenset({"int", "integer", "float", "double", "number", "long"})

_TOOL = re.compile(r"^\d+\. Name: (.*?)\nDescription: (.*?)\nParameters: (\{.*?\})$", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"<tool_call>\n(.*?)\n</tool_call>", re.DOTALL)


def read_rlla(path: Path) -> list[Row]:
    """The rows of a file in this schema: field ``chat`` holds the messages, ``gold`` the reference.

    Raises:
        PrerequisiteError, InputError, UnknownNameError: as ``table.read_table`` and ``table.to_rows``.
    """
    return to_rows(read_table(TableFile(path=str(path))), COLUMNS)


class Tool(NamedTuple):
    """A tool as the system message offers it."""

    name: str
    parameters: Mapping[str, Any]


def offered_tools(system: str) -> list[Tool]:
    """The tools of a system message."""
    return [Tool(match[1], json.loads(match[3])) for match in _TOOL.finditer(system)]


def reference_calls(gold: str) -> list[Mapping[str, Any]] | None:
    """The calls of a reference; None where a line of its block is no call."""
    block = _BLOCK.search(gold)
    if block is None:
        return [] if "<tool_call>" not in gold else None
    try:
        calls = [json.loads(line) for line in block[1].split("\n")]
    except ValueError:
        return None
    good = all(isinstance(c, dict) and isinstance(c.get("parameters"), dict) and "name" in c for c in calls)
    return calls if good else None


def contradictions(row: Row) -> Iterator[str]:
    """What is wrong with a reference, given the tools of its prompt.

    Yields:
        ``unreadable``; per call ``tool_not_offered`` or, per argument, ``number_as_string`` and ``parameter_unknown``.
    """
    calls = reference_calls(row.gold)
    if calls is None:
        yield "unreadable"
        return
    tools = {tool.name: tool.parameters for tool in offered_tools(row.fields["chat"][0]["content"])}
    for call in calls:
        if call["name"] not in tools:
            yield "tool_not_offered"
            continue
        for key, value in call["parameters"].items():
            declared = tools[call["name"]].get(key)
            if declared is None:
                yield "parameter_unknown"
            elif isinstance(value, str) and isinstance(declared, dict) and declared.get("type") in NUMERIC:
                yield "number_as_string"


def statistics(rows: Sequence[Row], tokenizer: str | None = None) -> dict[str, Any]:
    """Counts for ``gdpo data stats``.

    Args:
        rows: of one file.
        tokenizer: name of that which counts the tokens of prompts; None: they are not counted.

    Returns:
        ``rows``; ``shapes`` of references; ``calls`` per row; ``numeric_arguments`` in all; ``contradictions`` and
        ``contradictory_rows``, each by kind, and ``rows_with_any``; with a tokenizer ``too_long``, id -> tokens.

    Raises:
        PrerequisiteError: the tokenizer cannot be loaded.
    """
    shapes, calls, found, in_rows = Counter[str](), Counter[int](), Counter[str](), Counter[str]()
    numeric = with_any = 0
    for row in rows:
        parts = [name for name in ("tool_call", "response") if f"<{name}>" in row.gold]
        shapes["+".join(parts) or "neither"] += 1
        made = reference_calls(row.gold) or []
        calls[len(made)] += 1
        tools = {tool.name: tool.parameters for tool in offered_tools(row.fields["chat"][0]["content"])}
        numeric += sum(
            isinstance(declared := tools.get(call["name"], {}).get(key), dict) and declared.get("type") in NUMERIC
            for call in made
            for key in call["parameters"]
        )
        kinds = list(contradictions(row))
        found.update(kinds)
        in_rows.update(set(kinds))
        with_any += bool(kinds)
    return {
        "rows": len(rows),
        "shapes": dict(sorted(shapes.items())),
        "calls": dict(sorted(calls.items())),
        "numeric_arguments": numeric,
        "contradictions": dict(sorted(found.items())),
        "contradictory_rows": dict(sorted(in_rows.items())),
        "rows_with_any": with_any,
        **({} if tokenizer is None else {"too_long": _too_long(rows, tokenizer)}),
    }


def _too_long(rows: Sequence[Row], tokenizer: str) -> dict[str, int]:
    count = token_counter(tokenizer)

    def num_tokens(row: Row) -> int:
        return count(Prompt(row.id, tuple(Message(turn["role"], turn["content"]) for turn in row.fields["chat"])))

    return dict(fit_prompts(rows, num_tokens, limit=PROMPT_LIMIT).too_long)


def described(counts: Mapping[str, Any]) -> list[str]:
    """The counts of ``statistics`` for a person."""
    rows = max(1, counts["rows"])
    shapes = ", ".join(f"{number} {shape}" for shape, number in counts["shapes"].items())
    calls = ", ".join(f"{number} rows of {made}" for made, number in counts["calls"].items())
    lines = [f"references: {shapes}", f"calls: {calls}"]
    for kind, number in counts["contradictions"].items():
        of = f" of {counts['numeric_arguments']} numeric arguments" if kind == "number_as_string" else ""
        lines.append(f"{kind}: {number}{of}, in {counts['contradictory_rows'][kind]} rows")
    share = 100 * counts["rows_with_any"] / rows
    lines.append(f"references that contradict their prompt: {counts['rows_with_any']} rows ({share:.1f} %)")
    long = counts.get("too_long")
    if long is None:
        return [*lines, f"prompts of more than {PROMPT_LIMIT:,} tokens: not counted; --tokenizer NAME counts them"]
    longest = f", the longest of {max(long.values()):,}" if long else ""
    return [
        *lines,
        f"prompts of more than {PROMPT_LIMIT:,} tokens: {len(long)} rows{longest}; training leaves them out",
    ]
