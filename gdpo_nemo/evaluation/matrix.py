"""The scores of one evaluation as arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdpo_nemo.errors import RunDirError
from gdpo_nemo.types import NOT_APPLICABLE

MEND = "remove that line, or grade the answers again"


@dataclass(frozen=True, eq=False)
class ScoreMatrix:
    """All scores of one grader as arrays.

    Attributes:
        row_ids: the Q questions, in the order of the file.
        groups: group of each question, None where it has none.
        values: name -> values_Q_N, NaN where ungraded, where the score does not apply and where there is none.
        scored_Q_N: False where there is no score: the request failed, or was not answered yet.
        inapplicable: name -> bool [Q, N], True where the score does not apply; names without any are left out.
    """

    row_ids: tuple[str, ...]
    groups: tuple[str | None, ...]
    values: Mapping[str, NDArray[np.float64]]
    scored_Q_N: NDArray[np.bool_]
    inapplicable: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)


def fill_matrix(
    questions: Iterable[Mapping[str, Any]], scores: Iterable[Mapping[str, Any]], num_samples: int, path: Path
) -> ScoreMatrix:
    """Arrays [Q, N] of score rows, which may come in any order.

    Args:
        questions: rows of the questions.
        scores: rows of the scores.
        num_samples: N.
        path: of the scores, for messages.

    Raises:
        RunDirError: a score of a sample that was not asked for, two of one sample, or a row or value that is none.
    """
    asked = [(str(row["row_id"]), row.get("group")) for row in questions]
    position = {row_id: q for q, (row_id, _) in enumerate(asked)}
    if len(position) < len(asked):
        raise RunDirError(f"{path}: {len(asked) - len(position)} of its questions have the row_id of another one")
    size = len(asked) * num_samples
    scored, values = bytearray(size), dict[str, list[float]]()  # lists: setting one number of an array takes longer
    inapplicable = dict[str, bytearray]()
    row: Mapping[str, Any] = {}
    try:
        for row in scores:
            q, index = position.get(row["row_id"], -1), row["index"]
            if q < 0 or not 0 <= index < num_samples:
                raise RunDirError(f"{path}: scores name sample {index} of {row['row_id']!r}, which was not asked")
            at = q * num_samples + index
            if scored[at]:
                raise RunDirError(f"{path} has two scores of sample {index} of {row['row_id']!r}; {MEND}")
            scored[at] = 1
            for column, value in row["values"].items():
                if column not in values:
                    values[column] = [math.nan] * size
                if value is not None:
                    values[column][at] = value
                elif not_applicable(row, column):
                    inapplicable.setdefault(column, bytearray(size))[at] = 1
    except (KeyError, TypeError, AttributeError) as error:
        raise RunDirError(f"{path}: {str(dict(row))[:200]} is no row of scores ({error}); {MEND}") from error
    shape = (len(asked), num_samples)
    scored_Q_N = np.frombuffer(scored, dtype=np.bool_).reshape(shape)
    values_Q_N = {}
    for name, column in values.items():
        array = np.array(column)
        if array.dtype.kind not in "fib" or np.isinf(array).any():
            at, value = next((at, value) for at, value in enumerate(column) if not _is_score(value))
            which = f"sample {at % num_samples} of {asked[at // num_samples][0]!r}"
            raise RunDirError(f"{path}: {name} of {which} is {value!r}, which is no score; {MEND}")
        values_Q_N[name] = array.astype(np.float64, copy=False).reshape(shape)
    return ScoreMatrix(
        tuple(row_id for row_id, _ in asked),
        tuple(group for _, group in asked),
        values_Q_N,
        scored_Q_N,
        {name: np.frombuffer(marks, dtype=np.bool_).reshape(shape) for name, marks in inapplicable.items()},
    )


def not_applicable(row: Mapping[str, Any], name: str) -> bool:
    """Whether a value of null in a row of scores means that the score does not apply, rather than a failed grading."""
    return row["values"].get(name) is None and NOT_APPLICABLE in (row.get("reasons") or {}).get(name, ())


def _is_score(value: Any) -> bool:
    return isinstance(value, int | float) and (abs(value) < 2**63 or math.isnan(value))
