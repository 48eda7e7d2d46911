"""Math rewards under the protocol of all rewards, the three graders, and the arguments of the engine."""

from __future__ import annotations

import math

import pytest

from gdpo_nemo.deadline import OVER_BUDGET
from gdpo_nemo.errors import InputError, UnknownNameError
from gdpo_nemo.rewards import BatchReward, build_reward
from gdpo_nemo.rewards.math import REASONS, MathReward, grade, grade_many
from gdpo_nemo.rewards.math.reward import accepted_answers
from gdpo_nemo.rewards.scoring import is_failure
from gdpo_nemo.types import Rollout, Row


def scored(reward: MathReward, gold: str, response: str, length_tokens: int = 10) -> tuple[float, float, tuple, tuple]:
    vector = reward(Row("q", {}, gold), Rollout("q", 0, response, length_tokens))
    return vector["correct"], vector["length"], vector.reasons["correct"], vector.reasons["length"]


def test_names_ranges_and_protocol() -> None:
    reward = build_reward("math_length")
    assert isinstance(reward, BatchReward)
    assert reward.names == ("correct", "length")
    assert reward.ranges == {"correct": (0.0, 1.0), "length": (0.0, 1.0)}


@pytest.mark.parametrize(
    ("gold", "response", "length", "expected"),
    [
        ("42", r"\boxed{42}", 4000, (1.0, 1.0, (), ())),
        ("42", r"\boxed{42}", 4001, (1.0, 0.0, (), ("over_limit",))),
        ("42", r"\boxed{41}", 1, (0.0, 1.0, ("wrong",), ())),
        ("42", "42", 1, (0.0, 1.0, ("no_box",), ())),
        ("42", r"\boxed{42", 8000, (0.0, 0.0, ("unclosed_box",), ("over_limit",))),
        ('["0.01", "0.02\\n"]', r"\boxed{0.02}", 1, (1.0, 1.0, (), ())),
        ("[1, 2]", r"\boxed{[1,2]}", 1, (1.0, 1.0, (), ())),
    ],
)
def test_values_and_reasons(gold: str, response: str, length: int, expected: tuple) -> None:
    assert scored(MathReward(), gold, response, length) == expected


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (r"it is \boxed{42}, but let me check", (0.0, ("unfinished_thinking",))),
        (r"hm</think> \boxed{42} because", (1.0, ())),
    ],
)
def test_a_response_cut_off_while_thinking_has_no_answer(response: str, expected: tuple) -> None:
    vector = MathReward()(Row("q", {}, "42"), Rollout("q", 0, response, 8000, truncated=True))
    assert (vector["correct"], vector.reasons["correct"]) == expected


def test_a_gold_that_cannot_be_read_is_nan_and_never_one() -> None:
    correct, length, why, _ = scored(MathReward(), r"\text{see figure}", r"\boxed{\text{see figure}}")
    assert math.isnan(correct)
    assert (length, why) == (1.0, ("gold_placeholder",))


def test_the_limit_can_be_set_and_a_batch_gives_what_single_calls_give() -> None:
    reward = MathReward(length_limit=5)
    rows = [Row("a", {}, "1"), Row("b", {}, r"\sqrt{8}"), Row("c", {}, "")]
    rollouts = [
        Rollout("a", 0, r"\boxed{1}", 5), Rollout("b", 0, r"\boxed{2\sqrt2}", 6), Rollout("c", 0, r"\boxed{1}", 1)
    ]  # fmt: skip
    together = reward.score_many(rows, rollouts)
    apart = [reward(row, rollout) for row, rollout in zip(rows, rollouts, strict=True)]
    assert [str(vector) for vector in together] == [str(vector) for vector in apart]
    assert [vector["length"] for vector in together] == [1.0, 0.0, 1.0]
    assert [vector["correct"] for vector in together[:2]] == [1.0, 1.0]


def test_every_reason_has_a_meaning() -> None:
    responses = ["", r"\boxed{", r"\boxed{}", "<think>", r"\boxed{2}", r"\boxed{" + "x+" * 2000 + "1}"]
    grades = grade_many(responses, ["1"] * len(responses))
    grades += grade_many(
        [r"\boxed{1}"] * 4, ["", r"\text{see figure}", "{1", "one two three four five six seven eight nine"]
    )
    assert {grade.reason for grade in grades} - {""} <= set(REASONS)
    assert len({grade.reason for grade in grades}) == 10


