r"""What the exact path cannot tell: math-verify reads the LaTeX, SymPy computes. Runs in a worker that may be killed.

Two expressions without variables are equal when 45 digits agree; ones with variables when 25 digits agree at eight
points, negative ones among them where the values are real. Two equations are equal when the quotient of their
differences of sides is the same number at all points. Where SymPy gives no number (derivatives, unknown functions),
math-verify's comparison decides.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from gdpo_nemo.rewards.math.answers import read
from gdpo_nemo.rewards.math.comparison import Verdict, compare
from gdpo_nemo.rewards.math.exact import Number, number, same
from gdpo_nemo.rewards.math.notation import clean
from gdpo_nemo.rewards.math.shapes import Leaf, Relation, leaves
from gdpo_nemo.rewards.math.written import exactly, undecided

_DIGITS: Final = 60
_AGREE: Final = 45
_AGREE_AT_POINTS: Final = 25
_POINTS: Final = ((7, 5), (11, 3), (-3, 7), (13, 11), (-17, 6), (5, 19), (-23, 4), (2, 3))
_FAR_POINTS: Final = ((6, 1), (17, 1), (58, 1), (143, 2), (1001, 1), (-40, 1), (4097, 1))
"""Where floors and ceilings, which are all alike near 0, differ."""


class UnreadableGoldError(Exception):
    """The library cannot read the reference answer."""


def start() -> None:
    """Import the library, with its messages off: they may print expressions that have no end.

    Raises:
        ImportError: math-verify is not installed.
    """
    import math_verify  # noqa: F401

    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)


def check_gold(gold: str) -> None:
    """Read every expression of the gold, and evaluate it: time spent on that is not the answer's.

    Raises:
        UnreadableGoldError: one of them cannot be read.
    """
    import sympy

    answer = read(clean(gold))
    for leaf in leaves(answer):
        if number(leaf.text) is not None or leaf.text.strip("+-") in (r"\infty", r"\ldots"):
            continue
        expression = _expression(leaf.text)
        if expression is None:
            raise UnreadableGoldError
        if isinstance(expression, sympy.Expr) and not expression.free_symbols:
            _constant(expression)
    if isinstance(answer, Relation) and _expression(answer.text) is None:
        raise UnreadableGoldError


def equal(gold: str, answer: str) -> bool:
    """Whether an answer is the gold. Both are LaTeX as they were written.

    Raises:
        UnreadableGoldError: the gold cannot be read.
    """
    one, other = read(clean(gold)), read(clean(answer))
    verdict = compare(one, other, _ends, _relations)
    return _whole(gold, answer) if verdict is None else verdict


def verify_plain(gold: str, response: str) -> bool:
    """math-verify as it comes: its defaults, on the whole response.

    Raises:
        UnreadableGoldError: the gold cannot be read.
    """
    from math_verify import parse, verify

    reference = parse(f"${gold}$", parsing_timeout=None)
    if not reference:
        raise UnreadableGoldError
    return bool(verify(reference, parse(response, parsing_timeout=None), timeout_seconds=None))


def _ends(gold: Leaf, answer: Leaf) -> Verdict:
    verdict = exactly(gold, answer)
    if verdict is not None:
        return verdict
    one, other = _expression(gold.text), _expression(answer.text)
    if one is None:
        raise UnreadableGoldError
    if other is None:
        return False
    scale = (
        answer.unit.factor / gold.unit.factor
        if gold.unit and answer.unit and gold.unit.kind and answer.unit.kind
        else 1
    )
    factors = {Fraction(scale)}
    if gold.percent != answer.percent:
        factors |= {Fraction(100), Fraction(1)} if gold.percent else {Fraction(1, 100), Fraction(1)}
    return any(_same(one, other, factor, (number(gold.text), number(answer.text))) for factor in factors)


def _same(one: Any, other: Any, factor: Fraction, written: tuple[Number | None, Number | None]) -> bool:
    import sympy

    if not (isinstance(one, sympy.Expr) and isinstance(other, sympy.Expr)):
        return type(one) is type(other) and _verify(one, other)
    if factor != 1:
        other = other * sympy.Rational(factor.numerator, factor.denominator)
    if not one.free_symbols | other.free_symbols:
        return _same_constant(one, other, written)
    samples = _samples(one, other)
    if samples is None:
        return _verify(one, other)
    return all(_close(left, right, _AGREE_AT_POINTS) for left, right in samples)


def _same_constant(one: Any, other: Any, written: tuple[Number | None, Number | None]) -> bool:
    import sympy

    values = _constant(one), _constant(other)
    if values[0] is None or values[1] is None:
        return _verify(one, other)
    decimals = [which for which, literal in enumerate(written) if literal is not None and literal.step is not None]
    if decimals and all(value.is_real for value in values):
        literal, rounded = written[decimals[0]], values[1 - decimals[0]]
        assert literal is not None
        return same(literal, Number(Fraction(str(rounded))))
    if _close(*values, _AGREE):
        return True
    if 0 in values or all(abs(value) < sympy.Float(10) ** -_AGREE for value in values):
        return bool(sympy.simplify(one - other) == 0)
    return False


@lru_cache(maxsize=512)
def _constant(expression: Any) -> Any:
    return _value(expression, _DIGITS)


def _value(expression: Any, digits: int) -> Any:
    """The number that an expression is, or None."""
    import sympy

    value = sympy.N(expression, digits)
    if value.free_symbols or not value.is_number or value.has(sympy.nan, sympy.zoo):
        return None
    real, imaginary = value.as_real_imag()
    if not (real.is_Number and imaginary.is_Number):
        return None
    if real.is_infinite or imaginary.is_infinite:
        return None
    return value


def _close(one: Any, other: Any, digits: int) -> bool:
    size = max(abs(one), abs(other))
    return bool(size == 0 or abs(one - other) <= size * 10**-digits)


def _samples(*expressions: Any) -> list[tuple[Any, ...]] | None:
    """The values of expressions at the points; None when fewer than three points have any."""
    import sympy

    symbols = sorted(set().union(*(expression.free_symbols for expression in expressions)), key=str)
    samples, real = [], []
    steps = any(expression.has(sympy.floor, sympy.ceiling, sympy.Mod) for expression in expressions)
    for up, down in _POINTS + _FAR_POINTS if steps else _POINTS:
        place = {symbol: sympy.Rational(up + 2 * index, down + index) for index, symbol in enumerate(symbols)}
        try:
            values = tuple(_value(expression.subs(place), 2 * _AGREE_AT_POINTS) for expression in expressions)
        except (TypeError, ValueError, AttributeError, NotImplementedError, ArithmeticError):
            return None
        if None not in values:
            samples.append(values)
            real += [values] if all(value.is_real for value in values) else []
    # away from the real numbers, roots and logarithms of equal expressions may lie on different branches
    samples = real if len(real) >= 3 and not any(expression.has(sympy.I) for expression in expressions) else samples
    return samples if len(samples) >= 3 else None


def _relations(gold: Relation, answer: Relation) -> Verdict:
    verdict = undecided(gold, answer)
    if verdict is not None or gold.operators != answer.operators or gold.operators != ("=",):
        return verdict
    golds, answers = _difference(gold.sides), _difference(answer.sides)
    if golds is None:
        raise UnreadableGoldError
    if answers is None:
        return False
    samples = _samples(golds, answers)
    if samples is None:
        return None
    quotients = [answer / gold if gold else None for gold, answer in samples]
    first = quotients[0]
    return all(quotient is not None and quotient != 0 and _close(quotient, first, 20) for quotient in quotients)


def _difference(sides: Sequence[str]) -> Any:
    import sympy

    one, other = _expression(sides[0]), _expression(sides[1])
    both = isinstance(one, sympy.Expr) and isinstance(other, sympy.Expr)
    return one - other if both else None


def _whole(gold: str, answer: str) -> bool:
    """math-verify on both as wholes, for what the containers of this package do not cover."""
    one, other = _expression(clean(gold)), _expression(clean(answer))
    if one is None:
        raise UnreadableGoldError
    return other is not None and _verify(one, other)


def _verify(one: Any, other: Any) -> bool:
    from math_verify import verify

    return bool(verify(one, other, numeric_precision=50, allow_set_relation_comp=True, timeout_seconds=None))


_UNREAD: Final = (
    # signs that the library's grammar has no symbol for, and letters that it takes for e and i
    (re.compile(r"\\(hbar|ell|odot|oplus|mho|star|dagger|bigstar)(?![a-zA-Z])"), r"\\mathrm{\1}"),
    (re.compile(r"_\s*\\mathrm\{(\w+)\}|_\s*\{\s*\\mathrm\{(\w+)\}\s*\}"), r"_{\1\2}"),
    (re.compile(r"(?<![a-zA-Z\\])E(?=\s*_)"), r"\\Xi "),
    (re.compile(r"(?<![a-zA-Z\\])I(?=\s*[_(])"), r"\\Upsilon "),
    (re.compile(r"\^\s*\{?((?:\s*\\prime)+)\s*\}?|('+)"), r"_{p}"),
    (re.compile(r"(?<=[a-zA-Z\d}])\s*\\left\("), "("),
    (re.compile(r"(?<![\w!}])(\w)!(?=\s*\^)"), r"(\1!)"),
    (re.compile(r"\*"), r"\\cdot "),
    (re.compile("¶"), r"\\\\\\\\"),
    (re.compile("°"), r" \\cdot \\frac{\\pi}{180}"),
    (re.compile("¤"), ""),
)


_DIVISOR = re.compile(r"\\(?:gcd|lcm)\s*\(([^()]*[a-zA-Z][^()]*)\)")


def _as_symbol(found: re.Match[str]) -> str:
    """A divisor of unknown numbers as a symbol of its own: SymPy takes letters for prime to each other."""
    written = re.sub(r"\s", "", found.group()).encode().hex()
    return rf"\mathrm{{{written.translate(_LETTERS)}}}"


_LETTERS: Final = str.maketrans("0123456789abcdef", "ghjklmnopqrstuvw")


@lru_cache(maxsize=512)
def _expression(text: str) -> Any:
    """What the library reads in some clean text, exact numbers in place of floats. None when it reads nothing.

    ``math_verify.parse`` takes capitals for small letters, so its parser is called with that turned off.
    """
    import sympy
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy

    text = _DIVISOR.sub(_as_symbol, text)
    for pattern, replacement in _UNREAD:
        text = pattern.sub(replacement, text)
    try:
        expression = latex2sympy(text, conversion_config=ConversionConfig(lowercase_symbols=False))
    except (MemoryError, RecursionError):
        raise
    except Exception:  # the generated parser raises Exception itself
        return None
    if isinstance(expression, sympy.Basic):
        if expression.has(sympy.Sum, sympy.Product):
            expression = expression.doit()
        exact = {value: sympy.Rational(str(value)) for value in expression.atoms(sympy.Float)}
        exact[sympy.EulerGamma] = sympy.Symbol("gamma")
        exact |= {rate: sympy.Symbol(str(rate)) for rate in expression.atoms(sympy.Derivative) if rate.expr.is_Symbol}
        if not expression.has(sympy.Sum, sympy.Product):
            exact |= {sympy.Symbol("i"): sympy.I, sympy.Symbol("e"): sympy.E}
        expression = expression.xreplace(exact)
    return expression
