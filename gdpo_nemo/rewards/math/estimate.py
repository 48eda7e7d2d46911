r"""About how large a real number of roots, fractions and powers is: enough to tell clearly different ones apart.

Only a difference is believed: what is close may still be different, and the library decides.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Final

_CLEARLY: Final = 1e-3
_CANCELLED: Final = 1e-6
_MOST_CHARACTERS: Final = 200
_MOST_DEPTH: Final = 20
_LARGEST: Final = 1e100
_TOKEN = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+|\\(?:frac|sqrt|pi)(?![a-zA-Z])|[-+*/^(){}])")


class _UnknownError(Exception):
    """The text is more than this module reads."""


def clearly_different(one: str, other: str) -> bool:
    """Whether two clean texts are numbers that differ by more than a thousandth of the larger."""
    left, right = estimate(one), estimate(other)
    return left is not None and right is not None and abs(left - right) > _CLEARLY * max(abs(left), abs(right))


@lru_cache(maxsize=8192)
def estimate(text: str) -> float | None:
    """The value of clean text to about twelve digits; None when it is not made of roots, fractions, powers and pi."""
    if len(text) > _MOST_CHARACTERS:
        return None
    tokens: list[str] = []
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            return None
        if tokens and tokens[-1][-1].isdigit() and found[1][0].isdigit():
            return None  # two numbers side by side
        tokens.append(found[1])
        position = found.end()
    try:
        value, at = _sum(tokens, 0, 0)
    except (_UnknownError, ArithmeticError, IndexError):
        return None
    return value if at == len(tokens) and abs(value) < _LARGEST else None


def _sum(tokens: list[str], at: int, depth: int) -> tuple[float, int]:
    if depth > _MOST_DEPTH:
        raise _UnknownError
    value, at = _product(tokens, at, depth)
    while at < len(tokens) and tokens[at] in "+-":
        sign = -1 if tokens[at] == "-" else 1
        term, at = _product(tokens, at + 1, depth)
        largest = max(abs(value), abs(term))
        value += sign * term
        if abs(value) < _CANCELLED * largest:
            raise _UnknownError
    return value, at


def _product(tokens: list[str], at: int, depth: int) -> tuple[float, int]:
    sign = 1
    if tokens[at] in "+-":
        sign, at = (-1 if tokens[at] == "-" else 1), at + 1
    value, at = _power(tokens, at, depth)
    while at < len(tokens) and tokens[at] not in ("+", "-", ")", "}", "^"):
        operator = tokens[at] if tokens[at] in "*/" else "*"
        if tokens[at][0].isdigit() or (tokens[at] == r"\frac" and tokens[at - 1][-1].isdigit()):
            raise _UnknownError  # a number behind a factor, or a mixed number
        factor, at = _power(tokens, at + 1 if tokens[at] in "*/" else at, depth)
        value = value * factor if operator == "*" else value / factor
    return sign * value, at


def _power(tokens: list[str], at: int, depth: int) -> tuple[float, int]:
    value, at = _atom(tokens, at, depth)
    if at < len(tokens) and tokens[at] == "^":
        exponent, at = _atom(tokens, at + 1, depth)
        if value <= 0 or abs(exponent * math.log(value)) > math.log(_LARGEST):
            raise _UnknownError
        value = value**exponent
    return value, at


def _atom(tokens: list[str], at: int, depth: int) -> tuple[float, int]:
    token = tokens[at]
    if token in ("(", "{"):
        value, at = _sum(tokens, at + 1, depth + 1)
        if tokens[at] != (")" if token == "(" else "}"):
            raise _UnknownError
        return value, at + 1
    if token == r"\pi":
        return math.pi, at + 1
    if token in (r"\frac", r"\sqrt"):
        if tokens[at + 1] != "{":
            raise _UnknownError
        value, at = _atom(tokens, at + 1, depth)
        if token == r"\frac":
            if tokens[at] != "{":
                raise _UnknownError
            under, at = _atom(tokens, at, depth)
            return value / under, at
        if value < 0:
            raise _UnknownError
        return math.sqrt(value), at
    if not token[-1].isdigit():
        raise _UnknownError
    return float(token), at + 1