@pytest.mark.parametrize(
    ("response", "thinking", "correct"),
    [
        (r"thought \boxed{1}", "auto", True),
        (r"thought \boxed{1}", "required", False),
        (r"thought</think> \boxed{1}", "required", True),
        (r"\boxed{1}</think> so", "auto", False),
        (r"\boxed{1}</think> so", "ignored", True),
        (r"<think> \boxed{1}", "auto", False),
        (r"<think> \boxed{1}", "ignored", True),
    ],
)
def test_thinking(response: str, thinking: str, correct: bool) -> None:
    assert grade(response, "1", thinking=thinking).correct is correct


@pytest.mark.parametrize(
    ("gold", "answer", "strict", "math_verify", "dler_compat"),
    [
        (r"\frac{1}{2}", r"\frac{1}{2}", True, True, True),
        ("2^{2023}", "2^{2024}", False, False, True),  # bare strings: the first number only
        ("10^{-3}", "10^{3}", False, False, True),
        (r"\frac{1}{5^{40}}", r"\frac{1}{5^{41}}", False, True, False),  # 15 digits after the point
        ("2", "2,2", False, True, False),
        ("7!", "5040", True, True, False),
        (r"\sqrt{8}", r"2\sqrt{2}", True, True, True),
        ("300000000", "3e8", True, False, True),
        (r"[\sqrt{5},\infty)", r"t\ge\sqrt{5}", True, False, False),
    ],
)
def test_where_the_graders_differ(gold: str, answer: str, strict: bool, math_verify: bool, dler_compat: bool) -> None:
    response = rf"</think>The answer is $\boxed{{{answer}}}$."
    verdicts = [grade(response, gold, grader=grader).correct for grader in ("strict", "math_verify", "dler_compat")]
    assert verdicts == [strict, math_verify, dler_compat]


def test_the_group_grader_wants_thinking_that_ends_and_reads_after_the_first_end() -> None:
    assert grade(r"\boxed{1}", "1", grader="dler_compat").reason == "unfinished_thinking"
    assert grade(r"a</think>\boxed{1}</think>no box", "1", grader="dler_compat").correct is True
    assert grade(r"a</think>\boxed{1}</think>no box", "1").correct is False


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: grade(None, "1"), InputError, "response is a NoneType"),
        (lambda: grade("1", 1), InputError, "gold is 1"),
        (lambda: grade("1", []), InputError, "gold is []"),
        (lambda: grade("1", "1", grader="strikt"), UnknownNameError, "Did you mean 'strict'?"),
        (lambda: grade("1", "1", thinking="maybe"), UnknownNameError, "unknown thinking 'maybe'"),
        (lambda: grade_many(["1"], []), InputError, "1 responses and 0 golds"),
        (lambda: MathReward(length_limit=0), InputError, "length_limit is 0"),
        (lambda: MathReward(length_limit=True), InputError, "length_limit is True"),
        (lambda: MathReward(num_workers=-1), InputError, "num_workers is -1"),
        (lambda: MathReward(grader="dler"), UnknownNameError, "dler_compat"),
        (lambda: MathReward(thinking="on"), UnknownNameError, "required"),
    ],
)
def test_wrong_arguments_are_named(call, error: type[Exception], says: str) -> None:
    with pytest.raises(error) as raised:
        call()
    assert says in str(raised.value)


def test_what_a_row_accepts() -> None:
    assert accepted_answers('["a", "b"]') == ["a", "b"]
    assert accepted_answers("[1, 2]") == ["[1, 2]"]
    assert accepted_answers('["a", 1]') == ['["a", 1]']
    assert accepted_answers('["a"') == ['["a"']


def test_no_reason_of_a_verdict_is_taken_for_a_reward_that_did_not_answer() -> None:
    """Such codes mask the sample (gdpo_nemo.rewards.scoring.is_failure); only the caller's deadline has one."""
    assert [code for code in REASONS if is_failure(code)] == [OVER_BUDGET]
