"""``gdpo plan`` at embedded scale."""

from gdpo_nemo.run_tree import RunTree
from gdpo_nemo.suite.command_line import execute

LINE = ["plan", "tool_calling", "--arms", "gdpo", "--seeds", "0", "--smoke", "--out", "runs"]


def test_a_weight_that_follows_a_schedule_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    schedule = "gdpo.rewards.format.weight={schedule: linear, start: 1.0, end: 0.2, last_step: 5}"
    assert execute([*LINE, schedule]) == 0
    assert "weights of gdpo  format 1 to 0.2 (steps 1 to 5)" in capsys.readouterr().out
    assert not (tmp_path / "runs").exists()


def test_runs_under_way_are_no_hindrance_and_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with RunTree(tmp_path / "runs/tool_calling/embedded/tiny").lock():
        assert execute(LINE) == 0
    assert "Runs are under way in runs/tool_calling/embedded/tiny" in capsys.readouterr().out
    assert execute(LINE) == 0
    assert "under way" not in capsys.readouterr().out
