"""What a rehearsal showed, and what it cannot show."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gdpo_nemo.cluster.recipes import ClusterRun
from gdpo_nemo.files import read_jsonl

NOT_EXERCISED = {
    "model": "the real weights and tokenizer, their chat template and lengths",
    "workers": "Megatron or DTensor workers: tensor, pipeline, context and data parallelism, recomputation",
    "generation": "vLLM, and the transfer of weights to it",
    "memory": "GPU memory; ask gdpo plan",
    "scale": "the numbers of prompts, rollouts, tokens and nodes of the real run",
    "trackers": "W&B, MLflow, SwanLab; TensorBoard was on",
}


@dataclass(frozen=True)
class Findings:
    """One rehearsal.

    Attributes:
        host: the NeMo RL that ran.
        exercised: part -> what was seen.
        warnings: what ran and will not do what it is for, such as a reward that never differed.
        metrics: step -> numbers that NeMo RL logged under ``train/``.
        elapsed_s: wall seconds.
    """

    host: str
    exercised: dict[str, str]
    warnings: list[str]
    metrics: dict[int, dict[str, float]]
    elapsed_s: float

    @classmethod
    def read(cls, folder: Path, run: ClusterRun, steps: int, elapsed_s: float) -> Findings:
        """From the record that the processes left in ``folder``."""
        rows = read_jsonl(folder / "metrics.jsonl")
        train: dict[int, dict[str, float]] = {}
        for row in rows:
            if row["prefix"] == "train":
                train.setdefault(row["step"], {}).update(row["metrics"])
        accuracies = [row["metrics"]["accuracy"] for row in rows if "accuracy" in row["metrics"]]
        checkpoints = sorted(path.name for path in (folder / "checkpoints").glob("step_*"))
        trained = [row["step"] for row in rows if row["prefix"] == "train" and "loss" in row["metrics"]]
        resumed = trained == list(range(1, steps + 2))
        last = train[max(train)]
        exercised = {
            "configuration": "NeMo RL's load_config and MasterConfig took it",
            "data": f"rows, prompts and NeMo RL's data loader; prompts of {last['mean_prompt_length']:.0f} tokens",
            "rewards": "; ".join(_rewards(train)),
            "grading": _grading(train),
            "advantages": f"{run.nemo['grpo']['adv_estimator']['name']} in each of {len(trained)} steps",
            "loss": f"NeMo RL's clipped loss; last {last['loss']:.4f}, gradient norm {last['grad_norm']:.3f}",
            "validation": f"{len(accuracies)} times, last mean total {accuracies[-1]:.3f}" if accuracies else "off",
            "checkpoints": f"{', '.join(checkpoints) or 'none'} kept",
            "resume": f"at step {steps}, on to step {steps + 1}"
            if resumed
            else f"FAILED: steps {trained} were trained",
        }
        return cls(run.source, exercised, list(_warnings(train)), train, elapsed_s)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "nemo_rl": self.host,
            "exercised": self.exercised,
            "not_exercised": NOT_EXERCISED,
            "warnings": self.warnings,
            "elapsed_s": round(self.elapsed_s, 1),
            "train": {str(step): metrics for step, metrics in self.metrics.items()},
        }

    def as_text(self) -> str:
        """The table that ends ``gdpo rehearse``."""
        width = max(map(len, [*self.exercised, *NOT_EXERCISED])) + 2
        lines = [f"rehearsed in {self.elapsed_s:.0f} s with {self.host}", "", "exercised"]
        lines += [f"  {part:<{width}}{seen}" for part, seen in self.exercised.items()]
        lines += ["", "not exercised"]
        lines += [f"  {part:<{width}}{what}" for part, what in NOT_EXERCISED.items()]
        lines += ["", *(f"warning: {warning}" for warning in self.warnings)] if self.warnings else []
        return "\n".join(lines)


def _names(train: dict[int, dict[str, float]]) -> list[str]:
    suffix = "/frac_dead_groups"
    return [name.split("/")[1] for name in train[max(train)] if name.startswith("reward/") and name.endswith(suffix)]


def _rewards(train: dict[int, dict[str, float]]) -> Iterator[str]:
    for name in _names(train):
        means = [metrics[f"reward/{name}/mean"] for metrics in train.values()]
        yield f"{name} {min(means):.3f} to {max(means):.3f}"
    yield f"{max(metrics['reward/frac_ungraded'] for metrics in train.values()):.0%} ungraded at most"


def _grading(train: dict[int, dict[str, float]]) -> str:
    """What grading cost, all steps together."""
    steps = [metrics for metrics in train.values() if "grading/seconds" in metrics]
    seconds = sum(metrics["grading/seconds"] for metrics in steps)
    hidden = seconds - sum(metrics["grading/seconds_exposed"] for metrics in steps)
    late = sum(metrics["grading/num_over_budget"] for metrics in steps)
    most = max((metrics["grading/queue_high_water"] for metrics in steps), default=0)
    share = f"{hidden / seconds:.0%} of it while others were generated" if seconds else "no step logged any"
    return f"{seconds:.1f} s in all, {share}; at most {most:.0f} waited at once; {late:.0f} over the budget"


def _warnings(train: dict[int, dict[str, float]]) -> Iterator[str]:
    for name in _names(train):
        if all(metrics[f"reward/{name}/frac_dead_groups"] == 1 for metrics in train.values()):
            yield f"reward {name} was the same in every rollout of every group; it taught nothing here"
        if all(metrics[f"reward/{name}/frac_missing"] == 1 for metrics in train.values()):
            yield f"reward {name} applied to no rollout"
    if any(not math.isfinite(metrics["loss"]) for metrics in train.values()):
        yield "the loss was not finite"
    if all(metrics["grad_norm"] == 0 for metrics in train.values()):
        yield "every gradient was 0: no group differed in any reward"
