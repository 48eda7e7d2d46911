"""Every reason code of the tool-calling reward, with its meaning. Codes never change; new ones may come."""

from __future__ import annotations

from typing import Final

REASONS: Final[dict[str, str]] = {
    # format, strict
    "role_marker": "a chat role marker occurs in the response",
    "stray_tag": "a tag opens or closes nothing",
    "unclosed_tag": "a section is never closed",
    "nested_section": "a section lies inside the response section",
    "missing_section": "a section of the reference is absent",
    "extra_section": "a section the reference lacks, or one section twice",
    "section_order": "the right sections in the wrong order",
    "section_spacing": "other than one newline between two sections",
    "text_outside_sections": "text before, between or after the sections",
    "call_not_on_own_lines": "a call block does not begin and end with a newline",
    "malformed_call": "a line of the scored block is no well-formed call",
    "empty_call_block": "the scored block holds no call",
    "empty_response": "the response section is blank",
    # correct, strict: the block
    "no_call": "a call is wanted and there is no block (strict: outside think)",
    "unwanted_call": "no call is wanted and one was opened outside think",
    "unclosed_call": "the last block is never closed",
    "several_blocks": "more than one block; only the last is scored",
    "too_many_calls": "lines beyond the limit; each counts as malformed",
    # correct, strict: one line
    "not_json": "the line is not JSON (toolrl: any line)",
    "extra_data": "something follows the JSON value on its line",
    "multi_line_json": "the block is one JSON value spread over lines",
    "code_fence": "the line opens or closes a code fence",
    "non_finite_number": "NaN or Infinity, which JSON lacks",
    "huge_integer": "an integer of more digits than the interpreter converts",
    "too_deep": "nesting deeper than 64 levels",
    "duplicate_keys": "an object holds a key twice",
    "not_an_object": "the line is JSON but no object",
    "missing_name": "no name",
    "name_not_string": "the name is empty or no string",
    "missing_parameters": "no parameters",
    "arguments_key": "arguments instead of parameters",
    "parameters_not_object": "the parameters are no object",
    "extra_keys": "keys besides name and parameters",
    # correct, strict: calls against the reference
    "missing_call": "a reference call has no predicted call of its name left",
    "extra_call": "a well-formed call is left over",
    "missing_argument": "a matched call lacks a reference parameter",
    "extra_argument": "a matched call has a parameter the reference lacks",
    "wrong_value": "a matched call has another value",
    # the reference
    "gold_unparsable": "the call block of the reference cannot be read; correct is NaN",
    "gold_schema": "a reference line is JSON but no well-formed call; correct is NaN",
    "gold_without_call": "toolrl: the reference has no call, so correct is 0",
    # toolrl
    "tag_count": "a tag of the wanted shape does not occur exactly once",
    "wrong_shape": "the text does not have the wanted shape",
    "unscorable_call": "a decoded value lacks what the formula needs",
    "inexact_match": "the calls differ from the reference, or their order does",
}
"""Code -> meaning."""
