"""ToolRL's rows: proved to be the published ones, measured, counted where a reference contradicts its prompt."""

import json

import pytest

from gdpo_nemo.data import rlla
from gdpo_nemo.data.rlla import (
    contradictions,
    described,
    offered_tools,
    read_rlla,
    statistics,
)
from gdpo_nemo.data.sources import RLLA
from gdpo_nemo.prompts import toolrl

TOOLS = [
    {
        "name": "Get News (v2)",
        "description": "News.\nMany of them.",
        "parameters": {
            "properties": {"page": {"type": "int", "description": "a {brace}"}, "topic": {"type": "string"}}
        },
    },
    {"name": "now", "description": "", "parameters": {"properties": {}}},
]
THINK = "<think> t </think>\n"
PLAIN = THINK + "<response> r </response>"


def call(*calls):
    lines = [json.dumps({"name": name, "parameters": parameters}) for name, parameters in calls]
    return f"{THINK}<tool_call>\n" + "\n".join(lines) + "\n</tool_call>"


GOLDS = [
    call(("Get News (v2)", {"page": 1, "topic": "x"}), ("now", {})),
    call(("Get News (v2)", {"page": "1"})),
    call(("Get News (v2)", {"page": "1"}), ("Get News (v2)", {"page": "2", "extra": 0}), ("gone", {"page": "1"})),
    PLAIN,
    f"{THINK}<tool_call>\nnot json\n</tool_call>",
    call(("now", {})) + "\n<response> r </response>",
]


@pytest.fixture
def rows(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    records = []
    for index, gold in enumerate(GOLDS):
        chat = toolrl.build_chat(TOOLS, [{"role": "user", "content": "word " * (index + 1)}])
        prompt = [{"content": message.content, "role": message.role} for message in chat]
        about = {"index": str(index), "input": prompt[1]["content"], "instruction": prompt[0]["content"]}
        records.append(
            {
                "data_source": "rlla", "prompt": prompt, "ability": "math",
                "reward_model": {"ground_truth": gold, "style": "rule"},
                "extra_info": about | {"output": gold, "split": "test"},
            }
        )  # fmt: skip
    parquet.write_table(pyarrow.Table.from_pylist(records), tmp_path / "test.parquet")
    return read_rlla(tmp_path / "test.parquet")


def test_rows_hold_the_chat_and_the_reference(rows):
    assert [row.gold for row in rows] == GOLDS
    assert [message["role"] for message in rows[0].fields["chat"]] == ["system", "user"]
    assert offered_tools(rows[0].fields["chat"][0]["content"]) == [
        (tool["name"], tool["parameters"]["properties"]) for tool in TOOLS
    ]


def test_contradictions_are_counted(rows):
    assert list(contradictions(rows[0])) == []
    assert list(contradictions(rows[2])) == [
        "number_as_string", "number_as_string", "parameter_unknown", "tool_not_offered",
    ]  # fmt: skip
    assert statistics(rows) == {
        "rows": 6,
        "shapes": {"response": 1, "tool_call": 4, "tool_call+response": 1},
        "calls": {0: 2, 1: 2, 2: 1, 3: 1},
        "numeric_arguments": 4,
        "contradictions": {"number_as_string": 3, "parameter_unknown": 1, "tool_not_offered": 1, "unreadable": 1},
        "contradictory_rows": {"number_as_string": 2, "parameter_unknown": 1, "tool_not_offered": 1, "unreadable": 1},
        "rows_with_any": 3,
    }


def test_long_prompts_are_counted_with_a_tokenizer(rows, chat_tokenizer, monkeypatch):
    assert "too_long" not in statistics(rows)
    assert described(statistics(rows))[-1] == (
        "prompts of more than 2,048 tokens: not counted; --tokenizer NAME counts them"
    )
    lengths = [len("".join(turn["content"] for turn in row.fields["chat"]).encode()) for row in rows]
    monkeypatch.setattr(rlla, "PROMPT_LIMIT", sorted(lengths)[3] + len("<system><user><assistant>"))
    found = statistics(rows, chat_tokenizer)
    assert list(found["too_long"]) == [rows[4].id, rows[5].id]
    assert "2 rows, the longest of" in described(found)[-1]


def test_every_published_file_has_its_git_blob():
    assert set(RLLA.git_blobs) == set(RLLA.files)


def test_the_counts_are_told(rows):
    lines = described(statistics(rows))
    assert "number_as_string: 3 of 4 numeric arguments, in 2 rows" in lines
    assert lines[-2] == "references that contradict their prompt: 3 rows (50.0 %)"
