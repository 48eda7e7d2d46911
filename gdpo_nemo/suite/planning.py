"""``plan``: what a run would do, need and reuse. Starts nothing, writes nothing, fails where a run would."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING, Any, Literal

from gdpo_nemo.suite.answer import Answer
from gdpo_nemo.suite.grid import Grid, Run, Selection, resolve
from gdpo_nemo.suite.progress import duration
from gdpo_nemo.suite.stored import damage
from gdpo_nemo.terminal import listing, sentences

if TYPE_CHECKING:
    from gdpo_nemo.config import GdpoConfig

REQUIRED = ("torch", "transformers", "tokenizers", "safetensors", "tqdm", "matplotlib")
INSTALL = "pip install 'gdpo-nemo[embedded,report]'"
COPIES_PER_CHECKPOINT = 3  # weights and the two moments of AdamW
CHECKPOINTS_KEPT = 4  # the newest two, the last healthy one and the one after it
SPLITS: tuple[Literal["train", "heldout"], ...] = ("train", "heldout")


def plan(selection: Selection, jobs: int | None, fresh: bool, again: str) -> Answer:
    """Resolve everything and say what ``again``, the run command, would do.

    While runs are under way in the folder it plans all the same, and compares nothing with what they have stored.

    Raises:
        GdpoError: whatever would stop the run before it computes.
    """
    grid = resolve(selection)
    under_way = selection.tree.is_locked()
    if not under_way:
        grid.check(selection.tree, fresh)
    data = describe(selection, grid, jobs, fresh) | {"under_way": under_way}
    end = f"Nothing was started. Start with: {again}"
    if under_way:
        end = (
            f"Runs are under way in {selection.tree.path}, so the time is of a machine that is not free, and whether "
            f"their settings can be compared with these was not checked. When they have ended, start with: {again}"
        )
    return Answer(f"{_text(data)}\n{sentences([end]) if under_way else end}", data)


def missing_modules() -> list[str]:
    """What this Python lacks for a run at embedded scale."""
    return [name for name in REQUIRED if importlib.util.find_spec(name) is None]


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def side_by_side(grid: Grid, jobs: int | None) -> int:
    """How many runs go at once: as asked for, else as many as the cores carry."""
    threads = grid.base.config.embedded.threads
    return min(jobs or max(1, num_cores() // threads), len(grid.runs))


def describe(selection: Selection, grid: Grid, jobs: int | None, fresh: bool) -> dict[str, Any]:
    """The plan as JSON-able values."""
    from gdpo_nemo.source import row_source

    config = grid.runs[0].config
    embedded, source = config.embedded, row_source(config.gdpo, config.embedded.data)
    train, warmup, evaluation = embedded.train, embedded.warmup, embedded.evaluation
    rollouts_per_step = train.prompts_per_step * train.rollouts_per_prompt
    at_once = side_by_side(grid, jobs)
    runs = [_run(run, fresh) for run in grid.runs]
    base = _run(grid.base, fresh and not selection.base_is_shared(grid.base.dir))
    estimate = _estimate(grid, base, runs, at_once)
    parameters = estimate.get("parameters")
    per_checkpoint = parameters and parameters * (4 if embedded.model.dtype == "float32" else 2) * COPIES_PER_CHECKPOINT
    return {
        "experiment": selection.experiment.name,
        "title": selection.experiment.title,
        "scale": selection.scale,
        "model": selection.model_name,
        "arms": list(selection.arms),
        "seeds": list(selection.seeds),
        "path": str(selection.tree.path),
        "report": str(selection.tree.report_path),
        "warm_up": base | {"demonstrations": base["total_steps"] * warmup.batch_size},
        "runs": runs,
        "jobs": at_once,
        "threads_per_run": embedded.threads,
        "schedules": {run.dir.path.parent.name: text for run in grid.runs if (text := _schedules(run.config.gdpo))},
        "batch": {
            "prompts_per_step": train.prompts_per_step,
            "rollouts_per_prompt": train.rollouts_per_prompt,
            "rollouts_per_step": rollouts_per_step,
            "optimiser_steps_per_batch": -(
                -train.prompts_per_step // (train.minibatch_prompts or train.prompts_per_step)
            ),
            "max_new_tokens": train.max_new_tokens,
        },
        "per_run": {
            "steps": train.steps,
            "prompts": train.steps * train.prompts_per_step,
            "rollouts": train.steps * rollouts_per_step,
            "new_tokens_at_most": train.steps * rollouts_per_step * train.max_new_tokens,
        },
        "rows": {split: source.num_rows(split) for split in SPLITS},
        "prompt_limit": {split: str(fitted) for split, fitted in getattr(source, "fitted", {}).items()},
        "rollouts_in_all": len(runs) * train.steps * rollouts_per_step,
        "evaluation": {
            "questions": evaluation.questions,
            "samples_per_question": evaluation.samples_per_question,
            "temperature": evaluation.temperature,
        },
        "parameters": parameters,
        "disk_bytes": per_checkpoint and per_checkpoint * (CHECKPOINTS_KEPT + 1) * len(runs),
        "time": estimate,
    }


def _schedules(gdpo: GdpoConfig) -> dict[str, str]:
    from gdpo_nemo.method import Method
    from gdpo_nemo.signals.schedules import Schedule, weight_text

    method = Method(gdpo)
    named = zip(method.names, method.weights, strict=True)
    return {name: weight_text(weight) for name, weight in named if isinstance(weight, Schedule)}


def _run(run: Run, fresh: bool) -> dict[str, Any]:
    state = "missing" if fresh else "unreadable" if damage(run.dir) else run.dir.state()
    return {
        "name": run.name,
        "state": state,
        "step": 0 if state in ("missing", "unreadable") else run.dir.last_step(),
        "total_steps": run.total_steps,
        "path": str(run.dir.path),
    }


def _estimate(grid: Grid, base: dict[str, Any], runs: list[dict[str, Any]], at_once: int) -> dict[str, Any]:
    """Seconds on this machine, from a few real steps; says why when there is no estimate."""
    missing = missing_modules()
    if missing:
        return {"unavailable": f"not measured: {', '.join(missing)} not installed ({INSTALL})"}
    from gdpo_nemo.backends.embedded import estimate

    measured = estimate(grid.runs[0].config)
    left = sum(1 - run["step"] / run["total_steps"] for run in runs if run["state"] not in ("finished", "unreadable"))
    warmup_s = 0.0 if base["state"] == "finished" else measured["warmup_s"]
    return dict(measured) | {"total_s": warmup_s + left * measured["run_s"] / at_once}


def _text(data: dict[str, Any]) -> str:
    batch, per_run, evaluation, time = data["batch"], data["per_run"], data["evaluation"], data["time"]
    warm_up, num_runs, rows = data["warm_up"], len(data["runs"]), data["rows"]
    states = [run["state"] for run in data["runs"]]
    done, begun = states.count("finished"), states.count("started") + states.count("running")
    broken = states.count("unreadable")
    seconds = time.get("total_s")
    pairs = [
        ("runs", f"{num_runs}: {', '.join(data['arms'])} x seeds {', '.join(map(str, data['seeds']))}"),
        (
            "of these",
            f"{done} finished (reused), {begun} begun (resumed), {num_runs - done - begun - broken} new"
            + (f", {broken} unreadable (left out: gdpo status)" if broken else ""),
        ),
        (
            "warm-up",
            f"{warm_up['total_steps']:,} steps, {warm_up['demonstrations']:,} demonstrations"
            + (" (finished, reused)" if warm_up["state"] == "finished" else ""),
        ),
        (
            "batch",
            f"{batch['prompts_per_step']} prompts x {batch['rollouts_per_prompt']} rollouts = "
            f"{batch['rollouts_per_step']} rollouts, optimiser steps on them: {batch['optimiser_steps_per_batch']}",
        ),
        (
            "each run",
            f"{per_run['steps']:,} steps, {per_run['prompts']:,} prompts, {per_run['rollouts']:,} rollouts, "
            f"at most {per_run['new_tokens_at_most']:,} new tokens",
        ),
        *(
            (f"weights of {arm}", ", ".join(f"{name} {text}" for name, text in own.items()))
            for arm, own in data["schedules"].items()
        ),
        ("data", f"{rows['train']:,} training rows, {rows['heldout']:,} held out" if rows["train"] else ""),
        ("prompts", "; ".join(f"{split}: {fitted}" for split, fitted in data["prompt_limit"].items())),
        ("in all", f"{data['rollouts_in_all']:,} rollouts"),
        (
            "evaluation",
            f"{evaluation['questions']:,} held-out questions x {evaluation['samples_per_question']} samples, "
            f"temperature {evaluation['temperature']:g}",
        ),
        (
            "model",
            f"{data['model']}, {data['parameters'] / 1e6:.1f} M parameters" if data["parameters"] else data["model"],
        ),
        ("disk", f"at most {data['disk_bytes'] / 1e6:,.0f} MB for checkpoints" if data["disk_bytes"] else ""),
        (
            "time",
            time.get("unavailable")
            or f"about {duration(seconds)} here, {data['jobs']} at once with {data['threads_per_run']} thread each "
            f"(warm-up {duration(time['warmup_s'])}, one run {duration(time['run_s'])}; {time['basis']})",
        ),
        ("runs in", data["path"]),
        ("report in", data["report"]),
    ]
    return f"{data['title']}\n{data['experiment']}, {data['scale']} scale\n{listing(pairs)}"
