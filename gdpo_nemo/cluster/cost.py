"""Tokens, GPU-hours, disk and download of a run, each with its basis. Estimates: nothing is measured."""

from __future__ import annotations

from dataclasses import dataclass

from gdpo_nemo.cluster.architectures import Architecture
from gdpo_nemo.cluster.memory import BF16, FP32
from gdpo_nemo.cluster.parameters import count
from gdpo_nemo.cluster.settings import Settings

# Shares of the peak: assumptions, to be replaced by the run's own step times once it has some.
TRAIN_SHARE = 0.35
SCORE_SHARE = 0.40
GENERATE_SHARE = 0.08


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU.

    Attributes:
        name: as in messages.
        memory_bytes: usable memory.
        flops: dense bf16 operations per second, peak.
    """

    name: str
    memory_bytes: float
    flops: float


GPUS = {
    "h100": Gpu("H100 80 GB", 79.6 * 2**30, 989e12),
    "a100": Gpu("A100 80 GB", 79.2 * 2**30, 312e12),
    "h200": Gpu("H200 141 GB", 139.8 * 2**30, 989e12),
    "b200": Gpu("B200 180 GB", 178.0 * 2**30, 2250e12),
}


@dataclass(frozen=True)
class Cost:
    """What a run takes.

    Attributes:
        steps: rollout batches.
        tokens_per_step: prompt and response tokens of one rollout batch, at most.
        new_tokens_per_step: response tokens of one rollout batch, at most.
        flops_per_step: of generation, log-probabilities and training, by name.
        gpu_hours: of the whole run, by name.
        checkpoint_bytes: of one checkpoint.
        checkpoints: how many are kept.
        download_bytes: of the model.
    """

    steps: int
    tokens_per_step: int
    new_tokens_per_step: int
    flops_per_step: dict[str, float]
    gpu_hours: dict[str, float]
    checkpoint_bytes: float
    checkpoints: int
    download_bytes: float

    @property
    def total_gpu_hours(self) -> float:
        """All phases."""
        return sum(self.gpu_hours.values())


def estimate(s: Settings, gpu: Gpu) -> Cost | None:
    """Estimate for a configuration; None when the model's sizes are not known."""
    if s.architecture is None:
        return None
    parameters = count(s.architecture)
    steps = int(s["grpo.max_num_steps"] or 0)
    tokens, new_tokens = s.samples * s.seq, s.samples * s.max_new_tokens
    forward = tokens * _forward_flops_per_token(s.architecture, s.seq)
    scored = 1 + int((s["loss_fn.reference_policy_kl_penalty"] or 0) > 0)
    flops = {
        "generation": new_tokens * _forward_flops_per_token(s.architecture, s.seq),
        "log-probabilities": forward * scored,
        "training": forward * (4 if s.recompute else 3),
    }
    shares = {"generation": GENERATE_SHARE, "log-probabilities": SCORE_SHARE, "training": TRAIN_SHARE}
    hours = {name: value * steps / (gpu.flops * shares[name]) / 3600 for name, value in flops.items()}
    per_parameter = 3 * FP32 if s.dtensor else BF16 + 3 * FP32
    kept = int(s["checkpointing.keep_top_k"] or 0) if s["checkpointing.enabled"] else 0
    return Cost(
        steps=steps,
        tokens_per_step=tokens,
        new_tokens_per_step=new_tokens,
        flops_per_step=flops,
        gpu_hours=hours,
        checkpoint_bytes=parameters.total * per_parameter,
        checkpoints=kept,
        download_bytes=parameters.total * BF16,
    )


def _forward_flops_per_token(a: Architecture, seq: int) -> float:
    """Two per parameter in use, and two products of queries with all earlier keys and values (half of ``seq``)."""
    return 2 * count(a).used_per_token + 4 * a.num_hidden_layers * a.query_size * seq / 2


def basis(gpu: Gpu, s: Settings) -> str:
    """What the GPU-hours rest on, in words."""
    words = (
        f"{gpu.name} at {gpu.flops / 1e12:,.0f} TFLOP/s bf16 peak, of which generation is taken to reach "
        f"{GENERATE_SHARE:.0%}, log-probabilities {SCORE_SHARE:.0%} and training {TRAIN_SHARE:.0%}; every sample as "
        f"long as it may be ({s.seq:,} tokens); start-up, weight transfer, grading and saving are not counted"
    )
    if s["grpo.use_dynamic_sampling"]:
        words += (
            "; dynamic sampling fills each batch with up to "
            f"{s['grpo.dynamic_sampling_max_gen_batches']} generated ones, of which one is counted here"
        )
    return words
