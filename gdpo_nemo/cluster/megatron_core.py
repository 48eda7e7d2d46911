"""What megatron-core says of a Megatron run: its own TransformerConfig is built on the CPU, where it is installed.

The keys are put into it as NeMo RL does (nemo_rl/models/megatron/setup.py:602-876 of v0.7.0): assigned to a
configuration that was made from the model's sizes, which is then checked again.
"""

from __future__ import annotations

import re
import warnings
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from gdpo_nemo.cluster.architectures import Architecture
from gdpo_nemo.cluster.rules import Opinion, Violation
from gdpo_nemo.cluster.settings import MEGATRON, Settings

NAME = "megatron-core's TransformerConfig"
STAGES = ("num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage")
MOE = (
    "moe_router_dtype",
    "moe_router_load_balancing_type",
    "moe_router_bias_update_rate",
    "moe_router_num_groups",
    "moe_router_group_topk",
    "moe_enable_deepep",
    "moe_token_dispatcher_type",
    "moe_flex_dispatcher_backend",
    "moe_hybridep_num_sms",
    "moe_shared_expert_overlap",
    "moe_permute_fusion",
    "moe_grouped_gemm",
)
APPLIED = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    *STAGES,
    "sequence_parallel",
    "context_parallel_size",
    "expert_tensor_parallel_size",
    "expert_model_parallel_size",
    *MOE,
    "mtp_num_layers",
    "mtp_loss_scaling_factor",
    "mtp_use_repeated_layer",
    "apply_rope_fusion",
    "bias_activation_fusion",
    "gradient_accumulation_fusion",
    "use_fused_weighted_squared_relu",
    "transformer_impl",
    "cuda_graph_impl",
    "layernorm_epsilon",
)
"""Keys of ``policy.megatron_cfg`` that become the field of the same name."""
NAMED = (*APPLIED, "pipeline_dtype", "recompute_granularity", "recompute_modules", "attention_backend", "fp8_cfg")
NEEDS_TRANSFORMER_ENGINE = ("apply_rope_fusion", "moe_permute_fusion")
"""Refused by megatron-core where Transformer Engine is not installed, as on a machine that only plans."""
ABOUT_TRANSFORMER_ENGINE = re.compile(r"transformer.engine|\bTE\b", re.IGNORECASE)
REFUSALS = (ValueError, AssertionError, TypeError, KeyError, ZeroDivisionError, NotImplementedError)


def opinion(s: Settings) -> Opinion:
    """What megatron-core says, or why it was not asked. Imports torch and megatron-core only when it is asked."""
    if not s.megatron:
        return Opinion(NAME, unasked="DTensor trains" if s.dtensor else "Megatron is not enabled")
    if s.architecture is None:
        return Opinion(NAME, unasked=f"the sizes of {s.model} are not known here")
    core = _core()
    if isinstance(core, str):
        return Opinion(NAME, unasked=core)
    who = f"megatron-core {core.__version__}'s TransformerConfig"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            _build(s, s.architecture, core.transformer)
        except REFUSALS as error:
            if _transformer_engine() or not ABOUT_TRANSFORMER_ENGINE.search(str(error)):
                return Opinion(who, (_violation(s, error, core.__version__),))
    return Opinion(who)


@cache
def _core() -> Any:
    """The package, or why there is none."""
    missing = [name for name in ("megatron", "torch") if find_spec(name) is None]
    if missing or find_spec("megatron.core") is None:
        return f"{'torch' if missing == ['torch'] else 'megatron-core'} is not installed"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that Transformer Engine and Apex are not here
        try:
            for module in ("transformer", "transformer.enums", "transformer.transformer_block"):
                import_module(f"megatron.core.{module}")
        except (ImportError, OSError, RuntimeError) as error:  # also a CUDA library that this machine has not
            return f"megatron-core could not be imported: {error}"
    return import_module("megatron.core")


def _transformer_engine() -> bool:
    return find_spec("transformer_engine") is not None


def _build(s: Settings, architecture: Architecture, transformer: Any) -> None:
    """Make and check the configuration, then deal the layers to the pipeline's stages."""
    import torch

    config = transformer.TransformerConfig(
        num_layers=architecture.num_hidden_layers,
        hidden_size=architecture.hidden_size,
        ffn_hidden_size=architecture.intermediate_size,
        num_attention_heads=architecture.num_attention_heads,
        num_query_groups=architecture.num_key_value_heads,
        kv_channels=architecture.head_dim,
        qk_layernorm=architecture.model_type == "qwen3",
        add_qkv_bias=architecture.model_type == "qwen2",
        add_bias_linear=False,
        normalization="RMSNorm",
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        attention_dropout=0.0,
        hidden_dropout=0.0,
    )
    for name, value in _assigned(s, transformer.enums.AttnBackend).items():
        if hasattr(config, name):  # else this megatron-core has no such field
            setattr(config, name, value)
    config.__post_init__()
    for stage in range(s.pp):
        transformer.transformer_block.get_num_layers_to_build(config, pp_rank=stage)


def _assigned(s: Settings, backends: Any) -> dict[str, Any]:
    """Fields and the values that NeMo RL assigns.

    Raises:
        ValueError: NeMo RL or megatron-core knows no such dtype, backend or granularity.
    """
    import torch

    section = s[MEGATRON]
    values = {name: section[name] for name in APPLIED if name in section}
    if not _transformer_engine():
        values |= dict.fromkeys(NEEDS_TRANSFORMER_ENGINE, False)
    dtypes = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    precision = dtypes.get(s["policy.precision"], torch.float32)
    values |= {"bf16": precision == torch.bfloat16, "fp16": precision == torch.float16, "params_dtype": precision}
    if section["pipeline_dtype"] not in dtypes:
        raise ValueError(f"pipeline_dtype is {section['pipeline_dtype']!r}, expected one of {', '.join(dtypes)}")
    values["pipeline_dtype"] = dtypes[section["pipeline_dtype"]]
    if (backend := section.get("attention_backend")) is not None:
        if backend not in backends.__members__:
            raise ValueError(f"attention_backend is {backend!r}, expected one of {', '.join(backends.__members__)}")
        values["attention_backend"] = backends[backend]
    fp8 = section.get("fp8_cfg") or {}
    if fp8.get("enabled"):
        values |= {name: fp8[name] for name in ("fp8", "fp8_recipe", "fp8_param")}
    return values | _recomputation(s)


def _recomputation(s: Settings) -> dict[str, Any]:
    if not s.recompute:
        return {}
    granularity = s[MEGATRON].get("recompute_granularity", "full")
    if granularity == "full":
        return {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    if granularity != "selective":
        raise ValueError(f"recompute_granularity is {granularity!r}, expected full or selective")
    modules = s[f"{MEGATRON}.recompute_modules"]
    return {"recompute_granularity": granularity} | ({} if modules is None else {"recompute_modules": modules})


def _violation(s: Settings, error: Exception, version: str) -> Violation:
    """An error of megatron-core, on the key that its text names last: what the others have to fit."""
    text = str(error) or repr(error)
    places = {name: max(text.rfind(name), text.lower().rfind(name.replace("_", " "))) for name in NAMED}
    name = max(places, key=lambda name: (places[name], len(name)))
    # With stages of their own sizes, any of three keys may be the one that is wrong.
    stages = name == "pipeline_model_parallel_size" and any(s[f"{MEGATRON}.{key}"] is not None for key in STAGES)
    key = MEGATRON if places[name] < 0 or stages else f"{MEGATRON}.{name}"
    return Violation(key, f"{' '.join(text.split())} (megatron-core {version})", None, known=False)
