import json
from itertools import islice

import numpy as np
import pytest

from gdpo_nemo.data.tool_world import ToolWorld
from gdpo_nemo.prompts.tool_calling import build_prompt, template
from gdpo_nemo.types import Row

WORLD = ToolWorld(num_cities=4, num_relations=2, num_tools=3, max_hops=2)
ROWS = list(islice(WORLD.rows("train", np.random.default_rng(0)), 40))


def test_the_template_is_there_whole_with_the_tools_in_it():
    before, after = template().split("{tools}")
    for row in ROWS:
        system, _ = build_prompt(row).messages
        assert system.content.startswith(before)
        assert system.content.endswith(after.format())
        assert "{tools}" not in system.content and "{{" not in system.content


@pytest.mark.parametrize("part", ["**Available Tools**", "**Output Format**", "<think>", "<tool_call>", "<response>"])
def test_the_system_message_names_each_part_of_the_task(part):
    assert part in build_prompt(ROWS[0]).messages[0].content


def test_the_tools_stand_in_the_order_of_the_row_with_their_parameters():
    for row in ROWS:
        text = build_prompt(row).messages[0].content
        lines = text.splitlines()
        names = [line.removeprefix("Name: ") for line in lines if line.startswith("Name: ")]
        assert names == [tool["name"] for tool in row.fields["tools"]]
        described = [json.loads(line.removeprefix("Parameters: ")) for line in lines if line.startswith("Parameters: ")]
        assert described == [tool["parameters"] for tool in row.fields["tools"]]


def test_the_user_message_is_the_dialogue():
    row = Row("id", {"tools": [], "user": "Braces {like} these stay."}, "")
    prompt = build_prompt(row)
    assert prompt.row_id == "id"
    assert [message.role for message in prompt.messages] == ["system", "user"]
    assert prompt.messages[1].content == "**Dialogue Records History**\n<user> Braces {like} these stay. </user>"


def test_a_tool_may_hold_braces():
    tool = {"name": "f", "description": "{x}", "parameters": {"a": {"type": "string"}}}
    text = build_prompt(Row("id", {"tools": [tool], "user": "u"}, "")).messages[0].content
    assert 'Name: f\nDescription: {x}\nParameters: {"a": {"type": "string"}}' in text


def test_the_prompt_does_not_hold_the_answer():
    for row in ROWS:
        if row.fields["path"]:
            text = build_prompt(row).messages[1].content
            assert all(word in text for word in (row.fields["start"], ", ".join(row.fields["path"]), row.fields["day"]))
            assert row.gold not in text and "book_" not in text
