"""What Megatron and vLLM ask of their own settings, as data. Line numbers as in ``constraints``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gdpo_nemo.cluster.rules import Rule
from gdpo_nemo.cluster.settings import MEGATRON, VLLM, Settings

OPTIMIZER, SCHEDULER = f"{MEGATRON}.optimizer", f"{MEGATRON}.scheduler"
ROPE = "policy.hf_config_overrides.rope_scaling"
YARN = (
    "factor",
    "rope_theta",
    "original_max_position_embeddings",
    "truncate",
    "beta_fast",
    "beta_slow",
    "mscale",
    "mscale_all_dim",
)


def _yarn_missing(s: Settings) -> list[str]:
    rope = s[ROPE] if isinstance(s[ROPE], Mapping) else {}
    return [name for name in YARN if name not in rope] if rope.get("rope_type") == "yarn" else []


def _fp8_cache(s: Settings) -> bool:
    return s.vllm and str(s[f"{VLLM}.kv_cache_dtype"] or "auto").startswith("fp8")


def _disagree(precision: str, flag: str, value: bool) -> Callable[[Settings], bool]:
    """Whether a flag of the optimiser is not what a precision of the model needs."""

    def disagree(s: Settings) -> bool:
        if not s.megatron or s["policy.precision"] != precision:
            return False
        matters = s[f"{OPTIMIZER}.use_precision_aware_optimizer"] or precision == "float32"
        return bool(matters) and bool(s[f"{OPTIMIZER}.{flag}"]) != value

    return disagree


TRAINING: tuple[Rule[Settings], ...] = (
    Rule(
        "policy.dynamic_batching.enabled",
        lambda s: s.dynamic_batching and s.pp > 1,
        "dynamic batching needs pipeline parallel size 1, not {s.pp}; pack sequences instead",
        False,
        "lm_policy.py:283",
    ),
    Rule(
        "policy.dynamic_batching.enabled",
        lambda s: s.dynamic_batching and s.packing,
        "dynamic batching and sequence packing exclude each other",
        False,
        "lm_policy.py:296",
    ),
    Rule(
        f"{OPTIMIZER}.optimizer_offload_fraction",
        lambda s: (
            s.megatron
            and s[f"{OPTIMIZER}.optimizer_cpu_offload"]
            and s[f"{OPTIMIZER}.optimizer_offload_fraction"] != 1.0
        ),
        "the optimiser is offloaded as a whole or not at all, not by "
        "{s[policy.megatron_cfg.optimizer.optimizer_offload_fraction]}",
        1.0,
        "models/megatron/setup.py:880",
    ),
    Rule(
        f"{MEGATRON}.defer_fp32_logits",
        lambda s: s.megatron and (s["policy.logprob_chunk_size"] or 0) > 0 and not s[f"{MEGATRON}.defer_fp32_logits"],
        "policy.logprob_chunk_size {s[policy.logprob_chunk_size]} needs logits that are converted by chunks",
        True,
        "models/megatron/setup.py:895",
    ),
    *(
        Rule(
            f"{OPTIMIZER}.{flag}",
            _disagree(precision, flag, value),
            f"policy.precision {precision} does not go with {OPTIMIZER}.{flag} {{s[{OPTIMIZER}.{flag}]}}",
            value,
            "models/megatron/setup.py:948",
        )
        for precision, flag, value in (
            ("bfloat16", "bf16", True),
            ("float16", "fp16", True),
            ("float32", "bf16", False),
            ("float32", "fp16", False),
        )
    ),
    Rule(
        f"{OPTIMIZER}.min_lr",
        lambda s: s.megatron and (s[f"{OPTIMIZER}.min_lr"] or 0) > s[f"{OPTIMIZER}.lr"],
        "min_lr {s[policy.megatron_cfg.optimizer.min_lr]} is above lr {s[policy.megatron_cfg.optimizer.lr]}",
        lambda s: s[f"{OPTIMIZER}.lr"],
        "megatron-core optimizer_param_scheduler.py",
    ),
    Rule(
        f"{SCHEDULER}.lr_warmup_init",
        lambda s: s.megatron and (s[f"{SCHEDULER}.lr_warmup_init"] or 0) > s[f"{OPTIMIZER}.lr"],
        "lr_warmup_init {s[policy.megatron_cfg.scheduler.lr_warmup_init]} is above "
        "lr {s[policy.megatron_cfg.optimizer.lr]}",
        lambda s: s[f"{OPTIMIZER}.lr"],
        "megatron-core optimizer_param_scheduler.py",
    ),
    Rule(
        f"{SCHEDULER}.lr_warmup_iters",
        lambda s: (
            s.megatron
            and s[f"{SCHEDULER}.lr_decay_iters"]
            and (s[f"{SCHEDULER}.lr_warmup_iters"] or 0) >= s[f"{SCHEDULER}.lr_decay_iters"]
        ),
        "a warm-up of {s[policy.megatron_cfg.scheduler.lr_warmup_iters]} steps does not end before "
        "lr_decay_iters {s[policy.megatron_cfg.scheduler.lr_decay_iters]}",
        0,
        "megatron-core optimizer_param_scheduler.py",
    ),
    Rule(
        ROPE,
        lambda s: s.megatron and _yarn_missing(s),
        f"yarn needs all of {', '.join(YARN)}",
        lambda s: {**s[ROPE], **{name: f"<{name}>" for name in _yarn_missing(s)}},
        "models/megatron/setup.py:262",
    ),
    Rule(
        "policy.reward_model_cfg.enabled",
        lambda s: s.megatron and s["policy.reward_model_cfg.enabled"],
        "Megatron does not train reward models",
        False,
        "models/megatron/setup.py:257",
    ),
    Rule(
        "policy.draft.enabled",
        lambda s: s["policy.draft.enabled"] and (s.packing or not s.megatron),
        "a draft model needs Megatron and goes without sequence packing",
        False,
        "lm_policy.py:99",
    ),
)

GENERATION: tuple[Rule[Settings], ...] = (
    Rule(
        f"{VLLM}.async_engine",
        lambda s: s.vllm and s.vllm_pp > 1 and not s[f"{VLLM}.async_engine"],
        "vLLM pipeline parallel size {s.vllm_pp} needs the asynchronous engine",
        True,
        "vllm_generation.py:114",
    ),
    Rule(
        f"{VLLM}.expert_parallel_size",
        lambda s: s.vllm and s.vllm_ep > 1 and s.vllm_ep % s.vllm_tp,
        "vLLM expert parallel size {s.vllm_ep} is no multiple of its tensor parallel size {s.vllm_tp}",
        lambda s: s.vllm_tp,
        "vllm_generation.py:121",
    ),
    Rule(
        f"{VLLM}.async_engine",
        lambda s: s.vllm and 1 < s.vllm_ep != s.vllm_tp and s[f"{VLLM}.async_engine"],
        "vLLM expert parallel size {s.vllm_ep} with tensor parallel size {s.vllm_tp} needs the synchronous engine",
        False,
        "vllm_generation.py:127",
    ),
    Rule(
        "policy.generation.top_p",
        lambda s: s.vllm and not 0 < s["policy.generation.top_p"] <= 1,
        "policy.generation.top_p {s[policy.generation.top_p]} is not in (0, 1]",
        1.0,
        "vllm_generation.py:143",
    ),
    Rule(
        "policy.generation.top_k",
        lambda s: s.vllm and s["policy.generation.top_k"] not in (None, -1) and s["policy.generation.top_k"] < 1,
        "policy.generation.top_k {s[policy.generation.top_k]} is neither 1 or more nor null",
        None,
        "vllm_generation.py:136",
    ),
    Rule(
        "loss_fn.use_importance_sampling_correction",
        lambda s: s.vllm and s[f"{VLLM}.precision"] == "fp8" and not s["loss_fn.use_importance_sampling_correction"],
        "vLLM in fp8 samples from another distribution than the trained one, which has to be corrected",
        True,
        "grpo.py:999",
    ),
    Rule(
        f"{VLLM}.precision",
        lambda s: _fp8_cache(s) and s[f"{VLLM}.precision"] != "fp8",
        "an fp8 KV cache needs fp8 weights, not {s[policy.generation.vllm_cfg.precision]}",
        "fp8",
        "grpo.py:1005",
    ),
    Rule(
        f"{VLLM}.kv_cache_dtype",
        lambda s: _fp8_cache(s) and (s.dtensor or s.pp > 1 or s[f"{VLLM}.async_engine"]),
        "an fp8 KV cache goes with Megatron, pipeline parallel size 1 and the synchronous engine only",
        "auto",
        "grpo.py:1010",
    ),
)
