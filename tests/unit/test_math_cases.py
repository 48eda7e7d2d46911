"""Hand-checked cases of the policy in docs/math-grading.md, right and wrong ones of every category."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from gdpo_nemo.rewards.math import Grade, grade_many

CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "math_cases.jsonl").read_text("utf-8").splitlines()
]
CATEGORIES = sorted({case["category"] for case in CASES})


def response_of(case: dict[str, Any]) -> str:
    return case.get("response", rf"The answer is $\boxed{{{case.get('answer')}}}$.")


@pytest.fixture(scope="module")
def grades() -> list[Grade]:
    return grade_many([response_of(case) for case in CASES], [case["gold"] for case in CASES])


@pytest.mark.parametrize("category", CATEGORIES)
def test_the_verdict_is_the_one_worked_out_by_hand(grades: list[Grade], category: str) -> None:
    wrong = [
        (case["gold"], response_of(case)[:80], case["correct"], grade)
        for case, grade in zip(CASES, grades, strict=True)
        if case["category"] == category and grade.correct is not case["correct"]
    ]
    assert not wrong


def test_every_category_has_right_and_wrong_answers() -> None:
    verdicts = defaultdict(set)
    for case in CASES:
        verdicts[case["category"]].add(case["correct"])
    lacking = {name for name, found in verdicts.items() if found != {True, False}}
    assert lacking == {"gold that cannot be read"}
    assert len(CASES) >= 150
