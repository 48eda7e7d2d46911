"""``correct`` and ``length`` of the math task (arXiv 2601.05242, section 4.2), under the protocol of all rewards.

correct  1 when the final answer is the gold, else 0; NaN when the gold cannot be read
length   1 when the response has at most ``length_limit`` tokens, else 0

The paper's limit l is 4000. Tokens are ``Rollout.length_tokens``: the model's own tokenizer, the thinking included, the
prompt and the end token not. A condition of one on the other is not a reward: it is set under ``gdpo.rewards``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Final

from gdpo_nemo.deadline import OVER_BUDGET
from gdpo_nemo.errors import InputError, UnknownNameError
from gdpo_nemo.rewards.math.extraction import THINKING, before_the_cut
from gdpo_nemo.rewards.math.grading import GRADERS, Grade, grade_many
from gdpo_nemo.rewards.math.pool import shared_pool
from gdpo_nemo.types import RewardVector, Rollout, Row

LENGTH_LIMIT: Final = 4000

REASONS: Final[dict[str, str]] = {
    # no answer: correct is 0
    "unfinished_thinking": "the thinking never ends",
    "no_box": "no final answer in a box",
    "unclosed_box": "the last box never closes",
    "empty_box": "nothing in the last box",
    # an answer: correct is 0
    "wrong": "another answer than the gold",
    "too_long": "an answer of more characters than any gold has",
    "timed_out": "the answer could not be evaluated in time",
    "worker_died": "evaluating the answer ended its worker: memory or a crash of the library",
    "out_of_memory": "the answer could not be evaluated in the memory it may use",
    "too_deep": "the answer is nested too deeply",
    "library_error": "the library failed on the answer; the name of its error follows",
    # no verdict: correct is NaN
    "gold_empty": "the gold is empty",
    "gold_prose": "the gold is a sentence",
    "gold_placeholder": "the gold stands for an answer that is elsewhere",
    "gold_unbalanced": "a bracket of the gold is missing",
    "gold_unparsable": "the library cannot read the gold",
    "gold_timed_out": "the gold could not be evaluated in time",
    "gold_worker_died": "evaluating the gold ended its worker",
    "starved": "the machine gave the worker no time to evaluate the answer",
    OVER_BUDGET: "the caller's time for grading was used up",
    # length
    "over_limit": "more tokens than the limit",
}
"""Code -> meaning. Codes never change; new ones may come."""


class MathReward:
    """``correct`` and ``length`` of rollouts.

    Attributes:
        names: ``("correct", "length")``.
        ranges: 0 to 1 each.
        length_limit: tokens.
        grader: one of ``GRADERS``.
        thinking: how ``</think>`` is read.
    """

    names: tuple[str, ...] = ("correct", "length")
    ranges: Mapping[str, tuple[float, float]]

    def __init__(
        self,
        length_limit: int = LENGTH_LIMIT,
        grader: str = "strict",
        thinking: str = "auto",
        num_workers: int | None = None,
    ) -> None:
        """Choose the limit and the grader. No worker starts yet.

        Raises:
            InputError: a limit or a number of workers that is no positive integer.
            UnknownNameError: no such grader or way of thinking.
        """
        for name, value in (("length_limit", length_limit), ("num_workers", 1 if num_workers is None else num_workers)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InputError(f"{name} is {value!r}, expected a positive integer.")
        if grader not in GRADERS:
            raise UnknownNameError("grader", str(grader), GRADERS)
        if thinking not in THINKING:
            raise UnknownNameError("thinking", str(thinking), THINKING)
        self.length_limit, self.grader, self.thinking, self.num_workers = length_limit, grader, thinking, num_workers
        self.ranges = {"correct": (0.0, 1.0), "length": (0.0, 1.0)}

    def __call__(self, row: Row, rollout: Rollout) -> RewardVector:
        """Score one rollout."""
        return self.score_many([row], [rollout])[0]

    def score_many(self, rows: Sequence[Row], rollouts: Sequence[Rollout]) -> list[RewardVector]:
        """Score rollouts on all workers at once; ``rows[i]`` is the row that ``rollouts[i]`` answers."""
        grades = grade_many(
            [before_the_cut(rollout.response, rollout.truncated) for rollout in rollouts],
            [accepted_answers(row.gold) for row in rows],
            grader=self.grader,
            thinking=self.thinking,
            num_workers=self.num_workers,
        )
        return [self._vector(grade, rollout) for grade, rollout in zip(grades, rollouts, strict=True)]

    def start(self) -> None:
        """Start a worker of the grader, which the first answer to compare would start otherwise.

        Raises:
            PrerequisiteError: math-verify is not installed.
        """
        shared_pool(self.num_workers).start()

    def _vector(self, grade: Grade, rollout: Rollout) -> RewardVector:
        correct = math.nan if grade.correct is None else float(grade.correct)
        code = grade.reason or ("wrong" if grade.correct is False else "")
        is_short = rollout.length_tokens <= self.length_limit
        return RewardVector(
            {"correct": correct, "length": float(is_short)},
            {"correct": (code,) if code else (), "length": () if is_short else ("over_limit",)},
        )


def accepted_answers(gold: str) -> list[str]:
    """The answers that a row's gold accepts: a JSON list of strings is several, any other text is one."""
    if gold.lstrip().startswith('["'):
        try:
            answers = json.loads(gold)
        except json.JSONDecodeError:
            return [gold]
        if answers and all(isinstance(answer, str) for answer in answers):
            return list(answers)
    return [gold]
