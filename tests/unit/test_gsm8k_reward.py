import math
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gdpo_nemo.errors import InputError, UnknownNameError
from gdpo_nemo.rewards import build_reward
from gdpo_nemo.rewards.gsm8k import MODES, NAMES, REASONS, Gsm8kReward, parse_number, score
from gdpo_nemo.types import Rollout, Row

SOLUTION = "Each of 3 boxes holds 6 pens.\nThat is 3 * 6 = <<3*6=18>>18 pens.\n#### 18"
GOOD = "<think>3 boxes of 6</think>\n<answer>18</answer>"


def values(response, gold="18", mode="strict"):
    found = score(response, gold, mode=mode)
    return tuple(found[name] for name in ("format", "correct", "integer"))


# response, gold, (format, correct, integer) released, the same strict
CASES = {
    "right": (GOOD, SOLUTION, (1, 1, 1), (1, 1, 1)),
    "wrong": (GOOD.replace("18<", "19<"), SOLUTION, (1, 0, 1), (1, 0, 1)),
    "blanks in the answer": (GOOD.replace("18<", " 18\n<"), "18", (1, 1, 1), (1, 1, 1)),
    "two lines of thought": (GOOD.replace("of", "of\n\n"), "18", (1, 1, 1), (1, 1, 1)),
    "one newline after": (f"{GOOD}\n", "18", (1, 1, 1), (1, 1, 1)),
    "two newlines after": (f"{GOOD}\n\n", "18", (0, 1, 1), (1, 1, 1)),
    "blank before": (f" {GOOD}", "18", (0, 1, 1), (1, 1, 1)),
    "text before": (f"Sure! {GOOD}", "18", (0, 1, 1), (0, 1, 1)),
    "text after": (f"{GOOD} Done.", "18", (0, 1, 1), (0, 1, 1)),
    "blank between": (GOOD.replace("\n", " "), "18", (0, 1, 1), (0, 1, 1)),
    "two newlines between": (GOOD.replace("\n", "\n\n"), "18", (0, 1, 1), (0, 1, 1)),
    "nothing between": (GOOD.replace("\n", ""), "18", (0, 1, 1), (0, 1, 1)),
    "text between": (GOOD.replace("\n", " so\n"), "18", (0, 1, 1), (0, 1, 1)),
    "no think section": ("<answer>18</answer>", "18", (0, 1, 1), (0, 1, 1)),
    "no tags at all": ("18", "18", (0, 1, 1), (0, 0, 0)),
    "number in prose": ("The answer is 18.", "18", (0, 0, 0), (0, 0, 0)),
    "answer never closed": (GOOD.removesuffix("</answer>"), "18", (0, 1, 1), (0, 0, 0)),
    "answer never opened": (GOOD.replace("<answer>", ""), "18", (0, 0, 0), (0, 0, 0)),
    "thought never closed": (GOOD.replace("</think>", ""), "18", (0, 1, 1), (0, 0, 0)),
    "answer first": ("<answer>18</answer>\n<think>t</think>", "18", (0, 1, 1), (0, 1, 1)),
    "answer in the thought": ("<think>t <answer>18</answer></think>", "18", (0, 1, 1), (0, 0, 0)),
    "answer in the thought and after it": (
        "<think><answer>18</answer></think>\n<answer>19</answer>", "18", (0, 0, 1), (1, 0, 1)
    ),
    "thought twice": ("<think>a</think><think>b</think>\n<answer>18</answer>", "18", (1, 1, 1), (0, 1, 1)),
    "thought ends twice": ("<think>a</think>b</think>\n<answer>18</answer>", "18", (1, 1, 1), (0, 1, 1)),
    "thought begins in the thought": ("<think>a<think>b</think>\n<answer>18</answer>", "18", (1, 1, 1), (1, 1, 1)),
    "right answer last of two": (f"{GOOD.replace('18', '19')}\n<answer>18</answer>", "18", (0, 1, 1), (0, 1, 1)),
    "right answer first of two": (f"{GOOD}\n<answer>19</answer>", "18", (0, 0, 1), (0, 0, 1)),
    "nested answer": ("<think>t</think>\n<answer><answer>18</answer></answer>", "18", (0, 1, 1), (0, 0, 0)),
    "thought in the answer": ("<think>t</think>\n<answer><think>18</think></answer>", "18", (1, 0, 0), (1, 0, 0)),
    "empty answer": ("<think>t</think>\n<answer> </answer>", "18", (1, 0, 0), (0, 0, 0)),
    "empty thought": ("<think></think>\n<answer>18</answer>", "18", (1, 1, 1), (1, 1, 1)),
    "upper case": (GOOD.upper(), "18", (0, 0, 0), (0, 0, 0)),
    "unit": (GOOD.replace("18<", "18 pens<"), "18", (1, 0, 0), (1, 0, 0)),
    "sentence": (GOOD.replace("18<", "There are 18<"), "18", (1, 0, 0), (1, 0, 0)),
    "currency": (GOOD.replace("18<", "$18<"), "18", (1, 0, 0), (1, 0, 0)),
    "equation": (GOOD.replace("18<", "3*6=18<"), "18", (1, 0, 0), (1, 0, 0)),
    "decimal": (GOOD.replace("18<", "18.0<"), "18", (1, 0, 0), (1, 1, 0)),
    "decimal, wrong": (GOOD.replace("18<", "18.5<"), "18", (1, 0, 0), (1, 0, 0)),
    "full stop": (GOOD.replace("18<", "18.<"), "18", (1, 0, 0), (1, 0, 0)),
    "plus": (GOOD.replace("18<", "+18<"), "18", (1, 0, 0), (1, 1, 1)),
    "leading zero": (GOOD.replace("18<", "018<"), "18", (1, 0, 1), (1, 1, 1)),
    "exponent": (GOOD.replace("18<", "1.8e1<"), "18", (1, 0, 0), (1, 0, 0)),
    "negative gold": (GOOD.replace("18<", "-3<"), "#### -3", (1, 1, 0), (1, 1, 1)),
    "separators in the gold": (GOOD.replace("18<", "1,080<"), "#### 1,080", (1, 1, 0), (1, 1, 1)),
    "separators in the gold only": (GOOD.replace("18<", "1080<"), "#### 1,080", (1, 0, 1), (1, 1, 1)),
    "separators in the answer only": (GOOD.replace("18<", "1,080<"), "1080", (1, 0, 0), (1, 1, 1)),
    "separators in the wrong place": (GOOD.replace("18<", "10,80<"), "1080", (1, 0, 0), (1, 0, 0)),
    "decimal gold": (GOOD.replace("18<", "2.50<"), "#### 2.5", (1, 0, 0), (1, 1, 0)),
    "superscript": (GOOD.replace("18<", "²<"), "2", (1, 0, 1), (1, 0, 0)),
    "digits of another script": (GOOD.replace("18<", "١٨<"), "18", (1, 0, 1), (1, 0, 0)),
    "gold twice": (GOOD, "a #### 18 b #### 19", (1, 0, 1), (1, None, 1)),
    "gold in words": (GOOD.replace("18<", "eighteen<"), "eighteen", (1, 1, 0), (1, None, 0)),
    "many digits": (GOOD.replace("18<", "1" * 5000 + "<"), "1" * 5000, (1, 1, 1), (1, None, 0)),
    "nothing": ("", "18", (0, 0, 0), (0, 0, 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_cases_by_hand(name):
    response, gold, released, strict = CASES[name]
    assert values(response, gold, "released") == released
    expected = tuple(math.nan if value is None else value for value in strict)
    assert values(response, gold) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("response", "codes"),
    [
        ("</think>\n<answer>1</answer>", ["stray_tag"]),
        ("<think>t</think>\n<answer>1", ["unclosed_tag"]),
        ("<think>t</think>", ["missing_section"]),
        ("<answer>1</answer>", ["missing_section"]),
        ("<think>t</think>\n<answer>1</answer><answer>2</answer>", ["extra_section"]),
        ("<answer>1</answer>\n<think>t</think>", ["section_order"]),
        ("<think>t</think> <answer>1</answer>", ["section_spacing"]),
        ("<think>t</think>\n<answer>1</answer>.", ["text_outside_sections"]),
        ("<think>t</think>\n<answer></answer>", ["empty_answer"]),
        ("<think>t</think>\n<answer>1</answer>", []),
    ],
)
def test_every_fault_of_the_shape_has_its_code(response, codes):
    assert score(response, "18").reasons["format"] == tuple(codes)


def test_reasons_of_the_answer():
    def reasons(response, gold="18", mode="strict"):
        found = score(response, gold, mode=mode).reasons
        return found["correct"], found["integer"]

    assert reasons(GOOD) == ((), ())
    assert reasons("18") == (("no_answer",), ("no_answer",))
    assert reasons(GOOD.replace("18<", "19<")) == (("wrong",), ())
    assert reasons(GOOD.replace("18<", "18 pens<")) == (("not_a_number",), ("not_an_integer",))
    assert reasons(GOOD + GOOD) == (("several_answers",), ("several_answers",))
    assert reasons(GOOD, "many") == (("gold_unparsable",), ())
    assert reasons("18 pens", mode="released") == (
        ("no_answer_tag", "wrong"), ("no_answer_tag", "not_an_integer")
    )  # fmt: skip
    assert score("a", "1", mode="released").reasons["format"] == ("tag_count",)
    assert score("<answer>1</answer>", "1", mode="released").reasons["format"] == ("wrong_shape",)


PIECES = ["<think>", "</think>", "<answer>", "</answer>", "\n", " ", "18", "1,080", "-", ".0", " pens", "####"]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(PIECES), max_size=9).map("".join), st.sampled_from(["18", "-18", "1,080", "x #### 18"]))
def test_any_text_is_scored_within_the_ranges_and_explained(response, gold):
    reward = Gsm8kReward()
    for mode in MODES:
        found = score(response, gold, mode=mode)
        assert tuple(found.values) == NAMES == reward.names
        for name, value in found.values.items():
            assert value in reward.ranges[name]
            assert set(found.reasons[name]) <= set(REASONS)
            assert value == 1 or found.reasons[name]
    strict = score(response, gold)
    if strict["format"]:  # then there is one answer, and the number in it decides the other two
        said = response.rpartition("<answer>")[2].partition("</answer>")[0]
        assert strict["correct"] == (parse_number(said) == parse_number(gold.split()[-1]))


def test_numbers():
    good = {"18": 18, "-3": -3, "+3": 3, "1,000": 1000, "12,345,678.5": Fraction(24691357, 2), "0.10": Fraction(1, 10)}
    assert {text: parse_number(text) for text in good} == good
    for bad in ("", ".5", "5.", "1,00", "1,0000", ",100", "--3", "1 000", "1e3", "inf", "nan", "1/2", "１８", "1" * 65):
        assert parse_number(bad) is None, bad


def test_the_reward_is_found_by_its_task_and_takes_the_modes_it_has():
    reward = build_reward("gsm8k", mode="released")
    row, rollout = Row("r", {}, SOLUTION), Rollout("r", 0, "18", 1)
    assert reward(row, rollout).values == {"format": 0.0, "correct": 1.0, "integer": 1.0}
    assert build_reward("gsm8k")(row, rollout).values == {"format": 0.0, "correct": 0.0, "integer": 0.0}
    with pytest.raises(UnknownNameError, match="released"):
        build_reward("gsm8k", mode="release")
    with pytest.raises(InputError, match="mode is a int"):
        Gsm8kReward(mode=3)
    with pytest.raises(InputError, match="response is a NoneType"):
        score(None, "18")
