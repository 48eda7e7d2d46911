"""Mathematics: accuracy and length of N samples per problem (arXiv 2601.05242, section 4.2).

    accuracy avg@N   share of right samples, mean over problems; ungraded samples are left out and counted
    exceed           share of samples with more than ``length_limit`` response tokens
    truncated        share of samples that the token limit of the evaluation cut off
    length           mean response tokens
    pass@k           mean over problems of 1 - C(n - c, k) / C(n, k), c of n samples right (Chen et al. 2021, eq. 1)
    maj@k            share of problems whose most frequent answer among the first k samples is right; the first one of
                     equally frequent answers counts, and no answer is no vote

Intervals are bootstraps over problems. "These problems" keeps the problems and draws samples: how far the number
would move if the same model answered again. Tokens are counted by whoever samples, over an endpoint by its server; the
end token is no part of the length where the server says that it counted one, as vLLM's does.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gdpo_nemo.data.locks import data_root, is_offline, locked_file
from gdpo_nemo.data.sources import AIME25, MATH_BENCHMARKS
from gdpo_nemo.errors import PrerequisiteError, UnknownNameError
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
from gdpo_nemo.evaluation.problems import FROM_SOLUTIONS, Problems, read_problems
from gdpo_nemo.evaluation.store import EvaluationStore
from gdpo_nemo.prompts.mathematics import build_messages
from gdpo_nemo.prompts.tool_calling import template
from gdpo_nemo.rewards.math import GRADERS, Grade, grade_many
from gdpo_nemo.rewards.math.extraction import before_the_cut
from gdpo_nemo.types import RewardVector

LENGTH_LIMIT: Final = 4000
CHUNK: Final = 256
TEST_FILES: Final = "deepscaler/data/test"
FILES: Final[Mapping[str, tuple[str, ...]]] = {
    "aime24": ("aime24", "aime"),
    "aime25": ("aime25",),
    "amc": ("amc",),
    "math500": ("math500", "math"),
    "minerva": ("minerva",),
    "olympiad": ("olympiad", "olympiad_bench"),
}
"""Benchmark -> names that its file may have in a folder of the user's, without the ending."""
ENDINGS: Final = (".json", ".jsonl", ".parquet")
OTHER_MINERVA: Final = "minerva_boxed"
"""Minerva with golds from boxed solutions (Qwen2.5-Math, PRIME): not the benchmark of the paper's tables."""


def load(names: Sequence[str], folder: Path | None, *, offline: bool = False, **options: Any) -> list[MathBenchmark]:
    """The benchmarks of those names.

    Args:
        names: some of ``FILES``.
        folder: files of the user's; without one they are fetched once and locked, see ``gdpo data``.
        offline: ask nothing of the network.
        options: of ``MathBenchmark``.

    Raises:
        UnknownNameError: no such benchmark.
        PrerequisiteError: a file is missing, or cannot be fetched.
        InputError: a file is not one of problems.
    """
    for name in names:
        if name not in FILES:
            raise UnknownNameError("benchmark", name, FILES)
    found = {name: _find(name, folder, offline) for name in names}
    return [MathBenchmark(name, read_problems(path), **options) for name, path in found.items()]


def _find(name: str, folder: Path | None, offline: bool) -> Path:
    if folder is not None:
        candidates = [folder / f"{stem}{ending}" for stem in FILES[name] for ending in ENDINGS]
        for path in candidates:
            if path.is_file():
                return path
        raise PrerequisiteError(f"{folder} has no file for {name}; looked for {', '.join(p.name for p in candidates)}")
    root, forbidden = data_root(None), is_offline(offline)
    if name == "aime25":
        return locked_file(AIME25, AIME25.files[0], root, offline=forbidden)
    return locked_file(MATH_BENCHMARKS, f"{TEST_FILES}/{FILES[name][-1]}.json", root, offline=forbidden)


