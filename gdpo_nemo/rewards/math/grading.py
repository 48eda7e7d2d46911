"""One response or many against the reference answer.

Most verdicts fall in this process: equal text, exact numbers, containers of both. What is left goes to the workers,
each pair of gold and answer once.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

from gdpo_nemo.errors import InputError, UnknownNameError
from gdpo_nemo.rewards.math.answers import read
from gdpo_nemo.rewards.math.brackets import is_balanced
from gdpo_nemo.rewards.math.comparison import compare
from gdpo_nemo.rewards.math.exact import Number, number, same
from gdpo_nemo.rewards.math.extraction import final_answer
from gdpo_nemo.rewards.math.notation import clean, key
from gdpo_nemo.rewards.math.pool import UNDECIDED, Job, Outcome, shared_pool
from gdpo_nemo.rewards.math.shapes import Answer, Leaf, Phrase, Prose, leaves
from gdpo_nemo.rewards.math.written import exactly, undecided

GRADERS: Final = ("strict", "dler_compat", "math_verify")
"""The policy of docs/math-grading.md; the behaviour of the paper's group; the library alone."""

_MOST_CHARACTERS: Final = 2_000
_MOST_CACHED: Final = 200_000
_DIGITS = re.compile(r"[+-]?\d{1,400}(?:\.\d{1,400})?")
_FRACTION = re.compile(r"(-?)\\[dt]?frac\{(\d{1,400})\}\{(\d{1,400})\}")
_PLACEHOLDER = re.compile(r"see .*|proof.*|n a|na|none|null|nan|unknown|answers? (may )?vary.*|not provided.*|figure.*")


@dataclass(frozen=True, slots=True)
class Grade:
    """The verdict on one response.

    Attributes:
        correct: None when the gold cannot be read, so that nothing can be said.
        path: what decided: ``gold`` (it cannot be graded), ``extraction`` (no answer), ``exact`` or ``library``.
        extracted: the text of the final answer, None without one.
        timed_out: whether the answer's worker was killed.
        reason: a code of ``reward.REASONS``, empty for a plain right or wrong.
    """

    correct: bool | None
    path: str
    extracted: str | None
    timed_out: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Gold:
    text: str
    cleaned: str
    answer: Answer
    problem: str
    number: Number | None


def grade(
    response: str,
    gold: str | Sequence[str],
    *,
    grader: str = "strict",
    thinking: str = "auto",
    num_workers: int | None = None,
) -> Grade:
    r"""Grade one response.

    Args:
        response: the decoded response. Any text will do.
        gold: the reference answer in LaTeX or plain text, or several that are all accepted.
        grader: one of ``GRADERS``.
        thinking: how ``</think>`` is read, see ``extraction.final_answer``. Give ``required`` for a model whose prompt
            template opens the thinking: without the closing tag its response is all thought.
        num_workers: processes at most, by default as many as there are processors, up to eight.

    Raises:
        InputError: an argument of the wrong type, or no gold at all.
        UnknownNameError: no such grader or way of thinking.
        PrerequisiteError: math-verify is needed and not installed.
    """
    return grade_many([response], [gold], grader=grader, thinking=thinking, num_workers=num_workers)[0]


def grade_many(
    responses: Sequence[str],
    golds: Sequence[str | Sequence[str]],
    *,
    grader: str = "strict",
    thinking: str = "auto",
    num_workers: int | None = None,
) -> list[Grade]:
    """Grade responses against ``golds[i]`` each, on all workers at once. Arguments and errors as ``grade``."""
    if grader not in GRADERS:
        raise UnknownNameError("grader", str(grader), GRADERS)
    if len(responses) != len(golds):
        raise InputError(f"{len(responses)} responses and {len(golds)} golds, expected one gold for each response.")
    open_jobs: dict[Job, None] = {}
    parts = []
    for response, gold in zip(responses, golds, strict=True):
        settled, jobs = _begin(response, _texts(gold), grader, thinking)
        parts.append((settled, jobs))
        if jobs and not settled.correct:
            open_jobs.update(dict.fromkeys(job for job in jobs if job not in _verdicts))
    if open_jobs:
        found = dict(zip(open_jobs, shared_pool(num_workers).run_all(list(open_jobs)), strict=True))
        _verdicts.add({job: outcome for job, outcome in found.items() if outcome.reason not in UNDECIDED})
    else:
        found = {}
    return [_finish(settled, [found.get(job) or _verdicts[job] for job in jobs]) for settled, jobs in parts]


class _Verdicts:
    """What the workers said, the oldest forgotten first."""

    def __init__(self) -> None:
        self._known: OrderedDict[Job, Outcome] = OrderedDict()
        self._changing = threading.Lock()

    def __contains__(self, job: Job) -> bool:
        return job in self._known

    def __getitem__(self, job: Job) -> Outcome:
        return self._known[job]

    def add(self, found: dict[Job, Outcome]) -> None:
        with self._changing:
            self._known.update(found)
            while len(self._known) > _MOST_CACHED:
                self._known.popitem(last=False)


