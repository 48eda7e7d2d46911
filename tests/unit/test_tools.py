import hashlib
import json

import pytest

from gdpo_nemo.suite import doctor
from gdpo_nemo.suite.command_line import execute
from gdpo_nemo.suite.commands import CLUSTER_COMMANDS, COMMANDS, TOOLS
from gdpo_nemo.suite.evals import scripts
from gdpo_nemo.suite.parsing import build_parser


@pytest.mark.parametrize("name", TOOLS)
def test_every_tool_explains_itself(name, capsys):
    with pytest.raises(SystemExit) as stopped:
        execute([name, "--help"])
    assert stopped.value.code == 0
    assert TOOLS[name].example in capsys.readouterr().out


def test_the_benchmarks_are_listed_and_started_by_name(capsys):
    assert execute(["eval"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in ("bfcl", "math_suite", "coding"))
    assert execute(["eval", "math_suit"]) == 2
    assert "Did you mean 'math_suite'?" in capsys.readouterr().err


@pytest.mark.parametrize("words", [*([name] for name in scripts()), ["coding", "rescore"], ["bfcl", "setup"]])
def test_the_help_of_a_benchmark_names_the_command_that_was_typed(words, capsys):
    with pytest.raises(SystemExit) as stopped:
        execute(["eval", *words, "--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert f"usage: gdpo eval {' '.join(words)} " in shown and ".py" not in shown


def test_the_doctor_names_what_is_missing_with_the_command_that_mends_it(capsys, monkeypatch):
    monkeypatch.setitem(doctor.NEEDS, "fly", (("no_such_module_of_ours",), "wings"))
    monkeypatch.delenv("NEMO_RL_PATH", raising=False)
    code = execute(["doctor", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert code == (0 if found["sandbox"]["chosen"] else 3)
    by_name = {one["name"]: one for one in found["findings"]}
    assert by_name["run at embedded scale"]["ok"]
    assert not by_name["fly"]["ok"] and "pip install 'gdpo-nemo[wings]'" in by_name["fly"]["text"]
    assert "NEMO_RL_PATH" in by_name["NeMo RL"]["text"] or by_name["NeMo RL"]["ok"]


def test_data_is_locked_from_a_folder_and_refused_when_it_changes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "elsewhere"
    for name in ("aime", "amc", "math", "minerva", "olympiad_bench"):
        file = source / f"deepscaler/data/test/{name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text('[{"problem": "1+1", "answer": "2"}]')
    (source / "deepscaler.json").write_text('[{"problem": "1+2", "answer": "3", "solution": ""}]')
    assert execute(["data", "fetch", "math_length", "--offline"]) == 3
    assert "offline" in capsys.readouterr().err
    assert execute(["data", "fetch", "math_length", "--from", str(source), "--json"]) == 0
    fetched = json.loads(capsys.readouterr().out)
    digest = hashlib.sha256((source / "deepscaler.json").read_bytes()).hexdigest()
    assert digest in json.dumps(fetched["deepscaler_preview"])
    assert execute(["data", "verify", "math_length"]) == 0
    assert execute(["data", "stats", "math_length"]) == 0
    assert "1 rows" in capsys.readouterr().out
    (tmp_path / "data/deepscaler_preview/deepscaler.json").write_text("[]")
    assert execute(["data", "verify", "math_length"]) == 1
    assert "deepscaler.json" in capsys.readouterr().err


@pytest.mark.parametrize("name", [*COMMANDS, *CLUSTER_COMMANDS, "list", *TOOLS])
def test_the_help_of_an_option_states_its_default(name):
    [commands] = [action for action in build_parser("gdpo", None, name)._actions if action.dest == "command"]
    for action in commands.choices[name]._actions:
        if action.option_strings and action.default not in (None, False, [], "==SUPPRESS=="):
            assert "default" in action.help, f"{name} {action.option_strings[-1]}: {action.help}"
            stated = action.help % {"default": action.default}
            assert str(action.default) in stated, f"{name} {action.option_strings[-1]}: {stated}"