class MathBenchmark(Benchmark):
    """One set of problems."""

    graders = ("strict", *(name for name in GRADERS if name != "strict"))

    def __init__(
        self,
        name: str,
        problems: Problems,
        *,
        length_limit: int = LENGTH_LIMIT,
        pass_at: Sequence[int] = (),
        majority_at: Sequence[int] = (),
    ) -> None:
        """Name it after its problems.

        Args:
            name: of the benchmark; Minerva from boxed solutions becomes ``minerva_boxed``.
            problems: as read.
            length_limit: tokens above which a response exceeds.
            pass_at: every k of pass@k.
            majority_at: every k of maj@k.
        """
        self.name = OTHER_MINERVA if name == "minerva" and problems.shape == FROM_SOLUTIONS else name
        self.hashes = {"data": problems.sha256, "prompt": hashlib.sha256(template("mathematics").encode()).hexdigest()}
        self.length_limit, self.pass_at, self.majority_at = length_limit, tuple(pass_at), tuple(majority_at)
        self._questions = [
            {
                "row_id": f"{self.name}/{problem.id}",
                "messages": [{"role": m.role, "content": m.content} for m in build_messages(problem.text)],
                "gold": list(problem.golds),
            }
            for problem in problems.problems
        ]

    def questions(self) -> Sequence[Row]:
        """All problems."""
        return self._questions

    def grade(self, samples: Iterable[Sample], grader: str) -> Iterator[RewardVector]:
        """``correct`` (NaN where the gold cannot be read), ``exceed`` and ``truncated``, each 0 or 1."""
        coming = iter(samples)
        while part := list(islice(coming, CHUNK)):
            grades = grade_many(
                [before_the_cut(generation["response"], generation["truncated"]) for _, generation in part],
                [question["gold"] for question, _ in part],
                grader=grader,
            )  # fmt: skip
            for (_, generation), grade in zip(part, grades, strict=True):
                yield self._vector(generation, grade)

    def _vector(self, generation: Row, grade: Grade) -> RewardVector:
        length = generation.get("length_tokens")
        code = grade.reason or ("wrong" if grade.correct is False else "")
        values = {
            "correct": math.nan if grade.correct is None else float(grade.correct),
            "exceed": math.nan if length is None else float(length > self.length_limit),
            "truncated": float(generation["truncated"]),
        }
        reasons = {"correct": (code,) if code else (), "exceed": () if length is not None else ("length_unknown",)}
        return RewardVector(values, reasons | {"answer": () if grade.extracted is None else (grade.extracted,)})

    def numbers(self, store: EvaluationStore, grader: str, *, seed: int = 0) -> list[Number]:
        """The numbers of the module's docstring."""
        matrix = store.score_matrix(grader)

        def share(title: str, values_Q_N: NDArray[np.float64]) -> Number:
            return mean_number(title, values_Q_N, matrix.scored_Q_N, seed=seed, unit="%")

        correct_Q_N = matrix.values["correct"]
        accuracy = share(f"accuracy avg@{store.samples_per_question}", correct_Q_N)
        found = [
            accuracy,
            *of_these_questions(accuracy, correct_Q_N, seed=seed),
            share(f"exceed {self.length_limit} tokens", matrix.values["exceed"]),
            share("truncated", matrix.values["truncated"]),
            mean_number("length in tokens", lengths_of(store, matrix), matrix.scored_Q_N, seed=seed),
        ]
        found += [share(f"pass@{k}", pass_at_k(correct_Q_N, k)) for k in self.pass_at]
        answers = _answers(store, grader) if self.majority_at else {}
        found += [share(f"maj@{k}", majority_at_k(correct_Q_N, answers, matrix.row_ids, k)) for k in self.majority_at]
        return found


def majority_at_k(
    correct_Q_N: NDArray[np.float64], answers: Mapping[tuple[str, int], str | None], row_ids: Sequence[str], k: int
) -> NDArray[np.float64]:
    """Whether the most frequent answer among the first k samples is right, [Q, 1]; NaN where none of it is graded."""
    found = np.full((len(row_ids), 1), np.nan)
    for q, row_id in enumerate(row_ids):
        votes = Counter(text for index in range(k) if (text := answers.get((row_id, index))) is not None)
        if votes:
            winner = votes.most_common(1)[0][0]  # of equally frequent ones the first
            verdicts = [correct_Q_N[q, index] for index in range(k) if answers.get((row_id, index)) == winner]
            found[q, 0] = verdicts[0]
        elif not np.isnan(correct_Q_N[q, :k]).all():
            found[q, 0] = 0.0
    return found


def _answers(store: EvaluationStore, grader: str) -> dict[tuple[str, int], str | None]:
    return {
        (row["row_id"], row["index"]): next(iter(row["reasons"].get("answer", [])), None)
        for row in store.scores(grader)
    }
