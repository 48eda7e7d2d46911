"""Problems of mathematics with their accepted answers, in the shapes in which the benchmarks are published.

    DeepScaleR (train, AIME-24, AMC, MATH-500)   problem, answer: text or a number such as 142.0
    DeepScaleR (Minerva, OlympiadBench)          problem, answer: a list of accepted texts
    Qwen2.5-Math and PRIME (Minerva)             problem, solution: the answer is in its last box

Minerva's two versions are different benchmarks: 127 of 272 golds were rewritten between them, and in the second one 58
are in e-notation. They are told apart by their shape, and named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gdpo_nemo.data.table import Table, TableFile, read_table
from gdpo_nemo.errors import InputError
from gdpo_nemo.rewards.math.extraction import final_answer

QUESTION_KEYS: Final = ("problem", "question")
ID_KEYS: Final = ("unique_id", "id", "idx")
ANSWER, SOLUTION = "answer", "solution"
FROM_LISTS, FROM_SOLUTIONS, FROM_ANSWERS = "lists", "solutions", "answers"


@dataclass(frozen=True)
class Problem:
    """One problem.

    Attributes:
        id: unique within its file.
        text: what is asked.
        golds: the accepted answers; one is enough.
    """

    id: str
    text: str
    golds: tuple[str, ...]


@dataclass(frozen=True)
class Problems:
    """A file of problems.

    Attributes:
        problems: in the order of the file.
        shape: where the golds come from: ``answers``, ``lists`` or ``solutions``.
        sha256: of the file.
    """

    problems: tuple[Problem, ...]
    shape: str
    sha256: str


def read_problems(path: Path) -> Problems:
    """Read a file of problems: a JSON list, JSON lines or parquet.

    Raises:
        PrerequisiteError: there is no such file, or no library for it.
        InputError: it is no table, or a row has no problem or no answer; the message names the row.
    """
    table = read_table(TableFile(path=str(path)))
    shape = _shape(table, path)
    ids = _ids(table)
    problems = []
    for record, place, name in zip(table.records, table.places, ids, strict=True):
        text = next((str(record[key]) for key in QUESTION_KEYS if record.get(key)), "").strip()
        golds = _golds(record, shape)
        if not text or not golds:
            raise InputError(f"{place} has no {'answer' if text else ' or '.join(QUESTION_KEYS)}")
        problems.append(Problem(name, text, golds))
    return Problems(tuple(problems), shape, table.sha256)


def _shape(table: Table, path: Path) -> str:
    shapes = {
        FROM_LISTS if isinstance(record.get(ANSWER), list) else FROM_ANSWERS if ANSWER in record else FROM_SOLUTIONS
        for record in table.records
    }
    if len(shapes) > 1:
        raise InputError(f"{path} mixes rows whose golds are {' and '.join(sorted(shapes))}; expected one shape")
    return shapes.pop()


def _ids(table: Table) -> list[str]:
    for key in ID_KEYS:
        values = [str(record[key]) for record in table.records if record.get(key) not in (None, "")]
        if len(values) == len(set(values)) == len(table.records):
            return values
    return [str(number) for number in range(1, len(table.records) + 1)]


def _golds(record: Mapping[str, Any], shape: str) -> tuple[str, ...]:
    if shape == FROM_SOLUTIONS:
        boxed, _ = final_answer(str(record.get(SOLUTION) or ""), "ignored")
        return () if boxed is None else (boxed,)
    answers = record[ANSWER] if shape == FROM_LISTS else [record[ANSWER]]
    return tuple(text for answer in answers if (text := _text(answer)))


def _text(answer: Any) -> str:
    """An answer as text: 142.0 is how some files store the integer 142."""
    if isinstance(answer, float) and answer.is_integer():
        return str(int(answer))
    return "" if answer is None else str(answer).strip()
