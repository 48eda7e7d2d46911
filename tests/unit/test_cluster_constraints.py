"""Every official recipe passes; broken variants fail, each with its reason, and the value named makes them pass."""

import math

import pytest
from official_recipes import LLAMA_8B, NAMES, changed, recipe

from gdpo_nemo.cluster.constraints import CONSTRAINTS, host_violations
from gdpo_nemo.cluster.host import FACTS, packaged
from gdpo_nemo.cluster.recipes import load_recipe
from gdpo_nemo.cluster.settings import Settings

COMMITS = sorted(path.stem for path in FACTS.glob("*.json"))
QWEN_7B = "grpo-qwen2.5-7b-instruct-4n8g-megatron"
QWEN_32B, ASYNC = "grpo-qwen3-32b-4n8g", "grpo-qwen3-32b-8n8g-async-1off"
YARN, FP8_CACHE, LLAMA_70B = (
    "grpo-qwen2.5-1.5B-4n8g-megatron-yarn-256k",
    "grpo-qwen3-8b-base-1n8g-fp8-kvcache-megatron",
    "grpo_math_70B_megatron",
)
M, V = "policy.megatron_cfg", "policy.generation.vllm_cfg"
COLOCATED = "policy.generation.colocated"
ROPE = "policy.hf_config_overrides.rope_scaling"


@pytest.mark.parametrize("commit", COMMITS)
@pytest.mark.parametrize("name", NAMES)
def test_every_official_recipe_passes(name, commit):
    assert host_violations(load_recipe(NAMES[name], host=packaged(commit))) == []


