"""A checkpoint in PyTorch's distributed format, through NeMo RL's own converter, on the CPU."""

import json
import subprocess
import sys

import checkout
import pytest
import torch
import yaml

found = checkout.require()

import torch.distributed.checkpoint as dcp  # noqa: E402
from nemo_rl.algorithms.grpo import MasterConfig  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, LlamaConfig  # noqa: E402

from gdpo_nemo.checkpoints import check_resume, converters, export, find  # noqa: E402
from gdpo_nemo.cluster.recipes import load_cluster_run  # noqa: E402
from gdpo_nemo.data.tool_world import ToolWorld  # noqa: E402
from gdpo_nemo.models.tiny import build_tokenizer  # noqa: E402
from gdpo_nemo.suite.programs import programs_root  # noqa: E402

OVERRIDES = {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}}


@pytest.fixture(params=["first", "second"])
def run(request, tmp_path):
    """A run directory as DTensor's first or second version leaves it, whose weights are not the base model's."""
    base, step = tmp_path / "base", tmp_path / "run" / "checkpoints" / "step_7"
    torch.manual_seed(0)
    tokenizer = build_tokenizer(ToolWorld())
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(**sizes, vocab_size=len(tokenizer), max_position_embeddings=64)
    model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(base)
    tokenizer.save_pretrained(base)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    (step / "policy").mkdir(parents=True)
    weights = step / "policy" / "weights"
    state, place = (
        ({"model": model.state_dict()}, weights)
        if request.param == "first"
        else (model.state_dict(), weights / "model")
    )
    dcp.save(state, checkpoint_id=place, no_dist=True)
    tokenizer.chat_template = "trained with {{ messages }}"
    tokenizer.save_pretrained(step / "policy" / "tokenizer")
    policy = {"model_name": str(base), "tokenizer": {"name": str(base)}, "hf_config_overrides": OVERRIDES}
    (step / "config.yaml").write_text(yaml.safe_dump({"policy": policy}))
    return tmp_path / "run"


def test_the_export_is_the_trained_model_with_its_tokenizer_and_rope(run, tmp_path):
    to = tmp_path / "hf"
    exported = export(f"{run}@7", to, locate=lambda: found)
    assert exported.verification.against == "the checkpoint's own weights"
    assert exported.verification.difference == 0
    assert "convert_dcp_to_hf.py" in exported.command
    assert json.loads((to / "config.json").read_text())["rope_parameters"]["factor"] == 4.0
    assert AutoTokenizer.from_pretrained(to).chat_template == "trained with {{ messages }}"


@pytest.mark.parametrize("run", ["first"], indirect=True)
def test_the_converter_alone_loses_what_the_run_changed_in_the_models_config(run, tmp_path):
    """The reason for the patched configuration: without it the same command writes a model without these changes."""
    checkpoint = find(str(run))
    command = converters.command(checkpoint, checkpoint.path / "config.yaml", tmp_path / "plain", found)
    subprocess.run([sys.executable, *command[1:]], env=found.environment(), check=True, capture_output=True)
    assert AutoConfig.from_pretrained(tmp_path / "plain").rope_parameters.get("factor") is None


def test_a_run_goes_on_from_what_this_nemo_rl_writes(tmp_path):
    """``config.yaml`` of a checkpoint is MasterConfig with its own defaults filled in."""
    names = ("tool_calling/paper", "tool_calling/gdpo", "model/qwen2.5-7b-instruct", "cluster/4n8g")
    configs = programs_root() / "configs"
    whole = load_cluster_run([configs / f"{name}.yaml" for name in names], checkout=found.root).whole
    (tmp_path / "step_3").mkdir()
    (tmp_path / "step_3" / "config.yaml").write_text(yaml.safe_dump(MasterConfig(**whole).model_dump()))
    assert check_resume(whole, tmp_path) == 3
