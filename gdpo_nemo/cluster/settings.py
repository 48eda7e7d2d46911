"""NeMo RL's sections by dotted key, and the sizes that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from gdpo_nemo.cluster.architectures import Architecture, architecture_of

MEGATRON = "policy.megatron_cfg"
DTENSOR = "policy.dtensor_cfg"
VLLM = "policy.generation.vllm_cfg"
COLOCATED = "policy.generation.colocated"


class Settings:
    """A view of one configuration. ``settings["policy.precision"]`` is None where nothing is set."""

    def __init__(self, nemo: Mapping[str, Any]) -> None:
        self.nemo = nemo

    def __getitem__(self, key: str) -> Any:
        value: Any = self.nemo
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def _size(self, key: str) -> int:
        return int(self[key] or 1)

    # ---- which engines

    @property
    def megatron(self) -> bool:
        """Whether Megatron trains."""
        return bool(self[f"{MEGATRON}.enabled"])

    @property
    def dtensor(self) -> bool:
        """Whether PyTorch's DTensor (FSDP2) trains."""
        return bool(self[f"{DTENSOR}.enabled"])

    @property
    def vllm(self) -> bool:
        """Whether vLLM generates."""
        return bool(self["policy.generation.backend"] == "vllm")

    @property
    def asynchronous(self) -> bool:
        """Whether training and generation overlap (``grpo.async_grpo``)."""
        return bool(self["grpo.async_grpo.enabled"])

    @property
    def colocated(self) -> bool:
        """Whether training and generation take turns on the same GPUs."""
        enabled = self[f"{COLOCATED}.enabled"]
        return enabled is None or bool(enabled)

    # ---- how many GPUs

    @property
    def world(self) -> int:
        """GPUs of the whole cluster."""
        return self._size("cluster.num_nodes") * self._size("cluster.gpus_per_node")

    @property
    def generation_gpus(self) -> int:
        """GPUs that vLLM runs on."""
        if self.colocated:
            return self.world
        per_node = int(self[f"{COLOCATED}.resources.gpus_per_node"] or 0)
        return per_node * (self._size(f"{COLOCATED}.resources.num_nodes") if self._size("cluster.num_nodes") > 1 else 1)

    @property
    def train_gpus(self) -> int:
        """GPUs that train."""
        return self.world if self.colocated else self.world - self.generation_gpus

    # ---- the parallel layout of training and generation

    @property
    def tp(self) -> int:
        """Tensor parallel size of training."""
        return self._size(self.tp_key)

    @property
    def tp_key(self) -> str:
        """The key of ``tp``."""
        return f"{DTENSOR}.tensor_parallel_size" if self.dtensor else f"{MEGATRON}.tensor_model_parallel_size"

    @property
    def pp(self) -> int:
        """Pipeline parallel size of training."""
        return 1 if self.dtensor else self._size(f"{MEGATRON}.pipeline_model_parallel_size")

    @property
    def cp(self) -> int:
        """Context parallel size of training."""
        return self._size(f"{DTENSOR if self.dtensor else MEGATRON}.context_parallel_size")

    @property
    def sequence_parallel(self) -> bool:
        """Whether activations between tensor-parallel layers are split, too."""
        return bool(self[f"{DTENSOR if self.dtensor else MEGATRON}.sequence_parallel"])

    @property
    def recompute(self) -> bool:
        """Whether activations are computed again in the backward pass."""
        return bool(self[f"{DTENSOR if self.dtensor else MEGATRON}.activation_checkpointing"])

    @property
    def model_parallel(self) -> int:
        """GPUs that hold one copy of the model."""
        return self.tp * self.pp * self.cp

    @property
    def dp(self) -> int:
        """Data parallel size: copies of the model that train; at least 1, so that other rules can be checked."""
        return max(1, self.train_gpus // self.model_parallel)

    @property
    def vllm_tp(self) -> int:
        """Tensor parallel size of generation."""
        return self._size(f"{VLLM}.tensor_parallel_size")

    @property
    def vllm_pp(self) -> int:
        """Pipeline parallel size of generation."""
        return self._size(f"{VLLM}.pipeline_parallel_size")

    @property
    def vllm_ep(self) -> int:
        """Expert parallel size of generation."""
        return self._size(f"{VLLM}.expert_parallel_size")

    @property
    def vllm_replicas(self) -> int:
        """Copies of the model that generate."""
        return max(1, self.generation_gpus // (self.vllm_tp * self.vllm_pp))

    # ---- batches

    @property
    def prompts(self) -> int:
        """Prompts per rollout batch."""
        return self._size("grpo.num_prompts_per_step")

    @property
    def rollouts(self) -> int:
        """Rollouts per prompt."""
        return self._size("grpo.num_generations_per_prompt")

    @property
    def samples(self) -> int:
        """Rollouts per rollout batch."""
        return self.prompts * self.rollouts

    @property
    def gbs(self) -> int:
        """Rollouts per optimiser step."""
        return self._size("policy.train_global_batch_size")

    @property
    def mbs(self) -> int:
        """Rollouts per forward and backward pass of one replica, without packing."""
        return self._size("policy.train_micro_batch_size")

    @property
    def lbs(self) -> int:
        """Rollouts per pass that computes log-probabilities."""
        return int(self["policy.logprob_batch_size"] or self.mbs)

    @property
    def optimiser_steps(self) -> int:
        """Optimiser steps on one rollout batch."""
        return max(1, self.samples // self.gbs)

    @property
    def seq(self) -> int:
        """Tokens of the longest prompt and response together."""
        return self._size("policy.max_total_sequence_length")

    @property
    def max_new_tokens(self) -> int:
        """Tokens of the longest response."""
        return min(self.seq, int(self["policy.generation.max_new_tokens"] or self.seq))

    @property
    def packing(self) -> bool:
        """Whether several samples share one sequence."""
        return bool(self["policy.sequence_packing.enabled"])

    @property
    def dynamic_batching(self) -> bool:
        """Whether micro-batches are filled by tokens."""
        return bool(self["policy.dynamic_batching.enabled"])

    @property
    def microbatch_tokens(self) -> int:
        """Tokens of one training micro-batch, at most."""
        if self.packing:
            return int(self["policy.sequence_packing.train_mb_tokens"] or self.seq * self.mbs)
        if self.dynamic_batching:
            return int(self["policy.dynamic_batching.train_mb_tokens"] or self.seq * self.mbs)
        return self.seq * self.mbs

    @property
    def length_multiple(self) -> int:
        """What the length of each sample must be a multiple of (nemo_rl/models/megatron/data.py)."""
        split = 2 * self.cp if self.cp > 1 else 1
        return split * (self.tp if self.tp > 1 and self.sequence_parallel else 1)

    @property
    def pack_multiple(self) -> int:
        """What NeMo RL pads the length of each pack to a multiple of; 1 without fp8."""
        if not self[f"{MEGATRON}.fp8_cfg.enabled"]:
            return 1
        divisor = {"blockwise": 128, "mxfp8": 32}.get(self[f"{MEGATRON}.fp8_cfg.fp8_recipe"], 16)
        return divisor * self.length_multiple

    # ---- the model

    @property
    def model(self) -> str:
        """Hub id or local directory."""
        return str(self["policy.model_name"])

    @cached_property
    def architecture(self) -> Architecture | None:
        """Its sizes, None when this package does not know them."""
        return architecture_of(self.model)
