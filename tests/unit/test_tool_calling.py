"""The tool-calling reward: public interface, and a table of known inputs with their values in both modes."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from gdpo_nemo.errors import InputError, UnknownNameError
from gdpo_nemo.rewards import Reward, build_reward
from gdpo_nemo.rewards.tool_calling import REASONS, ToolCallingReward, score
from gdpo_nemo.types import Rollout, Row

NAN = math.nan
THOUGHT = "<think> t </think>"
TALK = f"{THOUGHT}\n<response> r </response>"


def call(name: str, **parameters: object) -> str:
    return json.dumps({"name": name, "parameters": parameters}, ensure_ascii=False)


def block(*lines: str) -> str:
    return "<tool_call>\n" + "\n".join(lines) + "\n</tool_call>"


def completion(*lines: str) -> str:
    return f"{THOUGHT}\n{block(*lines)}"


F = call("f", a=1, b=2)  # S_max = 4
G = call("g", c="x")
F1, F9 = call("f", a=1), call("f", a=9)
GOLD = completion(F)
BOTH = f"{GOLD}\n<response> r </response>"
PRETTY = json.dumps(json.loads(F), indent=2)
DEEP = '{"name": "f", "parameters": {"a": ' + "[" * 100_000 + "}}"
HUGE = '{"name": "f", "parameters": {"a": ' + "9" * 5000 + "}}"


def decomposed(text: str) -> str:
    return text.replace("é", "e\u0301")


# id: gold, response, (format, correct) in toolrl, (format, correct) in strict
TABLE: dict[str, tuple[str, str, tuple[float, float], tuple[float, float]]] = {
    "01 greedy tie steals the exact match": (
        completion(call("f", a=1, b=9), call("f", a=1, b=2)),
        completion(call("f", a=1, b=2), call("f", a=1, b=7)),
        (1, 9 / 7),
        (1, 15 / 7),
    ),
    "02 greedy depends on the order of the reference": (
        completion(call("f", a=1, b=2), call("f", a=1, b=3)),
        completion(call("f", a=1, b=3), call("f", a=9, b=2)),
        (1, 3 / 7),
        (1, 15 / 7),
    ),
    "03 duplicated call": (GOLD, completion(F, F), (1, 2.25), (1, 2.25)),
    "04 sixteen more calls of the name": (
        GOLD,
        completion(F, *[call("f", z=i) for i in range(16)]),
        (1, (1 / 17 + 3) * 1.5 - 3),
        (1, (1 / 17 + 3) * 1.5 - 3),
    ),
    "05 one of two calls, duplicated reference": (completion(F1, F1), completion(F1), (1, 0), (1, 0)),
    "05 one of two calls": (completion(F1, F9), completion(F1), (1, 0), (1, 0)),
    "06 true for 1": (completion(F1), completion(call("f", a=True)), (1, 3), (1, 1)),
    "06 false for 0": (completion(call("f", a=0)), completion(call("f", a=False)), (1, 3), (1, 1)),
    "06 1 for true": (completion(call("f", a=True)), completion(F1), (1, 3), (1, 1)),
    "06 1.0 for 1": (completion(F1), completion(call("f", a=1.0)), (1, 3), (1, 1)),
    "06 1 for 1.0": (completion(call("f", a=1.0)), completion(F1), (1, 3), (1, 3)),
    "07 number for string": (completion(call("f", a="1")), completion(F1), (1, 1), (1, 1)),
    "08 NFD for NFC": (completion(call("f", c="café")), completion(decomposed(call("f", c="café"))), (1, 1), (1, 1)),
    "09 unwanted call inside the response": (
        TALK,
        f"{THOUGHT}\n<response> <tool_call>\n{F}\n</tool_call> </response>",
        (1, 0),
        (0, -3),
    ),
    "09 call inside think, none wanted": (
        TALK,
        f"<think> {block(F)} </think>\n<response> r </response>",
        (1, 0),
        (1, 3),
    ),
    "09 no call wanted, none made": (TALK, TALK, (1, 0), (1, 3)),
    "10 call instead of response": (TALK, GOLD, (0, 0), (0, -3)),
    "11 right block in think, wrong block after": (
        GOLD,
        f"<think> {block(F)} </think>\n{block(G)}",
        (0, 3),
        (1, -3),
    ),
    "12 think names the tag": (GOLD, f"<think> a <tool_call> now </think>\n{block(F)}", (0, -3), (1, 3)),
    "13 two blocks, right one first": (GOLD, f"{completion(F)}\n{block(G)}", (0, 3), (0, -3)),
    "13 two blocks, wrong one first": (GOLD, f"{completion(G)}\n{block(F)}", (0, -3), (0, 3)),
    "13 second opening tag inside the block": (GOLD, completion(F, "<tool_call>", "{"), (0, 3), (0, 2)),
    "14 no think": (GOLD, block(F), (0, 3), (0, 3)),
    "14 prose around": (GOLD, f"Well. {GOLD} Done.", (0, 3), (0, 3)),
    "14 closing tag first, block never closed": (
        GOLD,
        f"{THOUGHT}\n</tool_call>\n<tool_call>\n{F}\n",
        (0, 3),
        (0, -3),
    ),
    "14 block never closed": (GOLD, f"{THOUGHT}\n<tool_call>\n{F}", (0, -3), (0, -3)),
    "14 right block, then one never closed": (GOLD, f"{GOLD}\n<tool_call>\n{F}", (0, 3), (0, -3)),
    "15 empty block of one newline": (GOLD, f"{THOUGHT}\n<tool_call>\n</tool_call>", (0, -3), (0, -3)),
    "15 empty block": (GOLD, completion(""), (1, -3), (0, -3)),
    "16 code fence": (GOLD, completion("```json", F, "```"), (1, -3), (0, 2)),
    "16 pretty-printed": (GOLD, completion(PRETTY), (1, -3), (0, -3)),
    "16 blank line between calls": (completion(F, G), completion(F, "", G), (1, -3), (1, 3)),
    "16 list on one line": (completion(F, G), completion(f"[{F}, {G}]"), (1, -3), (0, -3)),
    "16 two objects on one line": (completion(F, G), completion(f"{F} {G}"), (1, -3), (0, -3)),
    "16 trailing comma": (GOLD, completion(F + ","), (1, -3), (0, -3)),
    "17 a right line and a malformed one": (GOLD, completion(F, "{"), (1, -3), (0, 2.25)),
    "18 more: other name without parameters": (GOLD, completion(F, '{"name": "zzz"}'), (1, 2.25), (0, 2.25)),
    "18 more: other name, null parameters": (
        GOLD,
        completion(F, '{"name": "zzz", "parameters": null}'),
        (1, 2.25),
        (0, 2.25),
    ),
    "18 more: same name without parameters": (GOLD, completion(F, '{"name": "f"}'), (1, -3), (0, 2.25)),
    "18 more: name that is a list": (GOLD, completion(F, '{"name": ["f"], "parameters": {}}'), (1, -3), (0, 2.25)),
    "19 extra top-level key": (GOLD, completion(F[:-1] + ', "id": 7}'), (1, 3), (0, -3)),
    "19 extra top-level key on both": (
        completion(F[:-1] + ', "id": 7}'),
        completion(F[:-1] + ', "id": 7}'),
        (1, 3),
        (0, NAN),
    ),
    "19 duplicate JSON key": (
        completion(F1),
        completion('{"name": "f", "parameters": {"a": 9, "a": 1}}'),
        (1, 3),
        (0, -3),
    ),
    "19 NaN in the response": (completion(F1), completion(call("f", a=NAN)), (1, 1), (0, -3)),
    "19 NaN on both": (completion(call("f", a=NAN)), completion(call("f", a=NAN)), (1, 3), (0, NAN)),
    "20 arguments for parameters": (GOLD, completion(F.replace("parameters", "arguments")), (1, -3), (0, -3)),
    "21 second closing think tag": (GOLD, f"{THOUGHT} JUNK </think>\n{block(F)}", (1, 3), (0, 3)),
    "21 two think blocks": (GOLD, f"{THOUGHT}\n{THOUGHT}\n{block(F)}", (1, 3), (0, 3)),
    "22 text before a role marker": (GOLD, f"anything\n{block(G)}<|im_start|>assistant\n{GOLD}", (1, 3), (0, 3)),
    "23 white space after the end": (GOLD, GOLD + " \n", (1, 3), (1, 3)),
    "23 blank line between sections": (GOLD, GOLD.replace("</think>\n", "</think>\n\n"), (0, 3), (0, 3)),
    "23 CRLF between sections": (GOLD, GOLD.replace("</think>\n", "</think>\r\n"), (0, 3), (0, 3)),
    "24 call without the response": (BOTH, GOLD, (0, 3), (0, 3)),
    "24 response before call": (BOTH, f"{TALK}\n{block(F)}", (0, 3), (0, 3)),
    "24 both": (BOTH, BOTH, (1, 3), (1, 3)),
    "25 reference names the tag in think": (
        f"<think> a <tool_call> now </think>\n{block(F)}",
        GOLD,
        (1, NAN),
        (1, 3),
    ),
    "25 reference names the tag in its response": (
        f"{THOUGHT}\n<response> write <tool_call> first </response>",
        TALK,
        (0, NAN),
        (0, NAN),
    ),
    "25 reference with a blank line": (completion(F, "", G), completion(F, G), (1, NAN), (1, 3)),
    "26 nesting 100000 deep": (GOLD, completion(DEEP), (1, -3), (0, -3)),
    "26 integer of 5000 digits": (GOLD, completion(HUGE), (1, -3), (0, -3)),
    "27 string with a trailing blank": (
        completion(call("f", a="x", b=2)),
        completion(call("f", a="x ", b=2)),
        (1, 1.5),
        (1, 1.5),
    ),
    "27 name in other case": (GOLD, completion(call("F", a=1, b=2)), (1, -3), (1, -3)),
    "27 name with a blank": (GOLD, completion(call("f ", a=1, b=2)), (1, -3), (1, -3)),
}


@pytest.mark.parametrize(("gold", "response", "toolrl", "strict"), TABLE.values(), ids=TABLE.keys())
def test_known_values(gold, response, toolrl, strict):
    for mode, expected in (("toolrl", toolrl), ("strict", strict)):
        result = score(response, gold, mode=mode)
        got = (result["format"], result["correct"])
        assert got == pytest.approx(expected, abs=1e-12, nan_ok=True), mode


def test_strict_is_the_default_and_full_marks_carry_no_code():
    result = score(GOLD, GOLD)
    assert dict(result.values) == {"format": 1.0, "correct": 3.0}
    assert dict(result.reasons) == {"format": (), "correct": ()}
    assert score(completion(call("f", a=True, b=2)), GOLD) == score(
        completion(call("f", a=True, b=2)), GOLD, mode="strict"
    )


def test_the_reward_keeps_the_protocol_and_the_mode():
    reward = build_reward("tool_calling", mode="toolrl")
    assert isinstance(reward, Reward)
    assert reward.names == ("format", "correct")
    assert dict(reward.ranges) == {"format": (0, 1), "correct": (-3, 3)}
    row, rollout = Row("r", {}, TALK), Rollout("r", 0, GOLD, length_tokens=9)
    assert reward(row, rollout)["correct"] == 0.0
    assert ToolCallingReward()(row, rollout)["correct"] == -3.0
    assert tuple(reward(row, rollout).values) == reward.names


def test_wrong_arguments_are_named():
    with pytest.raises(UnknownNameError, match="Did you mean 'strict'"):
        score(GOLD, GOLD, mode="strickt")
    with pytest.raises(UnknownNameError, match="toolrl"):
        ToolCallingReward(mode="released")
    with pytest.raises(InputError, match="mode is a NoneType"):
        ToolCallingReward(mode=None)
    with pytest.raises(InputError, match="response is a NoneType"):
        score(None, GOLD)
    with pytest.raises(InputError, match="gold is a list"):
        score(GOLD, [F])


def test_importing_the_reward_loads_neither_scipy_nor_torch():
    program = (
        "import sys, gdpo_nemo.rewards.tool_calling as t; t.score('<think></think>', '<tool_call>');"
        "sys.exit(bool({'scipy', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_shapes_of_correct_format():
    """Share of responses in one of the three shapes: think with a call, with a response, with both."""
    texts = {
        completion(call("f")): GOLD,
        "<think> a </think>\n<response> r </response>": TALK,
        block(call("f")): GOLD,
        "<think> a </think> hello": TALK,
    }
    for mode in ("toolrl", "strict"):
        assert sum(score(text, gold, mode=mode)["format"] for text, gold in texts.items()) / len(texts) == 0.5


# One input for every reason code: response, gold, mode.
EXAMPLES: dict[str, tuple[str, str, str]] = {
    "role_marker": (GOLD + "<|im_end|>", GOLD, "strict"),
    "stray_tag": (f"{THOUGHT} </think>\n{block(F)}", GOLD, "strict"),
    "unclosed_tag": (f"<think> t\n{block(F)}", GOLD, "strict"),
    "nested_section": (f"{THOUGHT}\n<response> {block(F)} </response>", TALK, "strict"),
    "missing_section": (block(F), GOLD, "strict"),
    "extra_section": (f"{GOLD}\n{block(F)}", GOLD, "strict"),
    "section_order": (f"{block(F)}\n{THOUGHT}", GOLD, "strict"),
    "section_spacing": (f"{THOUGHT}\n\n{block(F)}", GOLD, "strict"),
    "text_outside_sections": (f"{THOUGHT} so\n{block(F)}", GOLD, "strict"),
    "call_not_on_own_lines": (f"{THOUGHT}\n<tool_call>{F}</tool_call>", GOLD, "strict"),
    "malformed_call": (completion("{"), GOLD, "strict"),
    "empty_call_block": (completion(""), GOLD, "strict"),
    "empty_response": (f"{THOUGHT}\n<response> </response>", TALK, "strict"),
    "no_call": (TALK, GOLD, "strict"),
    "unwanted_call": (GOLD, TALK, "strict"),
    "unclosed_call": (f"{THOUGHT}\n<tool_call>\n{F}", GOLD, "strict"),
    "several_blocks": (f"{GOLD}\n{block(F)}", GOLD, "strict"),
    "too_many_calls": (completion(*[F] * 257), GOLD, "strict"),
    "not_json": (completion("f(a=1)"), GOLD, "strict"),
    "extra_data": (completion(f"{F} {G}"), GOLD, "strict"),
    "multi_line_json": (completion(PRETTY), GOLD, "strict"),
    "code_fence": (completion("```json", F, "```"), GOLD, "strict"),
    "non_finite_number": (completion(call("f", a=NAN)), GOLD, "strict"),
    "huge_integer": (completion(HUGE), GOLD, "strict"),
    "too_deep": (completion('{"name": "f", "parameters": {"a": ' + "[" * 63 + "]" * 63 + "}}"), GOLD, "strict"),
    "duplicate_keys": (completion('{"name": "f", "parameters": {"a": 1, "a": 1}}'), GOLD, "strict"),
    "not_an_object": (completion(f"[{F}]"), GOLD, "strict"),
    "missing_name": (completion('{"function": "f", "parameters": {}}'), GOLD, "strict"),
    "name_not_string": (completion('{"name": ["f"], "parameters": {}}'), GOLD, "strict"),
    "missing_parameters": (completion('{"name": "f"}'), GOLD, "strict"),
    "arguments_key": (completion('{"name": "f", "arguments": {}}'), GOLD, "strict"),
    "parameters_not_object": (completion('{"name": "f", "parameters": null}'), GOLD, "strict"),
    "extra_keys": (completion(F[:-1] + ', "id": 7}'), GOLD, "strict"),
    "missing_call": (GOLD, completion(F, G), "strict"),
    "extra_call": (completion(F, G), GOLD, "strict"),
    "missing_argument": (completion(F1), GOLD, "strict"),
    "extra_argument": (completion(call("f", a=1, b=2, c=3)), GOLD, "strict"),
    "wrong_value": (completion(call("f", a=1, b=3)), GOLD, "strict"),
    "gold_unparsable": (GOLD, completion("{"), "strict"),
    "gold_schema": (GOLD, completion('{"name": "f"}'), "strict"),
    "gold_without_call": (TALK, TALK, "toolrl"),
    "tag_count": (f"{GOLD}\n{block(F)}", GOLD, "toolrl"),
    "wrong_shape": (f" so {GOLD}", GOLD, "toolrl"),
    "unscorable_call": (completion("3"), GOLD, "toolrl"),
    "inexact_match": (completion(F1), GOLD, "toolrl"),
}


def test_every_reason_code_has_an_input_that_gives_it():
    assert set(EXAMPLES) == set(REASONS)
    for code, (response, gold, mode) in EXAMPLES.items():
        reasons = score(response, gold, mode=mode).reasons
        assert code in (*reasons["format"], *reasons["correct"]), code


def test_every_reason_code_is_documented():
    page = Path(__file__).parents[2] / "docs" / "tool-calling-reward.md"
    documented = {
        line.split("`")[1] for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| `")
    }
    assert documented >= set(REASONS)
