"""From the command line to the table: a scripted model over HTTP, killed in the middle and asked again."""

import csv
import io
import os
import re
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import outputs
import pytest
from scripted_server import ScriptedServer, chat

from gdpo_nemo.evaluation import command_line
from gdpo_nemo.evaluation.bfcl.command_line import PROGRAM
from gdpo_nemo.evaluation.store import EvaluationStore
from gdpo_nemo.prompts import toolrl
from gdpo_nemo.suite.command_line import execute as report

ROOT = Path(__file__).resolve().parents[2]
PER_CATEGORY = 2
execute = partial(command_line.execute, PROGRAM)
USER = re.compile(r"<user> (.*?)\n", re.DOTALL)


@pytest.fixture(scope="module")
def gold(checkers):
    """First words of the user -> turns of steps that are right, in ToolRL's format."""
    answers = {}
    for category in checkers.release.categories:
        for entry in checkers.questions(category, native=False)[:PER_CATEGORY]:
            entry = entry | {"group": category}
            first = next(m["content"] for m in entry["turns"][0] if m["role"] == "user").strip().split("\n")[0]
            several = category.startswith("multi_turn")
            turns = outputs.dialogue(entry, 0) if several else [[outputs.single_turn(entry, 0)]]
            answers.setdefault((first, several), [[outputs.toolrl(step) for step in turn] for turn in turns])
    return answers