BROKEN = [
    # layouts
    (LLAMA_8B, {"policy.dtensor_cfg.enabled": True}, "policy.dtensor_cfg.enabled", "both enabled"),
    (LLAMA_8B, {f"{M}.enabled": False}, f"{M}.enabled", "nothing trains"),
    (LLAMA_8B, {f"{M}.tensor_model_parallel_size": 8}, "cluster.num_nodes", "8 x PP 2 x CP 1 = 16 GPUs, but 8 train"),
    (LLAMA_70B, {f"{M}.pipeline_model_parallel_size": 10}, "cluster.num_nodes", "64 GPUs do not divide into copies"),
    (QWEN_7B, {f"{M}.tensor_model_parallel_size": 8}, f"{M}.tensor_model_parallel_size", "28 attention heads (4 of"),
    (QWEN_7B, {f"{M}.pipeline_model_parallel_size": 8}, f"{M}.pipeline_model_parallel_size", "28 layers of Qwen"),
    (
        QWEN_32B,
        {f"{M}.num_layers_in_first_pipeline_stage": 15},
        f"{M}.num_layers_in_first_pipeline_stage",
        "with 15 layers in one stage, the others of the 64 do not divide into 4",
    ),
    (
        QWEN_32B,
        {f"{M}.num_layers_in_last_pipeline_stage": 14},
        f"{M}.num_layers_in_last_pipeline_stage",
        "with 14 layers in one stage",
    ),
    (
        QWEN_32B,
        {f"{M}.num_layers_in_first_pipeline_stage": 0, f"{M}.pipeline_model_parallel_size": 2},
        f"{M}.num_layers_in_first_pipeline_stage",
        "with 0 layers in one stage",
    ),
    (
        QWEN_7B,
        {f"{M}.num_layers_in_first_pipeline_stage": 14},
        f"{M}.num_layers_in_first_pipeline_stage",
        "do not divide into 1 stages",
    ),
    (LLAMA_8B, {f"{M}.pipeline_dtype": None}, f"{M}.pipeline_dtype", "pipeline parallel size 2 needs the type"),
    (LLAMA_8B, {f"{M}.sequence_parallel": True}, f"{M}.sequence_parallel", "tensor parallel size above 1"),
    (LLAMA_8B, {f"{M}.expert_model_parallel_size": 2}, f"{M}.expert_model_parallel_size", "has no experts"),
    (YARN, {"policy.sequence_packing.enabled": False}, "policy.sequence_packing.enabled", "context parallel size 32"),
    (YARN, {f"{M}.use_linear_ce_fusion_loss": True}, f"{M}.use_linear_ce_fusion_loss", "fused linear cross-entropy"),
    (
        YARN,
        {"policy.make_sequence_length_divisible_by": 32},
        "policy.make_sequence_length_divisible_by",
        "multiples of 64, not of 32",
    ),
    (
        QWEN_32B,
        {"policy.make_sequence_length_divisible_by": 2},
        "policy.make_sequence_length_divisible_by",
        "TP 4, CP 1 and sequence_parallel True",
    ),
    (
        QWEN_7B,
        {"policy.max_total_sequence_length": 40000, "policy.sequence_packing.train_mb_tokens": 40000},
        "policy.max_total_sequence_length",
        "40000 tokens are more than the 32768 positions",
    ),
    (QWEN_7B, {f"{V}.tensor_parallel_size": 3}, f"{V}.tensor_parallel_size", "32 GPUs do not divide into vLLM"),
    (QWEN_7B, {f"{V}.tensor_parallel_size": 8}, f"{V}.tensor_parallel_size", "vLLM tensor parallel size 8"),
    (
        LLAMA_8B,
        {f"{COLOCATED}.enabled": False},
        f"{COLOCATED}.resources.gpus_per_node",
        "needs some of its 8 GPUs, not None",
    ),
    (
        LLAMA_8B,
        {
            f"{COLOCATED}.enabled": False,
            f"{COLOCATED}.resources.gpus_per_node": 4,
            f"{COLOCATED}.resources.num_nodes": 2,
        },
        f"{COLOCATED}.resources.num_nodes",
        "cluster of one node",
    ),
    (ASYNC, {f"{COLOCATED}.resources.num_nodes": 8}, f"{COLOCATED}.resources.num_nodes", "some of the 8 nodes, not 8"),
    (
        ASYNC,
        {f"{COLOCATED}.resources.gpus_per_node": 4},
        f"{COLOCATED}.resources.gpus_per_node",
        "whole nodes of 8 GPUs, not 4",
    ),
    # batches
    (
        LLAMA_8B,
        {"policy.train_global_batch_size": 500},
        "policy.train_global_batch_size",
        "64 prompts x 32 rollouts = 2048 is no multiple",
    ),
    (
        QWEN_7B,
        {"policy.train_global_batch_size": 8},
        "policy.train_global_batch_size",
        "8 is no multiple of the data parallel size 16",
    ),
    (
        LLAMA_8B,
        {"policy.sequence_packing.enabled": False, "policy.train_micro_batch_size": 3},
        "policy.train_micro_batch_size",
        "512 over 4 replicas is no multiple of policy.train_micro_batch_size 3",
    ),
    (
        LLAMA_8B,
        {"policy.sequence_packing.enabled": False, "policy.logprob_batch_size": 3},
        "policy.logprob_batch_size",
        "2048 rollouts over 4 replicas",
    ),
    (
        FP8_CACHE,
        {"policy.logprob_batch_size": 2},
        "policy.logprob_batch_size",
        "with tensor parallel size 4 (4 or more)",
    ),
    (
        LLAMA_8B,
        {"policy.sequence_packing.train_mb_tokens": 2048},
        "policy.sequence_packing.train_mb_tokens",
        "4096 tokens does not fit a pack of 2048",
    ),
    (
        LLAMA_8B,
        {"policy.sequence_packing.logprob_mb_tokens": 2048},
        "policy.sequence_packing.logprob_mb_tokens",
        "does not fit a pack of 2048",
    ),
    # training engines
    (
        LLAMA_8B,
        {"policy.dynamic_batching.enabled": True, "policy.sequence_packing.enabled": False},
        "policy.dynamic_batching.enabled",
        "pipeline parallel size 1, not 2",
    ),
    (QWEN_7B, {"policy.dynamic_batching.enabled": True}, "policy.dynamic_batching.enabled", "exclude each other"),
    (
        LLAMA_8B,
        {f"{M}.optimizer.optimizer_cpu_offload": True},
        f"{M}.optimizer.optimizer_offload_fraction",
        "as a whole or not at all, not by 0.0",
    ),
    (LLAMA_8B, {"policy.logprob_chunk_size": 512}, f"{M}.defer_fp32_logits", "logprob_chunk_size 512"),
    (LLAMA_8B, {f"{M}.optimizer.bf16": False}, f"{M}.optimizer.bf16", "bfloat16 does not go with"),
    (
        LLAMA_8B,
        {"policy.precision": "float16", f"{M}.optimizer.bf16": False},
        f"{M}.optimizer.fp16",
        "float16 does not go with",
    ),
    (LLAMA_8B, {"policy.precision": "float32"}, f"{M}.optimizer.bf16", "float32 does not go with"),
    (
        LLAMA_8B,
        {"policy.precision": "float32", f"{M}.optimizer.bf16": False, f"{M}.optimizer.fp16": True},
        f"{M}.optimizer.fp16",
        "float32 does not go with",
    ),
    (LLAMA_8B, {f"{M}.optimizer.min_lr": 1e-6}, f"{M}.optimizer.min_lr", "min_lr 1e-06 is above lr 3e-07"),
    (LLAMA_8B, {f"{M}.scheduler.lr_warmup_init": 1e-6}, f"{M}.scheduler.lr_warmup_init", "is above lr 3e-07"),
    (LLAMA_8B, {f"{M}.scheduler.lr_warmup_iters": 1000}, f"{M}.scheduler.lr_warmup_iters", "warm-up of 1000 steps"),
    (YARN, {ROPE: {"rope_type": "yarn", "factor": 2.0}}, ROPE, "yarn needs all of factor, rope_theta"),
    (
        LLAMA_8B,
        {"policy.reward_model_cfg": {"enabled": True}},
        "policy.reward_model_cfg.enabled",
        "does not train reward models",
    ),
    (LLAMA_8B, {"policy.draft.enabled": True}, "policy.draft.enabled", "goes without sequence packing"),
    # generation
    (LLAMA_8B, {f"{V}.pipeline_parallel_size": 2}, f"{V}.async_engine", "vLLM pipeline parallel size 2"),
    (QWEN_7B, {f"{V}.expert_parallel_size": 6}, f"{V}.expert_parallel_size", "no multiple of its tensor"),
    (
        QWEN_7B,
        {f"{V}.expert_parallel_size": 8, f"{V}.async_engine": True},
        f"{V}.async_engine",
        "needs the synchronous engine",
    ),
    (LLAMA_8B, {"policy.generation.top_p": 0.0}, "policy.generation.top_p", "0.0 is not in (0, 1]"),
    (LLAMA_8B, {"policy.generation.top_k": 0}, "policy.generation.top_k", "neither 1 or more nor null"),
    (LLAMA_8B, {f"{V}.precision": "fp8"}, "loss_fn.use_importance_sampling_correction", "vLLM in fp8"),
    (FP8_CACHE, {f"{V}.precision": "bfloat16"}, f"{V}.precision", "needs fp8 weights, not bfloat16"),
    (FP8_CACHE, {f"{M}.pipeline_model_parallel_size": 2}, f"{V}.kv_cache_dtype", "pipeline parallel size 1"),
    # the algorithm
    (
        QWEN_32B,
        {"policy.train_global_batch_size": 1024},
        "policy.train_global_batch_size",
        "one optimiser step per rollout batch of 2048",
    ),
    (
        LLAMA_8B,
        {"grpo.skip_reference_policy_logprobs_calculation": True},
        "grpo.skip_reference_policy_logprobs_calculation",
        "a KL penalty of 0.01",
    ),
    (LLAMA_8B, {"grpo.batch_multiplier": 1.5}, "grpo.batch_multiplier", "dynamic sampling, which is off"),
    (LLAMA_8B, {"data.train.split_validation_size": 0}, "grpo.val_period", "10 needs data.validation"),
    (
        QWEN_7B,
        {"checkpointing.enabled": True, "checkpointing.metric_name": "val_reward"},
        "checkpointing.metric_name",
        "val_reward starts with neither",
    ),
    (ASYNC, {f"{V}.async_engine": False}, f"{V}.async_engine", "vLLM's asynchronous engine"),
    (
        ASYNC,
        {"loss_fn.use_importance_sampling_correction": False},
        "loss_fn.use_importance_sampling_correction",
        "off-policy",
    ),
    (ASYNC, {f"{COLOCATED}.enabled": True}, f"{COLOCATED}.enabled", "GPUs of its own"),
    *(
        (ASYNC, {key: True}, key, f"does not go with {key}")
        for key in (
            "grpo.use_dynamic_sampling",
            "grpo.reward_scaling.enabled",
            "grpo.reward_shaping.enabled",
            "data.use_multiple_dataloader",
        )
    ),
]


