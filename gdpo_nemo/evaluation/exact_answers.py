"""Questions of your own with one right answer each: a JSON file with a list of objects, or JSON lines.

Graders: ``exact`` compares the whole response, ``last_line`` its last line that is not empty, both after white space
at the ends is gone; ``last_line_casefold`` ignores upper and lower case as well. A response that was cut off is wrong.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gdpo_nemo.errors import InputError, PrerequisiteError
from gdpo_nemo.evaluation.benchmark import Benchmark, Row, Sample
from gdpo_nemo.types import RewardVector


class ExactAnswers(Benchmark):
    """One file of questions; its name is the benchmark's."""

    graders = ("exact", "last_line", "last_line_casefold")

    def __init__(self, path: Path, *, question: str = "question", answer: str = "answer", system: str = "") -> None:
        """Read the file.

        Args:
            path: ``.json`` or ``.jsonl``.
            question: key of the question.
            answer: key of the answer.
            system: system message of every conversation; none when empty.

        Raises:
            PrerequisiteError: there is no such file.
            InputError: it is no list of objects with both keys.
        """
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            raise PrerequisiteError(f"cannot read the questions {path}: {error.strerror}") from error
        self.name = Path(path).stem
        self.hashes = {"data": hashlib.sha256(content).hexdigest()}
        self.hashes |= {"system": hashlib.sha256(system.encode()).hexdigest()} if system else {}
        opening = [{"role": "system", "content": system}] if system else []
        self._questions: list[dict[str, Any]] = []
        for number, record in enumerate(_records(content, path), start=1):
            if not isinstance(record, Mapping) or not {question, answer} <= set(record):
                raise InputError(f"{path}: question {number} is no object with {question!r} and {answer!r}")
            messages = [*opening, {"role": "user", "content": str(record[question])}]
            row = {"row_id": str(record.get("id", number)), "messages": messages, "gold": str(record[answer])}
            self._questions.append(row | ({"group": str(record["group"])} if "group" in record else {}))

    def questions(self) -> Sequence[Row]:
        """All rows of the file."""
        return self._questions

    def grade(self, samples: Iterable[Sample], grader: str) -> Iterator[RewardVector]:
        """``correct`` is 1 or 0."""
        for question, generation in samples:
            said, gold = str(generation["response"]).strip(), question["gold"].strip()
            if grader != "exact":
                said = said.splitlines()[-1].strip() if said else said
            if grader.endswith("casefold"):
                said, gold = said.casefold(), gold.casefold()
            code = "truncated" if generation["truncated"] else "match" if said == gold else "mismatch"
            yield RewardVector({"correct": float(code == "match")}, {"correct": (code,)})


def _records(content: bytes, path: Path) -> list[Any]:
    try:
        if Path(path).suffix == ".jsonl":
            return [json.loads(line) for line in content.splitlines() if line.strip()]
        records = json.loads(content)
    except ValueError as error:
        raise InputError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(records, list):
        raise InputError(f"{path} holds a {type(records).__name__}; expected a list of questions")
    return records
