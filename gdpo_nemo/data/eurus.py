"""Eurus-2-RL-Data's coding rows (PRIME, arXiv 2502.01456): 26,758 of 482,019 for training, 1,024 for validation.

    data_source    apps, codecontests, codeforces or taco; other rows are mathematics
    prompt         the chat as published: a system message and the problem
    reward_model   {"ground_truth": JSON text of {"inputs", "outputs", and for calls "fn_name"}}

A problem with several right answers cannot be judged by comparing with one of them, and a dialogue not at all: these
need a program of their own, a special judge, which the data does not have. TACO's authors list those of TACO's test
split (218 of 1,000) by their position in a file of their own, which these rows do not carry. So a problem is flagged by
what its text asks for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any, Final

from gdpo_nemo.data.selection import texts_of
from gdpo_nemo.data.table import TableFile, read_table, to_rows
from gdpo_nemo.types import Row

CODE_SOURCES: Final = ("apps", "codecontests", "codeforces", "taco")
SOURCE, CHAT = "data_source", "prompt"
COLUMNS: Final = {"gold": "reward_model.ground_truth"}
SPECIAL_JUDGE: Final = (
    r"(?i)\b(print|output|display|return|report|find|give|construct)\s+(out\s+)?any\s+(one\s+)?of\s+(them|these|those)\b",
    r"(?i)\b(print|output|display|return|report)\s+any\b(?!\s+(other|additional|extra|more)\b)",
    r"(?i)\b(print|output|display|return|report)\s+(either|one)\s+of\s+(them|these|those)\b",
    r"(?i)\bany\s+(one\s+)?of\s+(them|these|those)\s+(is|are|will|would|can|may)\s+be\b",
    r"(?i)\bany\s+(valid|correct|suitable|optimal|appropriate|acceptable|possible)\s+(\w+\s+)?(answer|solution|output)",
    r"(?i)(?<!how\s)\b(multiple|several|many|various|more\s+than\s+one)\s+(\w+\s+){0,2}(answers?|solutions?|outputs?)\b",
    r"(?i)\b(print|output|display|return|report)\b[^.]{0,80}\bin\s+(the\s+|an\s+)?(any|arbitrary)\s+order\b",
    r"(?i)\b(print|output)\W{1,4}yes\b\W{1,3}(\(without\s+quotes\)\s+)?([io]n\s+the|and|then|followed)\b(?!\s+\W{0,3}no\b)",
    r"(?i)\b(if|in\s+case)\s+(the|your)\s+answer\s+is\W{1,4}yes\b\W{1,4}(\w+\s+){0,4}print\b",
    r"(?i)\b(no\s+need|(not|\w+n.t)\s+(need|have))\s+to\s+minimi[sz]e\s+the\s+number\b",
    r"(?i)\binteractive\s+(problem|task)\b|\binteractor\b|\bfflush\b",
)
"""What problems say that accept more than one answer, that want proof of a yes, or that talk with the program.

configs/code_reasoning/paper.yaml leaves them out.
"""
_FLAGS: Final = tuple(map(re.compile, SPECIAL_JUDGE))


def needs_special_judge(chat: Any) -> bool:
    """Whether a problem, as text or as chat messages, says that several answers are right."""
    return any(flag.search(text) for text in texts_of(chat) for flag in _FLAGS)


def read_code(path: Path, sources: Iterable[str] = CODE_SOURCES) -> list[Row]:
    """The coding rows of a file in this schema, in its order.

    Args:
        path: parquet or JSON lines.
        sources: which of ``CODE_SOURCES``.

    Raises:
        PrerequisiteError, InputError, UnknownNameError: as ``table.read_table`` and ``table.to_rows``; InputError
            also when there is none.
    """
    return to_rows(read_table(TableFile(path=str(path), where={SOURCE: list(sources)})), COLUMNS)


def tests_of(gold: str) -> Mapping[str, Any] | None:
    """A ground truth, None where it cannot be used: no JSON, or not as many outputs as inputs."""
    try:
        tests = json.loads(gold)
    except (ValueError, RecursionError):
        return None
    if not isinstance(tests, dict):
        return None
    inputs, outputs = tests.get("inputs"), tests.get("outputs")
    good = isinstance(inputs, list) and isinstance(outputs, list) and inputs and len(inputs) == len(outputs)
    return tests if good else None


def statistics(rows: Iterable[Row]) -> dict[str, dict[str, Any]]:
    """Counts for ``gdpo data stats``.

    Returns:
        data source -> ``rows``; ``calls``, those that call a function; ``special_judge``, flagged; ``unreadable``,
        whose tests cannot be used; ``tests`` in all, ``tests_median`` and ``tests_max`` per readable row.
    """
    found: dict[str, dict[str, Any]] = {}
    sizes: dict[str, list[int]] = {}
    for row in rows:
        source = str(row.fields[SOURCE])
        counts = found.setdefault(source, dict.fromkeys(("rows", "calls", "special_judge", "unreadable"), 0))
        tests = tests_of(row.gold)
        counts["rows"] += 1
        counts["special_judge"] += needs_special_judge(row.fields[CHAT])
        counts["unreadable"] += tests is None
        if tests is not None:
            counts["calls"] += bool(tests.get("fn_name"))
            sizes.setdefault(source, []).append(len(tests["inputs"]))
    for source, counts in found.items():
        of = sizes.get(source, [0])
        counts |= {"tests": sum(of), "tests_median": median(of), "tests_max": max(of)}
    return dict(sorted(found.items()))


def described(counts: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """``statistics`` for a person, a line each."""
    for source, of in counts.items():
        yield (
            f"{source}: {of['rows']:,} rows, {of['calls']:,} call a function, {of['special_judge']:,} accept several "
            f"answers, {of['unreadable']:,} without usable tests; {of['tests_median']:g} tests in the median, "
            f"at most {of['tests_max']:,}"
        )
