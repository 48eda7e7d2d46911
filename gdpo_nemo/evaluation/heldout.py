"""Held-out evaluation of a model: the same questions for every arm and seed, each sample kept."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from typing import Any

from gdpo_nemo.config import RunConfig
from gdpo_nemo.evaluation.grading import score_row
from gdpo_nemo.evaluation.matrix import not_applicable
from gdpo_nemo.evaluation.store import DEFAULT_GRADER, EvaluationStore
from gdpo_nemo.method import Method
from gdpo_nemo.models.sampling import sample
from gdpo_nemo.randomness import stream_seed
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.source import row_source

NAME = "heldout"
BATCH_ROLLOUTS = 256


def evaluate(model: Any, tokenizer: Any, run: RunDir, config: RunConfig, method: Method) -> dict[str, Any]:
    """Sample and score the held-out questions; write every sample; return the summary.

    It takes a moment, so that one that was cut off begins anew.
    """
    spec, train = config.embedded.evaluation, config.embedded.train
    source = row_source(config.gdpo, config.embedded.data)
    rows = source.questions(spec.questions, spec.seed)
    prompts = [source.prompt(row) for row in rows]
    store = _new_store(run, config)
    store.write_questions(
        {"row_id": row.id, "messages": [{"role": m.role, "content": m.content} for m in prompt.messages]}
        | {"gold": row.gold}
        | {key: row.fields[key] for key in ("group",) if key in row.fields}
        for row, prompt in zip(rows, prompts, strict=True)
    )
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
        store.append_generations(asdict(rollout) for rollout in samples.rollouts)
        vectors = method.score(asked, samples.rollouts)
        new = [score_row(r.row_id, r.index, vector) for r, vector in zip(samples.rollouts, vectors, strict=True)]
        store.append_scores(new)
        scores += new
    summary: dict[str, Any] = {"questions": len(rows), "samples_per_question": spec.samples_per_question}
    summary["ungraded"] = sum(any(_is_ungraded(score, name) for name in method.scored) for score in scores)
    for name in method.scored:
        graded = [score["values"][name] for score in scores if score["values"][name] is not None]
        summary[f"reward/{name}/mean"] = sum(graded) / len(graded) if graded else None
    store.finish("complete", summary)
    return summary


def _is_ungraded(score: dict[str, Any], name: str) -> bool:
    return score["values"][name] is None and not not_applicable(score, name)


def _new_store(run: RunDir, config: RunConfig) -> EvaluationStore:
    spec, path = config.embedded.evaluation, run.evaluation_path(NAME)
    shutil.rmtree(path, ignore_errors=True)
    sampling = {"temperature": spec.temperature, "max_tokens": config.embedded.train.max_new_tokens}
    header = {
        "benchmark": {"name": NAME, "revision": None, "hashes": {}},
        "grader": DEFAULT_GRADER,
        "model": {"run": f"{run.path.parent.name}/{run.path.name}"},
        "sampling": sampling | {"seed": config.seed},
        "samples_per_question": spec.samples_per_question,
    }
    return EvaluationStore.create(path, header)
