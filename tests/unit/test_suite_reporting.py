"""Verdicts of the command line, on evaluations written by hand."""

import json
import math
import shutil

import pytest

from gdpo_nemo.evaluation.store import EvaluationStore
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.suite.command_line import execute
from gdpo_nemo.suite.grid import Selection, resolve
from gdpo_nemo.suite.programs import find

AS_IN_THE_PAPER = {"grpo_no_std": 0.2, "grpo": 0.5, "gdpo": 0.9}
QUESTIONS = 60


def write(folder, share_by_arm, seeds=(0, 1, 2), overrides=()):
    """Finished runs in which a given share of the answers is right in both rewards."""
    selection = Selection(
        find("tool_calling"), "embedded", tuple(share_by_arm), seeds, "tiny", folder, overrides=overrides
    )
    grid = resolve(selection)
    for run in (grid.base, *grid.runs):
        share = share_by_arm.get(run.dir.path.parent.name, 0.1)
        RunDir.claim(run.dir.path, run.settings, {})
        rows = [f"row{i}" for i in range(QUESTIONS)]
        right = [(7 * i + run.config.seed) % QUESTIONS < share * QUESTIONS for i in range(QUESTIONS)]
        scores = [
            {
                "row_id": row,
                "index": 0,
                "values": {"format": float(hit), "correct": 3.0 if hit else -3.0},
                "reasons": {},
            }
            for row, hit in zip(rows, right, strict=True)
        ]
        header = {"benchmark": {"name": "heldout"}, "grader": "default", "model": {}, "sampling": {}}
        store = EvaluationStore.create(run.dir.evaluation_path("heldout"), header | {"samples_per_question": 1})
        store.write_questions({"row_id": row, "messages": [], "gold": ""} for row in rows)
        store.append_scores(scores)
        evaluation = {"questions": QUESTIONS, "samples_per_question": 1, "ungraded": 0, "reward/format/mean": share}
        run.dir.finish({"steps": run.total_steps, "evaluation": evaluation})


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def run(line):
        code = execute(line.split())
        return code, capsys.readouterr()

    return run


def test_the_order_of_the_paper_passes(call, tmp_path):
    write(tmp_path / "runs", AS_IN_THE_PAPER)
    code, output = call("check tool_calling --json")
    answer = json.loads(output.out)
    assert code == 0
    assert answer["supported"] and answer["missing"] == []
    assert [verdict["status"] for verdict in answer["verdicts"]] == ["supported"] * 6


def test_another_order_is_outside_the_band_and_every_claim_is_listed(call, tmp_path):
    write(tmp_path / "runs", AS_IN_THE_PAPER | {"gdpo": 0.5})
    code, output = call("check tool_calling")
    assert code == 4
    lines = output.out.replace("\n  ", " ").splitlines()
    assert len(lines) == 7
    assert all("difference" in line and "[" in line and f"n = 3 x {QUESTIONS}" in line for line in lines[:6])
    assert lines[6].startswith("4 of 6 claims supported")


def test_without_all_runs_nothing_is_judged(call, tmp_path):
    write(tmp_path / "runs", AS_IN_THE_PAPER, seeds=(0, 1))
    code, output = call("check tool_calling")
    assert code == 3
    assert "gdpo/seed2" in output.out and "`run` does what is missing" in output.out
    assert call("check tool_calling --seeds 0-1")[0] == 0
    write(tmp_path / "other", {"grpo": 0.5, "gdpo": 0.9})
    code, output = call("check tool_calling --arms grpo,gdpo --out other")
    assert code == 3
    assert "arms that were not run" in output.out


def test_a_report_covers_all_arms_with_runs_and_the_declared_seeds(call, tmp_path):
    arms = {"gdpo_no_batch_norm": 0.8} | AS_IN_THE_PAPER
    write(tmp_path / "runs", arms, seeds=(0, 1, 2, 7))
    for arm in arms.keys() - {"gdpo"}:
        shutil.rmtree(tmp_path / "runs/tool_calling/embedded/tiny" / arm / "seed7")
    code, output = call("report tool_calling")
    assert code == 0
    assert "GDPO w/o batch norm" in output.out and "GRPO w/o std" in output.out
    assert f"3 x {QUESTIONS}" in output.out and f"4 x {QUESTIONS}" not in output.out
    assert "not run" not in output.out and "rewards rescaled" not in output.out
    remark = "seed 7 of gdpo is left out; --seeds 0-2,7 takes it in"
    assert remark in output.out and remark in call("check tool_calling")[1].out
    assert f"4 x {QUESTIONS}" in call("report tool_calling --seeds 0-2,7")[1].out


