"""Properties of the math grader on generated answers and on any text."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gdpo_nemo.rewards.math import GRADERS, grade
from gdpo_nemo.rewards.math.answers import read
from gdpo_nemo.rewards.math.comparison import compare
from gdpo_nemo.rewards.math.exact import number
from gdpo_nemo.rewards.math.extraction import THINKING, final_answer
from gdpo_nemo.rewards.math.grading import _gold
from gdpo_nemo.rewards.math.notation import clean, key
from gdpo_nemo.rewards.math.written import exactly, undecided

MANY = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
LATEX = st.lists(
    st.sampled_from(
        [*"0123456789xyn+-*/^_=(){}[],.;:<>!|% $'", r"\frac", r"\sqrt", r"\boxed{", "}", r"\{", r"\}", r"\text{",
         r"\pm", r"\le", r"\cup", r"\begin{pmatrix}", r"\end{pmatrix}", r"\\", "&", r"\pmod", r"\infty", r"^\circ",
         r"\left(", r"\right)", " or ", " and ", "cm", "</think>", "e8", "√", "½", "−", "²", r"\$", r"\ldots", r"\in",
         r"\mathbb{R}"]
    ),
    max_size=30,
).map("".join)  # fmt: skip
ANY_TEXT = st.one_of(st.text(max_size=60), LATEX)
INTEGERS = st.integers(-(10**9), 10**9)


@MANY
@given(INTEGERS, st.integers(1, 10**6))
def test_a_fraction_equals_itself_in_every_spelling(top: int, bottom: int) -> None:
    spellings = [
        rf"\frac{{{top}}}{{{bottom}}}", f"{top}/{bottom}", rf"\dfrac{{{2 * top}}}{{{2 * bottom}}}",
        rf"x = {top} / {bottom}", rf"-\frac{{{-top}}}{{{bottom}}}",
    ]  # fmt: skip
    golds = [grade(rf"\boxed{{{answer}}}", gold).correct for gold in spellings for answer in spellings]
    assert all(golds)


@MANY
@given(INTEGERS, st.integers(0, 9))
def test_a_decimal_equals_its_fraction_and_not_its_neighbour(value: int, places: int) -> None:
    sign, digits = "-" * (value < 0), str(abs(value)).rjust(places + 1, "0")
    decimal = f"{sign}{digits[: len(digits) - places]}.{digits[len(digits) - places :]}" if places else str(value)
    fraction = rf"\frac{{{value}}}{{{10**places}}}"
    assert grade(rf"\boxed{{{decimal}}}", fraction).correct is True
    assert grade(rf"\boxed{{{fraction}}}", decimal).correct is True
    assert grade(rf"\boxed{{{decimal}}}", rf"\frac{{{value + 1}}}{{{10**places}}}").correct is False


@MANY
@given(st.fractions(max_denominator=10**6), st.fractions(max_denominator=10**6))
def test_two_fractions_are_equal_only_if_they_are(one: Fraction, other: Fraction) -> None:
    graded = grade(
        rf"\boxed{{\frac{{{one.numerator}}}{{{one.denominator}}}}}", f"{other.numerator}/{other.denominator}"
    )
    assert graded.correct is (one == other)
    assert graded.path == "exact"


@MANY
@given(INTEGERS)
def test_thousands_may_be_separated(value: int) -> None:
    for separator in (",", "{,}", r"\,", r",\!"):
        assert grade(rf"\boxed{{{f'{value:,}'.replace(',', separator)}}}", str(value)).correct is True


@MANY
@given(st.lists(INTEGERS, min_size=2, max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_a_list_does_not_count_and_its_length_does(values: list[int], random: object) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    gold, answer = ", ".join(map(str, values)), ", ".join(map(str, shuffled))
    assert grade(rf"\boxed{{{answer}}}", gold).correct is True
    assert grade(rf"\boxed{{\{{{answer}\}}}}", gold).correct is True
    assert grade(rf"\boxed{{{answer}, {shuffled[0]}}}", gold).correct is False
    assert grade(rf"\boxed{{({answer})}}", f"({gold})").correct is (values == shuffled)


@MANY
@given(LATEX)
def test_a_gold_equals_itself_or_is_not_graded(gold: str) -> None:
    gold = gold.strip()
    problem = _gold(gold).problem
    text = rf"\boxed{{{gold}}}"
    if final_answer(text, "ignored")[0] == gold:
        assert grade(text, gold, thinking="ignored").correct is (None if problem else True)


@settings(MANY, max_examples=400)
@given(ANY_TEXT, ANY_TEXT)
def test_no_text_breaks_the_part_that_runs_in_the_caller(one: str, other: str) -> None:
    for thinking in THINKING:
        answer, why = final_answer(one, thinking)
        assert (answer is None) == bool(why)
    gold, answer_tree = read(clean(one)), read(clean(other))
    assert compare(gold, answer_tree, exactly, undecided) in (True, False, None)
    assert compare(gold, gold, exactly, undecided) is not None or key(one)
    number(clean(one))


@settings(MANY, max_examples=10)
@given(LATEX, LATEX, st.sampled_from(GRADERS))
def test_no_text_breaks_the_workers(answer: str, gold: str, grader: str) -> None:
    assert grade(rf"</think>\boxed{{{answer}}}", gold, grader=grader).correct in (True, False, None)
