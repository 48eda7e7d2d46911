"""GSM8K's 1,319 test problems, asked as the training asks them; several ways to say how many are right.

    correct       the answer between ``<answer>`` and ``</answer>`` is the gold, as the reward of that mode has it
    last_number   the last number anywhere in the response is the gold, tags or not: what the model can do, not how it
                  was asked to show it
    format        thought and answer stand in their tags
    integer       the answer is an integer
    truncated     the token limit of the evaluation cut the response off

Graders are the modes of ``gdpo_nemo.rewards.gsm8k``: ``strict``, and ``released`` for the values of the authors' code.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from gdpo_nemo.data.gsm8k import QUESTION, gold_of, read_gsm8k
from gdpo_nemo.data.locks import data_root, is_offline, locked_file
from gdpo_nemo.data.sources import GSM8K
from gdpo_nemo.evaluation.benchmark import Benchmark, Number, Row, Sample, mean_number
from gdpo_nemo.evaluation.store import EvaluationStore
from gdpo_nemo.prompts.tool_calling import template
from gdpo_nemo.rewards.gsm8k import MODES, NAMES, parse_number, score
from gdpo_nemo.types import RewardVector

TEST_FILE: Final = GSM8K.files[1]
_NUMBERS: Final = re.compile(r"(?:(?<![0-9])[+-])?(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?")
NO_NUMBER: Final = "no_number"


class Gsm8k(Benchmark):
    """The problems of one file."""

    name = "gsm8k"
    graders = tuple(MODES)

    def __init__(self, path: Path) -> None:
        """Read the problems.

        Raises:
            PrerequisiteError, InputError, UnknownNameError: as ``read_gsm8k``.
        """
        rows = read_gsm8k(path)
        self.hashes = {
            "data": hashlib.sha256(path.read_bytes()).hexdigest(),
            "prompt": hashlib.sha256(template("gsm8k").encode()).hexdigest(),
        }
        self._questions = [
            {
                "row_id": f"gsm8k/{number}",
                "messages": [
                    {"role": "system", "content": template("gsm8k")},
                    {"role": "user", "content": str(row.fields[QUESTION])},
                ],
                "gold": gold_of(row.gold),
            }
            for number, row in enumerate(rows, start=1)
        ]

    def questions(self) -> Sequence[Row]:
        """All problems."""
        return self._questions

    def grade(self, samples: Iterable[Sample], grader: str) -> Iterator[RewardVector]:
        """The scores of the module's docstring, each 0 or 1; NaN where the gold is no number."""
        for question, generation in samples:
            response, gold = str(generation["response"]), str(question["gold"])
            vector = score(response, gold, mode=grader)
            last, codes = _last_number(response, gold)
            yield RewardVector(
                {**vector.values, "last_number": last, "truncated": float(generation["truncated"])},
                {**vector.reasons, "last_number": codes},
            )

    def numbers(self, store: EvaluationStore, grader: str, *, seed: int = 0) -> list[Number]:
        """Each share in percent, with a bootstrap over the problems."""
        matrix = store.score_matrix(grader)
        order = ("correct", "last_number", *(name for name in NAMES if name != "correct"), "truncated")
        return [mean_number(name, matrix.values[name], matrix.scored_Q_N, seed=seed, unit="%") for name in order]


def load(path: Path | None, *, offline: bool = False) -> list[Gsm8k]:
    """The benchmark.

    Args:
        path: a file of the user's; without one the test set is fetched once and locked, see ``gdpo data``.
        offline: ask nothing of the network.

    Raises:
        PrerequisiteError: the file is missing, or cannot be fetched.
        InputError, UnknownNameError: it is not one of problems.
    """
    return [Gsm8k(path or locked_file(GSM8K, TEST_FILE, data_root(None), offline=is_offline(offline)))]


def _last_number(response: str, gold: str) -> tuple[float, tuple[str, ...]]:
    expected, found = parse_number(gold), _NUMBERS.findall(response)
    if expected is None:
        return math.nan, ("gold_unparsable",)
    if not found:
        return 0.0, (NO_NUMBER,)
    right = parse_number(found[-1]) == expected
    return float(right), () if right else ("wrong",)
