"""GSM8K (Cobbe et al. 2021, arXiv 2110.14168; openai/gsm8k, ``main``, MIT): 7,473 problems for training, 1,319 to test.

    question   the problem
    answer     a worked solution, a step a line, with its calculations between << and >>; the last line is #### <number>

Published rows keep the whole ``answer`` as their gold; ``gold_of`` is what it comes to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any, Final

from gdpo_nemo.data.table import TableFile, read_table, to_rows
from gdpo_nemo.errors import InputError
from gdpo_nemo.types import Row

QUESTION, ANSWER = "question", "answer"
COLUMNS: Final = {"gold": ANSWER}
MARKER: Final = "####"
_DIGITS: Final = re.compile(r"[0-9]+")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?")
_CALCULATION: Final = re.compile(r"<<[^<>]*>>")


def gold_of(answer: str) -> str:
    """What stands between the first ``####`` and the next, if there is one; a text without any is its own gold."""
    parts = answer.split(MARKER)
    return (parts[1] if len(parts) > 1 else answer).strip()


def read_gsm8k(path: Path) -> list[Row]:
    """The problems of a file in this schema, in its order.

    Args:
        path: JSON lines or parquet with the columns ``question`` and ``answer``.

    Raises:
        PrerequisiteError, InputError, UnknownNameError: as ``table.read_table`` and ``table.to_rows``; InputError also
            where a question is empty or an answer has no ``####`` with a gold behind it. The message names the row.
    """
    table = read_table(TableFile(path=str(path)))
    rows = to_rows(table, {**COLUMNS, QUESTION: QUESTION})
    for row, place in zip(rows, table.places, strict=True):
        if not str(row.fields[QUESTION] or "").strip():
            raise InputError(f"{place} has no text in column {QUESTION!r}")
        if MARKER not in row.gold or not gold_of(row.gold):
            raise InputError(
                f"{place}: column {ANSWER!r} ends in {row.gold[-40:]!r}; expected a last line {MARKER} <number>"
            )
    return rows


def statistics(rows: Iterable[Row]) -> dict[str, Any]:
    """Counts for ``gdpo data stats``.

    Returns:
        ``rows``; ``digits``, whose gold is digits alone; ``separators``, ``signed`` and ``decimal``, whose gold has
        thousands separators, a sign or a fraction; ``unreadable``, whose gold is no number; ``calculations_median`` and
        ``calculations_max``, calculations marked in the solution.
    """
    golds, calculations = list[str](), list[int]()
    for row in rows:
        golds.append(gold_of(row.gold))
        calculations.append(len(_CALCULATION.findall(row.gold)))
    numbers = [gold for gold in golds if _NUMBER.fullmatch(gold)]
    return {
        "rows": len(golds),
        "digits": sum(bool(_DIGITS.fullmatch(gold)) for gold in numbers),
        "separators": sum("," in gold for gold in numbers),
        "signed": sum(gold[0] in "+-" for gold in numbers),
        "decimal": sum("." in gold for gold in numbers),
        "unreadable": len(golds) - len(numbers),
        "calculations_median": median(calculations or [0]),
        "calculations_max": max(calculations, default=0),
    }


def described(counts: Mapping[str, Any]) -> Iterator[str]:
    """``statistics`` for a person, a line each."""
    yield (
        f"{counts['digits']:,} of {counts['rows']:,} golds are digits alone; {counts['separators']:,} with thousands "
        f"separators, {counts['signed']:,} signed, {counts['decimal']:,} with a fraction, "
        f"{counts['unreadable']:,} no number"
    )
    yield f"{counts['calculations_median']:g} calculations in the median solution, at most {counts['calculations_max']}"
