"""Memory of the fullest GPU while it trains and while it generates, line by line, each with its assumption.

Estimates from sizes, not measurements: activations follow Korthikanti et al. (arXiv 2205.05198, section 4), counted
for SwiGLU, grouped queries and an attention kernel that keeps no score matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

from gdpo_nemo.cluster.architectures import Architecture
from gdpo_nemo.cluster.parameters import Parameters, count
from gdpo_nemo.cluster.settings import MEGATRON, VLLM, Settings

GIB = 2**30
BF16, FP32 = 2, 4
RESERVE_BYTES = 4 * GIB


@dataclass(frozen=True)
class Line:
    """One part of the memory of a GPU.

    Attributes:
        name: what it is.
        num_bytes: on one GPU.
        assumption: what the number rests on, in words.
    """

    name: str
    num_bytes: float
    assumption: str


@dataclass(frozen=True)
class Memory:
    """What the fullest GPU holds.

    Attributes:
        gpu_bytes: memory of one GPU.
        training: parts that are there at once during an optimiser step.
        generation: parts that are there at once during rollouts.
        other_recompute: activations if recomputation were switched the other way.
        cache_tokens: tokens that the KV cache of one vLLM copy holds.
    """

    gpu_bytes: float
    training: tuple[Line, ...]
    generation: tuple[Line, ...]
    other_recompute: Line
    cache_tokens: int

    @property
    def training_bytes(self) -> float:
        """All of training."""
        return sum(line.num_bytes for line in self.training)

    @property
    def fits(self) -> bool:
        """Whether training fits one GPU, and the weights leave generation a cache."""
        return self.training_bytes <= self.gpu_bytes and self.cache_tokens > 0


def estimate(s: Settings, gpu_bytes: float) -> Memory | None:
    """Estimate for a configuration; None when the model's sizes are not known."""
    if s.architecture is None:
        return None
    parameters = count(s.architecture)
    training = [*_state(s, parameters), activations(s, s.architecture, s.recompute), _logits(s, s.architecture)]
    training.append(Line("reserve", RESERVE_BYTES, "CUDA context, NCCL buffers and fragmentation: 4 GiB assumed"))
    generation, cache_tokens = _generation(s, s.architecture, parameters, gpu_bytes)
    other = activations(s, s.architecture, not s.recompute)
    return Memory(gpu_bytes, tuple(training), tuple(generation), other, cache_tokens)


def _state(s: Settings, parameters: Parameters) -> list[Line]:
    """Weights, gradients and the optimiser's state."""
    if s.dtensor:
        held = parameters.total / (s.tp * s.dp * s.cp)
        gathered = (parameters.layer_split / s.tp + parameters.layer_whole) * 2 + parameters.embedding / s.tp
        shards = f"over TP {s.tp} x DP {s.dp * s.cp}"
        return [
            Line("weights", held * FP32 + gathered * BF16, f"FSDP2: float32 {shards}, two layers gathered in bf16"),
            Line("gradients", held * FP32, f"float32, split {shards}"),
            Line("optimiser", held * 2 * FP32, f"two float32 moments, split {shards}"),
        ]
    held = parameters.largest_rank(s.tp, s.pp)
    split = bool(s[f"{MEGATRON}.optimizer.use_distributed_optimizer"])
    offload = bool(s[f"{MEGATRON}.optimizer.optimizer_cpu_offload"])
    per_gradient = FP32 if s[f"{MEGATRON}.distributed_data_parallel_config.grad_reduce_in_fp32"] else BF16
    parts = s.dp * s.cp if split else 1
    where = f"split over DP x CP = {parts}" if split else "whole on every replica (no distributed optimizer)"
    return [
        Line(
            "weights", held * BF16, f"bf16, the fullest of TP {s.tp} x PP {s.pp} ranks: {held / 1e9:.2f} B parameters"
        ),
        Line("gradients", held * per_gradient, f"{per_gradient} bytes each, not split over replicas"),
        Line(
            "optimiser",
            0.0 if offload else held * 3 * FP32 / parts,
            "on the host (optimizer_cpu_offload)" if offload else f"float32 weights and two moments, {where}",
        ),
    ]


def activations(s: Settings, a: Architecture, recompute: bool) -> Line:
    """What the forward pass keeps for the backward pass, of the micro-batches that are under way at once."""
    tokens = s.microbatch_tokens / s.cp
    spread = s.tp if s.sequence_parallel else 1
    whole = 8 * a.hidden_size / spread  # two norms: their input and output
    split = BF16 * (a.query_size + 2 * a.kv_size + a.query_size + 3 * a.intermediate_size) / s.tp
    layers = -(-a.num_hidden_layers // s.pp)
    in_flight = min(s.pp, max(1, s.gbs // (s.dp * s.mbs)))
    layer = tokens * (whole + split)
    under_way = f"{tokens:,.0f} tokens x {layers} layers" + (f", {in_flight} micro-batches at once" if s.pp > 1 else "")
    if recompute:
        kept = tokens * BF16 * a.hidden_size / spread * layers * in_flight
        return Line("activations", kept + layer, f"recomputed: each layer's input, and one whole layer; {under_way}")
    return Line("activations", layer * layers * in_flight, f"all kept; {under_way}")


def _logits(s: Settings, a: Architecture) -> Line:
    deferred = bool(s[f"{MEGATRON}.defer_fp32_logits"]) and not s.dtensor
    per_value = 2 * BF16 if deferred else 2 * BF16 + 2 * FP32
    kind = "bf16 values and gradients" if deferred else "bf16 and float32 values and gradients"
    tokens = s.microbatch_tokens / s.cp
    return Line(
        "logits",
        tokens * a.vocab_size / s.tp * per_value,
        f"{kind}, {tokens:,.0f} tokens x {a.vocab_size:,} / TP {s.tp}",
    )


def _generation(s: Settings, a: Architecture, parameters: Parameters, gpu_bytes: float) -> tuple[list[Line], int]:
    share = float(s[f"{VLLM}.gpu_memory_utilization"] or 0.9)
    per_weight = 1 if s[f"{VLLM}.precision"] == "fp8" else BF16
    per_value = 1 if str(s[f"{VLLM}.kv_cache_dtype"] or "auto").startswith("fp8") else BF16
    weights = parameters.total * per_weight / (s.vllm_tp * s.vllm_pp)
    workspace = 2 * GIB
    cache = share * gpu_bytes - weights - workspace
    heads = max(1, a.num_key_value_heads / s.vllm_tp)
    per_token = 2 * heads * a.head_dim * a.num_hidden_layers / s.vllm_pp * per_value
    num_tokens = max(0, int(cache / per_token))
    full = num_tokens / s.seq
    return [
        Line("vLLM weights", weights, f"{per_weight} bytes each, over TP {s.vllm_tp} x PP {s.vllm_pp}"),
        Line("vLLM workspace", workspace, "activations and CUDA graphs: 2 GiB assumed"),
        Line(
            "KV cache",
            max(0.0, cache),
            f"the rest of gpu_memory_utilization {share:g}: {num_tokens:,} tokens, {full:,.0f} samples of full length",
        ),
    ], num_tokens
