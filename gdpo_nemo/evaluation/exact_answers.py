"""Questions of your own with one right answer each: a JSON file with a list of objects, JSON lines, or parquet.

Graders: ``exact`` compares the whole response, ``last_line`` its last line that is not empty, both after white space
at the ends is gone; ``last_line_casefold`` ignores upper and lower case as well. A response that was cut off is wrong.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gdpo_nemo.data.table import TableFile, read_table
from gdpo_nemo.errors import InputError
from gdpo_nemo.evaluation.benchmark import Benchmark, Row, Sample
from gdpo_nemo.types import RewardVector


class ExactAnswers(Benchmark):
    """One file of questions; its name is the benchmark's."""

    graders = ("exact", "last_line", "last_line_casefold")

    def __init__(self, path: Path, *, system: str = "") -> None:
        """Read the file.

        Args:
            path: as ``read_table`` takes it, e.g. ``.json`` or ``.jsonl``.
            system: system message of every conversation; none when empty.

        Raises:
            PrerequisiteError: there is no such file.
            InputError: it is no table, or a row has no ``question`` or no ``answer``; the message names it.
        """
        table = read_table(TableFile(path=str(path)))
        self.name = Path(path).stem
        self.hashes = {"data": table.sha256}
        self.hashes |= {"system": hashlib.sha256(system.encode()).hexdigest()} if system else {}
        opening = [{"role": "system", "content": system}] if system else []
        self._questions: list[dict[str, Any]] = []
        for number, (record, place) in enumerate(zip(table.records, table.places, strict=True), start=1):
            if lacking := {"question", "answer"} - set(record):
                raise InputError(f"{place} has no {' and no '.join(map(repr, sorted(lacking)))}")
            messages = [*opening, {"role": "user", "content": str(record["question"])}]
            row = {"row_id": str(record.get("id", number)), "messages": messages, "gold": str(record["answer"])}
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
