"""What the official checkers do with odd calls, what we make of it, and what stays out of their reach."""

import json
import math
import subprocess
import time
from pathlib import Path

import pytest

from gdpo_nemo.evaluation.benchmark import Sample
from gdpo_nemo.evaluation.bfcl import official
from gdpo_nemo.evaluation.bfcl.benchmark import Bfcl
from gdpo_nemo.evaluation.bfcl.checkers import CheckerError, Checkers
from gdpo_nemo.evaluation.bfcl.conversation import ToolRLStyle
from gdpo_nemo.sandbox.isolation import AUTO, MODES
from gdpo_nemo.sandbox.jobs import SandboxError

SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
import official
version, category, tool, calls, gold, model = json.loads(sys.argv[2])
release = official.Release(version)
release._entries = {category: {"x": {"id": "x", "function": [tool]}}}
release._answers = {category: {"x": {"ground_truth": gold}}}
samples = [{"category": category, "id": "x", "calls": calls}]
print(json.dumps(official.check(release, {"model": model, "samples": samples})))
"""


@pytest.fixture
def verdict(checkers, tmp_path):
    """The verdict on calls of one tool with one integer parameter, unless said otherwise."""

    def call(calls, gold, category="parallel", name="f", model="toolrl", schema=None):
        parameters = {"type": "dict", "properties": {"x": schema or {"type": "integer"}}, "required": ["x"]}
        tool = {"name": name, "description": "", "parameters": parameters}
        request = json.dumps([checkers.release.version, category, tool, calls, gold, model])
        command = [checkers.interpreter, "-c", SCRIPT, str(Path(official.__file__).parent), request]
        environment = {"BFCL_PROJECT_ROOT": str(tmp_path)}
        return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)[0]

    return call


def f(*values):
    return [{"f": {"x": value}} for value in values]


def test_calls_of_one_turn_may_come_in_any_order(verdict):
    assert verdict(f(2, 1), [{"f": {"x": [1]}}, {"f": {"x": [2]}}])["valid"]


def test_first_fit_rejects_calls_that_fit_one_to_one(verdict):
    gold = [{"f": {"x": [1, 2]}}, {"f": {"x": [1]}}]
    assert verdict(f(2, 1), gold)["valid"]
    refused = verdict(f(1, 2), gold)
    assert (refused["valid"], refused["matched"]) == (False, True)
    assert not verdict(f(1, 3), gold)["matched"]
    assert not verdict(f(1, 2, 2), gold)["matched"]


def test_a_wrong_number_is_wrong(verdict, checkers):
    single = "simple" if checkers.release.version == "v3" else "simple_python"
    found = verdict(f(999), [{"f": {"x": [10]}}], category=single)
    assert (found["valid"], found["reason"]) == (False, "value_error:others")


def test_dots_in_names_became_underscores_where_the_interface_forbids_them(verdict, checkers):
    single = "simple" if checkers.release.version == "v3" else "simple_python"
    gold = [{"math.f": {"x": [4]}}]
    for model, valid in (("toolrl", False), ("native", True)):
        assert verdict([{"math_f": {"x": 4}}], gold, single, "math.f", model)["valid"] is valid


def test_a_whole_number_is_no_float_inside_a_list(verdict, checkers):
    single = "simple" if checkers.release.version == "v3" else "simple_python"
    floats = {"type": "array", "items": {"type": "float"}}
    assert not verdict(f([1, 2]), [{"f": {"x": [[1.0, 2.0]]}}], single, schema=floats)["valid"]
    assert verdict(f(5), [{"f": {"x": [5.0]}}], single, schema={"type": "float"})["valid"]


def test_a_checker_that_fails_gives_no_verdict(verdict, checkers):
    single = "simple" if checkers.release.version == "v3" else "simple_python"
    assert "KeyError" in verdict(f(1), [{"f": {"x": [1]}}], single, schema={"type": "number"})["fault"]


def test_only_methods_of_the_entry_are_carried_out(checkers):
    name = "__import__('os').getpid"
    steps = [
        [
            {"name": name, "arguments": {}},
            {"name": "cd", "arguments": {"folder": "document"}},
            {"name": "pwd", "arguments": {"x=__import__('os').getpid(), y": 1}},
            {"name": "_load_scenario", "arguments": {}},
        ]
    ]
    results = checkers.execute("multi_turn_base", "multi_turn_base_0", steps, "toolrl")
    assert results[1] == '{"current_working_directory": "document"}'
    assert [r.startswith("Error during execution: name") for r in results] == [True, False, True, True]


def test_every_request_meets_untouched_tools(checkers):
    step = [{"name": "mkdir", "arguments": {"dir_name": "new"}}]
    first, second = (checkers.execute("multi_turn_base", "multi_turn_base_0", [step], "toolrl") for _ in range(2))
    assert first == second
    twice = checkers.execute("multi_turn_base", "multi_turn_base_0", [step, step], "toolrl")
    assert twice != first


def test_a_call_without_end_costs_its_sample_and_no_other(checkers):
    entry = next(e for e in checkers.questions("multi_turn_base", native=False) if _has(e, "power"))
    usual, checkers.limit_s = checkers.limit_s, 1.0
    began = time.monotonic()
    try:
        steps = [[{"name": "power", "arguments": {"base": 10, "exponent": 10**12}}]]
        with pytest.raises(CheckerError, match=r"timeout|MemoryError|died"):
            checkers.execute("multi_turn_base", entry["id"], steps, "toolrl")
    finally:
        checkers.limit_s = usual
    assert time.monotonic() - began < 60
    assert checkers.check([{"category": "irrelevance", "id": "irrelevance_0", "calls": []}], "toolrl")[0]["valid"]


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != AUTO])
def test_every_isolation_that_holds_here_serves_the_checkers(checkers, mode):
    made = Checkers(checkers.release, checkers.interpreter, mode=mode)
    try:
        answers = made.execute("multi_turn_base", "multi_turn_base_0", [[{"name": "pwd", "arguments": {}}]], "toolrl")
    except SandboxError as error:
        pytest.skip(f"{mode} does not hold here: {error}")
    finally:
        made.close()
    assert answers == ['{"current_working_directory": "/workspace"}']


def _has(entry, name):
    return any(tool["name"] == name for tool in entry["tools"])


def scores(checkers, group, row_id, text):
    question = {"row_id": row_id, "group": group}
    return next(iter(Bfcl(checkers, ToolRLStyle()).grade([Sample(question, {"response": text})], "official")))


@pytest.mark.parametrize(
    ("text", "official_value", "corrected", "outcome"),
    [
        ("<think> t </think>\n<response> I cannot. </response>", 1, 1, "abstained"),
        ('<tool_call>\n{"name": "solve", "parameters": {"a": 1\n</tool_call>', 1, 0, "broken_call"),
        ('<tool_call>\n{"name": "solve", "parameters": {"a": 1}}\n</tool_call>', 0, 0, "called"),
        ('<tool_call>\n{"name": "None", "parameters": {}}\n</tool_call>', 1, 1, "abstained"),
        ("", 1, 0, "broken_call"),
    ],
)
def test_not_calling_has_three_outcomes(checkers, text, official_value, corrected, outcome):
    vector = scores(checkers, "irrelevance", "irrelevance_0", text)
    assert (vector["correct"], vector["corrected"]) == (official_value, corrected)
    assert vector.reasons["corrected"] == (outcome,)


def test_odd_payloads_are_graded_and_stop_nothing(checkers):
    lines = [
        '[{"function": "foo"}, 3, null]',
        '{"name": ["f"], "parameters": {}}',
        "NaN",
        '{"name": "f", "parameters": 1e999}',
    ]
    for line in lines:
        vector = scores(checkers, "multiple", "multiple_0", f"<tool_call>\n{line}\n</tool_call>")
        assert vector["correct"] == 0
        assert not math.isnan(vector["corrected"])
