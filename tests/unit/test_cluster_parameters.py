"""Parameter counts equal those of a transformers model built on the meta device from the same sizes."""

import json
from dataclasses import asdict

import pytest

from gdpo_nemo.cluster.architectures import KNOWN, Architecture, architecture_of
from gdpo_nemo.cluster.parameters import count
from gdpo_nemo.errors import InputError


def on_meta_device(architecture):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = asdict(architecture)
    config = AutoConfig.for_model(sizes.pop("model_type"), **sizes)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize("name", json.loads(KNOWN.read_text("utf-8"))["models"])
def test_the_count_is_that_of_transformers(name):
    architecture = architecture_of(name)
    assert count(architecture).total == on_meta_device(architecture).num_parameters()


def test_published_totals():
    assert count(architecture_of("Qwen/Qwen2.5-7B-Instruct")).total == 7_615_616_512
    assert count(architecture_of("meta-llama/Llama-3.3-70B-Instruct")).total == 70_553_706_496


def test_the_largest_rank_of_a_layout_by_hand():
    sizes = {"vocab_size": 100, "tie_word_embeddings": True, "max_position_embeddings": 64, "head_dim": 4}
    tied = Architecture("llama", 8, 16, 4, 2, 1, **sizes)
    attention, mlp, norms = 8 * (8 + 2 * 4) + 8 * 8, 3 * 8 * 16, 16
    one = count(tied)
    assert one.total == 800 + 4 * (attention + mlp + norms) + 8
    assert one.largest_rank(1, 1) == one.total
    assert one.largest_rank(2, 1) == 400 + 4 * ((attention + mlp) // 2 + norms) + 8
    assert one.largest_rank(1, 2) == 2 * (attention + mlp + norms) + 800 + 8  # the last stage has a copy
    assert one.used_per_token == one.total


def test_a_local_directory_is_read_and_an_unknown_family_is_not_guessed(tmp_path):
    sizes = asdict(architecture_of("Qwen/Qwen2.5-1.5B-Instruct"))
    (tmp_path / "config.json").write_text(json.dumps(sizes | {"head_dim": None, "torch_dtype": "bfloat16"}))
    assert architecture_of(str(tmp_path)) == architecture_of("Qwen/Qwen2.5-1.5B-Instruct")
    (tmp_path / "config.json").write_text(json.dumps(sizes | {"model_type": "mamba"}))
    assert architecture_of(str(tmp_path)) is None and architecture_of("someone/else") is None
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "num_attention_heads": 2}))
    with pytest.raises(InputError, match=r"config\.json does not describe a model"):
        architecture_of(str(tmp_path))
