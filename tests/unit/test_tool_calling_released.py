"""Mode toolrl against values that the released code computed (qiancheng0/ToolRL at 8cee13e, all switches 0)."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from gdpo_nemo.rewards.tool_calling import score
from gdpo_nemo.rewards.tool_calling.released import scored_text

VECTORS = json.loads((Path(__file__).parents[1] / "data" / "tool_calling" / "released_vectors.json").read_text("utf-8"))
THOUGHT = "<think> t </think>"


def completion(*lines: str) -> str:
    return f"{THOUGHT}\n<tool_call>\n" + "\n".join(lines) + "\n</tool_call>"


F = '{"name": "f", "parameters": {"a": 1}}'


def test_the_vectors_reach_every_kind_of_value():
    corrects = [vector["correct"] for vector in VECTORS]
    assert len(VECTORS) >= 200
    assert {vector["format"] for vector in VECTORS} == {0, 1}
    assert {-3.0, 0.0, 3.0} < set(corrects)
    assert sum(-3 < value < 3 and value != 0 for value in corrects) >= 60


@pytest.mark.parametrize("vector", VECTORS, ids=range(len(VECTORS)))
def test_equal_to_the_last_bit(vector):
    result = score(vector["response"], vector["gold"], mode="toolrl")
    assert (result["format"], result["correct"]) == (vector["format"], vector["correct"])


@pytest.mark.parametrize(
    ("response", "scored"),
    [
        (" a \n", "a"),
        ("x<|im_start|>assistant\n a <|im_end|> b", "a"),
        ("1<|im_start|>assistant2<|im_start|>assistant3", "3"),
        ("a<|im_end|>b<|im_start|>assistant", ""),
        ("a<|im_end|>b<|im_end|>c", "a"),
        ("<|im_start|>user a", "<|im_start|>user a"),
    ],
)
def test_text_that_is_scored(response, scored):
    assert scored_text(response) == scored


@pytest.mark.parametrize("line", ["{", "[" * 100_000, '{"a": ' + "9" * 5000 + "}", "", f"{F}\n\n{F}"])
def test_an_unreadable_reference_is_nan_instead_of_a_crash(line):
    result = score(completion(F), completion(line), mode="toolrl")
    assert result["format"] == 1
    assert math.isnan(result["correct"])
    assert result.reasons["correct"] == ("gold_unparsable",)


def test_a_reference_without_a_call_is_zero_for_every_response():
    for response in ("", "x", completion(F), completion("{"), "<tool_call>"):
        for gold in ("", THOUGHT, f"{THOUGHT}\n<response> r </response>", "</tool_call>"):
            assert score(response, gold, mode="toolrl")["correct"] == 0


def test_a_reference_that_is_json_but_no_call_still_has_its_exact_match():
    for line in ("3", "[]", '{"name": ["f"]}', "null"):
        assert score(completion(line), completion(line), mode="toolrl")["correct"] == 3
        assert score(completion(F), completion(line), mode="toolrl")["correct"] == -3


def test_a_used_call_is_not_looked_at_again():
    """The faulty second reference call of the name meets no unused candidate, so nothing fails."""
    gold = completion(F, '{"name": "f", "parameters": "xy"}')
    result = score(completion(F), gold, mode="toolrl")
    assert result["correct"] == 6 * (1 / 2 + 2) / (1 + 2 + 3) - 3
    assert score(completion(F, F), gold, mode="toolrl")["correct"] == -3


def test_nan_equals_itself_only_inside_a_container():
    nan, nested = '{"name": "f", "parameters": {"a": NaN}}', '{"name": "f", "parameters": {"a": [NaN]}}'
    other = '{"name": "g", "parameters": {}}'
    assert score(completion(nan), completion(nan), mode="toolrl")["correct"] == 3
    assert score(completion(other, nan), completion(nan, other), mode="toolrl")["correct"] == 6 * 3 / 4 - 3
    assert score(completion(other, nested), completion(nested, other), mode="toolrl")["correct"] == 3


def test_a_second_opening_tag_ends_the_block():
    response = f"{THOUGHT}\n<tool_call>\n{F}\n<tool_call>\n{{\n</tool_call>"
    assert score(response, completion(F), mode="toolrl")["correct"] == 3
