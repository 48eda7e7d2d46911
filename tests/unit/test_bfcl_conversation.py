"""What a model is asked, turn by turn, with a scripted model and scripted tools."""

import asyncio
import hashlib
import json

import pytest

from gdpo_nemo.errors import UnknownNameError
from gdpo_nemo.evaluation.bfcl.checkers import CheckerError
from gdpo_nemo.evaluation.bfcl.conversation import MAX_STEPS, NativeStyle, ToolRLStyle, multi_turn, single_turn
from gdpo_nemo.evaluation.sampling import Completion, ContextOverflowError
from gdpo_nemo.prompts import toolrl

TOOL = {
    "name": "a.b",
    "description": "D é",
    "parameters": {"type": "dict", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
}
CALL, DONE = '<think> t </think>\n<tool_call>\n{"name": "f", "parameters": {"x": 1}}\n</tool_call>', "done"
USER = {"role": "user", "content": "u"}


def run(entry, style, answers, results=None):
    """The dialogue, the requests, and the steps that were carried out."""
    asked, carried_out, left = [], [], iter(answers)

    async def ask(messages, **changes):
        asked.append((messages, changes))
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Completion) else Completion(answer, "stop")

    async def execute(steps):
        carried_out.append([list(step) for step in steps])
        return results or [f"result {len(steps)}"] * len(steps[-1])

    return asyncio.run(multi_turn(entry, ask, style, execute)), asked, carried_out


def entry(*turns, tools=(TOOL,), held_out=None):
    return {"tools": list(tools), "turns": [[{"role": "user", "content": t}] if t else [] for t in turns]} | {
        "held_out": held_out or {}
    }


def test_a_turn_goes_on_until_nothing_is_called():
    dialogue, asked, steps = run(entry("one", "two"), ToolRLStyle(), [CALL, CALL, DONE, DONE])
    assert dialogue["turns"] == [[CALL, CALL, DONE], [DONE]]
    assert dialogue["ended"] == "done"
    assert [len(step) for step in steps] == [1, 2]
    last = asked[2][0][1]["content"]
    assert last.count("You have made the tool call f(x=1). Execution returns: result ") == 2
    assert "<user> two" not in last
    assert "<user> two" in asked[3][0][1]["content"]


def test_a_turn_without_end_ends_the_dialogue():
    dialogue, asked, _ = run(entry("one", "two"), ToolRLStyle(), [CALL] * 100)
    assert dialogue["ended"] == "too_many_steps"
    assert [len(turn) for turn in dialogue["turns"]] == [MAX_STEPS + 1] == [len(asked)]


def test_a_dialogue_that_no_longer_fits_is_an_answer():
    dialogue, _, _ = run(entry("one", "two"), ToolRLStyle(), [CALL, ContextOverflowError("too long")])
    assert dialogue == {"response": CALL, "turns": [[CALL]], "ended": "context_overflow"}


def test_calls_that_the_tools_do_not_survive_end_the_dialogue():
    async def ask(messages, **changes):
        return Completion(CALL, "stop")

    async def execute(steps):
        raise CheckerError("timeout")

    dialogue = asyncio.run(multi_turn(entry("one", "two"), ask, ToolRLStyle(), execute))
    assert dialogue == {"response": CALL, "turns": [[CALL]], "ended": "tools_failed"}


def test_tools_that_were_held_back_are_told_by_the_user():
    held = {"1": [{"name": "late"}]}
    _, asked, _ = run(entry("one", "", "three", held_out=held), ToolRLStyle(), [DONE] * 3)
    assert "[{'name': 'late'}]\nI have updated some more functions" in asked[1][0][1]["content"]
    assert asked[0][0][0] == asked[2][0][0]  # the system message stays as it was
    _, asked, _ = run(entry("one", "", "three", held_out=held), NativeStyle(), [DONE] * 3)
    assert [len(changes["extra"]["tools"]) for _, changes in asked] == [1, 2, 2]


