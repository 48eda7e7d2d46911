"""What a cluster run would be, need and cost, and why it would fail: one text and the same as JSON-able values."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gdpo_nemo.cluster import cost, memory
from gdpo_nemo.cluster.constraints import host_violations
from gdpo_nemo.cluster.cost import GPUS, Gpu
from gdpo_nemo.cluster.environment import grades_at_once, grading
from gdpo_nemo.cluster.megatron_core import opinion
from gdpo_nemo.cluster.memory import GIB, Line, Memory
from gdpo_nemo.cluster.recipes import ClusterRun
from gdpo_nemo.cluster.refusals import refusals
from gdpo_nemo.cluster.rules import Opinion, Violation
from gdpo_nemo.cluster.settings import DTENSOR, MEGATRON, VLLM, Settings
from gdpo_nemo.config import GdpoConfig
from gdpo_nemo.data.sources import commands_for
from gdpo_nemo.method import Method
from gdpo_nemo.signals.schedules import Schedule, weight_text
from gdpo_nemo.terminal import listing, sentences, table

# Rows of the paper's training sets. They are not redistributed: docs/nemo-rl.md says where each one comes from.
TRAINING_DATA = {
    "tool_calling": "ToolRL's rlla_4k, about 4,000 rows, a few MB",
    "math_length": "DeepScaleR-Preview, about 40,300 rows, below 100 MB",
    "code_reasoning": "Eurus-2-RL-Data, train.parquet of 1.72 GB, of which 26,758 rows are code",
    "gsm8k": "openai/gsm8k, 7,473 rows, a few MB",
}


WORLD = "rows that a built-in world makes (gdpo.data is not set)"


@dataclass(frozen=True)
class ClusterPlan:
    """A plan.

    Attributes:
        text: for a person.
        data: the same for a script.
        violations: why the run would fail; empty when nothing speaks against it.
    """

    text: str
    data: dict[str, Any]
    violations: tuple[Violation, ...]


def violations(run: ClusterRun, gpu: str = "h100") -> list[Violation]:
    """All that speaks against a run: our refusals, NeMo RL's constraints, megatron-core if installed, and memory."""
    return _violations(run, gpu, [opinion(Settings(run.nemo))])


def _violations(run: ClusterRun, gpu: str, opinions: Sequence[Opinion]) -> list[Violation]:
    ours = [*refusals(run.nemo, run.gdpo), *host_violations(run.nemo)]
    theirs = [violation for said in opinions for violation in said.violations]
    # A rule of ours on the same key, or on one below it, says the same and names a value that works.
    new = [other for other in theirs if not any(f"{own.key}.".startswith(f"{other.key}.") for own in ours)]
    return [*ours, *new] or _memory_violations(run.nemo, GPUS[gpu])


def plan_cluster(run: ClusterRun, gpu: str = "h100", opinions: Sequence[Opinion] = ()) -> ClusterPlan:
    """Plan one run on one kind of GPU. Starts nothing, and needs no GPU, network or NeMo RL.

    Args:
        run: the run.
        gpu: a name in ``GPUS``.
        opinions: what other programs say of the run; megatron-core is asked here, if it is installed.
    """
    s, kind = Settings(run.nemo), GPUS[gpu]
    opinions = [*opinions, opinion(s)]
    against = _violations(run, gpu, opinions)
    data = {
        "task": run.gdpo.task,
        "method": run.gdpo.method,
        "model": s.model,
        "rewards": _rewards(run.gdpo),
        "nemo_rl": {"commit": run.host.commit, "source": run.source},
        "layout": _layout(s),
        "batch": _batch(s),
        "grades_while_generating": grades_at_once(s),
        "memory": None,
        "cost": None,
        "data": _data(run.gdpo),
        "asked": [said.who for said in opinions if not said.unasked],
        "not_asked": {said.who: said.unasked for said in opinions if said.unasked},
        "violations": [asdict(violation) for violation in against],
    }
    needs, price = memory.estimate(s, kind.memory_bytes), cost.estimate(s, kind)
    if needs is not None and price is not None:
        data["memory"] = asdict(needs) | {"training_bytes": needs.training_bytes, "fits": needs.fits}
        data["cost"] = asdict(price) | {"total_gpu_hours": price.total_gpu_hours, "basis": cost.basis(kind, s)}
    sections = [*_head(run, s, data), *_memory_text(s, kind, needs), *_cost_text(s, kind, price)]
    text = "\n".join([*sections, *_asked_text(opinions), _verdict(against)])
    return ClusterPlan(text, data, tuple(against))


