"""What a set of programming problems is to the engine, and the numbers that come of it (Table 5).

    pass avg@N       share of a problem's tests that a program passes, mean over samples and problems: "Pass"
    pass@1, pass@k   mean over problems of 1 - C(n - c, k) / C(n, k), c of n programs pass all tests (Chen et al. 2021,
                     eq. 1)
    exceed           share of responses with more than ``length_limit`` tokens: "Exceed"
    bug              share of programs with a compile or run-time error on any test: "Bug"; no code block is one
    no code          share of responses without a code block
    truncated        share of responses that the token limit of the evaluation cut off
    length           mean response tokens

A program is run on all tests with the limits of the training reward. What the sandbox could not judge, after retries,
and problems whose tests cannot be read are ungraded: left out and counted. Intervals are bootstraps over problems;
"these problems" keeps the problems and draws samples.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gdpo_nemo.errors import InputError
from gdpo_nemo.evaluation.benchmark import (
    Benchmark,
    Number,
    Row,
    Sample,
    lengths_of,
    mean_number,
    of_these_questions,
    pass_at_k,
)
from gdpo_nemo.evaluation.coding.problems import CodeProblems
from gdpo_nemo.evaluation.store import EvaluationStore
from gdpo_nemo.rewards.code import Judgement, Tests, extract_code, judge_many
from gdpo_nemo.rewards.code.reward import LENGTH_LIMIT as LENGTH_LIMIT
from gdpo_nemo.rewards.code.reward import SANDBOX_FAILED
from gdpo_nemo.sandbox.isolation import AUTO
from gdpo_nemo.sandbox.jobs import TIMEOUT
from gdpo_nemo.sandbox.opening import check_name, open_sandbox
from gdpo_nemo.types import RewardVector

CHUNK: Final = 64
GRADERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "strict": {},
    "prime_compat": {"scorer": "prime_compat"},
    "timeout_is_bug": {"timeout_is_bug": True},
}
"""Grader -> how ``judge_many`` differs from its defaults."""
NO_CODE, GOLD_UNREADABLE = "no_code", "gold_unreadable"


class CodingBenchmark(Benchmark):
    """One set of problems."""

    graders = tuple(GRADERS)

    def __init__(
        self,
        name: str,
        problems: CodeProblems,
        *,
        length_limit: int = LENGTH_LIMIT,
        pass_at: Sequence[int] = (),
        sandbox: str = AUTO,
    ) -> None:
        """Name it. No process starts yet.

        Args:
            name: of the benchmark.
            problems: as read.
            length_limit: tokens above which a response exceeds.
            pass_at: every further k of pass@k.
            sandbox: as ``open_sandbox`` takes it.

        Raises:
            UnknownNameError: no such sandbox.
        """
        check_name(sandbox)
        self.name, self.length_limit, self.pass_at, self.sandbox = name, length_limit, tuple(pass_at), sandbox
        self._questions = [
            {
                "row_id": f"{name}/{problem.id}",
                "messages": [dict(message) for message in problem.messages],
                "gold": problem.gold,
                "before": problem.before,
                "after": problem.after,
                "special_judge": problem.special_judge,
            }
            for problem in problems.problems
        ]
        asked = repr([question["messages"] for question in self._questions])
        self.hashes = {"data": problems.sha256, "prompts": hashlib.sha256(asked.encode()).hexdigest()}

    def questions(self) -> Sequence[Row]:
        """All problems."""
        return self._questions

    def grade(self, samples: Iterable[Sample], grader: str) -> Iterator[RewardVector]:
        """``pass_rate`` 0 to 1, and ``solved``, ``bug``, ``no_code``, ``exceed`` and ``truncated``, each 0 or 1.

        Raises:
            SandboxError: no sandbox can run here.
        """
        coming = iter(samples)
        while part := list(islice(coming, CHUNK)):
            programs = [extract_code(sample.generation["response"]) for sample in part]
            for sample, program, verdict in zip(part, programs, self._judged(part, programs, grader), strict=True):
                yield self._vector(sample.generation, program, verdict)

    def _judged(self, part: Sequence[Sample], programs: Sequence[str | None], grader: str) -> list[Judgement | None]:
        """Verdicts in order, None where the tests cannot be read."""
        verdicts: list[Judgement | None] = [None] * len(part)
        items: dict[int, tuple[str | None, Tests]] = {}
        for i, ((question, _), program) in enumerate(zip(part, programs, strict=True)):
            try:
                tests = Tests.parse(question["gold"])
            except InputError:
                continue
            whole = None if program is None else f"{question['before']}{program}\n{question['after']}"
            items[i] = (whole, tests)
        sandbox = open_sandbox(self.sandbox) if any(program is not None for program, _ in items.values()) else None
        for i, verdict in zip(items, judge_many(list(items.values()), sandbox=sandbox, **GRADERS[grader]), strict=True):
            verdicts[i] = verdict
        return verdicts

    def _vector(self, generation: Row, program: str | None, verdict: Judgement | None) -> RewardVector:
        length = generation.get("length_tokens")
        values = {
            "pass_rate": math.nan,
            "solved": math.nan,
            "bug": math.nan,
            "no_code": float(program is None),
            "exceed": math.nan if length is None else float(length > self.length_limit),
            "truncated": float(generation["truncated"]),
        }
        codes: tuple[str, ...]
        if verdict is None or verdict.bug is None:
            codes = (GOLD_UNREADABLE if verdict is None else SANDBOX_FAILED,)
        else:
            values["pass_rate"] = verdict.pass_rate
            values["solved"] = float(verdict.pass_rate == 1.0)
            values["bug"] = float(verdict.bug)
            statuses = dict.fromkeys(status for status in verdict.statuses if status != "ok")
            codes = (NO_CODE,) if program is None else tuple("timed_out" if s == TIMEOUT else s for s in statuses)
        return RewardVector(values, {"pass_rate": codes, "exceed": () if length is not None else ("length_unknown",)})

    def numbers(self, store: EvaluationStore, grader: str, *, seed: int = 0) -> list[Number]:
        """The numbers of the module's docstring; pass also over the problems that have one right answer."""
        matrix = store.score_matrix(grader)
        scored_Q_N = matrix.scored_Q_N

        def share(title: str, values_Q_N: NDArray[np.float64], of_Q: NDArray[np.bool_] | None = None) -> Number:
            kept_Q = np.ones(len(scored_Q_N), dtype=np.bool_) if of_Q is None else of_Q
            return mean_number(title, values_Q_N[kept_Q], scored_Q_N[kept_Q], seed=seed, unit="%")

        values = matrix.values
        passed_Q_N, solved_Q_N = values["pass_rate"], values["solved"]
        passed = share(f"pass avg@{store.samples_per_question}", passed_Q_N)
        found = [passed, *of_these_questions(passed, passed_Q_N, seed=seed)]
        flagged = {question["row_id"] for question in store.questions() if question.get("special_judge")}
        plain_Q = np.array([row_id not in flagged for row_id in matrix.row_ids], dtype=np.bool_)
        if not plain_Q.all() and plain_Q.any():
            found.append(share(f"{passed.name}, one right answer", passed_Q_N, plain_Q))
        found.append(share("pass@1", solved_Q_N))
        found += [share(f"pass@{k}", pass_at_k(solved_Q_N, k)) for k in self.pass_at if k != 1]
        found += [
            share(f"exceed {self.length_limit} tokens", values["exceed"]),
            share("bug", values["bug"]),
            share("no code", values["no_code"]),
            share("truncated", values["truncated"]),
            mean_number("length in tokens", lengths_of(store, matrix), scored_Q_N, seed=seed),
        ]
        return found
