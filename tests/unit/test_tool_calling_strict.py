"""Mode strict: sections, lines of a block, equality of values, the formula."""

from __future__ import annotations

import json
import math

import pytest

from gdpo_nemo.rewards.tool_calling import score
from gdpo_nemo.rewards.tool_calling.calls import MAX_CALLS, MAX_DEPTH, Call, read_block
from gdpo_nemo.rewards.tool_calling.matching import best_pairs, correctness, values_match
from gdpo_nemo.rewards.tool_calling.sections import outline_of
from gdpo_nemo.rewards.tool_calling.strict import read_reference

F = '{"name": "f", "parameters": {"a": 1}}'
G = '{"name": "g", "parameters": {}}'
THOUGHT = "<think> t </think>"


def completion(*lines: str) -> str:
    return f"{THOUGHT}\n<tool_call>\n" + "\n".join(lines) + "\n</tool_call>"


@pytest.mark.parametrize(
    ("text", "expected", "stray"),
    [
        ("", [], set()),
        ("<think>a</think>", [("think", "a", True, False)], set()),
        ("<think><tool_call></response></think>", [("think", "<tool_call></response>", True, False)], set()),
        ("<think><think></think></think>", [("think", "<think>", True, False)], {"think"}),
        ("<think>a", [("think", "a", False, False)], set()),
        (
            "<tool_call><think></tool_call></think>",
            [("tool_call", "<think>", True, False)],
            {"think"},
        ),
        (
            "<response>a<tool_call>b</tool_call></response>",
            [("response", "a<tool_call>b</tool_call>", True, False), ("tool_call", "b", True, True)],
            set(),
        ),
        ("<response></tool_call><response></response>", [("response", "</tool_call><response>", True, False)], None),
        (
            "<response><tool_call>b</response>",
            [("response", "<tool_call>b</response>", False, False), ("tool_call", "b</response>", False, True)],
            set(),
        ),
    ],
)
def test_sections(text, expected, stray):
    outline = outline_of(text)
    assert [(s.kind, s.body, s.closed, s.nested) for s in outline.sections] == expected
    assert outline.stray == ({"tool_call", "response"} if stray is None else stray)
    for section in outline.sections:
        assert text[section.start : section.end].startswith(f"<{section.kind}>{section.body}")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ('{"function": "foo"}', "missing_name"),
        ("3", "not_an_object"),
        ("null", "not_an_object"),
        (f"[{F}]", "not_an_object"),
        ('{"name": ["f"], "parameters": {}}', "name_not_string"),
        ('{"name": "", "parameters": {}}', "name_not_string"),
        ('{"name": "f"}', "missing_parameters"),
        ('{"name": "f", "arguments": {}}', "arguments_key"),
        ('{"name": "f", "parameters": [1]}', "parameters_not_object"),
        ('{"name": "f", "parameters": "{}"}', "parameters_not_object"),
        (F[:-1] + ', "id": 7}', "extra_keys"),
        ('{"name": "f", "name": "f", "parameters": {}}', "duplicate_keys"),
        ('{"name": "f", "parameters": {"a": {"b": 1, "b": 2}}}', "duplicate_keys"),
        ('{"name": "f", "parameters": {"a": -Infinity}}', "non_finite_number"),
        (f"{F} {F}", "extra_data"),
        (F + ",", "extra_data"),
        ("{'name': 'f'}", "not_json"),
        ("\ufeff" + F, "not_json"),
        ("\u00a0", "not_json"),
        ("```", "code_fence"),
        ("[" * 100_000, "too_deep"),
    ],
)
def test_a_malformed_line_is_named_and_the_other_lines_still_count(line, code):
    read = read_block(f"\n{line}\n{F}\n")
    assert (read.calls, read.num_malformed, read.reasons) == ((Call("f", {"a": 1}),), 1, (code,))
    result = score(completion(line, F), completion(F))
    assert result["format"] == 0
    assert result["correct"] == pytest.approx(6 * (1 / 2 + 2) / 3 - 3)