def _data(gdpo: GdpoConfig) -> str | None:
    """What the run trains on, and whether this machine has it."""
    papers = TRAINING_DATA.get(gdpo.task or "")
    if gdpo.data is None:
        return WORLD
    named = [(split, table) for split, table in (("train", gdpo.data.train), ("heldout", gdpo.data.heldout))]
    where = ", ".join(f"{split} {table.path or f'{table.hf} {table.split}'}" for split, table in named)
    missing = [path for _, table in named if table.path and not (path := Path(table.path)).is_file()]
    absent = ["not on this machine" + "".join(f", `{one}` gets it" for one in commands_for(missing))] if missing else []
    return "; ".join([*([papers] if papers else []), where, *absent])


def _rewards(gdpo: GdpoConfig) -> dict[str, float | str]:
    """Weights by name; of a schedule, its text.

    Raises:
        GdpoError: as a run would, for a reward, weight or condition that does not make sense.
    """
    method = Method(gdpo)
    named = zip(method.names, method.weights, strict=True)
    return {name: weight_text(weight) if isinstance(weight, Schedule) else weight for name, weight in named}


def _layout(s: Settings) -> dict[str, Any]:
    return {
        "nodes": s["cluster.num_nodes"],
        "gpus_per_node": s["cluster.gpus_per_node"],
        "world": s.world,
        "engine": "dtensor" if s.dtensor else "megatron",
        "train_gpus": s.train_gpus,
        "dp": s.dp,
        "tp": s.tp,
        "pp": s.pp,
        "cp": s.cp,
        "sequence_parallel": s.sequence_parallel,
        "colocated": s.colocated,
        "generation_gpus": s.generation_gpus,
        "vllm_tp": s.vllm_tp,
        "vllm_pp": s.vllm_pp,
        "vllm_replicas": s.vllm_replicas,
    }


def _batch(s: Settings) -> dict[str, Any]:
    steps = int(s["grpo.max_num_steps"] or 0)
    return {
        "prompts_per_step": s.prompts,
        "rollouts_per_prompt": s.rollouts,
        "rollouts_per_step": s.samples,
        "train_global_batch_size": s.gbs,
        "optimiser_steps_per_rollout_batch": s.optimiser_steps,
        "rollout_batches": steps,
        "optimiser_steps": steps * s.optimiser_steps,
        "max_total_sequence_length": s.seq,
        "max_new_tokens": s.max_new_tokens,
        "pack_tokens": s.microbatch_tokens if s.packing else None,
        "pack_length_multiple": s.pack_multiple,
        "dynamic_sampling": bool(s["grpo.use_dynamic_sampling"]),
    }


def _head(run: ClusterRun, s: Settings, data: Mapping[str, Any]) -> Iterator[str]:
    layout, batch = data["layout"], data["batch"]
    engine = "DTensor (FSDP2)" if s.dtensor else "Megatron"
    where = "the same GPUs" if s.colocated else f"{s.generation_gpus} GPUs of their own"
    criterion = f", keeps groups by {run.gdpo.dynamic_sampling}" if batch["dynamic_sampling"] else ""
    pack = f", packs of {batch['pack_tokens']:,} tokens" if batch["pack_tokens"] else ""
    multiple = f", padded to a multiple of {s.pack_multiple}" if s.pack_multiple > 1 else ""
    kl = float(s["loss_fn.reference_policy_kl_penalty"] or 0)
    estimator = "k1 in the reward" if run.gdpo.kl_in_reward else s["loss_fn.reference_policy_kl_type"]
    weighted = [f"{name} x {weight_text(weight)}" for name, weight in data["rewards"].items()]
    yield f"{run.gdpo.task or 'own rewards'}, {s['grpo.adv_estimator.name']}, {s.model}"
    yield listing(
        [
            ("NeMo RL", run.source),
            ("rewards", ", ".join(weighted)),
            ("cluster", f"{layout['nodes']} x {layout['gpus_per_node']} GPUs = {layout['world']}"),
            ("training", f"{engine} on {s.train_gpus} GPUs: DP {s.dp} x TP {s.tp} x PP {s.pp} x CP {s.cp}"),
            ("generation", f"vLLM on {where}: {s.vllm_replicas} copies of TP {s.vllm_tp} x PP {s.vllm_pp}"),
            ("grading", grading(s)),
            (
                "batch",
                f"{s.prompts:,} prompts x {s.rollouts} rollouts = {s.samples:,} rollouts, in optimiser steps of "
                f"{s.gbs:,}: {s.optimiser_steps} per rollout batch",
            ),
            ("steps", f"{batch['rollout_batches']:,} rollout batches, {batch['optimiser_steps']:,} optimiser steps"),
            ("length", f"{s.seq:,} tokens, of which at most {s.max_new_tokens:,} new{pack}{multiple}"),
            ("KL", f"{kl:g} ({estimator})" if kl else "none, so no reference model"),
            ("sampling", f"dynamic{criterion}" if batch["dynamic_sampling"] else "every group is trained on"),
            ("data", data["data"] or ""),
        ]
    )