def test_explain_power_and_status_follow_the_arms_and_seeds_of_a_report(call, tmp_path):
    write(tmp_path / "runs", AS_IN_THE_PAPER, seeds=(0, 1, 2, 3))
    key = "explain embedded:tiny/gdpo/correct --experiment tool_calling --json"
    every, some = (json.loads(call(f"{key}{more}")[1].out) for more in ("", " --arms grpo,gdpo --seeds 0-1"))
    assert (every["n"]["seeds"], some["n"]["seeds"]) == (3, 2)
    assert every["notes"] == [
        "seed 3 of grpo, seed 3 of grpo_no_std, seed 3 of gdpo are left out; --seeds 0-3 takes them in"
    ]
    assert some["notes"] == ["seeds 2-3 of grpo, seeds 2-3 of gdpo are left out; --seeds 0-3 takes them in"]
    rows = json.loads(call("power tool_calling --arms grpo,gdpo --seeds 0-1 --json")[1].out)
    assert {row["claim"].split(" on ")[0]: row["seeds"] for row in rows}["gdpo > grpo_no_std"] == 0

    def shown(more):
        return {row["name"] for row in json.loads(call(f"status tool_calling --json {more}")[1].out)["runs"]} - {
            "warm-up"
        }

    assert shown("") == {f"{arm} seed{seed}" for arm in AS_IN_THE_PAPER for seed in range(4)}
    assert shown("--seeds 3,5") == {f"{arm} seed{seed}" for arm in AS_IN_THE_PAPER for seed in (3, 5)}
    assert shown("--arms gdpo") == {f"gdpo seed{seed}" for seed in range(4)}
    assert shown("--arms gdpo --seeds 0-1") == {"gdpo seed0", "gdpo seed1"}


def test_a_report_is_of_the_arms_and_seeds_that_are_asked_for(call, tmp_path):
    write(tmp_path / "runs", AS_IN_THE_PAPER)
    output = call("report tool_calling --arms grpo,gdpo --seeds 1-2")[1].out
    table = (tmp_path / "runs/tool_calling/embedded/tiny/report/table.csv").read_text("utf-8")
    assert {line.split(",")[1] for line in table.splitlines()[1:]} >= {"grpo", "gdpo"} and "grpo_no_std" not in table
    assert f"2 x {QUESTIONS}" in output and f"3 x {QUESTIONS}" not in output
    assert "seed 0 of grpo, seed 0 of gdpo are left out; --seeds 0-2 takes them in" in output.replace("\n  ", " ")
    code, missing = call("report tool_calling --seeds 5")
    assert code == 3 and "no runs of these arms and seeds" in missing.err and "--seeds 0-2,5" in missing.err


def test_power_is_about_the_runs_of_this_machine(call, tmp_path):
    write(tmp_path / "runs", AS_IN_THE_PAPER, seeds=(0, 1, 2, 7))
    rows = json.loads(call("power tool_calling --json")[1].out)
    assert {row["exhibit"] for row in rows} == {"embedded"} and {row["seeds"] for row in rows} == {3}
    assert {row["seeds"] for row in json.loads(call("power tool_calling --seeds 0-2,7 --json")[1].out)} == {4}
    assert {row["spread"] for row in rows if row["papers_effect"] is None} <= {"the paper has none"}
    assert "embedded" not in {
        row["exhibit"] for row in json.loads(call("power tool_calling --scale paper --json")[1].out)
    }
    code, output = call("power tool_calling --out nowhere")
    assert code == 3 and "--scale paper" in output.err


def test_a_table_names_the_settings_that_are_not_the_experiments(call, tmp_path):
    write(tmp_path / "plain", {"gdpo": 0.9}, seeds=(0,))
    assert "Changed from" not in call("report tool_calling --out plain")[1].out
    write(tmp_path / "other", {"gdpo": 0.9, "grpo": 0.5}, seeds=(0,), overrides=("embedded.train.steps=7",))
    code, output = call("report tool_calling --out other")
    line = "Changed from the experiment's configuration: embedded.train.steps=7"
    assert code == 0 and line in output.out.replace("\n  ", " ")
    table = (tmp_path / "other/tool_calling/embedded/tiny/report/table.md").read_text("utf-8")
    assert f"- {line}\n" in table


def test_runs_with_other_settings_do_not_share_a_table(call, tmp_path):
    write(tmp_path / "runs", {"grpo": 0.5})
    write(tmp_path / "runs", {"gdpo": 0.9}, overrides=("embedded.train.steps=7",))
    for command in ("report", "check"):
        code, output = call(f"{command} tool_calling")
        assert code == 1
        assert "embedded.train.steps" in output.err and " and 7\n" in output.err


def test_seeds_of_an_arm_may_differ_in_the_seed_only(call, tmp_path):
    write(tmp_path / "runs", {"gdpo": 0.9}, seeds=(0,))
    write(tmp_path / "runs", {"gdpo": 0.9}, seeds=(1,), overrides=("gdpo.eps=0.1",))
    code, output = call("report tool_calling")
    assert code == 1
    assert "gdpo.eps" in output.err and " and 0.1\n" in output.err


