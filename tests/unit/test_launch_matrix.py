"""A whole experiment on Slurm: order, dependencies, and what the same command does later."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from gdpo_nemo import launch
from gdpo_nemo.errors import RunDirError, UsageError
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.run_tree import RunTree

WHOLE = {
    "gdpo": {"task": "tool_calling", "method": "gdpo"},
    "policy": {"model_name": "owner/model", "tokenizer": {"name": "owner/model"}},
    "grpo": {"max_num_steps": 100, "seed": 42},
    "checkpointing": {"checkpoint_dir": "results"},
    "cluster": {"num_nodes": 2, "gpus_per_node": 8},
}
EVALUATION = launch.Evaluation(
    "bfcl_v3",
    ("python", "bfcl.py", "--checkpoint", "{checkpoint}", "--out", "{out}"),
    ("bfcl_v3/result.json",),
)
SBATCH = """#!/bin/bash
number=$(($(cat "$SLURM/number" 2>/dev/null || echo 100) + 1))
if [[ -e $SLURM/refuse && $number -ge $(cat "$SLURM/refuse") ]]; then echo "sbatch: error: QOSMaxSubmit" >&2; exit 1; fi
echo "$number" >"$SLURM/number"
echo "$number $*" >>"$SLURM/calls"
echo "$number|PENDING" >>"$SLURM/queue"
echo "$number;cluster"
"""


class FakeSlurm:
    """Scripts that stand for Slurm's commands; jobs end when a test says so."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        scripts = {"sbatch": SBATCH, "squeue": 'cat "$SLURM/queue"', "sacct": 'cat "$SLURM/done"'}
        for name, script in scripts.items():
            (folder / name).write_text(
                script if script.startswith("#!") else f"#!/bin/bash\n{script} 2>/dev/null; true\n"
            )
            (folder / name).chmod(0o755)

    def calls(self) -> list[str]:
        """``<id> <arguments>`` of each sbatch so far."""
        file = self.folder / "calls"
        return file.read_text().splitlines() if file.exists() else []

    def end(self, number: str, state: str) -> None:
        queue = self.folder / "queue"
        queue.write_text(
            "".join(f"{line}\n" for line in queue.read_text().splitlines() if line.split("|")[0] != number)
        )
        with (self.folder / "done").open("a") as file:
            file.write(f"{number}|{state}\n")

    def refuse_from(self, number: int | None) -> None:
        (self.folder / "refuse").write_text(str(number)) if number else (self.folder / "refuse").unlink()


@pytest.fixture
def fake(tmp_path: Path, monkeypatch) -> FakeSlurm:
    folder = tmp_path / "slurm"
    folder.mkdir()
    monkeypatch.setenv("SLURM", str(folder))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return FakeSlurm(folder)


@pytest.fixture
def tree(tmp_path: Path) -> RunTree:
    return RunTree(tmp_path / "runs")


@pytest.fixture
def go(tree, tmp_path):
    """Launches arms x seeds, with one evaluation and a report."""
    (tmp_path / "RL").mkdir()
    (tmp_path / "RL" / "ray.sub").touch()
    options = launch.SlurmOptions(
        account="a", partition="p", time="1:0:0", container="c", nemo_rl=str(tmp_path / "RL"), package="-"
    )

    def start(arms=("grpo", "gdpo"), seeds=(0,), whole=WHOLE, **more) -> dict[str, dict]:
        jobs = [
            launch.training_job("tool_calling", arm, seed, whole, tree.run(arm, seed)) for seed in seeds for arm in arms
        ]
        wanted = {"evaluations": [EVALUATION], "report": ["gdpo", "report", "tool_calling"], **more}
        return {row["name"]: row for row in launch.launch(jobs, options, tree, **wanted).jobs}

    return start


def finish_training(tree: RunTree, arm: str, step: int = 100) -> None:
    folder = tree.run(arm, 0).path / "checkpoints" / f"step_{step}"
    folder.mkdir(parents=True)
    settings = tree.run(arm, 0).config()
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))


def finish_export(tree: RunTree, arm: str, step: int = 100) -> None:
    folder = tree.run(arm, 0).path / "export"
    folder.mkdir()
    (folder / "export.json").write_text(json.dumps({"step": step}))


def test_everything_is_submitted_in_order_and_waits_for_what_it_needs(go, fake, tree) -> None:
    rows = go()
    assert {name: row["id"] for name, row in rows.items()} == {
        "base bfcl_v3": "101",
        "grpo seed0 train": "102",
        "grpo seed0 export": "103",
        "grpo seed0 bfcl_v3": "104",
        "gdpo seed0 train": "105",
        "gdpo seed0 export": "106",
        "gdpo seed0 bfcl_v3": "107",
        "report": "108",
    }
    waits = {line.split()[0]: line.split("afterok:")[1].split()[0] for line in fake.calls() if "afterok" in line}
    assert waits == {"103": "102", "104": "103", "106": "105", "107": "106", "108": "101:104:107"}
    assert all("--kill-on-invalid-dep=yes" in line for line in fake.calls() if "afterok" in line)
    assert all(Path(line.split()[-1]).is_file() for line in fake.calls())
    assert tree.run("gdpo", 0).config()["grpo"]["seed"] == 0


