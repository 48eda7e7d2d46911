"""Held-out evaluation of a model: the same questions for every arm and seed, each sample kept."""

from __future__ import annotations

import math
from typing import Any

from gdpo_nemo.config import RunConfig
from gdpo_nemo.method import Method
from gdpo_nemo.models.sampling import sample
from gdpo_nemo.randomness import stream_seed
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.source import row_source

BATCH_ROLLOUTS = 256


def evaluate(model: Any, tokenizer: Any, run: RunDir, config: RunConfig, method: Method) -> dict[str, Any]:
    """Sample and score the held-out questions; write every sample; return the summary."""
    spec, train = config.embedded.evaluation, config.embedded.train
    source = row_source(config.gdpo, config.embedded.data)
    rows = source.questions(spec.questions, spec.seed)
    prompts = [source.prompt(row) for row in rows]
    generations: list[dict[str, Any]] = []
    scores: list[dict[str, Any]] = []
    size = max(1, BATCH_ROLLOUTS // spec.samples_per_question)
    for start in range(0, len(rows), size):
        samples = sample(
            model,
            tokenizer,
            prompts[start : start + size],
            rollouts_per_prompt=spec.samples_per_question,
            max_new_tokens=train.max_new_tokens,
            temperature=spec.temperature,
            seed=stream_seed(config.seed, "evaluation", spec.seed, start),
        )
        asked = [row for row in rows[start : start + size] for _ in range(spec.samples_per_question)]
        for rollout, vector in zip(samples.rollouts, method.score(asked, samples.rollouts), strict=True):
            key = {"row_id": rollout.row_id, "index": rollout.index}
            generations.append(
                key | {k: getattr(rollout, k) for k in ("response", "length_tokens", "truncated")},
            )
            values = {name: None if math.isnan(value) else value for name, value in vector.values.items()}
            scores.append(key | {"values": values, "reasons": {k: list(v) for k, v in vector.reasons.items()}})
    run.write_evaluation(
        "questions",
        [
            {
                "row_id": row.id,
                "messages": [{"role": m.role, "content": m.content} for m in prompt.messages],
                "gold": row.gold,
            }
            for row, prompt in zip(rows, prompts, strict=True)
        ],
    )
    run.write_evaluation("generations", generations)
    run.write_evaluation("scores", scores)
    summary: dict[str, Any] = {"questions": len(rows), "samples_per_question": spec.samples_per_question}
    summary["ungraded"] = sum(None in score["values"].values() for score in scores)
    for name in method.scored:
        graded = [score["values"][name] for score in scores if score["values"][name] is not None]
        summary[f"reward/{name}/mean"] = sum(graded) / len(graded) if graded else None
    return summary
