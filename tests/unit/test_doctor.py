import json

import pytest

from gdpo_nemo.backends.nemo_rl.rehearsal import run
from gdpo_nemo.suite.command_line import execute


@pytest.mark.parametrize("there", [True, False])
def test_the_doctor_names_what_the_rewards_of_a_rehearsal_need(capsys, monkeypatch, there):
    monkeypatch.setattr(run, "NEEDED", ("json",))
    monkeypatch.setattr(run, "NEEDED_BY", {"math_length": ("math" if there else "no_such_module_of_ours",)})
    execute(["doctor", "--json"])
    (found,) = (one for one in json.loads(capsys.readouterr().out)["findings"] if one["name"] == "rehearse every task")
    assert found["ok"] == there
    assert found["text"] == "json, math" if there else "needs no_such_module_of_ours;" in found["text"]