@pytest.mark.parametrize(("name", "changes", "key", "message"), BROKEN, ids=lambda part: str(part)[:40])
def test_a_broken_variant_fails_with_its_reason_and_a_value_that_works(name, changes, key, message):
    nemo = changed(recipe(name), changes)
    found = [violation for violation in host_violations(nemo) if violation.key == key and message in violation.message]
    assert len(found) == 1, host_violations(nemo)
    assert f". Set {key}=" in str(found[0])
    mended = host_violations(changed(nemo, {key: found[0].works}))
    assert found[0].message not in [violation.message for violation in mended]


def test_every_rule_is_broken_by_some_variant():
    def seen(rule):
        settings = [Settings(changed(recipe(name), changes)) for name, changes, key, _ in BROKEN if key == rule.key]
        return any(rule.broken(one) for one in settings)

    assert not [(rule.key, rule.message) for rule in CONSTRAINTS if not seen(rule)]


def test_the_global_batch_that_is_proposed_divides_everything():
    nemo = changed(recipe(QWEN_7B), {"policy.train_global_batch_size": 500})
    (violation, _) = host_violations(nemo)
    assert violation.works == 512 and math.gcd(violation.works, 2048) == 512


def test_uneven_first_and_last_stages_leave_the_middle_to_divide():
    stages = {f"{M}.num_layers_in_first_pipeline_stage": 15, f"{M}.num_layers_in_last_pipeline_stage": 15}
    assert host_violations(changed(recipe(QWEN_32B), stages)) == []  # 34 layers over 2 stages


def test_a_model_that_is_not_known_is_not_judged_by_its_sizes():
    nemo = changed(recipe(QWEN_7B), {"policy.model_name": "someone/else", f"{M}.pipeline_model_parallel_size": 8})
    assert host_violations(nemo) == []