@pytest.fixture
def server(gold, monkeypatch):
    """A model that knows the answers of the first multi-turn category that asks a question."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    instruction = toolrl._text("user").strip()

    def script(body, _nth):
        history = body["messages"][1]["content"]
        first = USER.search(history)[1].strip()
        turns = gold.get((first, True)) if (first, False) not in gold else gold[(first, False)]
        turn = history.count(instruction) - 1
        if turns is None or turn >= len(turns):
            return chat(outputs.toolrl(outputs.CHAT))
        return chat(turns[turn][-1 if history.rstrip().endswith("from now on. </user>") else 0])

    made = ScriptedServer(script)
    yield made
    made.stop()


@pytest.fixture
def arguments(checkers, server, tmp_path):
    version = checkers.release.version
    limit = str(PER_CATEGORY * len(checkers.release.categories))
    where = ["--environment", str(checkers.interpreter.parents[1]), "--out", str(tmp_path / "out")]
    return ["--endpoint", server.url, "--version", version, "--limit", limit, *where]


def test_a_few_entries_of_every_category(checkers, arguments, server, tmp_path):
    assert execute([*arguments, "--json"]) == 0
    store = EvaluationStore(tmp_path / "out" / f"bfcl_{checkers.release.version}")
    group = {row["row_id"]: row["group"] for row in store.questions()}
    correct = {}
    for row in store.scores():
        correct.setdefault(group[row["row_id"]], []).append(row["values"]["correct"])
    assert set(correct) == set(checkers.release.categories)
    right = {name for name, values in correct.items() if values == [1.0] * PER_CATEGORY}
    assert {"multiple", "parallel", "irrelevance", "live_simple", "live_irrelevance", "multi_turn_base"} <= right
    assert correct["live_relevance"] == [0.0] * PER_CATEGORY
    numbers = {number["name"]: number for number in store.result()["numbers"]}
    assert numbers["correct_format"]["value"] == 100
    assert numbers["multi_turn"]["num_questions"] == 4 * PER_CATEGORY
    assert numbers["multi_turn_base"]["value"] == 100
    asked = len(server.asked)
    assert execute([*arguments, "--json"]) == 0
    assert len(server.asked) == asked


def test_killed_in_the_middle_and_asked_again(checkers, arguments, server, tmp_path):
    enough, answer = threading.Event(), server.script

    def counting(body, nth):
        if len(server.asked) > 25:
            enough.set()
        return answer(body, nth)

    server.script = counting
    command = [sys.executable, str(ROOT / "eval" / "bfcl.py"), *arguments, "--concurrency", "2"]
    process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL)
    assert enough.wait(120)
    process.send_signal(signal.SIGKILL)
    process.wait()
    store = EvaluationStore(tmp_path / "out" / f"bfcl_{checkers.release.version}")
    before = len(store.generations())
    assert 0 < before < PER_CATEGORY * len(checkers.release.categories)
    assert execute([*arguments, "--json"]) == 0
    rows = [(row["row_id"], row["index"]) for row in store.generations()]
    assert len(rows) == len(set(rows)) == PER_CATEGORY * len(checkers.release.categories) == len(store.scores())
    assert store.state() == "complete"


def test_a_category_that_was_not_run_leaves_its_aggregates_not_run(checkers, arguments, capsys):
    assert execute([*arguments, "--categories", "live"]) == 0
    lines = {line.split("%")[0].split("not run")[0].strip(): line for line in capsys.readouterr().out.splitlines()}
    shown = {" ".join(name.split()[1:]): line for name, line in lines.items()}
    assert any(name.startswith("live ") and "not run" not in line for name, line in shown.items())
    assert "not run" in shown["multi_turn"]
    assert "not run" in shown["non_live"]


def test_native_calls_over_http(checkers, arguments, server, tmp_path):
    def script(body, _nth):
        assert body["tools"]
        function = {"name": body["tools"][0]["function"]["name"], "arguments": '{"a": 1}'}
        return chat("", tool_calls=[{"id": "1", "type": "function", "function": function}])

    server.script = script
    assert execute([*arguments, "--prompt", "native", "--categories", "live_relevance", "irrelevance"]) == 0
    store = EvaluationStore(tmp_path / "out" / f"bfcl_{checkers.release.version}_native")
    values = {(row["row_id"].rsplit("_", 1)[0], row["values"]["correct"]) for row in store.scores()}
    assert values == {("live_relevance", 1.0), ("irrelevance", 0.0)}
    assert all(row["values"]["correct_format"] is None for row in store.scores())


def test_the_small_real_model_in_this_process(checkers, small_model, tmp_path, capsys):
    """One question of every category of single turns: dialogues would take it minutes each."""
    categories = checkers.release.chosen(["single_turn"])
    where = ["--environment", str(checkers.interpreter.parents[1]), "--out", str(tmp_path), "--concurrency", "1"]
    where += ["--version", checkers.release.version, "--categories", "single_turn", "--max-tokens", "8"]
    model = ["--model", small_model, "--engine", "transformers", "--device", "cpu"]
    assert execute([*model, *where, "--limit", str(len(categories)), "--json"]) == 0
    store = EvaluationStore(tmp_path / f"bfcl_{checkers.release.version}")
    assert {row["group"] for row in store.questions()} == set(categories)
    assert store.state() == "complete" and len(store.scores()) == len(categories)
    capsys.readouterr()
    assert execute([*model, *where, "--prompt", "native", "--limit", "1"]) == 3
    assert "has no place for tools" in capsys.readouterr().err


def test_an_evaluation_in_the_tree_of_runs_fills_its_cells_of_table_1_and_no_others(
    checkers, arguments, tmp_path, monkeypatch, capsys
):
    if checkers.release.version != "v3":
        pytest.skip("the paper's tables are of version 3")
    monkeypatch.chdir(tmp_path)
    tree = "runs/tool_calling/paper/qwen2.5-1.5b-instruct"
    assert execute([*arguments[:-1], f"{tree}/gdpo/seed0/eval", "--json"]) == 0
    capsys.readouterr()
    assert report(["report", "table1", "--json"]) == 0
    rows = list(csv.DictReader(io.StringIO(Path("runs/tool_calling/paper/report/table1/table.csv").read_text())))
    filled = {(row["model"], row["arm"], row["column"]) for row in rows if row["value"]}
    columns = ("live", "multi_turn", "non_live", "avg", "correct_format")
    assert filled == {("qwen2.5-1.5b-instruct", "gdpo", column) for column in columns}
    assert {row["note"] for row in rows if not row["value"]} == {"not run"} and len(rows) == 2 * 3 * len(columns)
