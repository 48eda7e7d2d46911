"""BFCL as a benchmark: questions of a release, dialogues with its tools, scores by its checkers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice, zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdpo_nemo.evaluation.benchmark import Ask, Benchmark, Number, Row, Sample, mean_number
from gdpo_nemo.evaluation.bfcl import conversation, formats
from gdpo_nemo.evaluation.bfcl.aggregates import AGGREGATES, CORRECT_FORMAT, Weights, aggregate
from gdpo_nemo.evaluation.bfcl.checkers import Checkers
from gdpo_nemo.evaluation.bfcl.conversation import NativeStyle, Style, ToolRLStyle
from gdpo_nemo.evaluation.bfcl.decoding import Call
from gdpo_nemo.evaluation.bfcl.releases import is_irrelevance, is_multi_turn
from gdpo_nemo.evaluation.matrix import ScoreMatrix
from gdpo_nemo.evaluation.store import EvaluationStore
from gdpo_nemo.prompts import toolrl
from gdpo_nemo.stats import Strata, bootstrap_questions
from gdpo_nemo.types import RewardVector

CHECKED_AT_ONCE = 100
OFFICIAL, CORRECTED, FORMAT, FORMAT_STRICT = "correct", "corrected", "correct_format", "correct_format_strict"
ABSTAINED, CALLED, BROKEN_CALL = "abstained", "called", "broken_call"
"""What can come of a question that no tool fits; only the first is right in ``corrected``."""


class Bfcl(Benchmark):
    """Some or all categories of one release, asked in one style."""

    graders = ("official",)

    def __init__(self, checkers: Checkers, style: Style, categories: Sequence[str] | None = None) -> None:
        """Name what to run.

        Args:
            checkers: of the release.
            style: how to ask.
            categories: of the release; None: all.
        """
        self.checkers, self.style, self.release = checkers, style, checkers.release
        self.categories = tuple(categories or self.release.categories)
        self.name = f"bfcl_{self.release.version}" + ("_native" if isinstance(style, NativeStyle) else "")
        prompt = style.name
        self.hashes = dict(self.release.hashes)
        if isinstance(style, ToolRLStyle):
            prompt += f" with {', '.join(sorted(style.deviations)) or 'no deviations'}"
            self.hashes |= toolrl.template_hashes()
        self.revision = f"{self.release.requirement}, prompt {prompt}"

    @cached_property
    def _entries(self) -> dict[str, dict[str, Any]]:
        native = isinstance(self.style, NativeStyle)
        columns = [
            [entry | {"group": category} for entry in self.checkers.questions(category, native=native)]
            for category in self.categories
        ]
        mixed = [entry for row in zip_longest(*columns) for entry in row if entry is not None]
        return {entry["id"]: entry for entry in mixed}

    def questions(self) -> list[Row]:
        """The first question of every category, then the second, and so on: a limit leaves some of each."""
        rows: list[Row] = []
        for entry in self._entries.values():
            several = is_multi_turn(entry["group"])
            messages, _ = self.style.request(entry["tools"], entry["turns"][0], multi_turn=several)
            turns = {"turns": entry["turns"]} if several else {}
            rows.append(
                {"row_id": entry["id"], "messages": messages, "gold": entry["gold"], "group": entry["group"]} | turns
            )
        return rows

    async def answer(self, question: Row, ask: Ask) -> Mapping[str, Any]:
        """One answer, or a whole dialogue in which the entry's tools answer."""
        entry = self._entries[question["row_id"]]
        if not is_multi_turn(entry["group"]):
            return await conversation.single_turn(entry, ask, self.style)

        async def execute(steps: Sequence[Sequence[Call]]) -> list[str]:
            return await asyncio.to_thread(self.checkers.execute, entry["group"], entry["id"], steps, self.style.name)

        return await conversation.multi_turn(entry, ask, self.style, execute)

    def grade(self, samples: Iterable[Sample], grader: str) -> Iterable[RewardVector]:
        """``correct``, ``corrected``, ``correct_format`` and ``correct_format_strict`` of each sample."""
        coming = iter(samples)
        while some := list(islice(coming, CHECKED_AT_ONCE)):
            yield from self._grade_some(some)

    def _grade_some(self, samples: Sequence[Sample]) -> Iterator[RewardVector]:
        single = [sample for sample in samples if not is_multi_turn(sample.question["group"])]
        decoded = [self.style.calls(sample.generation["response"]) for sample in single]
        requests = [
            {"category": sample.question["group"], "id": sample.question["row_id"], "calls": found.calls}
            for sample, found in zip(single, decoded, strict=True)
        ]
        verdicts = iter(zip(self.checkers.check(requests, self.style.name), decoded, strict=True))
        for sample in samples:
            if is_multi_turn(sample.question["group"]):
                yield self._dialogue_scores(sample)
            else:
                verdict, found = next(verdicts)
                yield self._single_turn_scores(sample, verdict, bool(found.calls), found.broken)

    def _dialogue_scores(self, sample: Sample) -> RewardVector:
        group, row_id, turns = sample.question["group"], sample.question["row_id"], sample.generation["turns"]
        calls = [[self.style.steps(text) for text in turn] for turn in turns]
        verdict: Mapping[str, Any]
        if sample.generation["ended"] == "context_overflow":
            verdict = {"valid": False, "reason": "context_overflow"}
        elif sample.generation["ended"] == "tools_failed":
            verdict = {"fault": "tools_failed"}
        else:
            verdict = self.checkers.check_dialogue(group, row_id, calls, self.style.name)
        value, reasons = _read(verdict)
        values = {OFFICIAL: value, CORRECTED: value, FORMAT: math.nan, FORMAT_STRICT: math.nan}
        return RewardVector(values, {OFFICIAL: reasons, CORRECTED: reasons})

    def _single_turn_scores(
        self, sample: Sample, verdict: Mapping[str, Any], called: bool, broken: bool
    ) -> RewardVector:
        text = sample.generation["response"]
        value, reasons = _read(verdict)
        corrected, why = value, reasons
        if is_irrelevance(sample.question["group"]):
            outcome = CALLED if called else BROKEN_CALL if broken or not text.strip() else ABSTAINED
            corrected, why = float(outcome == ABSTAINED), (outcome,)
        elif not math.isnan(value) and broken:
            corrected, why = 0.0, (BROKEN_CALL,)
        elif value == 0.0 and verdict.get("matched"):
            corrected, why = 1.0, ("matched_one_to_one",)
        values = {OFFICIAL: value, CORRECTED: corrected, FORMAT: math.nan, FORMAT_STRICT: math.nan}
        if isinstance(self.style, ToolRLStyle):
            values[FORMAT] = float(formats.correct_format(text))
            values[FORMAT_STRICT] = float(formats.correct_format_strict(text))
        return RewardVector(values, {OFFICIAL: reasons, CORRECTED: why})

    def numbers(self, store: EvaluationStore, grader: str, *, seed: int = 0) -> list[Number]:
        """The aggregates, official and corrected, Correct Format, and every category, in percent."""
        matrix = store.score_matrix(grader)
        out = [
            _weighted(f"{prefix}{name}", matrix, score, weights, seed)
            for prefix, score in (("", OFFICIAL), ("corrected ", CORRECTED))
            for name, weights in AGGREGATES[self.release.version].items()
        ]
        out[len(out) // 2 : len(out) // 2] = [
            _weighted(score, matrix, score, CORRECT_FORMAT[self.release.version], seed)
            for score in (FORMAT, FORMAT_STRICT)
        ]
        for category in self.categories:
            for score, prefix in ((OFFICIAL, ""), (CORRECTED, "corrected ")):
                values_Q_N, scored_Q_N = _of_groups(matrix, score, (category,))
                out.append(mean_number(f"{prefix}{category}", values_Q_N, scored_Q_N, seed=seed, unit="%"))
        return out


