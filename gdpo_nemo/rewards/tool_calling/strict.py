"""Mode ``strict``: the tool-calling reward without the holes of the released one.

Format (0 or 1): the response, surrounding white space aside, holds exactly the sections of
the reference (think, then tool_call, then response), one of each, with one newline between
them, calls on lines of their own, every line a well-formed call, a response that says
something, and no chat role marker.

Correctness (-3 to 3): the calls of the last block outside ``<think>`` against the reference
by the formula in ``matching.py``; 3 or -3 for a reference without a call; NaN when the
reference itself cannot be read.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache

from gdpo_nemo.rewards.tool_calling.calls import MAX_CALLS, SCHEMA_CODES, Block, Call, read_block
from gdpo_nemo.rewards.tool_calling.matching import HIGHEST, LOWEST, correctness
from gdpo_nemo.rewards.tool_calling.sections import CALL, RESPONSE, THINK, Outline, Section, outline_of
from gdpo_nemo.types import RewardVector

_ROLE_MARKER = re.compile(r"<\|[a-z_]{1,32}\|>")


@dataclass(frozen=True, slots=True)
class Reference:
    """What the reference completion asks for.

    Attributes:
        kinds: the sections a response must have, in order.
        calls: the wanted calls, empty when none is wanted, None when the reference cannot be read.
        reasons: why it cannot be read.
    """

    kinds: tuple[str, ...]
    calls: tuple[Call, ...] | None
    reasons: tuple[str, ...] = ()


def score_strict(response: str, gold: str) -> RewardVector:
    """Format and correctness of one response; see the module docstring."""
    reference = read_reference(gold)
    text = response.strip()
    outline = outline_of(text)
    sections = outline.of_kind(CALL)
    block = None
    if sections and sections[-1].closed:
        block = read_block(sections[-1].body, max(MAX_CALLS, len(reference.calls or ())))
    format_reasons = _format_reasons(text, outline, block, reference.kinds)
    correct, correct_reasons = _correct(reference, sections, block)
    return RewardVector(
        values={"format": 0.0 if format_reasons else 1.0, "correct": correct},
        reasons={"format": format_reasons, "correct": correct_reasons},
    )


@lru_cache(maxsize=256)  # the rollouts of a group share their reference
def read_reference(gold: str) -> Reference:
    """Read a reference completion; what is wrong with it goes into ``reasons``."""
    outline = outline_of(gold)
    present = {section.kind for section in outline.sections}
    kinds = (THINK, *(kind for kind in (CALL, RESPONSE) if kind in present))

    def unusable(*reasons: str) -> Reference:
        return Reference(kinds, None, reasons)

    sections = outline.of_kind(CALL)
    if CALL in outline.stray:
        return unusable("gold_unparsable", "stray_tag")
    if not sections:
        return Reference(kinds, ())
    if len(sections) > 1:
        return unusable("gold_unparsable", "several_blocks")
    if not sections[0].closed:
        return unusable("gold_unparsable", "unclosed_call")
    block = read_block(sections[0].body)
    if block.num_malformed:
        fault = "gold_schema" if SCHEMA_CODES.issuperset(block.reasons) else "gold_unparsable"
        return unusable(fault, *block.reasons)
    if not block.calls:
        return unusable("gold_unparsable", "empty_call_block")
    return Reference(kinds, block.calls)


def _correct(reference: Reference, sections: list[Section], block: Block | None) -> tuple[float, tuple[str, ...]]:
    if reference.calls is None:
        return math.nan, reference.reasons
    if not reference.calls:
        return (LOWEST, ("unwanted_call",)) if sections else (HIGHEST, ())
    if not sections:
        return LOWEST, ("no_call",)
    several = ("several_blocks",) if len(sections) > 1 else ()
    if block is None:
        return LOWEST, (*several, "unclosed_call")
    if not block.calls and not block.num_malformed:
        return LOWEST, (*several, "empty_call_block")
    value, differences = correctness(reference.calls, block.calls, block.num_malformed)
    return value, (*several, *block.reasons, *differences)


def _format_reasons(text: str, outline: Outline, block: Block | None, kinds: tuple[str, ...]) -> tuple[str, ...]:
    """What keeps the text from having the wanted shape; empty when nothing does."""
    reasons: dict[str, None] = {}
    if _ROLE_MARKER.search(text):
        reasons["role_marker"] = None
    if outline.stray:
        reasons["stray_tag"] = None
    if not all(section.closed for section in outline.sections):
        reasons["unclosed_tag"] = None
    if any(section.nested for section in outline.sections):
        reasons["nested_section"] = None
    sections = [section for section in outline.sections if not section.nested]
    found = [section.kind for section in sections]
    if set(kinds).difference(found):
        reasons["missing_section"] = None
    if set(found).difference(kinds) or len(found) > len(set(found)):
        reasons["extra_section"] = None
    if not reasons and tuple(found) != kinds:
        reasons["section_order"] = None
    reasons.update(dict.fromkeys(_spacing_reasons(text, sections)))
    for section in sections:
        if section.kind == RESPONSE and not section.body.strip():
            reasons["empty_response"] = None
        if section.kind == CALL and not (section.body.startswith("\n") and section.body.endswith("\n")):
            reasons["call_not_on_own_lines"] = None
    if block is not None:
        if block.num_malformed:
            reasons["malformed_call"] = None
        elif not block.calls:
            reasons["empty_call_block"] = None
    return tuple(reasons)


def _spacing_reasons(text: str, sections: list[Section]) -> set[str]:
    """Codes for text outside the sections: one newline belongs between two of them, nothing elsewhere."""
    codes = set()
    position = 0
    for index, section in enumerate(sections):
        gap = text[position : section.start]
        position = section.end
        if gap.strip():
            codes.add("text_outside_sections")
        elif index and gap != "\n":
            codes.add("section_spacing")
    if text[position:].strip():
        codes.add("text_outside_sections")
    return codes
