"""Memory and cost by hand for a small model, and in which direction each setting moves them."""

import copy
import json

import pytest

from gdpo_nemo.cluster import cost, memory
from gdpo_nemo.cluster.host import packaged
from gdpo_nemo.cluster.memory import GIB
from gdpo_nemo.cluster.parameters import count
from gdpo_nemo.cluster.recipes import load_recipe
from gdpo_nemo.cluster.settings import Settings

M = "policy.megatron_cfg"
SIZES = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "tie_word_embeddings": False,
    "max_position_embeddings": 4096,
}


@pytest.fixture
def nemo(tmp_path):
    """The official 8B recipe (8 GPUs, PP 2, packs of 4096 tokens) with a small local model."""
    (tmp_path / "config.json").write_text(json.dumps(SIZES))
    nemo = copy.deepcopy(load_recipe("examples/configs/grpo_math_8B_megatron.yaml", host=packaged()))
    nemo["policy"]["model_name"] = str(tmp_path)
    return nemo


def estimated(nemo, gpu_bytes=80 * GIB, **megatron):
    nemo = copy.deepcopy(nemo)
    for key, value in megatron.items():
        section, _, name = key.rpartition("__")
        (nemo["policy"]["megatron_cfg"][section] if section else nemo["policy"]["megatron_cfg"])[name] = value
    needs = memory.estimate(Settings(nemo), gpu_bytes)
    return needs, {line.name: line.num_bytes for line in needs.training}


def test_weights_gradients_and_optimiser_by_hand(nemo):
    _, parts = estimated(nemo)
    layer = 64 * (64 + 2 * 32) + 64 * 64 + 3 * 64 * 128 + 2 * 64
    held = 2 * layer + 64 * 1000 + 64  # the last of two stages: two layers, the head, the last norm
    assert (parts["weights"], parts["gradients"]) == (2 * held, 2 * held)
    assert parts["optimiser"] == 12 * held / 4  # 8 GPUs / PP 2 = 4 replicas


def test_activations_and_logits_by_hand(nemo):
    _, parts = estimated(nemo)
    per_token = 8 * 64 + 2 * (64 + 2 * 32 + 64 + 3 * 128)
    assert parts["activations"] == 4096 * per_token * 2 * 2  # two layers a stage, two micro-batches under way
    assert parts["logits"] == 4096 * 1000 * 12
    needs, again = estimated(nemo, activation_checkpointing=True)
    assert again["activations"] == 4096 * (2 * 64 * 2 * 2 + per_token)
    assert needs.other_recompute.num_bytes == parts["activations"]


def test_what_saves_memory_saves_memory(nemo):
    base, parts = estimated(nemo)
    _, split = estimated(nemo, tensor_model_parallel_size=2, sequence_parallel=True)
    _, deferred = estimated(nemo, defer_fp32_logits=True)
    _, offloaded = estimated(nemo, optimizer__optimizer_cpu_offload=True)
    _, whole = estimated(nemo, optimizer__use_distributed_optimizer=False)
    assert split["weights"] < parts["weights"] and split["activations"] == parts["activations"] / 2
    assert deferred["logits"] == 4096 * 1000 * 4
    assert offloaded["optimiser"] == 0 and whole["optimiser"] == 4 * parts["optimiser"]
    assert base.training_bytes == sum(parts.values())


def test_dtensor_splits_its_float32_weights_over_all_gpus(nemo):
    nemo["policy"]["megatron_cfg"] = {"enabled": False}
    nemo["policy"]["dtensor_cfg"] = {"enabled": True, "tensor_parallel_size": 1, "context_parallel_size": 1}
    _, parts = estimated(nemo)
    total = count(Settings(nemo).architecture).total
    assert (parts["gradients"], parts["optimiser"]) == (total * 4 / 8, total * 8 / 8)


def test_the_cache_is_what_the_weights_leave(nemo):
    needs, _ = estimated(nemo, gpu_bytes=10 * GIB)
    lines = {line.name: line.num_bytes for line in needs.generation}
    assert sum(lines.values()) == pytest.approx(0.6 * 10 * GIB)
    per_token = 2 * 2 * 16 * 4 * 2  # keys and values, 2 heads of 16, 4 layers, 2 bytes
    assert needs.cache_tokens == int(lines["KV cache"] / per_token)
    assert needs.fits and not estimated(nemo, gpu_bytes=3 * GIB)[0].fits


def test_cost_by_hand(nemo):
    s = Settings(nemo)
    gpu = cost.Gpu("toy", 80 * GIB, 1e12)
    price = cost.estimate(s, gpu)
    samples, seq = 64 * 32, 4096
    used = count(s.architecture).total - 64 * 1000  # the input embedding is looked up, not multiplied
    forward = samples * seq * (2 * used + 4 * 4 * 64 * seq / 2)
    assert price.tokens_per_step == samples * seq
    assert price.flops_per_step["training"] == 3 * forward
    assert price.flops_per_step["log-probabilities"] == 2 * forward  # of the policy and, with KL, of the reference
    hours = 3 * forward * s["grpo.max_num_steps"] / (1e12 * cost.TRAIN_SHARE) / 3600
    assert price.gpu_hours["training"] == pytest.approx(hours)
    assert price.checkpoint_bytes == 14 * count(s.architecture).total
    assert price.download_bytes == 2 * count(s.architecture).total


def test_nothing_is_estimated_for_a_model_of_unknown_sizes(nemo):
    nemo["policy"]["model_name"] = "someone/else"
    assert memory.estimate(Settings(nemo), GIB) is None and cost.estimate(Settings(nemo), cost.GPUS["h100"]) is None