def _memory_text(s: Settings, gpu: Gpu, needs: Memory | None) -> Iterator[str]:
    if needs is None:
        yield f"memory and cost: not estimated, the sizes of {s.model} are not known here (a local directory's are)"
        return
    generation = sum(line.num_bytes for line in needs.generation)
    yield f"memory of the fullest GPU while training: {_gib(needs.training_bytes)} of {_gib(gpu.memory_bytes)}"
    yield _lines(needs.training)
    other = "without" if s.recompute else "with"
    yield f"  ({other} recomputation, activations take {_gib(needs.other_recompute.num_bytes)})"
    yield f"memory while generating: {_gib(generation)}; the other phase's state waits on the host"
    yield _lines(needs.generation)
    if kl := float(s["loss_fn.reference_policy_kl_penalty"] or 0):
        yield f"  the reference model (KL {kl:g}) waits on the host and is swapped in to score"


def _cost_text(s: Settings, gpu: Gpu, price: cost.Cost | None) -> Iterator[str]:
    if price is None:
        return
    hours = ", ".join(f"{name} {value:,.0f}" for name, value in price.gpu_hours.items())
    yield "cost, an estimate with every sample at its full length"
    yield listing(
        [
            (
                "tokens",
                f"{price.tokens_per_step / 1e6:,.1f} M per rollout batch, {price.new_tokens_per_step / 1e6:,.1f} M new",
            ),
            (
                "GPU-hours",
                f"{price.total_gpu_hours:,.0f} ({hours}), {price.total_gpu_hours / s.world:,.1f} h on this cluster",
            ),
            ("basis", cost.basis(gpu, s)),
            (
                "disk",
                f"{price.checkpoint_bytes / 1e9:,.1f} GB per checkpoint (weights and optimiser), "
                f"{price.checkpoints} kept and one being written: "
                f"{price.checkpoint_bytes * (price.checkpoints + 1) / 1e9:,.0f} GB",
            ),
            ("download", f"{price.download_bytes / 1e9:,.1f} GB of weights in bf16"),
        ]
    )


def _asked_text(opinions: Sequence[Opinion]) -> Iterator[str]:
    asked = [said.who for said in opinions if not said.unasked]
    if asked:
        yield f"also asked: {', '.join(asked)}"
    for said in opinions:
        if said.unasked:
            yield f"not asked: {said.who}, {said.unasked}"


def _verdict(against: Sequence[Violation]) -> str:
    if not against:
        return sentences(
            [
                "Nothing speaks against this run. Memory, time and cost are estimates. Not looked at: "
                "TORCH_CUDA_ARCH_LIST, which Megatron needs in the job's environment (NGC images set it)."
            ]
        )
    return f"This run would fail:\n{sentences(map(str, against), '  ')}"


def _memory_violations(nemo: Mapping[str, Any], gpu: Gpu) -> list[Violation]:
    """Why the run does not fit one GPU, with the first change that makes it fit and breaks nothing else."""
    needs = memory.estimate(Settings(nemo), gpu.memory_bytes)
    if needs is None or needs.fits:
        return []
    s = Settings(nemo)
    if needs.training_bytes > gpu.memory_bytes:
        section = DTENSOR if s.dtensor else MEGATRON
        changes: list[tuple[str, Any]] = [(f"{section}.activation_checkpointing", True)]
        changes += [(s.tp_key, size) for size in (2, 4, 8) if size > s.tp]
        changes += [("cluster.num_nodes", int(s["cluster.num_nodes"] or 1) * times) for times in (2, 4, 8, 16)]
        message = f"training takes about {_gib(needs.training_bytes)} of a GPU's {_gib(gpu.memory_bytes)}"
    else:
        changes = [(f"{VLLM}.tensor_parallel_size", size) for size in (2, 4, 8, 16) if size > s.vllm_tp]
        message = f"vLLM's weights leave no cache in {s[f'{VLLM}.gpu_memory_utilization']} of {_gib(gpu.memory_bytes)}"
    for key, value in changes:
        tried = _with(nemo, key, value)
        mended = memory.estimate(Settings(tried), gpu.memory_bytes)
        if mended is not None and mended.fits and not host_violations(tried):
            return [Violation(key, message, value)]
    key, value = changes[-1]
    return [Violation(key, f"{message}, and no single change makes it fit; begin with more nodes", value)]


def _with(nemo: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    changed: dict[str, Any] = copy.deepcopy(dict(nemo))
    *sections, last = key.split(".")
    section = changed
    for name in sections:
        section = section.setdefault(name, {})
    section[last] = value
    return changed


def _lines(lines: Sequence[Line]) -> str:
    return table([[line.name, f"{_gib(line.num_bytes):>9}", line.assumption] for line in lines])


def _gib(num_bytes: float) -> str:
    return f"{num_bytes / GIB:,.1f} GiB"