_verdicts = _Verdicts()


def _texts(gold: str | Sequence[str]) -> tuple[str, ...]:
    texts = (gold,) if isinstance(gold, str) else tuple(gold) if isinstance(gold, Sequence) else ()
    if not texts or not all(isinstance(text, str) for text in texts):
        raise InputError(f"gold is {gold!r:.80}, expected a str or a list of them: the accepted answers.")
    return tuple(dict.fromkeys(text.strip() for text in texts))


def _begin(response: str, golds: tuple[str, ...], grader: str, thinking: str) -> tuple[Grade, list[Job]]:
    """What is known without a worker, and the jobs that would tell the rest."""
    if grader == "strict":
        return _begin_strict(response, golds, thinking)
    final_answer(response, thinking)  # the same demands on the arguments
    answer, why = (response, "") if grader == "math_verify" else _dler_answer(response, thinking)
    if answer is None:
        return Grade(False, "extraction", None, reason=why), []
    return Grade(None, "library", answer), [Job(grader, gold, answer) for gold in golds]


def _dler_answer(response: str, thinking: str) -> tuple[str | None, str]:
    """No closing tag is wrong; the last box after the first closing tag."""
    if thinking != "ignored":
        _, tag, response = response.partition("</think>")
        if not tag:
            return None, "unfinished_thinking"
    answer, why = final_answer(response, "ignored")
    return (answer, why) if response.rfind(r"\boxed{") > response.rfind(r"\fbox") else (None, why or "no_box")


def _begin_strict(response: str, golds: tuple[str, ...], thinking: str) -> tuple[Grade, list[Job]]:
    text, why = final_answer(response, thinking)
    readable = [gold for gold in map(_gold, golds) if not gold.problem]
    if not readable:
        return Grade(None, "gold", text, reason=_gold(golds[0]).problem), []
    if text is None:
        return Grade(False, "extraction", None, reason=why), []
    if any(text == gold.text for gold in readable):
        return Grade(True, "exact", text), []
    written = _written_number(text)
    if written is not None and all(gold.number is not None for gold in readable):
        return Grade(any(gold.number and same(gold.number, written) for gold in readable), "exact", text), []
    if len(text) > _MOST_CHARACTERS:
        return Grade(False, "extraction", text, reason="too_long"), []
    cleaned, answer = _answer(text)
    jobs = []
    for gold in readable:
        verdict = key(cleaned) == key(gold.cleaned) or compare(gold.answer, answer, exactly, undecided)
        if verdict:
            return Grade(True, "exact", text), []
        if verdict is None:
            jobs.append(Job("strict", gold.text, text))
    return Grade(False, "library" if jobs else "exact", text), jobs


def _written_number(text: str) -> Number | None:
    """The value of an answer that is digits, or a fraction of them: most answers, read without taking them apart."""
    if _DIGITS.fullmatch(text):
        return number(text)
    fraction = _FRACTION.fullmatch(text)
    if fraction is None or not int(fraction[3]):
        return None
    return Number(Fraction(int(fraction[2]), int(fraction[3])) * (-1 if fraction[1] else 1))


@lru_cache(maxsize=8192)
def _answer(text: str) -> tuple[str, Answer]:
    cleaned = clean(text)
    return cleaned, read(cleaned)


@lru_cache(maxsize=65536)
def _gold(text: str) -> _Gold:
    written = _written_number(text)
    if written is not None:
        return _Gold(text, text, Leaf(text), "", written)
    cleaned = clean(text)
    answer = read(cleaned)
    problem = ""
    if not cleaned:
        problem = "gold_empty"
    elif isinstance(answer, Prose):
        problem = "gold_prose"
    elif isinstance(answer, Phrase) and _PLACEHOLDER.fullmatch(answer.words):
        problem = "gold_placeholder"
    elif not is_balanced(cleaned) or not all(is_balanced(leaf.text, strict=True) for leaf in leaves(answer)):
        problem = "gold_unbalanced"
    value = number(answer.text) if isinstance(answer, Leaf) and answer == Leaf(answer.text) else None
    return _Gold(text, cleaned, answer, problem, value)


def _finish(settled: Grade, outcomes: list[Outcome]) -> Grade:
    if settled.correct or not outcomes:
        return settled
    for outcome in outcomes:
        if outcome.verdict:
            return Grade(True, "library", settled.extracted)
    timed_out = any(outcome.timed_out for outcome in outcomes)
    reason = next((outcome.reason for outcome in outcomes if outcome.reason), "")
    if undecided := next((outcome.reason for outcome in outcomes if outcome.reason in UNDECIDED), ""):
        return Grade(None, "library", settled.extracted, timed_out, undecided)
    if all(outcome.verdict is None for outcome in outcomes):
        return Grade(None, "gold", settled.extracted, timed_out, reason)
    return Grade(False, "library", settled.extracted, timed_out, reason)
