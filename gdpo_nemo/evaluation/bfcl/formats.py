"""Correct Format: our definition of a number that arXiv 2601.05242 reports and does not define.

``correct_format`` is 1 where a response of a single turn has one of the three shapes that ToolRL's format reward
knows, in its released form: think and call, think and response, think, call and response. ``correct_format_strict``
also wants every line of the call block to be a well-formed call, one at least, and no call outside such a block.
"""

from __future__ import annotations

from gdpo_nemo.rewards.tool_calling import score
from gdpo_nemo.rewards.tool_calling.calls import read_block

SHAPES = ("<tool_call>", "<response>", "<tool_call><response>")  # what a reference names, by which a shape is chosen


def correct_format(text: str) -> bool:
    """Whether a response has one of the three shapes."""
    return any(_has_shape(text, shape) for shape in SHAPES)


def correct_format_strict(text: str) -> bool:
    """Whether it has, and holds well-formed calls or none."""
    if not any(_has_shape(text, shape) for shape in (SHAPES[0], SHAPES[2])):
        return "<tool_call>" not in text and _has_shape(text, SHAPES[1])
    block = read_block(text.partition("<tool_call>\n")[2].rpartition("\n</tool_call>")[0])
    return bool(block.calls) and not block.num_malformed


def _has_shape(text: str, shape: str) -> bool:
    return score(text, shape, mode="toolrl")["format"] == 1.0
