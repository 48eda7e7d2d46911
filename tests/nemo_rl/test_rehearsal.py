"""NeMo RL's own main in processes: each arm trains, validates, saves and resumes; its advantages are ours."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import checkout
import pytest
import torch
import yaml

found = checkout.require()

from gdpo_nemo.backends.nemo_rl.rehearsal import stage  # noqa: E402
from gdpo_nemo.backends.nemo_rl.rehearsal.run import RehearsalError, check_step, rehearse, run_main  # noqa: E402
from gdpo_nemo.cluster.recipes import load_cluster_run  # noqa: E402
from gdpo_nemo.config import GdpoConfig, validate  # noqa: E402
from gdpo_nemo.files import append_jsonl, read_jsonl  # noqa: E402
from gdpo_nemo.method import Method  # noqa: E402
from gdpo_nemo.types import Rollout  # noqa: E402

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
ASYNC = (
    "grpo.async_grpo.enabled=true",
    "policy.generation.vllm_cfg.async_engine=true",
    "policy.generation.colocated.enabled=false",
    "policy.generation.colocated.resources.num_nodes=1",
    "policy.generation.colocated.resources.gpus_per_node=8",
    "loss_fn.use_importance_sampling_correction=true",
)
SIGNALS = (
    "gdpo.rewards.format.weight={schedule: step, values: [2.0, 0.5], steps: [3]}",
    "gdpo.rewards.correct.normalise=quantile",
    "gdpo.quantile={window: 3, refresh: 2}",
)
RUNS = {
    "gdpo": ("gdpo", ()),
    "grpo": ("grpo_no_std", ("gdpo.rewards.correct.condition.on=format", "gdpo.rewards.format.weight=2.0")),
    "dynamic_sampling": ("gdpo", ("grpo.use_dynamic_sampling=true", "grpo.batch_multiplier=2")),
    "async": ("gdpo", (*ASYNC, *SIGNALS)),
    "signals": ("gdpo", SIGNALS),
}


def cluster_run(arm, *overrides):
    """A run at the paper's settings on rows of the built-in world."""
    files = (
        "tool_calling/paper.yaml",
        f"tool_calling/{arm}.yaml",
        "model/qwen2.5-7b-instruct.yaml",
        "cluster/4n8g.yaml",
    )
    return load_cluster_run([CONFIGS / name for name in files], ["gdpo.data=null", *overrides])


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory):
    """A rehearsal by its name in ``RUNS``: findings and folder. Each runs once."""
    ready = {}

    def call(name):
        if name not in ready:
            arm, overrides = RUNS[name]
            folder = tmp_path_factory.mktemp(name) / "rehearsal"
            ready[name] = rehearse(cluster_run(arm, *overrides), "qwen2", folder, steps=2, say=print), folder
        return ready[name]

    return call


@pytest.mark.parametrize("name", RUNS)
def test_it_trains_and_resumes_where_it_stopped(name, rehearsed):
    findings, folder = rehearsed(name)
    assert findings.exercised["resume"] == "at step 2, on to step 3"
    assert "step_2" in findings.exercised["checkpoints"]
    assert all(metrics["loss"] == metrics["loss"] for metrics in findings.metrics.values())
    assert json.loads((folder / "rehearsal.json").read_text())["exercised"] == findings.exercised


@pytest.mark.parametrize("name", ["gdpo", "async"])
def test_every_reward_is_in_the_log(name, rehearsed):
    metrics = rehearsed(name)[0].metrics[3]
    for reward in ("format", "correct"):
        for number in ("mean", "std", "frac_dead_groups", "frac_missing"):
            assert f"reward/{reward}/{number}" in metrics
        assert f"advantage/{reward}/share" in metrics
    assert {"groups/alive", "advantage/amplification", "reward/frac_ungraded"} <= metrics.keys()