def test_native_results_stand_under_the_ids_of_their_calls():
    calls = ({"function": {"name": "f", "arguments": '{"x": 1}'}}, {"function": {"name": "g", "arguments": "{}"}})
    _, asked, steps = run(entry("one"), NativeStyle(), [Completion("hm", "tool_calls", tool_calls=calls), DONE])
    assert steps == [[[{"name": "f", "arguments": {"x": 1}}, {"name": "g", "arguments": {}}]]]
    user, said, first, second = asked[1][0]
    assert (user, said["content"]) == ({"role": "user", "content": "one"}, "hm")
    assert [call["function"]["name"] for call in said["tool_calls"]] == ["f", "g"]
    assert [r["tool_call_id"] for r in (first, second)] == [call["id"] for call in said["tool_calls"]]


def test_a_single_turn_is_asked_once():
    async def ask(messages, **changes):
        return Completion(json.dumps([messages[1]["content"], changes]), "stop")

    answer = asyncio.run(single_turn(entry("one"), ask, ToolRLStyle(toolrl.AS_TRAINED)))
    assert json.loads(answer["response"]) == ["**Dialogue Records History**\n<user> one </user>", {}]


RESULT = {"role": "tool", "name": "f(x=1)", "tool": "f", "content": '{"a": 1}'}


@pytest.mark.parametrize(
    ("dialogue", "digest"),
    [  # SHA-256 of what RLLAHandler._format_prompt of ToolRL at 8cee13e returns
        (
            [USER, {"role": "assistant", "content": CALL + "\n"}, RESULT, RESULT],
            "91061222dd1ba5a6ef03f4ee4789e57bd1ca7c9885b0a3ebe54e10d442f016a3",
        ),
        (
            [USER, {"role": "assistant", "content": "x"}, RESULT, {"role": "assistant", "content": "d"}, USER],
            "5b5e89f89c63389533f8cb3c7858b3c600fc65b86c1a9478b212b3361bfd4cf9",
        ),
        (
            [{"role": "system", "content": "s"}, {"role": "user", "content": " u "}],
            "660766cdac95519c09b4cffcdead1bebad4a121e2ad552a09f8325a2f4bd3765",
        ),
    ],
)
def test_prompts_of_the_released_handler(dialogue, digest):
    system, user = toolrl.build_chat([TOOL, TOOL], dialogue, toolrl.HANDLER, multi_turn=True)
    text = f"<|im_start|>system\n{system.content}<|im_end|>\n<|im_start|>user\n{user.content}<|im_end|>\n"
    assert hashlib.sha256(f"{text}<|im_start|>assistant\n".encode()).hexdigest() == digest


def test_the_history_of_a_row_of_the_training_set():
    dialogue = [
        USER,
        {"role": "assistant", "content": CALL},
        RESULT,
        RESULT,
        {"role": "assistant", "content": "d"},
        USER,
    ]
    _, user = toolrl.build_chat([TOOL], dialogue)
    assert user.content == (
        "**Dialogue Records History**\n<user> u </user>\n\n" + CALL + '\n<obs> [{"name": "f", "results": {"a": 1}}, '
        '{"name": "f", "results": {"a": 1}}] </obs>\n\nd\n\n<user> u </user>'
    )


def test_each_deviation_can_be_switched_off():
    own = [{"role": "system", "content": "own"}, USER, {"role": "assistant", "content": CALL}, RESULT]

    def texts(deviations):
        chat = toolrl.build_chat([TOOL], own, deviations, multi_turn=True)
        return tuple(message.content for message in chat)

    released = texts(toolrl.HANDLER)
    for name in toolrl.DEVIATIONS:
        assert texts(toolrl.HANDLER - {name}) != released, name
    assert texts(frozenset())[0].startswith("own\n\nYou are")
    with pytest.raises(UnknownNameError, match="trailing_newlin"):
        texts({"trailing_newlin"})
