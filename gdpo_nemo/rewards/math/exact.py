r"""Exact values of arithmetic on written numbers: fractions, powers, factorials, binomials, percent, remainders.

Nothing here is rounded: a value is a ``Fraction``, or it is not found. Sizes are bounded, so that a tower of powers
costs nothing.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

_MOST_BITS: Final = 40_000
_MOST_DIGITS: Final = 4_000
_MOST_DEPTH: Final = 40
_LEAST_DIGITS: Final = 6
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)|\d+\.?\d*(?:\\overline\{\d+\})?|\.\d+(?:\\overline\{\d+\})?)"
    r"|(?P<command>\\(?:frac|binom|bmod))(?![a-zA-Z])|(?P<sign>[-+*/^!(){}%\[\]]))"
)
_INTEGER = re.compile(r"[+-]?\d{1,400}(?:\.0{0,20})?")
_DECIMAL = re.compile(r"[+-]?(\d*)\.(\d+)(?:\s*\*\s*10\s*\^\s*(?:\{\s*([+-]?\d{1,4})\s*\}|(\d)))?")


class _NotExactError(Exception):
    """The text is no arithmetic that this module reads."""


@dataclass(frozen=True)
class Number:
    """A value, and how finely it was written.

    Attributes:
        value: exact.
        step: of a decimal, the value of one in its last place; None for everything else.
        digits: of a decimal, how many significant digits it has.
    """

    value: Fraction
    step: Fraction | None = None
    digits: int = 0


def number(text: str) -> Number | None:
    """The exact value of clean text, or None when it is not plain arithmetic on numbers."""
    if _INTEGER.fullmatch(text):
        return Number(Fraction(text.partition(".")[0]))
    try:
        value = _Reader(text).whole()
    except (_NotExactError, ZeroDivisionError, OverflowError):
        return None
    decimal = _DECIMAL.fullmatch(text.strip())
    if decimal is None:
        return Number(value)
    before, after, exponent, single = decimal.groups()
    step = Fraction(10) ** (int(exponent or single or 0) - len(after))
    return Number(value, step, len((before + after).lstrip("0")))


def same(one: Number, other: Number) -> bool:
    """Whether two numbers are equal, or one is the other's decimal to at least six significant digits."""
    if one.value == other.value:
        return True
    decimals = [number for number in (one, other) if number.step is not None]
    if not decimals:
        return False
    coarse = max(decimals, key=lambda number: number.step or 0)
    return coarse.digits >= _LEAST_DIGITS and abs(one.value - other.value) < (coarse.step or 0)


class _Reader:
    """Reads one expression by recursive descent: sum, product, power, postfix, atom."""

    def __init__(self, text: str) -> None:
        if len(text) > _MOST_DIGITS:
            raise _NotExactError
        self.tokens: list[str] = []
        position = 0
        text = text.rstrip()
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None:
                raise _NotExactError
            spaced = found.group()[0].isspace() and bool(self.tokens)
            if spaced and found["number"] and self.tokens[-1][-1].isdigit():
                raise _NotExactError  # two numbers side by side: not a product
            self.tokens.append(found.group().strip())
            position = found.end()
        self.at = 0
        self.depth = 0

    def whole(self) -> Fraction:
        if not self.tokens:
            raise _NotExactError
        value = self.sum()
        if self.at < len(self.tokens):
            raise _NotExactError
        return value

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, expected: str = "") -> str:
        token = self.peek()
        if not token or (expected and token != expected):
            raise _NotExactError
        self.at += 1
        return token

    def sum(self) -> Fraction:
        self.depth += 1
        if self.depth > _MOST_DEPTH:
            raise _NotExactError
        value = self.product()
        while self.peek() in ("+", "-"):
            value = value + self.product() if self.take() == "+" else value - self.product()
        if self.peek() == r"\bmod":
            self.take()
            value = value % self.product()
        self.depth -= 1
        return _bounded(value)

    def product(self) -> Fraction:
        value = self.signed()
        while True:
            token = self.peek()
            if token in ("*", "/"):
                self.take()
                value = value * self.signed() if token == "*" else value / self.signed()
            elif token and (token in ("(", "{", r"\frac", r"\binom")):
                value *= self.power()
            else:
                return _bounded(value)

    def signed(self) -> Fraction:
        sign = 1
        for _ in range(_MOST_DEPTH):
            if self.peek() not in ("+", "-"):
                return sign * self.power()
            sign = -sign if self.take() == "-" else sign
        raise _NotExactError

    def power(self) -> Fraction:
        base = self.postfix()
        if self.peek() != "^":
            return base
        self.take()
        # TeX raises to one token; a run of digits is meant as one number
        exponent = self.enclosed("{", "}") if self.peek() == "{" else self.signed_atom()
        if self.peek() == "^" or exponent.denominator != 1:
            raise _NotExactError
        size = max(base.numerator.bit_length(), base.denominator.bit_length())
        if abs(exponent) * size > _MOST_BITS:
            raise _NotExactError
        return Fraction(base ** int(exponent))

    def signed_atom(self) -> Fraction:
        sign = -1 if self.peek() == "-" else 1
        if self.peek() in ("+", "-"):
            self.take()
        return sign * self.atom()

    def postfix(self) -> Fraction:
        mixed = self.peek()[:1].isdigit() and "." not in self.peek()
        value = self.atom()
        if mixed and self.peek() == r"\frac":
            part = self.atom()
            value = value + part if 0 < part < 1 else value * part
        while self.peek() in ("!", "%"):
            if self.take() == "%":
                value /= 100
                continue
            if value.denominator != 1 or not 0 <= value <= 2_500:
                raise _NotExactError
            value = Fraction(math.factorial(int(value)))
        return value

    def atom(self) -> Fraction:
        token = self.peek()
        if token in ("(", "{"):
            return self.enclosed(token, ")" if token == "(" else "}")
        if token == r"\frac":
            self.take()
            return self.enclosed("{", "}") / self.enclosed("{", "}")
        if token == r"\binom":
            self.take()
            n, k = self.enclosed("{", "}"), self.enclosed("{", "}")
            if n.denominator != 1 or k.denominator != 1 or not 0 <= k <= n <= 1_000:
                raise _NotExactError
            return Fraction(math.comb(int(n), int(k)))
        if not token[:1].isdigit() and not token.startswith("."):
            raise _NotExactError
        return _literal(self.take())

    def enclosed(self, opening: str, closing: str) -> Fraction:
        self.take(opening)
        value = self.sum()
        self.take(closing)
        return value


def _literal(token: str) -> Fraction:
    written, _, repeating = token.replace(",", "").partition(r"\overline{")
    value = Fraction(f"0{written}" if written.startswith(".") else written.rstrip("."))
    if repeating:
        period = repeating.rstrip("}")
        places = len(written.partition(".")[2])
        if "." not in written:
            raise _NotExactError
        value += Fraction(int(period), 10**places * (10 ** len(period) - 1))
    return value


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > 2 * _MOST_BITS:
        raise _NotExactError
    return value
