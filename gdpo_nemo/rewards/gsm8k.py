"""``format``, ``correct`` and ``integer`` on GSM8K: three rewards of 0 or 1, the authors' second released example.

    <think>reasoning</think>
    <answer>18</answer>

format   1 when the response is a think section, a newline, an answer section, and nothing else
correct  1 when the answer is the gold; NaN (``strict`` only) when the gold is no number
integer  1 when the answer is an integer, right or wrong

Two modes. ``released`` gives the values of ``trl-GDPO/open-r1/src/open_r1/gsm8k.py`` of NVlabs/GDPO at b080e63, holes
included; ``strict``, the default, differs where one says why:

    answer     released: after the last ``<answer>``, up to the next ``</answer>`` or the end; without any tag the whole
               response. strict: the last closed answer section outside the thought, and else none, so that an answer
               cannot be right without being given as one
    correct    released: the same characters as the gold. strict: the same number, so that ``1,000`` is 1000 and
               ``18.0`` is 18; a unit or a sentence around the number is wrong in both
    integer    released: ``str.isdigit``, which takes superscripts and the digits of any script, and neither a sign nor
               separators, so that a gold of ``-3`` or ``1,000`` cannot be right and an integer at once. strict: ASCII
               digits, perhaps with a sign and thousands separators
    format     released: anything may stand in the sections, further think tags too, and one newline may follow.
               strict: one section each, an answer that is not blank; white space around the whole is free
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Final, NamedTuple

from gdpo_nemo.data.gsm8k import gold_of
from gdpo_nemo.errors import InputError, UnknownNameError
from gdpo_nemo.types import RewardVector, Rollout, Row

REASONS: Final[dict[str, str]] = {
    # format, strict
    "stray_tag": "a tag opens or closes nothing",
    "unclosed_tag": "a section is never closed",
    "missing_section": "no think section, or no answer section",
    "extra_section": "one section twice",
    "section_order": "the answer before the thought",
    "section_spacing": "other than one newline between the sections",
    "text_outside_sections": "text before or after the sections",
    "empty_answer": "the answer section is blank",
    # format, released
    "tag_count": "an answer tag does not occur exactly once",
    "wrong_shape": "the text does not have the wanted shape",
    # correct and integer, strict
    "no_answer": "no closed answer section outside the thought",
    "several_answers": "more than one answer section; only the last is scored",
    # correct
    "wrong": "another answer than the gold",
    "not_a_number": "the answer is no number alone; correct is 0",
    "gold_unparsable": "the gold is no number; correct is NaN",
    # integer
    "not_an_integer": "the answer is no integer alone",
    # released
    "no_answer_tag": "no answer tag: the whole response is taken for the answer",
}
"""Code -> meaning. Codes never change; new ones may come."""

NAMES: Final = ("format", "correct", "integer")
MAX_CHARS: Final = 64
"""Characters of a number; the golds have at most 10."""
_TAG = re.compile(r"<(/?)(think|answer)>")
_WHOLE = r"[+-]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)"
_INTEGER, _NUMBER = re.compile(_WHOLE), re.compile(rf"{_WHOLE}(?:\.[0-9]+)?")
_RELEASED_SHAPE = re.compile(r"^<think>.*?</think>\n<answer>.*?</answer>$", re.DOTALL)


class _Section(NamedTuple):
    """A tagged part of a response: between ``start`` and ``end``, tags included; ``closed``: the end tag is there."""

    kind: str
    start: int
    end: int
    body: str
    closed: bool


def score(response: str, gold: str, *, mode: str = "strict") -> RewardVector:
    """Score one response.

    Args:
        response: the decoded text, end token excluded. Any text will do.
        gold: a number, or a published solution that ends in ``#### <number>``.
        mode: ``strict`` or ``released``.

    Returns:
        ``format``, ``correct`` and ``integer``, each 0 or 1 (``correct`` NaN where the gold is no number and the mode
        is ``strict``), with the codes of ``REASONS`` that explain each. Full marks in strict mode carry no code,
        unless there are several answers.

    Raises:
        UnknownNameError: no such mode.
        InputError: the response, the gold or the mode is not a string.
    """
    for what, value in (("response", response), ("gold", gold), ("mode", mode)):
        if not isinstance(value, str):
            raise InputError(f"{what} is a {type(value).__name__}, expected a str")
    return _scorer(mode)(response, gold_of(gold))


class Gsm8kReward:
    """The three rewards of one rollout, under the ``Reward`` protocol.

    Attributes:
        names: ``("format", "correct", "integer")``.
        ranges: 0 to 1 each.
        mode: ``strict`` or ``released``.
    """

    names: tuple[str, ...] = NAMES
    ranges: Mapping[str, tuple[float, float]]

    def __init__(self, mode: str = "strict") -> None:
        """Choose the mode.

        Raises:
            UnknownNameError: no such mode.
            InputError: the mode is not a string.
        """
        _scorer(mode)
        self.mode = mode
        self.ranges = dict.fromkeys(NAMES, (0.0, 1.0))

    def __call__(self, row: Row, rollout: Rollout) -> RewardVector:
        """Score the rollout's response against the row's gold."""
        return score(rollout.response, row.gold, mode=self.mode)


def parse_number(text: str) -> Fraction | None:
    """The value of a number that stands alone: a sign, thousands separators and decimals are allowed; else None."""
    text = text.strip()
    if len(text) > MAX_CHARS or not _NUMBER.fullmatch(text):
        return None
    return Fraction(text.replace(",", ""))


def _score_strict(response: str, gold: str) -> RewardVector:
    text = response.strip()
    sections, stray = _sections(text)
    shape = _shape_fault(text, sections, stray)
    answers = [section for section in sections if section.kind == "answer" and section.closed]
    said = answers[-1].body.strip() if answers else None
    several = ["several_answers"] if len(answers) > 1 else []
    expected, value = parse_number(gold), parse_number(said or "")
    is_integer = said is not None and len(said) <= MAX_CHARS and _INTEGER.fullmatch(said) is not None
    codes = {"format": [shape] if shape else [], "correct": [*several], "integer": [*several]}
    if expected is None:
        codes["correct"] = ["gold_unparsable"]
    elif value != expected:
        codes["correct"].append("no_answer" if said is None else "not_a_number" if value is None else "wrong")
    if not is_integer:
        codes["integer"].append("no_answer" if said is None else "not_an_integer")
    return RewardVector(
        {
            "format": float(not shape),
            "correct": math.nan if expected is None else float(value == expected),
            "integer": float(is_integer),
        },
        {name: tuple(of) for name, of in codes.items()},
    )


def _sections(text: str) -> tuple[list[_Section], bool]:
    """The sections in their order, and whether a tag belongs to none. Inside a section only its own end tag counts."""
    found: list[_Section] = []
    stray, opened = False, None
    for tag in _TAG.finditer(text):
        closing = tag[1] == "/"
        if opened is not None:
            if closing and tag[2] == opened[2]:
                found.append(_Section(tag[2], opened.start(), tag.end(), text[opened.end() : tag.start()], True))
                opened = None
        elif closing:
            stray = True
        else:
            opened = tag
    if opened is not None:
        found.append(_Section(opened[2], opened.start(), len(text), text[opened.end() :], False))
    return found, stray


def _shape_fault(text: str, sections: list[_Section], stray: bool) -> str:
    """The first thing that is wrong with the shape of a text without white space around it; empty: nothing."""
    kinds = [section.kind for section in sections]
    if stray:
        return "stray_tag"
    if not all(section.closed for section in sections):
        return "unclosed_tag"
    if set(kinds) != {"think", "answer"}:
        return "missing_section"
    if len(kinds) > 2:
        return "extra_section"
    if kinds != ["think", "answer"]:
        return "section_order"
    thought, answer = sections
    if thought.start or answer.end != len(text):
        return "text_outside_sections"
    if text[thought.end : answer.start] != "\n":
        return "section_spacing"
    return "" if answer.body.strip() else "empty_answer"


def _score_released(response: str, gold: str) -> RewardVector:
    said = response.rpartition("<answer>")[2].partition("</answer>")[0].strip()
    untagged = () if "<answer>" in response else ("no_answer_tag",)
    once = response.count("<answer>") == response.count("</answer>") == 1
    shaped = once and _RELEASED_SHAPE.search(response) is not None
    correct, integer = said == gold, said.isdigit()
    return RewardVector(
        {"format": float(shaped), "correct": float(correct), "integer": float(integer)},
        {
            "format": () if shaped else ("wrong_shape",) if once else ("tag_count",),
            "correct": untagged + (() if correct else ("wrong",)),
            "integer": untagged + (() if integer else ("not_an_integer",)),
        },
    )


MODES: Final[dict[str, Callable[[str, str], RewardVector]]] = {"strict": _score_strict, "released": _score_released}
"""Mode -> scorer of (response, gold)."""


def _scorer(mode: str) -> Callable[[str, str], RewardVector]:
    if not isinstance(mode, str):
        raise InputError(f"mode is a {type(mode).__name__}, expected one of: {', '.join(MODES)}")
    if mode not in MODES:
        raise UnknownNameError("mode", mode, MODES)
    return MODES[mode]
