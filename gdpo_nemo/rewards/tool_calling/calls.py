"""Read the calls of one block, one JSON object per line, and say what is wrong with each line.

A well-formed call is ``{"name": <non-empty string>, "parameters": <object>}`` and nothing
else, in JSON as RFC 8259 defines it: no NaN or Infinity, no key twice in one object. A
blank line is no call and no mistake. Nothing here raises on any text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

MAX_DEPTH = 64
"""Deepest nesting of arrays and objects in one line; fixed, so that the answer does not hang on the interpreter."""

MAX_CALLS = 256
"""Lines of a predicted block that are read, unless the reference has more calls; bounds the work per response."""

SCHEMA_CODES = frozenset(
    {
        "not_an_object",
        "missing_name",
        "name_not_string",
        "arguments_key",
        "missing_parameters",
        "parameters_not_object",
        "extra_keys",
        "duplicate_keys",
    }
)
"""Codes of lines that are JSON but not a call."""

_BLANKS = " \t\r\n"  # what JSON calls white space


class Call(NamedTuple):
    """One well-formed call."""

    name: str
    parameters: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Block:
    """What one call block holds.

    Attributes:
        calls: the well-formed calls, in order.
        num_malformed: lines that are no well-formed call, those beyond the limit included.
        reasons: distinct codes of the malformed lines, in order of appearance.
    """

    calls: tuple[Call, ...]
    num_malformed: int
    reasons: tuple[str, ...]


class _Rejected(Exception):
    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def read_block(body: str, max_calls: int | None = None) -> Block:
    """Read the text between ``<tool_call>`` and ``</tool_call>``.

    Args:
        body: the block; one call per line.
        max_calls: lines to read. The others are not parsed; each counts as malformed (``too_many_calls``).
    """
    lines = [stripped for line in body.split("\n") if (stripped := line.strip(_BLANKS))]
    calls: list[Call] = []
    codes: dict[str, None] = {}
    for line in lines[:max_calls]:
        try:
            calls.append(_read_call(line))
        except _Rejected as rejected:
            codes[rejected.code] = None
    if len(lines) > 1 and ("not_json" in codes or "extra_data" in codes) and _is_one_value(body):
        codes = {"multi_line_json": None}
    if max_calls is not None and len(lines) > max_calls:
        codes["too_many_calls"] = None
    return Block(tuple(calls), len(lines) - len(calls), tuple(codes))


def _read_call(line: str) -> Call:
    """One line as a call.

    Raises:
        _Rejected: it is none; the code says why.
    """
    value = _read_json(line)
    if not isinstance(value, dict):
        raise _Rejected("not_an_object")
    if "name" not in value:
        raise _Rejected("missing_name")
    name = value["name"]
    if not isinstance(name, str) or not name:
        raise _Rejected("name_not_string")
    if "parameters" not in value:
        raise _Rejected("arguments_key" if "arguments" in value else "missing_parameters")
    parameters = value["parameters"]
    if not isinstance(parameters, dict):
        raise _Rejected("parameters_not_object")
    if len(value) > 2:
        raise _Rejected("extra_keys")
    return Call(name, parameters)


def _read_json(line: str) -> Any:
    if line.startswith("```"):
        raise _Rejected("code_fence")
    try:
        value, end = _DECODER.raw_decode(line)
    except json.JSONDecodeError:
        raise _Rejected("not_json") from None
    except RecursionError:
        raise _Rejected("too_deep") from None
    except ValueError:  # the interpreter refuses to convert integers of more than 4300 digits
        raise _Rejected("huge_integer") from None
    if end < len(line):
        raise _Rejected("extra_data")
    if line.count("[") + line.count("{") > MAX_DEPTH and _depth_exceeds(value, MAX_DEPTH):
        raise _Rejected("too_deep")
    return value


def _is_one_value(body: str) -> bool:
    try:
        _read_json(body.strip(_BLANKS))
    except _Rejected:
        return False
    return True


def _depth_exceeds(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        containers = [item for item in level if isinstance(item, (list, dict))]
        level = [child for item in containers for child in (item.values() if isinstance(item, dict) else item)]
    return any(isinstance(item, (list, dict)) for item in level)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise _Rejected("duplicate_keys")
    return value


def _constant(_: str) -> NoReturn:
    raise _Rejected("non_finite_number")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)
