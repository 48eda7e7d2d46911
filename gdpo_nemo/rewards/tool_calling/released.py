"""Mode ``toolrl``: the released ToolRL reward, value for value, holes included.

It equals ``verl/utils/reward_score/rlla.py`` of qiancheng0/ToolRL at 8cee13e with every
environment switch at 0, which the GDPO release uses unchanged. The formula is that of
``matching.py`` with a greedy choice of pairs, in the order of the reference calls with the
first best candidate winning ties, and with Python's ``==`` between decoded JSON values. The order
of the floating-point operations is part of the contract.

Two departures, both where the released code stops the training: a reference whose call
block is not JSON gives NaN, and text with lone surrogates is scored.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from gdpo_nemo.rewards.tool_calling.matching import HIGHEST, LOWEST
from gdpo_nemo.types import RewardVector

_ROLE_MARKER, _END_MARKER = "<|im_start|>assistant", "<|im_end|>"
_CALL_TAGS = ("<tool_call>", "</tool_call>")
_RESPONSE_TAGS = ("<response>", "</response>")


class _NotJson(Exception):
    """A line of a call block is not JSON."""


class _Unscorable(Exception):
    """A decoded value lacks what the formula needs; the released code meets an exception here."""


def score_released(response: str, gold: str) -> RewardVector:
    """Format and correctness of one response; see the module docstring."""
    text = scored_text(response)
    format_reasons = _format_reasons(text, gold)
    correct, correct_reasons = _correct(text, gold)
    return RewardVector(
        values={"format": 0.0 if format_reasons else 1.0, "correct": correct},
        reasons={"format": format_reasons, "correct": correct_reasons},
    )


def scored_text(response: str) -> str:
    """The part that is scored: after the last assistant marker, before the next end marker, stripped."""
    return response.rpartition(_ROLE_MARKER)[2].partition(_END_MARKER)[0].strip()


def _format_reasons(text: str, gold: str) -> tuple[str, ...]:
    """Anchored shape, chosen by the tags that occur anywhere in the reference; tags of that shape occur once."""
    wants_call, wants_response = _CALL_TAGS[0] in gold, _RESPONSE_TAGS[0] in gold
    counted: tuple[str, ...] = ()
    literals = ["<think>", "</think>"]
    if wants_call:
        counted += _CALL_TAGS
        literals[-1] += "\n<tool_call>\n"
        literals.append("\n</tool_call>")
    if wants_response:
        counted += _RESPONSE_TAGS
        literals[-1] += "\n<response>"
        literals.append("</response>")
    if any(text.count(tag) != 1 for tag in counted):
        return ("tag_count",)
    return () if _is_spelled(text, literals) else ("wrong_shape",)


def _is_spelled(text: str, literals: Sequence[str]) -> bool:
    """Whether the text is the literals in order with anything between them, and nothing before or after."""
    first, *middle, last = literals
    if not text.startswith(first):
        return False
    position = len(first)
    for literal in middle:
        position = text.find(literal, position)
        if position < 0:
            return False
        position += len(literal)
    return text.endswith(last) and len(text) - len(last) >= position


def _correct(text: str, gold: str) -> tuple[float, tuple[str, ...]]:
    if _CALL_TAGS[0] not in gold:
        return 0.0, ("gold_without_call",)
    try:
        wanted = _read_first_block(gold)
    except _NotJson:
        return math.nan, ("gold_unparsable",)
    if any(tag not in text for tag in _CALL_TAGS):
        return LOWEST, ("no_call",)
    try:
        predicted = _read_first_block(text)
        if wanted == predicted:
            return HIGHEST, ()
        return _inexact(wanted, predicted), ("inexact_match",)
    except _NotJson:
        return LOWEST, ("not_json",)
    except (_Unscorable, RecursionError):
        return LOWEST, ("unscorable_call",)


def _read_first_block(text: str) -> list[Any]:
    """Decode the first block line by line; it ends at the next tag of either kind, or with the text."""
    block = text.partition(_CALL_TAGS[0])[2]
    for tag in _CALL_TAGS:
        block = block.partition(tag)[0]
    try:
        return [json.loads(line) for line in block.strip().split("\n")]
    except (ValueError, RecursionError) as error:
        raise _NotJson from error


def _inexact(wanted: list[Any], predicted: list[Any]) -> float:
    wanted_names = [_field(call, "name") for call in wanted]
    predicted_names = [_field(call, "name") for call in predicted]
    reached = _names_overlap(wanted_names, predicted_names)
    reachable = 1.0
    unused = dict.fromkeys(range(len(predicted)))
    for call, name in zip(wanted, wanted_names, strict=True):
        parameters = _field(call, "parameters")
        if not isinstance(parameters, (dict, list, str)):
            raise _Unscorable
        reachable += 1.0 + len(parameters)
        best, best_index = 0.0, None
        for index in unused:
            if predicted_names[index] != name:
                continue
            weight = _weight(parameters, _field(predicted[index], "parameters"))
            if weight > best:
                best, best_index = weight, index
        if best_index is not None:
            del unused[best_index]
            reached += best
    return (HIGHEST - LOWEST) * reached / reachable + LOWEST


def _field(call: Any, key: str) -> Any:
    if not isinstance(call, dict) or key not in call:
        raise _Unscorable
    return call[key]


def _weight(wanted: Any, predicted: Any) -> float:
    if not isinstance(wanted, dict) or not isinstance(predicted, dict):
        raise _Unscorable
    shared = [key for key in wanted if key in predicted]
    num_equal = sum(1 for key in shared if predicted[key] == wanted[key])
    union = len(wanted) + len(predicted) - len(shared)
    return (len(shared) / union if union else 1.0) + num_equal


def _names_overlap(left: list[Any], right: list[Any]) -> float:
    """Jaccard index of two non-empty multisets under Python's equality; equal lists need no hashing."""
    if left == right:
        return 1.0
    if any(isinstance(name, (list, dict)) for name in (*left, *right)):
        raise _Unscorable
    num_shared = (Counter(left) & Counter(right)).total()
    return num_shared / (len(left) + len(right) - num_shared)