def test_an_evaluation_is_of_the_export_and_the_base_is_a_row_of_its_own(go, fake, tree) -> None:
    rows = go()
    run, base = tree.run("gdpo", 0).path, tree.path / "base"
    assert f"--checkpoint {run}/export --out {run}/eval" in Path(rows["gdpo seed0 bfcl_v3"]["script"]).read_text()
    assert f"--checkpoint owner/model --out {base}/eval" in Path(rows["base bfcl_v3"]["script"]).read_text()


def test_without_evaluations_the_report_waits_for_the_exports(go, fake) -> None:
    rows = go(evaluations=[])
    assert rows["report"]["after"] == ["grpo seed0 export", "gdpo seed0 export"]
    assert not any("bfcl" in name for name in rows)


def test_the_same_command_leaves_alone_what_waits_or_runs(go, fake) -> None:
    first, calls = go(), fake.calls()
    assert {name: row["id"] for name, row in go().items()} == {name: row["id"] for name, row in first.items()}
    assert fake.calls() == calls


def test_what_is_finished_is_not_submitted_again_and_what_failed_is(go, fake, tree) -> None:
    go()
    for number in ("101", "102", "103"):
        fake.end(number, "COMPLETED")
    fake.end("105", "FAILED")
    fake.end("106", "CANCELLED by 0")
    fake.end("107", "CANCELLED by 0")
    fake.end("108", "CANCELLED by 0")
    finish_training(tree, "grpo")
    finish_export(tree, "grpo")
    (tree.path / "base" / "eval" / "bfcl_v3").mkdir(parents=True)
    (tree.path / "base" / "eval" / "bfcl_v3" / "result.json").touch()
    rows = go()
    assert {name: row["state"] for name, row in rows.items() if row["state"] == "FINISHED"} == {
        "base bfcl_v3": "FINISHED",
        "grpo seed0 train": "FINISHED",
        "grpo seed0 export": "FINISHED",
    }
    assert (rows["grpo seed0 bfcl_v3"]["id"], rows["grpo seed0 bfcl_v3"]["state"]) == ("104", "PENDING")
    assert [line.split()[0] for line in fake.calls()[8:]] == ["109", "110", "111", "112"]
    assert "afterok:104:111" in fake.calls()[-1]


def test_an_export_of_an_earlier_step_is_not_the_export_of_the_run(go, fake, tree) -> None:
    go(arms=("gdpo",), evaluations=[], report=[])
    for number in ("101", "102"):
        fake.end(number, "COMPLETED")
    finish_training(tree, "gdpo")
    finish_export(tree, "gdpo", step=50)
    assert go(arms=("gdpo",), evaluations=[], report=[])["gdpo seed0 export"]["id"] == "103"


def test_training_that_ended_before_its_last_step_is_over_when_slurm_says_so(go, fake, tree) -> None:
    go(arms=("gdpo",), evaluations=[], report=[])
    fake.end("101", "COMPLETED")
    finish_training(tree, "gdpo", step=60)
    rows = go(arms=("gdpo",), evaluations=[], report=[])
    assert (rows["gdpo seed0 train"]["state"], rows["gdpo seed0 export"]["id"]) == ("FINISHED", "102")


def test_a_report_is_made_again_when_something_else_was(go, fake, tree) -> None:
    go(arms=("gdpo",), evaluations=[])
    for number in ("101", "102", "103"):
        fake.end(number, "COMPLETED")
    finish_training(tree, "gdpo")
    finish_export(tree, "gdpo")
    assert go(arms=("gdpo",), evaluations=[])["report"]["state"] == "FINISHED"
    assert go(arms=("gdpo", "grpo"), evaluations=[])["report"]["state"] == "SUBMITTED"


def test_a_refusal_half_way_loses_nothing(go, fake, tree) -> None:
    fake.refuse_from(103)
    with pytest.raises(launch.SubmissionError, match="QOSMaxSubmit"):
        go()
    fake.refuse_from(None)
    rows = go()
    assert [row["id"] for row in rows.values()] == [str(number) for number in range(101, 109)]


def test_states_are_slurms_newest_words(go, fake, tree) -> None:
    assert launch.states(tree) == []
    go(arms=("gdpo",), evaluations=[], report=[])
    fake.end("101", "TIMEOUT")
    assert [(row["name"], row["state"]) for row in launch.states(tree)] == [
        ("gdpo seed0 train", "TIMEOUT"),
        ("gdpo seed0 export", "PENDING"),
    ]
    assert launch.states(tree, ask=False)[0]["state"] == "SUBMITTED"


def test_a_run_of_another_configuration_stops_the_whole_matrix(go, fake, tree) -> None:
    RunDir.claim(tree.run("gdpo", 0).path, {"grpo": {"max_num_steps": 7}}, {})
    with pytest.raises(RunDirError, match=r"grpo\.max_num_steps"):
        go()
    assert fake.calls() == []


def test_one_matrix_has_one_model(tree, go, fake) -> None:
    other = {**WHOLE, "policy": {"model_name": "owner/other", "tokenizer": {"name": "x"}}}
    jobs = [launch.training_job("t", arm, 0, whole, tree.run(arm, 0)) for arm, whole in (("a", WHOLE), ("b", other))]
    options = launch.SlurmOptions(
        account="a", partition="p", time="1:0:0", container="c", nemo_rl=str(tree.path.parent / "RL"), package="-"
    )
    with pytest.raises(UsageError, match="several models"):
        launch.launch(jobs, options, tree, evaluations=[EVALUATION])
