"""Properties that hold for every response: range, identity, order, monotonicity, optimality, and no exception."""

from __future__ import annotations

import itertools
import json
import math
import time
from collections import Counter

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gdpo_nemo.rewards.tool_calling import MODES, REASONS, score
from gdpo_nemo.rewards.tool_calling.matching import pair_weight

THOUGHT = "<think> t </think>"
FRAGMENTS = (
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<response>", "</response>", "\n", "\r\n", " ", "{", "}", "[",
    ",", '"', "\\", "```json", "NaN", "1e999", "9" * 5000, "[" * 3000, '{"name": "f", "parameters": {}}', "\ud800",
    "<|im_start|>assistant", "<|im_end|>", "\u2028", "\ufeff", '"arguments"', "null", "é",
)  # fmt: skip

texts = st.text(st.characters(), max_size=4)  # lone surrogates included
scalars = st.one_of(
    st.integers(-2, 2),
    st.booleans(),
    st.none(),
    st.sampled_from([0.5, 2.5]),
    st.sampled_from(["1", "x", "X"]),
    texts,
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
calls = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["f", "f", "g", "h"]),
        "parameters": st.dictionaries(st.sampled_from("abc"), values, max_size=3),
    }
)
small_calls = st.fixed_dictionaries(
    {"name": st.just("f"), "parameters": st.dictionaries(st.sampled_from("ab"), st.integers(1, 2), max_size=2)}
)
call_lists = st.lists(calls, min_size=1, max_size=4) | st.lists(small_calls, min_size=1, max_size=4)
edits = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 12), st.sampled_from(FRAGMENTS) | texts), max_size=3)
shapes = st.sampled_from(["call", "response", "both", "neither"])
run = settings(max_examples=80, deadline=None)


def completion(made: list, shape: str = "call") -> str:
    text = THOUGHT
    if shape in ("call", "both"):
        text += "\n<tool_call>\n" + "\n".join(map(json.dumps, made)) + "\n</tool_call>"
    if shape in ("response", "both"):
        text += "\n<response> r </response>"
    return text


def edited(text: str, changes: list[tuple[int, int, str]]) -> str:
    for position, length, fragment in changes:
        position %= len(text) + 1
        text = text[:position] + fragment + text[position + length :]
    return text


def check(response: str, gold: str) -> None:
    for mode in MODES:
        result = score(response, gold, mode=mode)
        assert list(result.values) == list(result.reasons) == ["format", "correct"]
        assert result["format"] in (0, 1)
        assert (result["format"] == 1) is (result.reasons["format"] == ())
        codes = result.reasons["correct"]
        assert set(codes) | set(result.reasons["format"]) <= set(REASONS)
        if math.isnan(result["correct"]):
            assert codes[0] in ("gold_unparsable", "gold_schema")
        else:
            assert -3 <= result["correct"] <= 3
            assert not {"gold_unparsable", "gold_schema"} & set(codes)
            assert mode == "toolrl" or result["correct"] == 3 or codes


def correct(predicted: list, gold: list, *more_lines: str, mode: str = "strict") -> float:
    text = completion(predicted)
    if more_lines:
        text = text.replace("\n</tool_call>", "".join(f"\n{line}" for line in more_lines) + "\n</tool_call>")
    return score(text, completion(gold), mode=mode)["correct"]


@run
@given(st.text(st.characters(), max_size=60), st.text(st.characters(), max_size=60))
def test_any_text_is_scored(response, gold):
    check(response, gold)


@run
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=14), st.lists(st.sampled_from(FRAGMENTS), max_size=14))
def test_any_mixture_of_fragments_is_scored(response, gold):
    check("".join(response), "".join(gold))


@settings(max_examples=250, deadline=None)
@given(call_lists, call_lists, shapes, shapes, edits, st.booleans())
def test_near_misses_are_scored(predicted, gold, shape, gold_shape, changes, same):
    reference = completion(gold, gold_shape)
    check(edited(completion(gold if same else predicted, shape), changes), reference)
    check(reference, edited(reference, changes))


@run
@given(call_lists, shapes)
def test_the_reference_has_full_marks_against_itself(gold, shape):
    text = completion(gold, shape)
    result = score(text, text)
    assert (result["format"], result["correct"], result.reasons["correct"]) == (1, 3, ())
    assume("<" not in json.dumps(gold))
    wanted = 3 if shape in ("call", "both") else 0
    assert tuple(score(text, text, mode="toolrl").values.values()) == (1, wanted)


def canonical(value: object) -> str:
    """JSON text with sorted keys: equal for equal values of equal types."""
    return json.dumps(value, sort_keys=True)


@run
@given(call_lists, call_lists, st.randoms(use_true_random=False), st.booleans())
def test_three_means_exact_up_to_order(predicted, gold, random, shuffled):
    if shuffled:
        predicted = random.sample(gold, len(gold))
    exact = Counter(map(canonical, predicted)) == Counter(map(canonical, gold))
    assert (correct(predicted, gold) == 3) is exact


@run
@given(call_lists, call_lists, st.randoms(use_true_random=False))
def test_order_of_calls_does_not_matter(predicted, gold, random):
    value = correct(predicted, gold)
    again = correct(random.sample(predicted, len(predicted)), random.sample(gold, len(gold)))
    assert again == pytest.approx(value, abs=1e-12)


