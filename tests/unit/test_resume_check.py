"""A run goes on from its own checkpoint only."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from gdpo_nemo.checkpoints import check_resume
from gdpo_nemo.errors import RunDirError

WHOLE = {
    "gdpo": {"task": "tool_calling", "rewards": {"format": {"weight": 1.0}}},
    "policy": {
        "model_name": "owner/base",
        "tokenizer": {"name": "owner/base"},
        "megatron_cfg": {"enabled": True, "tensor_model_parallel_size": 4},
        "hf_config_overrides": {},
        "train_global_batch_size": 512,
        "train_micro_batch_size": 1,
        "generation": {"temperature": 1.0, "vllm_cfg": {"tensor_parallel_size": 4}},
    },
    "loss_fn": {"ratio_clip_max": 0.2},
    "grpo": {"max_num_steps": 100, "num_prompts_per_step": 512, "seed": 1},
    "data": {"train": {"split": "train"}, "default": {"processor": "gdpo_rows"}, "num_workers": 1},
    "env": {"gdpo": {"tokenizer": "owner/base"}},
    "checkpointing": {"checkpoint_dir": ""},
}


def changed(key: str, value: object) -> dict:
    whole = json.loads(json.dumps(WHOLE))
    *sections, name = key.split(".")
    block = whole
    for section in sections:
        block = block.setdefault(section, {})
    block[name] = value
    return whole


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A checkpoint of WHOLE, with what NeMo RL itself changes in the configuration before it writes it."""
    written = changed("policy.generation._pad_token_id", 0)
    written["policy"]["generation"]["stop_token_ids"] = [2]
    written["policy"]["megatron_cfg"]["train_iters"] = 400
    written["gdpo"]["eps"] = 1e-6
    written["data"]["train"] = [{"split": "train", "processor": "gdpo_rows", "gdpo": written["gdpo"]}]
    folder = tmp_path / "checkpoints" / "step_20"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(written))
    return tmp_path / "checkpoints"


def test_a_run_goes_on_from_its_own_checkpoint(trained, tmp_path) -> None:
    assert check_resume(WHOLE, trained) == 20
    assert check_resume(changed("checkpointing.checkpoint_dir", str(trained))) == 20
    assert check_resume(WHOLE, tmp_path / "none") == 0


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("policy.model_name", "owner/other", None),
        ("policy.tokenizer.name", "owner/other", None),
        ("policy.hf_config_overrides.rope_scaling", {"factor": 2}, "policy.hf_config_overrides.rope_scaling.factor"),
        ("policy.megatron_cfg.enabled", False, None),
        ("policy.train_global_batch_size", 1024, None),
        ("policy.generation.temperature", 0.7, None),
        ("gdpo.rewards.format.weight", 2.0, None),
        ("gdpo.method", "grpo", None),
        ("loss_fn.ratio_clip_max", 0.28, None),
        ("grpo.num_prompts_per_step", 64, None),
        ("grpo.seed", 2, None),
        ("data.train.split", "heldout", None),
        ("data.default.processor", "other", "data.train.processor"),
        ("env.gdpo.tokenizer", "owner/other", None),
    ],
)
def test_another_run_does_not_go_on_from_it(trained, key, value, named) -> None:
    with pytest.raises(RunDirError) as caught:
        check_resume(changed(key, value), trained)
    lines = str(caught.value).splitlines()
    assert str(trained / "step_20") in lines[0]
    assert [line.split(":")[0].strip() for line in lines[1:-1]] == [named or key]


def test_a_key_that_the_checkpoint_has_and_the_run_lacks_is_a_difference(trained) -> None:
    without = {**WHOLE, "loss_fn": {}}
    with pytest.raises(RunDirError, match=r"loss_fn\.ratio_clip_max: 0\.2 there, '\(absent\)' now"):
        check_resume(without, trained)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("policy.megatron_cfg.tensor_model_parallel_size", 8),
        ("policy.generation.vllm_cfg.tensor_parallel_size", 8),
        ("policy.train_micro_batch_size", 4),
        ("policy.megatron_cfg.activation_checkpointing", True),
        ("grpo.max_num_steps", 200),
        ("data.num_workers", 8),
        ("logger.wandb_enabled", True),
        ("cluster.num_nodes", 8),
        ("checkpointing.save_period", 5),
    ],
)
def test_how_a_run_is_spread_and_how_long_it_goes_on_may_change(trained, key, value) -> None:
    assert check_resume(changed(key, value), trained) == 20
