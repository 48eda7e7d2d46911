"""Whether two ends of answers are the same, as far as it shows in what is written: equal text, exact numbers, units."""

from __future__ import annotations

from fractions import Fraction

from gdpo_nemo.rewards.math.estimate import clearly_different
from gdpo_nemo.rewards.math.exact import Number, number, same
from gdpo_nemo.rewards.math.notation import key
from gdpo_nemo.rewards.math.shapes import Leaf, Relation


def exactly(gold: Leaf, answer: Leaf) -> bool | None:
    """Equal text and exact numbers, with what stands behind them; None for everything else."""
    if gold.base and answer.base and gold.base != answer.base:
        return False
    if gold.modulus and answer.modulus:
        return _congruent(gold, answer)
    scale = _scale(gold, answer)
    if scale is None:
        return False
    one, other = number(gold.text), number(answer.text)
    if one is not None and other is not None:
        if gold.percent != answer.percent:
            return _equal_as_percent(one, other) if gold.percent else _equal_as_percent(other, one)
        return same(one, Number(other.value * scale, other.step and other.step * scale, other.digits))
    if scale == 1 and (gold.percent == answer.percent) and key(gold.text) == key(answer.text):
        return True
    if r"\infty" in (key(gold.text).lstrip("+-"), key(answer.text).lstrip("+-")):
        return key(gold.text).lstrip("+") == key(answer.text).lstrip("+")
    if scale == 1 and gold.percent == answer.percent and clearly_different(gold.text, answer.text):
        return False
    return False if not gold.text or not answer.text else None


def undecided(gold: Relation, answer: Relation) -> bool | None:
    """Equal text of equations and inequalities, their sides in any order where it does not count; None otherwise."""
    if key(gold.text) == key(answer.text):
        return True
    if gold.operators == answer.operators == ("=",) and set(map(key, gold.sides)) == set(map(key, answer.sides)):
        return True
    return None


def _scale(gold: Leaf, answer: Leaf) -> Fraction | None:
    """How many of the gold's units one of the answer's is; None when they measure different things."""
    if gold.unit is None or answer.unit is None or gold.unit.kind is None or answer.unit.kind is None:
        return Fraction(1)
    return answer.unit.factor / gold.unit.factor if gold.unit.kind == answer.unit.kind else None


def _equal_as_percent(percent: Number, plain: Number) -> bool:
    return plain.value in (percent.value, percent.value / 100)


def _congruent(gold: Leaf, answer: Leaf) -> bool | None:
    if key(gold.modulus) != key(answer.modulus):
        return False
    one, other, modulus = number(gold.text), number(answer.text), number(gold.modulus)
    if one is None or other is None or modulus is None or not modulus.value:
        return key(gold.text) == key(answer.text) or None
    return (one.value - other.value) % modulus.value == 0
