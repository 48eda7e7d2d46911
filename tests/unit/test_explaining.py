"""What ``gdpo explain`` prints, on runs written by hand, of a configuration of one's own."""

import json
import shlex
from dataclasses import replace

import pytest

from gdpo_nemo.evaluation.store import EvaluationStore
from gdpo_nemo.report.loading import SMOKE
from gdpo_nemo.report.page.build import _experiment
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.suite.command_line import execute
from gdpo_nemo.suite.grid import Selection, resolve
from gdpo_nemo.suite.programs import find
from gdpo_nemo.suite.reporting import check, embedded_spec, report

CONFIG = "examples/own_rewards/gdpo.yaml"
QUESTION = "My parcel is late. " * 40 + "Where is it?"


@pytest.fixture
def selection(tmp_path, monkeypatch):
    """Two finished runs; a path of the programs stands for itself anywhere."""
    monkeypatch.chdir(tmp_path)
    program = find(CONFIG)
    selection = Selection(program, "embedded", ("gdpo",), (0, 1), "tiny", tmp_path / "elsewhere")
    grid = resolve(selection)
    messages = [{"role": "system", "content": "You answer. " * 60}, {"role": "user", "content": QUESTION}]
    for run in (grid.base, *grid.runs):
        RunDir.claim(run.dir.path, run.settings, {"command": f"gdpo run {CONFIG} --seeds 0,1 --out elsewhere"})
        header = {"benchmark": {"name": "heldout", "revision": None, "hashes": {}}, "grader": "default", "model": {}}
        sampling = {"temperature": 1.0, "seed": run.config.seed}
        store = EvaluationStore.create(
            run.dir.evaluation_path("heldout"), header | {"sampling": sampling, "samples_per_question": 1}
        )
        store.write_questions([{"row_id": "row0", "messages": messages, "gold": "shipping"}])
        values, reasons = {"right_desk": 1.0, "thanks": None, "brief": None}, {"thanks": ["does_not_apply"]}
        store.append_scores([{"row_id": "row0", "index": 0, "values": values, "reasons": reasons}])
        evaluation = {"questions": 1, "samples_per_question": 1, "ungraded": 1}
        run.dir.finish({"steps": run.total_steps, "evaluation": evaluation})
    return selection


def test_what_the_page_prints_for_an_experiment_of_ones_own_is_understood(selection, capsys):
    named = _experiment(embedded_spec(selection))
    assert named == f"{CONFIG} --seeds 0-1 --out elsewhere"
    assert execute(["explain", "embedded:tiny/gdpo/right_desk", "--experiment", *shlex.split(named)]) == 0
    assert "seed1: finished" in capsys.readouterr().out


def test_the_page_names_the_arms_and_seeds_that_its_table_was_asked_for(selection):
    assert _experiment(embedded_spec(replace(selection, seeds=(0,)))) == f"{CONFIG} --out elsewhere"
    asked = embedded_spec(replace(selection, seeds=(1, 0), arms_named=True))
    assert _experiment(asked) == f"{CONFIG} --arms gdpo --seeds 0-1 --out elsewhere"


def test_the_name_alone_of_ones_own_experiment_leads_to_its_file(selection, capsys):
    assert execute(["explain", "embedded:tiny/gdpo/right_desk", "--experiment", "own_rewards"]) == 2
    assert "name the config that `gdpo run` was given" in capsys.readouterr().err


def test_the_question_is_whole_the_system_turn_cut_and_shared_lines_stand_once(selection, capsys):
    options = ["--experiment", CONFIG, "--out", "elsewhere", "--seeds", "0-1"]
    assert execute(["explain", "embedded:tiny/gdpo/right_desk", *options]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert QUESTION in text and "characters)" in text
    assert "{" not in text and "None" not in text
    assert text.count("benchmark heldout") == 1 and "temperature 1, seed 0" in text and "temperature 1, seed 1" in text
    assert "right_desk 1, thanks does not apply, brief ungraded" in text


def test_a_cell_of_a_reward_that_does_not_apply_says_how_often(selection, capsys):
    options = ["--experiment", CONFIG, "--out", "elsewhere", "--seeds", "0-1"]
    assert execute(["explain", "embedded:tiny/gdpo/thanks", *options]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "value does not apply" in text and "2 samples, 0 ungraded, 2 do not apply" in text
    assert execute(["explain", "embedded:tiny/gdpo/brief", *options]) == 0
    assert "2 samples, 2 ungraded computed as" in " ".join(capsys.readouterr().out.split())


def test_the_report_of_a_smoke_run_says_so_first(selection):
    assert SMOKE not in report(selection).text
    for run in selection.covered().values():
        (run.path / "provenance.json").write_text(json.dumps({"command": f"gdpo run {CONFIG} --smoke"}))
    assert report(selection).text.startswith(SMOKE)
    assert (selection.tree.report_path / "table.md").read_text().startswith(f"# {SMOKE}")
    assert check(selection).text.startswith(SMOKE)


def test_explain_says_of_a_smoke_run_that_it_is_one(selection, capsys):
    line = ["explain", "embedded:tiny/gdpo/right_desk", "--experiment", CONFIG, "--out", "elsewhere"]
    assert execute(line) == 0
    assert SMOKE not in capsys.readouterr().out
    for run in selection.covered().values():
        (run.path / "provenance.json").write_text(json.dumps({"command": f"gdpo run {CONFIG} --smoke"}))
    assert execute(line) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith(SMOKE)
    assert execute([*line, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["smoke"]