def test_blank_lines_and_carriage_returns_are_no_mistake():
    result = score(completion("", F + "\r", "  ", "\t" + G + " "), completion(F, G))
    assert (result["format"], result["correct"]) == (1, 3)


def test_nesting_is_allowed_up_to_the_limit():
    def nested(depth: int) -> str:
        return '{"name": "f", "parameters": {"a": ' + "[" * (depth - 2) + "]" * (depth - 2) + "}}"

    assert score(completion(nested(MAX_DEPTH)), completion(nested(MAX_DEPTH)))["correct"] == 3
    assert read_block(nested(MAX_DEPTH + 1)).reasons == ("too_deep",)
    wide = json.dumps({"name": "f", "parameters": {"a": [[] for _ in range(3 * MAX_DEPTH)]}})
    assert score(completion(wide), completion(wide))["correct"] == 3


@pytest.mark.parametrize("argument", ["<tool_call>", "<think>", "</think>", "<response> x </response>"])
def test_tags_inside_an_argument_are_text(argument):
    text = completion(json.dumps({"name": "f", "parameters": {"a": argument}}))
    result = score(text, text)
    assert (result["format"], result["correct"]) == (1, 3)


def test_a_closing_call_tag_inside_an_argument_ends_the_block():
    text = completion('{"name": "f", "parameters": {"a": "</tool_call>"}}')
    assert score(text, completion(F))["correct"] == -3
    assert math.isnan(score(text, text)["correct"])


@pytest.mark.parametrize(
    ("gold", "reasons"),
    [
        (completion("{"), ("gold_unparsable", "not_json")),
        (completion('{"name": "f", "parameters": {"a": NaN}}'), ("gold_unparsable", "non_finite_number")),
        (completion(F, '{"name": "f"}'), ("gold_schema", "missing_parameters")),
        (completion('{"name": "f"}', "{"), ("gold_unparsable", "missing_parameters", "not_json")),
        (completion(""), ("gold_unparsable", "empty_call_block")),
        (f"{THOUGHT}\n<tool_call>\n{F}", ("gold_unparsable", "unclosed_call")),
        (f"{completion(F)}\n<tool_call>\n{F}\n</tool_call>", ("gold_unparsable", "several_blocks")),
        (f"{THOUGHT}\n{F}\n</tool_call>", ("gold_unparsable", "stray_tag")),
    ],
)
def test_an_unusable_reference_gives_nan_and_says_why(gold, reasons):
    assert read_reference(gold).reasons == reasons
    for response in ("", completion(F), gold):
        result = score(response, gold)
        assert math.isnan(result["correct"])
        assert result.reasons["correct"] == reasons
        assert result["format"] in (0, 1)


