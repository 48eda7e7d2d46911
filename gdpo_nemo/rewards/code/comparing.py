"""Whether an answer is the expected one. Runs in the caller; expected answers never reach a program.

Printed answers, strict:

- a line break is LF or CRLF; white space at the end of a line and blank lines at the end do not count;
- lines are equal when their tokens, separated by white space as ``str.split`` has it, are;
- a token is equal to itself; when the expected one is a decimal number with a point or an exponent, a number within
  1e-6 of it (absolute or relative, whichever is larger) is equal too. Integers are exact, letter case counts;
- output that is not UTF-8 is wrong.

Returned values, strict: JSON values of the same shape. true is not 1; an expected integer is exact; an expected
number with a point or exponent has the tolerance above, NaN is NaN; a tuple is a list.

``prime_*`` give what PRIME's public checker is measured to give: all numbers within a relative 1e-5, so integers too.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

TOLERANCE: Final = 1e-6
PRIME_RELATIVE, PRIME_ABSOLUTE = 1e-5, 1e-8
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_MAX_DIGITS = 4000
_MOST_TO_ONE = 100
"""Characters of a returned value to one of the expected; 60 are needed for 1e299 and its integer, 12 beyond U+FFFF."""


def same_output(expected: str, printed: bytes) -> bool:
    """Whether what a program printed is the expected text."""
    try:
        text = printed.decode("utf-8").rstrip()
    except UnicodeDecodeError:
        return False
    wanted = expected.rstrip()
    if text == wanted:
        return True
    if text.count("\n") != wanted.count("\n"):  # before anything is cut to pieces: a flood of lines costs no more
        return False
    return all(map(_same_line, wanted.split("\n"), text.split("\n")))


def same_value(expected: str, returned: str) -> bool:
    """Whether the JSON text of a returned value is the expected JSON text."""
    if len(returned) > _MOST_TO_ONE * len(expected):
        return False
    try:
        return _equal(parse_json(expected), parse_json(returned))
    except (ValueError, RecursionError):
        return False


def parse_json(text: str) -> Any:
    """JSON with integers of any length.

    Raises:
        ValueError: it is not JSON.
        RecursionError: it is nested too deeply.
    """
    return json.loads(text, parse_int=_integer)


def _integer(text: str) -> int | str:
    return int(text) if len(text) <= _MAX_DIGITS else f"integer {text}"


def _same_line(expected: str, printed: str) -> bool:
    wanted = expected.split()
    tokens = printed.split(maxsplit=len(wanted))
    return len(wanted) == len(tokens) and all(map(_same_token, wanted, tokens))


def _same_token(expected: str, printed: str) -> bool:
    if expected == printed:
        return True
    if expected.lstrip("+-").isdecimal() or not _NUMBER.fullmatch(expected) or not _NUMBER.fullmatch(printed):
        return False
    return _close(float(expected), float(printed))


def _close(expected: float, found: float) -> bool:
    both_finite = math.isfinite(expected) and math.isfinite(found)
    return both_finite and abs(expected - found) <= TOLERANCE * max(1.0, abs(expected))


def _equal(expected: Any, found: Any) -> bool:
    if isinstance(expected, bool) or isinstance(found, bool):
        return expected is found
    if isinstance(expected, float) and isinstance(found, int | float):
        if math.isnan(expected):
            return isinstance(found, float) and math.isnan(found)
        return expected == found or (abs(found) < 1e300 and _close(expected, float(found)))
    if isinstance(expected, list):
        return isinstance(found, list) and len(expected) == len(found) and all(map(_equal, expected, found))
    if isinstance(expected, dict):
        return (
            isinstance(found, dict)
            and expected.keys() == found.keys()
            and all(_equal(value, found[key]) for key, value in expected.items())
        )
    return bool(expected == found)


def prime_same_output(expected: str, printed: bytes) -> bool:
    """As PRIME compares printed lines: equal text, or all numbers of each line close."""
    lines = [line.strip() for line in printed.decode("utf-8", "replace").strip().splitlines()]
    wanted = [line.strip() for line in expected.strip().splitlines()]
    if lines == wanted:
        return True
    lines, wanted = [line for line in lines if line], [line for line in wanted if line]
    if len(lines) != len(wanted):
        return False
    return all(
        a == b or set(a.split()) == set(b.split()) or _prime_close(b, a) for a, b in zip(lines, wanted, strict=True)
    )


def prime_same_value(expected: str, returned: str) -> bool:
    """As PRIME compares returned values: equal, or equal to the first element of the expected list."""
    try:
        wanted, found = json.loads(expected), json.loads(returned)
    except (ValueError, RecursionError):
        return False
    return bool(found == wanted or (isinstance(wanted, list) and wanted and found == wanted[0]))


def _prime_close(expected: str, printed: str) -> bool:
    try:
        wanted, found = ([float(token) for token in line.split()] for line in (expected, printed))
    except ValueError:
        return False
    return len(wanted) == len(found) and all(
        a == b or (math.isfinite(a) and abs(a - b) <= PRIME_ABSOLUTE + PRIME_RELATIVE * abs(a))
        for a, b in zip(wanted, found, strict=True)
    )
