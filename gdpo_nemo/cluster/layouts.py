"""How GPUs, layers and heads divide, as data. Line numbers as in ``constraints``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gdpo_nemo.cluster.rules import Rule
from gdpo_nemo.cluster.settings import COLOCATED, DTENSOR, MEGATRON, VLLM, Settings

CORE = "megatron-core"


def nearest(value: int, fits: Callable[[int], bool], most: int) -> int:
    """The size nearest to ``value`` from 1 to ``most`` that fits; 1 when none does."""
    return min((size for size in range(1, most + 1) if fits(size)), key=lambda size: abs(size - value), default=1)


def _nodes(s: Settings) -> int:
    """The fewest nodes, not below the present number, that hold whole copies of the model."""
    per_node = max(1, int(s["cluster.gpus_per_node"] or 1))
    others = s.world - s.train_gpus if not s.colocated else 0
    nodes = max(1, int(s["cluster.num_nodes"] or 1))
    while (nodes * per_node - others) % s.model_parallel or nodes * per_node - others < s.model_parallel:
        nodes += 1
    return nodes


FIRST, LAST = (f"{MEGATRON}.num_layers_in_{place}_pipeline_stage" for place in ("first", "last"))


def _spread(s: Settings, fixed: dict[str, Any]) -> bool:
    """Whether the layers divide into stages; ``fixed`` are those of the first and last one, None: as the others."""
    assert s.architecture is not None
    given = [int(number) for number in fixed.values() if number is not None]
    layers, stages = s.architecture.num_hidden_layers - sum(given), s.pp - len(given)
    if stages < 0 or any(number < 1 for number in given):
        return False
    return layers == 0 if stages == 0 else layers > 0 and layers % stages == 0


def _uneven(key: str) -> Callable[[Settings], bool]:
    """Whether ``key`` gives a stage its number of layers, and the others then do not divide."""
    return lambda s: bool(s.megatron and s.architecture and s[key] is not None) and not _spread(s, _fixed(s))


def _evened(key: str) -> Callable[[Settings], int | None]:
    """The nearest number that divides; None, as every other stage, where there is no other."""

    def evened(s: Settings) -> int | None:
        if s.pp == 1:
            return None
        return nearest(s[key], lambda number: _spread(s, _fixed(s) | {key: number}), s[key] + s.pp)

    return evened


def _fixed(s: Settings) -> dict[str, Any]:
    return {FIRST: s[FIRST], LAST: s[LAST]}


def _heads_do_not_divide(s: Settings, parts: int) -> bool:
    if s.architecture is None:
        return False
    heads, groups = s.architecture.num_attention_heads, s.architecture.num_key_value_heads
    return heads % parts != 0 or (groups % parts != 0 and parts % groups != 0)


def _per_node(s: Settings) -> int:
    return int(s["cluster.gpus_per_node"] or 1)


def _apart(s: Settings, several_nodes: bool) -> bool:
    """Whether generation has GPUs of its own, on a cluster of one node or of several."""
    return not s.colocated and (int(s["cluster.num_nodes"] or 1) > 1) == several_nodes


GPUS, NODES = f"{COLOCATED}.resources.gpus_per_node", f"{COLOCATED}.resources.num_nodes"

LAYOUTS: tuple[Rule[Settings], ...] = (
    Rule(
        f"{DTENSOR}.enabled",
        lambda s: s.megatron and s.dtensor,
        "Megatron and DTensor are both enabled; one of them trains",
        False,
        "lm_policy.py:93",
    ),
    Rule(
        f"{MEGATRON}.enabled",
        lambda s: not s.megatron and not s.dtensor,
        "neither Megatron nor DTensor is enabled, so nothing trains",
        True,
        "lm_policy.py:127",
    ),
    Rule(
        "cluster.num_nodes",
        lambda s: 0 < s.train_gpus < s.model_parallel,
        "one copy of the model takes TP {s.tp} x PP {s.pp} x CP {s.cp} = {s.model_parallel} GPUs, "
        "but {s.train_gpus} train",
        _nodes,
        "lm_policy.py:196",
    ),
    Rule(
        "cluster.num_nodes",
        lambda s: s.train_gpus >= s.model_parallel and s.train_gpus % s.model_parallel,
        "{s.train_gpus} GPUs do not divide into copies of TP {s.tp} x PP {s.pp} x CP {s.cp} = {s.model_parallel}",
        _nodes,
        "lm_policy.py:204",
    ),
    Rule(
        f"{MEGATRON}.tensor_model_parallel_size",
        lambda s: s.megatron and _heads_do_not_divide(s, s.tp),
        "{s.architecture.num_attention_heads} attention heads ({s.architecture.num_key_value_heads} of keys) of "
        "{s.model} do not divide into tensor parallel size {s.tp}",
        lambda s: nearest(s.tp, lambda size: not _heads_do_not_divide(s, size), s.tp),
        f"{CORE} transformer_config.py:924",
    ),
    Rule(
        f"{MEGATRON}.pipeline_model_parallel_size",
        lambda s: (
            s.megatron
            and s.pp > 1
            and s.architecture
            and all(number is None for number in _fixed(s).values())
            and not _spread(s, _fixed(s))
        ),
        "{s.architecture.num_hidden_layers} layers of {s.model} do not divide into {s.pp} pipeline stages",
        lambda s: nearest(s.pp, lambda size: s.architecture.num_hidden_layers % size == 0, s.pp),
        f"{CORE} transformer_block.py",
    ),
    *(
        Rule(
            key,
            _uneven(key),
            f"with {{s[{key}]}} layers in one stage, the others of the {{s.architecture.num_hidden_layers}} "
            "do not divide into {s.pp} stages",
            _evened(key),
            f"{CORE} transformer_block.py",
        )
        for key in (FIRST, LAST)
    ),
    Rule(
        f"{MEGATRON}.pipeline_dtype",
        lambda s: s.megatron and s.pp > 1 and not s[f"{MEGATRON}.pipeline_dtype"],
        "pipeline parallel size {s.pp} needs the type of what stages send to each other",
        lambda s: s["policy.precision"] or "bfloat16",
        f"{CORE} model_parallel_config.py:413",
    ),
    Rule(
        f"{MEGATRON}.sequence_parallel",
        lambda s: s.megatron and s.sequence_parallel and s.tp == 1,
        "sequence parallelism needs a tensor parallel size above 1",
        False,
        f"{CORE} model_parallel_config.py:409",
    ),
    Rule(
        f"{MEGATRON}.expert_model_parallel_size",
        lambda s: s.megatron and (s[f"{MEGATRON}.expert_model_parallel_size"] or 1) > 1 and s.architecture,
        "{s.model} has no experts to spread over {s[policy.megatron_cfg.expert_model_parallel_size]} ranks",
        1,
        f"{CORE} transformer_config.py",
    ),
    Rule(
        "policy.sequence_packing.enabled",
        lambda s: s.megatron and s.cp > 1 and not s.packing,
        "context parallel size {s.cp} needs sequence packing",
        True,
        "models/megatron/setup.py:634",
    ),
    Rule(
        f"{MEGATRON}.use_linear_ce_fusion_loss",
        lambda s: s.megatron and s.cp > 1 and s[f"{MEGATRON}.use_linear_ce_fusion_loss"],
        "context parallel size {s.cp} does not go with the fused linear cross-entropy",
        False,
        "models/megatron/setup.py:637",
    ),
    Rule(
        "policy.make_sequence_length_divisible_by",
        lambda s: s.megatron and s.packing and (s["policy.make_sequence_length_divisible_by"] or 1) % s.length_multiple,
        "with TP {s.tp}, CP {s.cp} and sequence_parallel {s.sequence_parallel}, lengths must be multiples of "
        "{s.length_multiple}, not of {s[policy.make_sequence_length_divisible_by]}",
        lambda s: s.length_multiple,
        "models/megatron/data.py:1126",
    ),
    Rule(
        "policy.max_total_sequence_length",
        lambda s: s.architecture and s.seq > s.architecture.max_position_embeddings and not _longer_rope(s),
        "{s.seq} tokens are more than the {s.architecture.max_position_embeddings} positions of {s.model}",
        lambda s: s.architecture.max_position_embeddings,
        "vLLM max_model_len",
    ),
    Rule(
        f"{VLLM}.tensor_parallel_size",
        lambda s: s.vllm and s.generation_gpus > 0 and s.generation_gpus % (s.vllm_tp * s.vllm_pp),
        "{s.generation_gpus} GPUs do not divide into vLLM copies of TP {s.vllm_tp} x PP {s.vllm_pp}",
        lambda s: nearest(s.vllm_tp, lambda size: s.generation_gpus % (size * s.vllm_pp) == 0, s.vllm_tp),
        "vllm_generation.py:110",
    ),
    Rule(
        f"{VLLM}.tensor_parallel_size",
        lambda s: s.vllm and _heads_do_not_divide(s, s.vllm_tp),
        "{s.architecture.num_attention_heads} attention heads ({s.architecture.num_key_value_heads} of keys) of "
        "{s.model} do not divide into vLLM tensor parallel size {s.vllm_tp}",
        lambda s: nearest(s.vllm_tp, lambda size: not _heads_do_not_divide(s, size), s.vllm_tp),
        "vLLM",
    ),
    Rule(
        GPUS,
        lambda s: _apart(s, False) and not 0 < int(s[GPUS] or 0) < _per_node(s),
        "generation apart from training on one node needs some of its {s[cluster.gpus_per_node]} GPUs, "
        "not {s[policy.generation.colocated.resources.gpus_per_node]}",
        lambda s: max(1, _per_node(s) // 2),
        "grpo.py:612",
    ),
    Rule(
        NODES,
        lambda s: _apart(s, False) and s[NODES] not in (None, 1),
        "on a cluster of one node, generation has no {s[policy.generation.colocated.resources.num_nodes]} nodes",
        None,
        "grpo.py:620",
    ),
    Rule(
        NODES,
        lambda s: _apart(s, True) and not 0 < int(s[NODES] or 0) < int(s["cluster.num_nodes"]),
        "generation apart from training needs some of the {s[cluster.num_nodes]} nodes, "
        "not {s[policy.generation.colocated.resources.num_nodes]}",
        lambda s: max(1, int(s["cluster.num_nodes"]) // 2),
        "grpo.py:641",
    ),
    Rule(
        GPUS,
        lambda s: _apart(s, True) and s[GPUS] != s["cluster.gpus_per_node"],
        "generation takes whole nodes of {s[cluster.gpus_per_node]} GPUs, "
        "not {s[policy.generation.colocated.resources.gpus_per_node]}",
        lambda s: s["cluster.gpus_per_node"],
        "grpo.py:646",
    ),
)


def _longer_rope(s: Settings) -> bool:
    overrides = s["policy.hf_config_overrides"] or {}
    return "rope_scaling" in overrides or "max_position_embeddings" in overrides