@pytest.mark.parametrize(
    ("gold", "predicted", "equal"),
    [
        (1, 1, True),
        (1, True, False),
        (True, 1, False),
        (0.0, False, False),
        (True, True, True),
        (5.0, 5, True),
        (5, 5.0, False),
        (5.5, 5, False),
        ([1.0], [1], True),
        ([1], [1.0], False),
        (2**53 + 1, float(2**53), False),
        (float(2**53), 2**53 + 1, False),
        ("1", 1, False),
        ("a", "A", False),
        ("a", "a ", False),
        (None, None, True),
        (None, False, False),
        ([1, 2], [2, 1], False),
        ([], {}, False),
        ({"a": 1, "b": [True]}, {"b": [True], "a": 1}, True),
        ({"a": 1, "b": [True]}, {"b": [1], "a": 1}, False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
    ],
)
def test_equality_of_values(gold, predicted, equal):
    assert values_match(gold, predicted) is equal


def test_formula_by_hand():
    gold = [Call("f", {"a": 1, "b": 2}), Call("g", {})]  # S_max = 1 + 3 + 1
    made = [Call("f", {"b": 2, "c": 0}), Call("h", {})]
    # names: 1 shared of 3; keys of f: 1 shared of 3; one equal value; g unmatched
    value, reasons = correctness(gold, made, 0)
    assert value == pytest.approx(6 * (1 / 3 + 1 / 3 + 1) / 5 - 3)
    assert reasons == ("extra_argument", "extra_call", "missing_argument", "missing_call")
    value, reasons = correctness(gold, [*gold[::-1]], 0)
    assert (value, reasons) == (3.0, ())
    value, _ = correctness(gold, gold, 3)
    assert value == pytest.approx(6 * (2 / 5 + 3 + 1) / 5 - 3)


def test_assignment_is_optimal_where_the_first_best_is_not():
    assert sorted(best_pairs([[3.0, 2.0], [3.0, 0.0]])) == [(0, 1), (1, 0)]
    assert best_pairs([[1.0, 2.0, 2.0]]) == [(0, 1)]
    assert best_pairs([[1.0], [2.0]]) == [(1, 0)]
    assert best_pairs([]) == best_pairs([[], []]) == []


def test_calls_beyond_the_limit_count_as_malformed():
    gold = completion(F)
    inside, beyond = completion(*[G] * (MAX_CALLS - 1), F), completion(*[G] * MAX_CALLS, F)
    assert score(inside, gold)["correct"] == pytest.approx(6 * (1 / MAX_CALLS + 2) / 3 - 3)
    result = score(beyond, gold)
    assert result["correct"] == -3
    assert "too_many_calls" in result.reasons["correct"]
    assert "malformed_call" in result.reasons["format"]


def test_a_longer_reference_raises_the_limit():
    lines = [json.dumps({"name": "f", "parameters": {"a": i}}) for i in range(MAX_CALLS + 44)]
    result = score(completion(*lines[::-1]), completion(*lines))
    assert (result["format"], result["correct"]) == (1, 3)


@pytest.mark.parametrize("text", ["", "hello", "<think> t", "</tool_call>", "<response> r </response>", THOUGHT])
def test_no_call_wanted_and_none_made(text):
    assert score(text, f"{THOUGHT}\n<response> r </response>")["correct"] == 3


@pytest.mark.parametrize("attempt", ["<tool_call>", "<tool_call>\n\n</tool_call>", f"<response> <tool_call>{F}"])
def test_an_opened_block_is_a_call_even_when_broken_or_empty(attempt):
    result = score(f"{THOUGHT}\n{attempt}", f"{THOUGHT}\n<response> r </response>")
    assert (result["format"], result["correct"]) == (0, -3)
    assert "unwanted_call" in result.reasons["correct"]


@pytest.mark.parametrize(
    ("response", "gold"),
    [
        ("x" + completion(F), completion(F)),
        (completion(F) + "x", completion(F)),
        (completion(F) + f"\n{THOUGHT}", completion(F)),
        (completion(F).replace("\n<tool", "<tool"), completion(F)),
        (completion(F).replace("\n</tool", "</tool"), completion(F)),
        (completion(F) + "\n<response> r </response>", completion(F)),
        (f"{THOUGHT}\n<response> r </response></response>", f"{THOUGHT}\n<response> r </response>"),
        (f"{THOUGHT}\n<response> \n </response>", f"{THOUGHT}\n<response> r </response>"),
        (f"{THOUGHT}\n<response> r", f"{THOUGHT}\n<response> r </response>"),
        (f"{THOUGHT}\n<response> <|eot_id|> </response>", f"{THOUGHT}\n<response> r </response>"),
        (THOUGHT + "x", THOUGHT),
        ("", THOUGHT),
    ],
)
def test_near_misses_of_the_format(response, gold):
    result = score(response, gold)
    assert result["format"] == 0
    assert result.reasons["format"]


def test_surrounding_white_space_is_no_mistake():
    assert score(f" \n{completion(F)}\r\n", completion(F))["format"] == 1
    assert score(THOUGHT, f"{THOUGHT}\n")["format"] == 1
