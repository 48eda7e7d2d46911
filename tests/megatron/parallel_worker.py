"""One process of a layout: log-probabilities and gradients of the GDPO loss, saved for the test to compare.

Runs in processes that ``layout_processes`` starts, because the patches of ``cpu_patches`` stay.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import cpu_patches
import rollout_batch
import tiny_gpt
import torch
from layout_processes import TIME_LIMIT, Layout
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel import model_parallel_cuda_manual_seed, vocab_parallel_cross_entropy
from rollout_batch import NUM_MICRO_BATCHES, NUM_TOKENS, Batch
from torch import Tensor, distributed

from gdpo_nemo.losses import token_weights


def run(rank: int, layout: Layout, folder: Path) -> None:
    """Compute all that the tests of this layout look at; save it as ``<folder>/<rank>.pt``."""
    cpu_patches.apply()
    limit = timedelta(seconds=TIME_LIMIT)
    place = f"file://{folder}/rendezvous"
    distributed.init_process_group("gloo", place, limit, world_size=layout.num_processes, rank=rank)
    parallel_state.initialize_model_parallel(layout.tensor_parallel, layout.pipeline_parallel)
    model_parallel_cuda_manual_seed(1)
    steps = {name: step(layout) for name, step in STEPS[layout.num_processes > 1].items()}
    torch.save(steps, folder / f"{rank}.pt")
    distributed.destroy_process_group()


def single(layout: Layout, *, tied: bool = False) -> dict[str, Any]:
    """Plain torch around the whole model: one pass over the batch, ``log_softmax``, ``backward``."""
    batch = rollout_batch.make()
    model = tiny_gpt.build(1, 1, tied=tied)
    positions = torch.arange(NUM_TOKENS).expand_as(batch.inputs_B_T)

    def log_probabilities() -> Tensor:
        logits = model(batch.inputs_B_T, positions, None)
        return logits.log_softmax(-1).gather(-1, batch.targets_B_T[..., None])[..., 0]

    tiny_gpt.set_weights(model, moved=False)
    old = log_probabilities().detach()
    tiny_gpt.set_weights(model, moved=True)
    logp = log_probabilities()
    loss = rollout_batch.loss(batch, torch.arange(len(old)), logp, old)
    loss.backward()
    gradients = {name: p.grad for name, p in tiny_gpt.parameters(model)}
    return {"old_logp": old, "logp": logp.detach(), "loss": loss.item(), "gradients": gradients}


def parallel(
    layout: Layout, *, tied: bool = False, change: Callable[[Batch], Batch] = lambda batch: batch, finalize: bool = True
) -> dict[str, Any]:
    """Megatron's own data-parallel wrapper, schedule and end of a step, over several micro-batches.

    Args:
        layout: how the model is spread over the processes.
        tied: one matrix for embedding and output layer.
        change: makes the batch that is trained on a wrong one.
        finalize: False leaves out what follows the last backward: sums over ranks of the gradients of parameters
            that several ranks hold and each uses in part.
    """
    batch = change(rollout_batch.make())
    model = tiny_gpt.build(layout.tensor_parallel, layout.pipeline_parallel, tied=tied)
    wrapped = DistributedDataParallel(model.config, DistributedDataParallelConfig(), model)
    positions = torch.arange(NUM_TOKENS).expand(len(batch.micro_batches()[0]), -1)
    old = torch.zeros(batch.inputs_B_T.shape)

    def from_logits(rows: Tensor, logits_b_T_v: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        logp = -vocab_parallel_cross_entropy(logits_b_T_v, batch.targets_B_T[rows])
        loss = rollout_batch.loss(batch, rows, logp, old)
        # schedules.py:265 divides by the number of micro-batches; these losses are shares of a sum.
        return loss * NUM_MICRO_BATCHES, {"logp": logp.detach(), "loss": loss.detach()}

    def forward(rows_of_micro_batches, part):
        rows = next(rows_of_micro_batches)
        return part(batch.inputs_B_T[rows], positions, None), partial(from_logits, rows)

    def schedule(*, forward_only: bool) -> dict[str, Tensor] | None:
        kept = get_forward_backward_func()(
            forward_step_func=forward,
            data_iterator=iter(batch.micro_batches()),
            model=wrapped,
            num_microbatches=NUM_MICRO_BATCHES,
            seq_length=NUM_TOKENS,
            micro_batch_size=len(positions),
            forward_only=forward_only,
        )
        if not parallel_state.is_pipeline_last_stage():
            return None
        return {"logp": torch.cat([each["logp"] for each in kept]), "loss": sum(each["loss"] for each in kept)}

    tiny_gpt.set_weights(model, moved=False)
    before = schedule(forward_only=True)
    if before is not None:
        old.copy_(before["logp"])
    tiny_gpt.set_weights(model, moved=True)
    wrapped.zero_grad_buffer()
    after = schedule(forward_only=False)
    if finalize:
        finalize_model_grads([wrapped])
    result = {"gradients": {name: tiny_gpt.shard(p, p.main_grad.clone()) for name, p in tiny_gpt.parameters(model)}}
    if before is not None and after is not None:
        result |= {"old_logp": before["logp"], "logp": after["logp"], "loss": after["loss"].item()}
    return result


def shifted(batch: Batch) -> Batch:
    """The advantages of the second micro-batch belong to their neighbours."""
    rows = batch.micro_batches()[1]
    advantages = batch.advantages_B.clone()
    advantages[rows] = advantages[rows].roll(1)
    return replace(batch, advantages_B=advantages)


def mean_of_means(batch: Batch) -> Batch:
    """The token mean is taken in each micro-batch, then over micro-batches."""
    parts = [token_weights(batch.response_B_T[rows], "token_mean") for rows in batch.micro_batches()]
    return replace(batch, weights_B_T=torch.cat(parts) / NUM_MICRO_BATCHES)


STEPS: dict[bool, dict[str, Callable[[Layout], dict[str, Any]]]] = {
    False: {"untied": single, "tied": partial(single, tied=True)},
    True: {
        "untied": parallel,
        "tied": partial(parallel, tied=True),
        "not finalized": partial(parallel, tied=True, finalize=False),
        "shifted advantages": partial(parallel, change=shifted),
        "mean of means": partial(parallel, change=mean_of_means),
    },
}
