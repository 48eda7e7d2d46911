"""What a benchmark is to the engine: questions, a way to ask them, graders, and the numbers that come of it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gdpo_nemo.evaluation.matrix import ScoreMatrix
from gdpo_nemo.evaluation.sampling import Completion, Messages
from gdpo_nemo.evaluation.store import EvaluationStore
from gdpo_nemo.stats import Interval, bootstrap_questions, bootstrap_samples
from gdpo_nemo.types import RewardVector

Row = Mapping[str, Any]


class Sample(NamedTuple):
    """A question and one answer to it, as rows of the store."""

    question: Row
    generation: Row


class Ask(Protocol):
    """Asks the model within one sample: retries, pace, seed and limits are taken care of."""

    async def __call__(self, messages: Messages, **changes: Any) -> Completion:
        """Complete a conversation; ``changes`` replace fields of the ``SamplingParams``."""


@dataclass(frozen=True)
class Number:
    """One number of an evaluation's result.

    Attributes:
        name: e.g. ``correct avg@16``.
        value: in its unit; None where it was not run or nothing could be graded.
        interval: None where there is none.
        num_questions: questions with a graded sample.
        num_samples: graded samples.
        ungraded: samples that the grader could not judge.
        failed: samples without an answer.
        unit: ``%`` or another, empty for a plain number.
    """

    name: str
    value: float | None
    interval: Interval | None
    num_questions: int
    num_samples: int
    ungraded: int
    failed: int
    unit: str = ""


class Benchmark(ABC):
    """A set of questions and its graders. Make one per name that tables show: ``aime24`` and ``aime25`` are two.

    Attributes:
        name: of its folder.
        revision: of the data, None where there is none.
        hashes: what -> SHA-256 of the data, of templates and of code that graders run.
        graders: names; the first one grades by default. A changed grader gets a new name.
    """

    name: str
    revision: str | None = None
    hashes: Mapping[str, str]
    graders: tuple[str, ...] = ("default",)

    @abstractmethod
    def questions(self) -> Sequence[Row]:
        """All questions: ``row_id``, ``messages``, ``gold``, perhaps ``group``, and what grading needs; JSON-able."""

    @abstractmethod
    def grade(self, samples: Iterable[Sample], grader: str) -> Iterable[RewardVector]:
        """Scores of many samples, one after the other in their order; what comes is written down at once.

        Samples are read as they are asked for; a pool may run ahead by some.
        """

    async def answer(self, question: Row, ask: Ask) -> Mapping[str, Any]:
        """One sample; several calls where a conversation depends on its answers.

        A sampler's error goes through and leaves the sample failed; one that is handled here is part of the answer.

        Returns:
            ``response``, and what else grading needs; JSON-able.
        """
        return {"response": (await ask(question["messages"])).text}

    def numbers(self, store: EvaluationStore, grader: str, *, seed: int = 0) -> list[Number]:
        """What the evaluation comes to; here the mean of every score, a mean over questions of their samples' means."""
        matrix = store.score_matrix(grader)
        return [
            mean_number(f"{name} avg@{store.samples_per_question}", values_Q_N, matrix.scored_Q_N, seed=seed)
            for name, values_Q_N in matrix.values.items()
        ]


def mean_number(
    name: str, values_Q_N: NDArray[np.float64], scored_Q_N: NDArray[np.bool_], *, seed: int = 0, unit: str = ""
) -> Number:
    """Mean over questions of the mean of their graded samples; the interval is a seeded bootstrap over questions.

    A question's mean carries the noise of its samples, so that the bootstrap over questions covers both.

    Args:
        name: of the number.
        values_Q_N: NaN where ungraded.
        scored_Q_N: False where a sample has no score at all: it failed.
        seed: of the bootstrap.
        unit: of the result; ``%`` multiplies it by 100.
    """
    factor = 100.0 if unit == "%" else 1.0
    graded_Q_N = ~np.isnan(values_Q_N)
    graded_Q = graded_Q_N.sum(axis=1)
    known_Q = np.where(graded_Q > 0, np.nansum(values_Q_N, axis=1) / np.maximum(graded_Q, 1), np.nan)
    num_questions = int((graded_Q > 0).sum())
    value = float(np.nanmean(known_Q)) * factor if num_questions else None
    interval = bootstrap_questions(known_Q, seed=seed).times(factor) if num_questions > 1 else None
    ungraded = int((scored_Q_N & ~graded_Q_N).sum())
    failed = int((~scored_Q_N).sum())
    return Number(name, value, interval, num_questions, int(graded_Q_N.sum()), ungraded, failed, unit)


def of_these_questions(share: Number, values_Q_N: NDArray[np.float64], *, seed: int = 0) -> list[Number]:
    """A share in percent with the interval of other samples of the same questions; none without several samples.

    Args:
        share: as ``mean_number`` gives it.
        values_Q_N: of which it is the mean.
        seed: of the bootstrap.
    """
    if values_Q_N.shape[1] == 1 or share.value is None:
        return []
    interval = bootstrap_samples(values_Q_N, seed=seed).times(100.0)
    return [replace(share, name=f"{share.name}, these problems", interval=interval)]


def pass_at_k(correct_Q_N: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Chance that one of k samples drawn without replacement is right, [Q, 1]; NaN with fewer than k graded samples."""
    graded_Q, right_Q = (~np.isnan(correct_Q_N)).sum(axis=1), np.nansum(correct_Q_N, axis=1)
    return np.array(
        [
            [math.nan if num < k else 1.0 - math.comb(int(num - right), k) / math.comb(int(num), k)]
            for num, right in zip(graded_Q, right_Q, strict=True)
        ]
    )


def lengths_of(store: EvaluationStore, matrix: ScoreMatrix) -> NDArray[np.float64]:
    """Tokens of each response, [Q, N]; NaN where they are unknown."""
    position = {row_id: q for q, row_id in enumerate(matrix.row_ids)}
    lengths_Q_N = np.full(matrix.scored_Q_N.shape, np.nan)
    for row in store.generations():
        if row.get("length_tokens") is not None and row["row_id"] in position:
            lengths_Q_N[position[row["row_id"]], row["index"]] = row["length_tokens"]
    return lengths_Q_N
