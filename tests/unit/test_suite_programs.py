import ast
from dataclasses import replace
from pathlib import Path

import pytest

from gdpo_nemo.errors import UnknownNameError, UsageError
from gdpo_nemo.suite import Arm, Claim, Column, Experiment
from gdpo_nemo.suite.programs import all_programs, find, load, programs_root

SCRIPTS = sorted((programs_root() / "repro").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_declares_the_experiment_it_is_named_after(script):
    program = load(script)
    assert program.experiment.name == script.stem
    assert (program.configs / script.stem).is_dir()
    for arm in program.experiment.arms:
        assert (program.configs / script.stem / f"{arm.name}.yaml").is_file()
    assert ast.get_docstring(ast.parse(script.read_text("utf-8")))


def test_a_name_a_script_and_a_config_name_the_same_experiment(monkeypatch, tmp_path):
    by_name = find("tool_calling")
    assert find("repro/tool_calling.py").script == by_name.script
    assert find(str(by_name.script)).script == by_name.script
    assert find("configs/tool_calling/gdpo.yaml").arms == ("gdpo",)
    assert by_name.arms is None
    monkeypatch.chdir(tmp_path)  # far from the checkout, as after pip install
    assert find("configs/tool_calling/gdpo.yaml").script == by_name.script
    assert [program.experiment.name for program in all_programs()] == [path.stem for path in SCRIPTS]


@pytest.mark.parametrize(
    ("target", "error", "words"),
    [
        ("tool_caling", UnknownNameError, "Did you mean 'tool_calling'"),
        ("nowhere.py", UsageError, "no file nowhere.py"),
        ("configs/tool_calling/base.yaml", UnknownNameError, "arm of tool_calling 'base'"),
        ("configs/model/tiny.yaml", UnknownNameError, "experiment 'model'"),
    ],
)
def test_an_unknown_target_is_explained(target, error, words):
    with pytest.raises(error, match=words):
        find(target)


def test_a_config_of_that_name_elsewhere_is_not_silently_another_file(tmp_path):
    (tmp_path / "tool_calling").mkdir()
    (tmp_path / "tool_calling" / "gdpo.yaml").write_text("gdpo: {}\n")
    with pytest.raises(UsageError, match="those lie in"):
        find(str(tmp_path / "tool_calling" / "gdpo.yaml"))


def test_a_script_without_an_experiment_is_explained(tmp_path):
    (tmp_path / "empty.py").write_text("x = 1\n")
    with pytest.raises(UsageError, match="declares no EXPERIMENT"):
        load(Path(tmp_path / "empty.py"))


def experiment(claims=()):
    arms = [Arm("a", "A"), Arm("b", "B"), Arm("c", "C", default=False)]
    return Experiment("e", "E", arms, {"embedded": range(2)}, [Column("x", "X", reward="x")], claims)


def test_arms_come_in_the_order_of_the_table():
    assert experiment().pick_arms(None) == ("a", "b")
    assert experiment().pick_arms(["all"]) == ("a", "b", "c")
    assert experiment().pick_arms(["c", "a"]) == ("a", "c")
    here = replace(experiment(), arms=[Arm("a", "A"), Arm("b", "B", scale="embedded")])
    assert [here.pick_arms(names, "paper") for names in (None, ["all"], ["b"])] == [("a",), ("a",), ("b",)]
    assert here.pick_arms(None, "embedded") == here.pick_arms(["all"]) == ("a", "b")
    with pytest.raises(UnknownNameError, match="arm of e 'd'"):
        experiment().pick_arms(["a", "d"])


def test_seeds_belong_to_a_declared_scale():
    assert experiment().default_seeds("embedded") == (0, 1)
    with pytest.raises(UnknownNameError, match="scale of e 'paper'"):
        experiment().default_seeds("paper")


@pytest.mark.parametrize(
    "claim", [Claim("a", ">", "z", on="x"), Claim("z", ">", "a", on="x"), Claim("a", ">", "b", on="y")]
)
def test_a_claim_about_nothing_is_refused_when_declared(claim):
    with pytest.raises(UnknownNameError):
        experiment([claim])
