"""The generation engine of a rehearsal: sampling on a CPU behind the interface of NeMo RL's VllmGeneration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import ray
import torch
from nemo_rl.distributed.batched_data_dict import BatchedDataDict
from nemo_rl.models.generation.interfaces import GenerationInterface


class CpuSampler:
    """A model that continues right-padded prompts. Its weights arrive by ``load``."""

    def __init__(self, config: dict[str, Any]) -> None:
        from transformers import AutoModelForCausalLM

        self.config = config
        self.model = AutoModelForCausalLM.from_pretrained(config["model_name"], dtype=torch.float32).eval()

    def load(self, weights: dict[str, torch.Tensor]) -> bool:
        """Take the policy's weights."""
        self.model.load_state_dict(weights)
        return True

    @torch.no_grad()
    def generate(self, data: Any, greedy: bool) -> Any:
        """Sample to the end token, ``max_new_tokens`` or ``max_model_len``, with the log-prob of every token."""
        from transformers import DynamicCache

        ids, lengths = data["input_ids"], data["input_lengths"]
        pad, ends = self.config["_pad_token_id"], torch.tensor(self.config["stop_token_ids"] or [-1])
        width, most = int(lengths.max()), int(self.config["vllm_cfg"]["max_model_len"])
        room = (most - lengths).clamp(max=int(self.config["max_new_tokens"]))
        rows, new = torch.arange(len(ids)), max(0, int(room.max()))
        tokens, logprobs = torch.full((len(ids), new), pad), torch.zeros(len(ids), new)
        generated, running = torch.zeros_like(lengths), room > 0
        cache, attention = DynamicCache(), torch.arange(width) < lengths[:, None]
        logits = self.model(input_ids=ids[:, :width], attention_mask=attention, past_key_values=cache).logits
        logits = logits[rows, lengths - 1]
        for step in range(new):
            log_softmax = torch.log_softmax(logits.float() / (1.0 if greedy else self.config["temperature"]), dim=-1)
            token = log_softmax.argmax(-1) if greedy else torch.multinomial(log_softmax.exp(), 1)[:, 0]
            tokens[running, step] = token[running]
            logprobs[running, step] = log_softmax.gather(-1, token[:, None])[running, 0]
            generated += running
            running = running & ~torch.isin(token, ends) & (generated < room)
            if not running.any():
                break
            attention = torch.cat([attention, torch.ones(len(ids), 1, dtype=torch.bool)], dim=1)
            position = (lengths + step)[:, None]
            logits = self.model(
                input_ids=token[:, None], attention_mask=attention, position_ids=position, past_key_values=cache
            ).logits[:, -1]
        last = tokens[rows, (generated - 1).clamp(min=0)] if new else torch.full_like(lengths, pad)
        done = self._padded(ids[:, :width], lengths, tokens, logprobs, generated)
        done["truncated"] = ~torch.isin(last, ends)
        return done

    def _padded(
        self, ids: torch.Tensor, lengths: torch.Tensor, tokens: torch.Tensor, logprobs: torch.Tensor, generated: Any
    ) -> Any:
        """Each prompt with its response right behind it, padded on the right, as NeMo RL expects."""
        column = lengths[:, None] + torch.arange(tokens.shape[1])
        is_new = torch.arange(tokens.shape[1]) < generated[:, None]
        output = torch.nn.functional.pad(ids, (0, tokens.shape[1]), value=self.config["_pad_token_id"])
        spread = torch.zeros(output.shape)
        row = torch.arange(len(ids))[:, None].expand_as(column)
        output[row[is_new], column[is_new]] = tokens[is_new]
        spread[row[is_new], column[is_new]] = logprobs[is_new]
        return BatchedDataDict(
            {
                "output_ids": output,
                "generation_lengths": generated,
                "unpadded_sequence_lengths": lengths + generated,
                "logprobs": spread,
            }
        )


class CpuGeneration(GenerationInterface):
    """One sampler, in this process, or in a Ray actor when NeMo RL generates asynchronously."""

    def __init__(self, *, config: dict[str, Any], **_: Any) -> None:
        """Start the sampler."""
        self.cfg = config
        remote = config["vllm_cfg"]["async_engine"]
        self.actor = ray.remote(CpuSampler).options(num_cpus=0).remote(config) if remote else None
        self.sampler = None if remote else CpuSampler(config)
        self.policy: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """The trajectory collector, in another process, generates and never refits."""
        return self.__dict__ | {"policy": None}

    def generate(self, data: Any, greedy: bool) -> Any:
        """Continue a batch."""
        if self.actor is not None:
            return ray.get(self.actor.generate.remote(data, greedy))
        assert self.sampler is not None
        return self.sampler.generate(data, greedy)

    async def generate_async(self, data: Any, greedy: bool = False) -> AsyncIterator[tuple[int, Any]]:
        """Continue a batch and hand out row by row."""
        done = await self.actor.generate.remote(data, greedy) if self.actor is not None else self.generate(data, greedy)
        for index in range(done.size):
            yield index, done.slice(index, index + 1)

    def prepare_refit_info(self, state_dict_info: dict[str, Any] | None) -> None:
        """Remember whom to take weights from."""
        self.policy = (state_dict_info or {}).get("policy")

    def update_weights_via_ipc_zmq(self, *_: Any, **__: Any) -> list[Any]:
        """Take the weights that the policy put up."""
        if self.actor is not None:
            return [self.actor.load.remote(self.policy.weights)]
        assert self.sampler is not None
        return [ray.put(self.sampler.load(ray.get(self.policy.weights)))]

    update_weights_from_collective = update_weights_via_ipc_zmq

    def init_collective(self, *_: Any, **__: Any) -> list[Any]:
        """One process has nobody to meet."""
        return [ray.put(True)]

    def prepare_for_generation(self, *_: Any, **__: Any) -> bool:
        """Nothing to wake up."""
        return True

    finish_generation = invalidate_kv_cache = prepare_for_generation

    def clear_logger_metrics(self) -> None:
        """No engine metrics."""

    snapshot_step_metrics = clear_logger_metrics

    def get_logger_metrics(self) -> dict[str, Any]:
        """No engine metrics."""
        return {}

    get_step_metrics = get_logger_metrics

    def shutdown(self) -> bool:
        """Nothing to end."""
        return True