def _read(verdict: Mapping[str, Any]) -> tuple[float, tuple[str, ...]]:
    """Value and reasons of an official verdict; NaN where the official code failed on the sample."""
    if "fault" in verdict:
        return math.nan, ("checker_fault", str(verdict["fault"]))
    return float(verdict["valid"]), (verdict["reason"],) if verdict["reason"] else ()


def _of_groups(matrix: ScoreMatrix, score: str, groups: Iterable[str]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    wanted = set(groups)
    rows = np.array([group in wanted for group in matrix.groups], dtype=np.bool_)
    values_Q_N = matrix.values.get(score, np.full(matrix.scored_Q_N.shape, np.nan))
    return values_Q_N[rows], matrix.scored_Q_N[rows]


def _weighted(name: str, matrix: ScoreMatrix, score: str, weights: Weights, seed: int) -> Number:
    """A weighted sum of the means of categories; not run where one of them has no graded sample."""
    values_Q_N, scored_Q_N = _of_groups(matrix, score, weights)
    groups_Q = np.array([group for group in matrix.groups if group in weights], dtype=object)
    graded_Q_N = ~np.isnan(values_Q_N)
    graded_Q = graded_Q_N.any(axis=1)
    known_Q = np.nansum(values_Q_N[graded_Q], axis=1) / graded_Q_N[graded_Q].sum(axis=1)
    groups_Q = groups_Q[graded_Q]
    means = {group: float(known_Q[groups_Q == group].mean()) for group in set(groups_Q)}
    value = aggregate(weights, means)
    interval = None
    if value is not None and len(known_Q) > 1:
        interval = bootstrap_questions(known_Q, strata=Strata.of(list(groups_Q), weights), seed=seed).times(100)
    ungraded, failed = int((scored_Q_N & ~graded_Q_N).sum()), int((~scored_Q_N).sum())
    counts = (int(graded_Q.sum()), int(graded_Q_N.sum()), ungraded, failed)
    return Number(name, None if value is None else 100 * value, interval, *counts, "%")
