"""The policy of a rehearsal: a causal LM in this process, behind the interface of NeMo RL's Policy.

It trains with NeMo RL's own loss function and batch arithmetic (global batches, micro-batches, normalisation over the
valid tokens of the global batch). Worker groups, parallelism and GPU memory are what it does not have.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from pathlib import Path
from typing import Any

import ray
import torch
from nemo_rl.distributed.batched_data_dict import BatchedDataDict
from nemo_rl.models.policy.interfaces import ColocatablePolicyInterface

from gdpo_nemo.errors import PrerequisiteError

FREE_MEMORY_BYTES = 1 << 30
"""What NeMo RL sizes its refit buffer by; there is none here."""


class OneWorker:
    """The sharding that NeMo RL's async trainer asks about."""

    def get_axis_size(self, axis: str) -> int:
        """One process on every axis."""
        return 1


class CpuPolicy(ColocatablePolicyInterface):
    """A Hugging Face causal LM and AdamW."""

    def __init__(
        self,
        *,
        config: dict[str, Any],
        tokenizer: Any,
        weights_path: Any = None,
        optimizer_path: Any = None,
        init_reference_model: bool = True,
        **_: Any,
    ) -> None:
        """Load the model of ``policy.model_name``, or of a checkpoint that this class wrote."""
        from transformers import AutoModelForCausalLM

        self.cfg, self.tokenizer = config, tokenizer
        self.temperature = float(config["generation"]["temperature"])
        self.sharding_annotations = OneWorker()
        base = AutoModelForCausalLM.from_pretrained(config["model_name"], dtype=torch.float32)
        self.reference = copy.deepcopy(base).eval() if init_reference_model else None
        self.model = AutoModelForCausalLM.from_pretrained(weights_path) if weights_path else base
        lr, weight_decay = _optimizer_options(config)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr, weight_decay=weight_decay)
        if optimizer_path:
            self.optimizer.load_state_dict(torch.load(Path(optimizer_path) / "optimizer.pt", weights_only=True))
        self.weights: Any = None

    # ---- what NeMo RL computes with

    def get_logprobs(self, data: Any, timer: Any = None) -> Any:
        """Log-probability of every token but the first, which has 0; [B, S]."""
        return BatchedDataDict({"logprobs": self._without_gradient(self.model, data)})

    def get_reference_policy_logprobs(self, data: Any, micro_batch_size: int | None = None, timer: Any = None) -> Any:
        """The same under the model that training began with."""
        if self.reference is None:
            raise PrerequisiteError("the run asks for reference log-probs and was set up without a reference model")
        return BatchedDataDict({"reference_logprobs": self._without_gradient(self.reference, data)})

    def train(
        self,
        data: Any,
        loss_fn: Any,
        eval_mode: bool = False,
        *,
        gbs: int | None = None,
        mbs: int | None = None,
        timer: Any = None,
    ) -> dict[str, Any]:
        """One optimiser step per global batch, with NeMo RL's loss; its metrics are sums over all micro-batches."""
        gbs, mbs = gbs or self.cfg["train_global_batch_size"], mbs or self.cfg["train_micro_batch_size"]
        num_batches = data.size // gbs
        losses, norms, metrics = [], [], defaultdict(list)
        self.model.train(not eval_mode)
        for index in range(num_batches):
            batch = data.get_batch(batch_idx=index, batch_size=gbs)
            valid_seqs = batch["sample_mask"].sum()
            valid_toks = (batch["token_mask"][:, 1:] * batch["sample_mask"][:, None]).sum()
            loss_of_batch = torch.zeros(())
            for micro in batch.make_microbatch_iterator(min(mbs, gbs)):
                logprobs = self._logprobs(self.model, micro)
                loss, values = loss_fn(
                    next_token_logprobs=logprobs, data=micro, global_valid_seqs=valid_seqs, global_valid_toks=valid_toks
                )
                if not eval_mode:
                    loss.backward()
                loss_of_batch += loss.detach()
                for name, value in values.items():
                    share = 1 if "_min" in name or "_max" in name else num_batches
                    metrics[name].append(value / share)
            norms.append(torch.zeros(()) if eval_mode else self._step())
            losses.append(loss_of_batch)
            metrics["lr"].append(self.optimizer.param_groups[0]["lr"])
            metrics["global_valid_seqs"].append(valid_seqs.item())
            metrics["global_valid_toks"].append(valid_toks.item())
        return {"loss": torch.stack(losses), "grad_norm": torch.stack(norms), "all_mb_metrics": dict(metrics)}

    def _step(self) -> torch.Tensor:
        limit = self.cfg.get("max_grad_norm") or float("inf")
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return norm.detach()

    def _logprobs(self, model: Any, data: Any) -> torch.Tensor:
        """Log-probabilities [B, S-1] of each next token, at the sampling temperature."""
        ids = data["input_ids"]
        attention = torch.arange(ids.shape[1]) < data["input_lengths"][:, None]
        logits = model(input_ids=ids, attention_mask=attention, use_cache=False).logits[:, :-1]
        log_softmax = torch.log_softmax(logits.float() / self.temperature, dim=-1)
        return log_softmax.gather(-1, ids[:, 1:, None])[..., 0]

    @torch.no_grad()
    def _without_gradient(self, model: Any, data: Any) -> torch.Tensor:
        model.eval()
        logprobs = [self._logprobs(model, micro) for micro in data.make_microbatch_iterator(_part(data, self.cfg))]
        return torch.nn.functional.pad(torch.cat(logprobs), (1, 0))

    # ---- checkpoints

    def save_checkpoint(
        self,
        weights_path: str,
        optimizer_path: str | None = None,
        tokenizer_path: str | None = None,
        checkpointing_cfg: Any = None,
    ) -> None:
        """Weights and tokenizer in Hugging Face format, the optimiser's state beside them."""
        self.model.save_pretrained(weights_path)
        if optimizer_path:
            Path(optimizer_path).mkdir(parents=True, exist_ok=True)
            torch.save(self.optimizer.state_dict(), Path(optimizer_path) / "optimizer.pt")
        if tokenizer_path:
            self.tokenizer.save_pretrained(tokenizer_path)

    def finalize_async_save(self, *_: Any, **__: Any) -> None:
        """Saves are complete when they return."""

    # ---- weights to the generation engine

    def prepare_refit_info(self) -> dict[str, Any]:
        """What the generation engine gets: this policy, to take weights from."""
        return {"policy": self}

    def stream_weights_via_ipc_zmq(self, *_: Any, **__: Any) -> list[Any]:
        """Put the current weights where the engine finds them."""
        self.weights = ray.put({name: tensor.clone() for name, tensor in self.model.state_dict().items()})
        return [ray.put(True)]

    broadcast_weights_for_collective = stream_weights_via_ipc_zmq

    def init_collective(self, *_: Any, **__: Any) -> list[Any]:
        """One process has nobody to meet."""
        return [ray.put(True)]

    def get_free_memory_bytes(self) -> int:
        """A constant."""
        return FREE_MEMORY_BYTES

    # ---- phases, which move memory on GPUs

    def prepare_for_training(self, *_: Any, **__: Any) -> None:
        """Nothing to move."""

    prepare_for_lp_inference = offload_before_refit = offload_after_refit = finish_training = prepare_for_training
    print_node_ip_and_gpu_id = prepare_for_training

    def shutdown(self) -> bool:
        """Nothing to end."""
        return True

    # ---- what a rehearsal does not have

    def get_topk_logits(self, *_: Any, **__: Any) -> Any:
        """Distillation is not rehearsed."""
        raise PrerequisiteError("a rehearsal has no top-k logits (distillation)")

    def calibrate_qkv_fp8_scales(self, *_: Any, **__: Any) -> dict[str, Any]:
        """FP8 is not rehearsed."""
        raise PrerequisiteError("a rehearsal has no FP8 scales; set policy.generation.vllm_cfg.kv_cache_dtype=auto")


def _part(data: Any, config: dict[str, Any]) -> int:
    """The log-prob batch size, or everything when it does not divide the batch."""
    size = int(config["logprob_batch_size"])
    return size if data.size % size == 0 else int(data.size)


def _optimizer_options(config: dict[str, Any]) -> tuple[float, float]:
    """Learning rate and weight decay of the backend that the configuration enables."""
    megatron = config["megatron_cfg"]
    options = megatron["optimizer"] if megatron["enabled"] else config["optimizer"]["kwargs"]
    return float(options["lr"]), float(options["weight_decay"])