@pytest.mark.parametrize("name", RUNS)
def test_the_advantages_it_trains_on_are_ours_on_the_same_rollouts(name, rehearsed):
    """Responses from NeMo RL's own log of its training data, scored again and put through the package."""
    _, folder = rehearsed(name)
    config = yaml.safe_load((folder / "config.yaml").read_text())
    method = Method(validate(GdpoConfig, config["gdpo"]))
    golds = {prompt: row for prompt, row in prompts(config)}
    files = sorted(folder.glob("logs/exp_*/train_data_step*.jsonl"))
    assert len(files) == 3
    for step, file in enumerate(files, start=1):
        samples = [{name: value[0] for name, value in row.items() if name != "idx"} for row in read_jsonl(file)]
        rows = [golds[sample["content"][0]] for sample in samples]
        rollouts = [Rollout(row.id, 0, s["content"][1], 0) for row, s in zip(rows, samples, strict=True)]
        group_ids = torch.arange(len(samples)) // config["grpo"]["num_generations_per_prompt"]
        expected, _ = method.advantages(method.matrix(method.score(rows, rollouts)), group_ids, step=step)
        trained = torch.tensor([sample["advantages"][-1] for sample in samples], dtype=torch.float64)
        torch.testing.assert_close(trained, expected, rtol=1e-4, atol=1e-5)
    assert expected.abs().max() > 0 or name == "dynamic_sampling"


def prompts(config):
    """Prompt text and row of every entry of the training set."""
    from nemo_rl.data.datasets import load_response_dataset
    from transformers import AutoTokenizer

    from gdpo_nemo.types import Row

    tokenizer = AutoTokenizer.from_pretrained(config["policy"]["tokenizer"]["name"])
    settings = config["data"]["default"] | config["data"]["train"] | {"processor": "default"}
    for entry in load_response_dataset(settings).dataset:
        text = tokenizer.apply_chat_template(entry["messages"], tokenize=False, add_generation_prompt=True)
        yield text, Row(**json.loads(entry["row"]))


def test_sixty_steps_raise_both_rewards(tmp_path):
    whole = cluster_run("gdpo", "policy.megatron_cfg.optimizer.lr=0.001").whole
    model, tokenizer = stage.write_model(
        validate(GdpoConfig, whole["gdpo"]), stage.small_architecture("qwen2"), tmp_path
    )
    small = stage.shrink(whole, tmp_path, model, tokenizer, 60)
    changes = {
        "grpo": {"num_prompts_per_step": 16, "val_period": 0},
        "policy": {"train_global_batch_size": 64, "train_micro_batch_size": 64, "logprob_batch_size": 64},
        "checkpointing": {"enabled": False},
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(stage.merged(small, changes)))
    run_main(found, tmp_path, print)
    rows = [row["metrics"] for row in read_jsonl(tmp_path / "metrics.jsonl") if "reward/format/mean" in row["metrics"]]
    assert len(rows) == 60
    for reward, gain in (("format", 0.25), ("correct", 0.5)):
        means = [row[f"reward/{reward}/mean"] for row in rows]
        assert sum(means[-10:]) / 10 > sum(means[:5]) / 5 + gain, (reward, means)


def test_a_fault_of_the_job_ends_with_its_message(tmp_path):
    run = cluster_run("gdpo", "data.default.processor=gdpo_row")
    with pytest.raises(RehearsalError, match=re.escape("gdpo_row not found in PROCESSOR_REGISTRY")):
        rehearse(run, "qwen2", tmp_path / "rehearsal", say=print)


def test_an_early_end_without_an_error_is_a_fault(tmp_path):
    (tmp_path / "nemo_rl.log").write_text("the reason\n")
    append_jsonl(tmp_path / "metrics.jsonl", [{"prefix": "train", "step": 1, "metrics": {}}])
    check_step(tmp_path, 1)
    with pytest.raises(RehearsalError, match="ended before step 2\nthe reason"):
        check_step(tmp_path, 2)


CHILD = """
import signal, sys
from gdpo_nemo.backends.nemo_rl.rehearsal.__main__ import end_with_parent
signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # as Ray does
end_with_parent()
print("ready", flush=True)
signal.pause()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent ended")
def test_nothing_stays_of_a_rehearsal_that_was_killed(tmp_path):
    folder = tmp_path / "ray"
    folder.mkdir()
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"
    environment = found.environment() | {"RAY_TMPDIR": str(folder)}
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, env=environment)
    assert process.stdout.readline() == b"ready\n"
    os.kill(process.pid, 9)
    assert process.stdout.read() == b"" and process.wait() == -9  # the child held it open
    assert not folder.exists()
