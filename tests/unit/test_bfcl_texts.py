"""Calls in a model's text, and Correct Format."""

import json

import pytest

from gdpo_nemo.evaluation.bfcl.decoding import native_calls, native_steps, native_text, toolrl_calls, toolrl_steps
from gdpo_nemo.evaluation.bfcl.formats import correct_format, correct_format_strict

F, G = '{"name": "f", "parameters": {"a": 1}}', '{"name": "g", "parameters": {}}'


def block(*lines):
    return "<think> t </think>\n<tool_call>\n" + "\n".join(lines) + "\n</tool_call>"


@pytest.mark.parametrize(
    ("text", "calls", "broken"),
    [
        (block(F, G), [{"f": {"a": 1}}, {"g": {}}], False),
        ("<think> t </think>\n<response> no </response>", [], False),
        ("", [], False),
        (block('{"name": "None", "parameters": {}}'), [], False),
        (block('{"name": "none"}'), [], False),
        (block(F[:-2]), [], True),
        (block(F, F[:-2]), [{"f": {"a": 1}}], True),
        (block(F) + "\n" + block(G), [{"g": {}}], False),
        ("<tool_call>" + F, [{"f": {"a": 1}}], True),
        (block(""), [], True),
        (block('{"name": "f"}'), [], True),
        (block('{"name": "f", "parameters": [1]}'), [{"f": [1]}], True),
        (block('{"name": 3, "parameters": {}}', "7", "null", '["f"]'), [], True),
        (block("[" * 100_000), [], True),
        (f"<think> <tool_call>\n{F}\n</tool_call> </think>\n<response> r </response>", [{"f": {"a": 1}}], False),
        ("<think> I use <tool_call> here </think>\n<response> r </response>", [], False),
    ],
)
def test_calls_as_the_handler_of_toolrl_reads_them(text, calls, broken):
    decoded = toolrl_calls(text)
    assert (decoded.calls, decoded.broken) == (calls, broken)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        (block(F, "not json", G), [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]),
        (block('{"name": "g"}'), [{"name": "g", "arguments": {}}]),  # without parameters: carried out, not compared
        (block('{"parameters": {}}', "3"), [{"name": "", "arguments": {}}]),
        (block(F, '{"name": "NONE"}'), [{"name": "f", "arguments": {"a": 1}}]),
        (block(F, '{"name": "g", "parameters": [1]}'), []),
        (block(F, '{"name": null, "parameters": {}}'), []),
        ("no call", []),
    ],
)
def test_calls_that_are_carried_out(text, steps):
    assert toolrl_steps(text) == steps


def test_native_calls_are_written_back_into_the_text_and_read_from_it():
    tool_calls = [
        {"function": {"name": "a_b", "arguments": '{"x": [1]}'}},
        {"function": {"name": "c", "arguments": ""}},
    ]
    text = native_text("I call.", tool_calls)
    assert native_steps(text) == [{"name": "a_b", "arguments": {"x": [1]}}, {"name": "c", "arguments": {}}]
    assert native_calls(text).calls == [{"a_b": {"x": [1]}}, {"c": {}}]
    assert native_text("only text", ()) == "only text"


@pytest.mark.parametrize("arguments", ['{"x": 1', "[1]", "3", "null"])
def test_one_broken_native_call_voids_all(arguments):
    text = native_text(
        "", [{"function": {"name": "f", "arguments": "{}"}}, {"function": {"name": "g", "arguments": arguments}}]
    )
    assert native_calls(text).calls == []
    assert native_calls(text).broken


def test_a_native_call_that_was_only_thought_of_is_none():
    call = native_text("", [{"function": {"name": "f", "arguments": "{}"}}])
    thought = f"<think>\n{call}\n</think>\nNo."
    assert (native_steps(thought), native_calls(thought).broken) == ([], False)
    assert native_steps(f"{thought}\n{call}") == [{"name": "f", "arguments": {}}]
    assert native_steps(f"<think>\n<tool_call>\n3\n</tool_call>\n</think>\n{call}") == [{"name": "f", "arguments": {}}]


R = "<think> a </think>\n<response> r </response>"


@pytest.mark.parametrize(
    ("text", "shape", "strict"),
    [
        (block(F), 1, 1),
        (R, 1, 1),
        (block(F) + "\n<response> r </response>", 1, 1),
        (F, 0, 0),
        ("<think> a </think> hello", 0, 0),
        ("<think> a </think>", 0, 0),
        (f"<tool_call>\n{F}\n</tool_call>", 0, 0),
        ("<think> a </think>\n<response> r </response>\n" + f"<tool_call>\n{F}\n</tool_call>", 0, 0),
        (f" {R}\n", 1, 1),
        (block(F[:-1]), 1, 0),
        (block(F, "junk"), 1, 0),
        (block(""), 1, 0),
        (block(F) + "\n" + block(F), 0, 0),
        (f"<think> a </think>\n<response> <tool_call>\n{F}\n</tool_call> </response>", 1, 0),
        (json.dumps({"name": "f"}), 0, 0),
        ("", 0, 0),
    ],
)
def test_correct_format(text, shape, strict):
    assert (correct_format(text), correct_format_strict(text)) == (bool(shape), bool(strict))