def best_by_search(predicted: list, gold: list) -> float:
    """The formula with the best of all assignments, by trying every one."""
    names = Counter(c["name"] for c in gold), Counter(c["name"] for c in predicted)
    shared = (names[0] & names[1]).total()
    slots = [*range(len(predicted)), *[None] * len(gold)]

    def weight(want: dict, index: int | None) -> float:
        if index is None or predicted[index]["name"] != want["name"]:
            return 0.0
        return pair_weight(want["parameters"], predicted[index]["parameters"])

    best = max(sum(map(weight, gold, order)) for order in set(itertools.permutations(slots, len(gold))))
    return (
        6
        * (shared / (len(gold) + len(predicted) - shared) + best)
        / sum([1, *[1 + len(c["parameters"]) for c in gold]])
        - 3
    )


few_calls = st.lists(small_calls | calls, min_size=1, max_size=3)


@run
@given(few_calls, few_calls)
def test_the_assignment_is_the_best_one(predicted, gold):
    assert correct(predicted, gold) == pytest.approx(best_by_search(predicted, gold), abs=1e-12)


@run
@given(st.lists(small_calls, min_size=1, max_size=5), st.lists(small_calls, min_size=1, max_size=5))
def test_never_below_the_greedy_choice(predicted, gold):
    assert correct(predicted, gold) >= correct(predicted, gold, mode="toolrl") - 1e-12


parameter_sets = st.dictionaries(st.sampled_from("abc"), st.integers(0, 2), max_size=3)


@run
@given(st.lists(st.tuples(parameter_sets, parameter_sets), min_size=1, max_size=3), st.sampled_from("abc"))
def test_repairing_a_parameter_never_costs(pairs, key):
    """One call per name, so that the pairs are fixed: make the first call agree with the reference on one key."""
    gold = [{"name": f"f{i}", "parameters": wanted} for i, (wanted, _) in enumerate(pairs)]
    broken = [{"name": f"f{i}", "parameters": made} for i, (_, made) in enumerate(pairs)]
    wanted, made = pairs[0]
    repaired = {k: v for k, v in made.items() if k != key} | {k: v for k, v in wanted.items() if k == key}
    better = [{"name": "f0", "parameters": repaired}, *broken[1:]]
    assert correct(better, gold) >= correct(broken, gold)
    if key in wanted and repaired != made:
        assert correct(better, gold) > correct(broken, gold)


@run
@given(call_lists, call_lists)
def test_an_unknown_call_or_a_malformed_line_never_helps(predicted, gold):
    value = correct(predicted, gold)
    for line in ('{"name": "unknown", "parameters": {}}', "{", "3"):
        more = correct(predicted, gold, line)
        names_met = bool({c["name"] for c in predicted} & {c["name"] for c in gold})
        assert more < value if names_met else more == value == -3


@run
@given(call_lists)
def test_leaving_out_a_call_costs(gold):
    for index in range(len(gold)):
        fewer = gold[:index] + gold[index + 1 :]
        if fewer:
            assert correct(fewer, gold) < 3


@run
@given(call_lists, call_lists)
def test_duplicated_calls_cost(predicted, gold):
    assert correct([*gold, *predicted], gold) < 3


F = '{"name": "f", "parameters": {}}'
MEGABYTE = 1 << 20
LIMIT_S = 2.0  # of processor time; all of these take less than half a second on an idle core
LONG = {
    "think": "<think>" * (MEGABYTE // 7),
    "think pairs": "<think></think>" * (MEGABYTE // 15),
    "closing think": "</think>" * (MEGABYTE // 8),
    "call": "<tool_call>" * (MEGABYTE // 11),
    "call pairs": "<tool_call></tool_call>" * (MEGABYTE // 23),
    "starts": "<think></think>\n<tool_call>\n" * (MEGABYTE // 28),
    "nested": "<response><tool_call></tool_call>" * (MEGABYTE // 33),
    "markers": "<|im_start|>assistant" * (MEGABYTE // 21),
    "open markers": f"<|{'a' * 38}" * (MEGABYTE // 40),
    "newlines": f"{THOUGHT}\n<tool_call>{chr(10) * MEGABYTE}</tool_call>",
    "calls": f"{THOUGHT}\n<tool_call>\n{chr(10).join([F] * (MEGABYTE // 32))}\n</tool_call>",
    "bad lines": f"{THOUGHT}\n<tool_call>\n{chr(10).join(['{'] * 100_000)}\n</tool_call>",
    "brackets": f"{THOUGHT}\n<tool_call>\n{'[' * MEGABYTE}\n</tool_call>",
    "digits": f"{THOUGHT}\n<tool_call>\n{'9' * MEGABYTE}\n</tool_call>",
    "quotes": f"{THOUGHT}\n<tool_call>\n{chr(34) * MEGABYTE}\n</tool_call>",
    "spaces": f"{THOUGHT}\n<tool_call>\n{' ' * MEGABYTE}x\n</tool_call>",
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG.keys())
@pytest.mark.parametrize("mode", MODES)
def test_a_megabyte_takes_no_time_to_speak_of(text, mode):
    start = time.process_time()
    result = score(text, completion([json.loads(F)]), mode=mode)
    assert time.process_time() - start < LIMIT_S
    assert result["correct"] <= 0.1


def test_hundreds_of_calls_are_assigned_as_fast():
    gold = [{"name": "f", "parameters": {"a": i % 17, "b": i}} for i in range(300)]
    assert correct(gold[:1], gold[:1]) == 3  # loads scipy
    start = time.process_time()
    assert correct(gold[::-1], gold) == 3
    assert time.process_time() - start < LIMIT_S