def test_unfinished_and_unstarted_runs_have_words(call, tmp_path):
    write(tmp_path / "runs", {"gdpo": 0.9}, seeds=(0, 1))
    run = RunDir(tmp_path / "runs/tool_calling/embedded/tiny/gdpo/seed1")
    (run.path / "result.json").unlink()
    run.append_metrics({"step": 3, "reward/format/mean": 0.25, "reward/correct/mean": -1.5})
    code, output = call("status tool_calling --json")
    rows = {row["name"]: row for row in json.loads(output.out)["runs"]}
    assert code == 0
    assert rows["gdpo seed1"]["state"] == "stopped"
    assert rows["gdpo seed1"]["rewards"] == {"format": 0.25, "correct": -1.5}
    assert rows["gdpo seed1"]["rewards_from"] == "last step"
    assert (rows["gdpo seed0"]["state"], rows["gdpo seed2"]["state"]) == ("finished", "not run")


def test_a_last_step_without_a_graded_sample_shows_no_reward(call, tmp_path):
    write(tmp_path / "runs", {"gdpo": 0.9}, seeds=(0,))
    run = RunDir(tmp_path / "runs/tool_calling/embedded/tiny/gdpo/seed0")
    (run.path / "result.json").unlink()
    run.append_metrics({"step": 3, "reward/format/mean": math.nan, "reward/correct/mean": -1.5})
    code, output = call("status tool_calling --json")
    [row] = [row for row in json.loads(output.out)["runs"] if row["name"] == "gdpo seed0"]
    assert code == 0
    assert row["rewards"] == {"format": None, "correct": -1.5}


def test_explain_leads_from_an_embedded_cell_to_its_runs_and_samples(call, tmp_path):
    write(tmp_path / "runs", AS_IN_THE_PAPER)
    code, output = call("explain embedded:tiny/gdpo/format --json")
    answer = json.loads(output.out)
    assert code == 0 and answer["paper"] is None and answer["verdict"] is None
    assert answer["value"] == pytest.approx(90.0)
    assert [run["state"] for run in answer["runs"]] == ["finished"] * 3
    assert all((tmp_path / run["config"]).exists() for run in answer["runs"])
    path, line = answer["samples"][0]["score_at"].rsplit(":", 1)
    row = json.loads((tmp_path / path).read_text("utf-8").splitlines()[int(line) - 1])
    assert (row["row_id"], row["values"]) == (answer["samples"][0]["row_id"], answer["samples"][0]["values"])
    assert len(answer["claims"]) == 2 and "Qwen2.5-1.5B-Instruct" in answer["claims"][0]
    code, output = call("power tool_calling --scale embedded --json")
    rows = {row["claim"]: row for row in json.loads(output.out)}
    assert rows["gdpo > grpo on Correct format"]["papers_effect"] == 0.59
    assert rows["gdpo > grpo on Correctness"]["papers_effect"] is None


def test_sensitivity_over_learning_rates(call, tmp_path):
    for folder, rate, level in (("runs", "6e-4", 0.5), ("fast", "1e-3", 0.9), ("slow", "1e-4", 0.2)):
        write(tmp_path / folder, {"gdpo": 0.9}, seeds=(0,), overrides=(f"embedded.train.lr={rate}",))
        run = RunDir(tmp_path / folder / "tool_calling/embedded/tiny/gdpo/seed0")
        for step in range(10):
            run.append_metrics({"step": step + 1, "reward/format/mean": level, "reward/correct/mean": -level})
    code, output = call("report tool_calling --learning-rates fast --learning-rates slow")
    assert code == 0
    assert "format, GDPO: highest less lowest final level 0.700 over 3 learning rates, highest at 0.001" in output.out
    folder = tmp_path / "runs/tool_calling/embedded/tiny/report"
    assert "## Learning rates" in (folder / "stability.md").read_text("utf-8")
    assert "format,0.001,gdpo,0.9" in (folder / "learning_rates.csv").read_text("utf-8")
    code, output = call("report tool_calling --learning-rates fast --learning-rates fast")
    assert code == 2 and "has learning rate 0.001" in output.err
    write(tmp_path / "longer", {"gdpo": 0.9}, seeds=(0,), overrides=("embedded.train.steps=7",))
    code, output = call("report tool_calling --learning-rates longer")
    assert code == 1 and "embedded.train.steps" in output.err


def test_status_shows_the_other_runs_beside_one_that_cannot_be_read(call, tmp_path):
    write(tmp_path / "runs", AS_IN_THE_PAPER)
    broken = tmp_path / "runs/tool_calling/embedded/tiny/gdpo/seed1/metrics.jsonl"
    broken.write_text('{"step": 1\n{"step": 2}\n')
    code, output = call("status tool_calling --json")
    states = {row["name"]: row["state"] for row in json.loads(output.out)["runs"]}
    assert code == 1
    assert states["gdpo seed1"] == "unreadable" and states["gdpo seed0"] == "finished"
    assert "metrics.jsonl line 1 is corrupt" in call("status tool_calling")[1].out.replace("\n    ", " ")
