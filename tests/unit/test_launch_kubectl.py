"""Submission to Kubernetes, with a script that stands for kubectl."""

from __future__ import annotations

from pathlib import Path

import pytest

from gdpo_nemo import launch
from gdpo_nemo.errors import PrerequisiteError
from gdpo_nemo.run_tree import RunTree

WHOLE = {
    "gdpo": {"task": "tool_calling"},
    "policy": {"model_name": "owner/model", "tokenizer": {"name": "owner/model"}},
    "grpo": {"max_num_steps": 100, "seed": 42},
    "checkpointing": {"checkpoint_dir": "results"},
    "cluster": {"num_nodes": 2, "gpus_per_node": 8},
}
OPTIONS = launch.KubeRayOptions(image="image", claim="claim", namespace="team")
KUBECTL = """#!/bin/bash
echo "$*" >>"{folder}/calls"
case $1 in
  get) cat "{folder}/state" ;;
  apply) if [[ -e {folder}/refuses ]]; then echo "no RayJob in ray.io/v1" >&2; exit 1; fi; echo created ;;
esac
"""


@pytest.fixture
def submit(tmp_path: Path, monkeypatch):
    """Launches one run while kubectl says that its RayJob is in a state; gives the row and kubectl's calls."""
    (tmp_path / "kubectl").write_text(KUBECTL.format(folder=tmp_path))
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    tree = RunTree(tmp_path / "runs" / "tool_calling")
    run = tree.run("gdpo", 0)
    job = launch.training_job(
        "tool_calling", "gdpo", 0, WHOLE, run, seen_as=OPTIONS.seen_as(run.path, tmp_path / "runs")
    )

    def start(state: str):
        (tmp_path / "state").write_text(state)
        [row] = launch.launch([job], OPTIONS, tree, provenance={"code": 1}).jobs
        return row, (tmp_path / "calls").read_text().splitlines(), run

    return start


@pytest.mark.parametrize(
    ("state", "verbs"),
    [("", ["get", "apply"]), ("Running", ["get", "apply"]), ("Failed", ["get", "delete", "apply"])],
)
def test_a_rayjob_that_ended_makes_room_for_the_next(submit, state, verbs) -> None:
    row, calls, run = submit(state)
    assert [call.split()[0] for call in calls] == verbs
    assert calls[-1] == f"apply -f {run.path / 'launch' / 'rayjob.yaml'}"
    assert all("-n team" in call for call in calls[:-1])
    assert (row["id"], row["answer"]) == ("tool-calling-gdpo-seed0", "created")
    assert run.config()["checkpointing"]["checkpoint_dir"] == "/shared/runs/tool_calling/gdpo/seed0/checkpoints"


def test_a_refusal_is_in_kubectls_words(submit, tmp_path) -> None:
    (tmp_path / "refuses").touch()
    with pytest.raises(launch.SubmissionError, match="no RayJob"):
        submit("")


def test_without_kubectl_nothing_is_claimed(submit, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(PrerequisiteError, match="kubectl was not found"):
        submit("")
    assert not RunTree(tmp_path / "runs" / "tool_calling").run("gdpo", 0).exists()
