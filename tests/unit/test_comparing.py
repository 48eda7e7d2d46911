import json

import pytest

from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.suite.command_line import execute


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, scale, commit in (("a", True, "1111"), ("b", False, "2222")):
        RunDir.claim(tmp_path / name, {"gdpo": {"scale_by_std": scale, "clip": 0.2}}, {"code": {"commit": commit}})
    RunDir(tmp_path / "b").finish({"reward": 0.5})
    return tmp_path


def test_what_differs_is_named_with_both_values_and_nothing_else(runs, capsys):
    assert execute(["diff", "a", "b", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["config"] == {"gdpo.scale_by_std": {"left": True, "right": False}}
    assert found["provenance"] == {"code.commit": {"left": "1111", "right": "2222"}}
    assert found["result"] == {"reward": {"left": "(absent)", "right": 0.5}}
    assert execute(["diff", "a", "b"]) == 0
    text = capsys.readouterr().out
    assert "gdpo.scale_by_std" in text and "gdpo.clip" not in text


def test_a_run_is_the_same_as_itself(runs, capsys):
    assert execute(["diff", "a", "a"]) == 0
    assert capsys.readouterr().out.count("the same") == 3


def test_a_path_that_is_no_run_is_refused(runs, capsys):
    assert execute(["diff", "a", "nowhere"]) == 2
    assert "nowhere is not a run directory" in capsys.readouterr().err


def test_what_differs_between_any_two_runs_stands_last(runs, capsys):
    for name, created in (("c", "10:00"), ("d", "11:00")):
        RunDir.claim(runs / name, {"clip": 0.2}, {"command": name, "created": created, "packages": {"torch": name}})
    assert execute(["diff", "c", "d"]) == 0
    text = capsys.readouterr().out
    assert text.index("packages.torch") < text.index("command") < text.index("created")
    assert execute(["diff", "a", "b"]) == 0
    assert "what produced it: 1 key differs\n" in capsys.readouterr().out
