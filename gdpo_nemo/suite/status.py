"""``status`` and ``list``: what is on disk. They start nothing and need no configuration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gdpo_nemo.report.spec import is_metric
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.run_tree import RunTree
from gdpo_nemo.suite import exhibits
from gdpo_nemo.suite.answer import Answer
from gdpo_nemo.suite.grid import Selection
from gdpo_nemo.suite.programs import Program, all_programs
from gdpo_nemo.suite.stored import bases, damage, total_steps
from gdpo_nemo.terminal import listing, sentences, table


def status(selection: Selection) -> Answer:
    """State, progress and last rewards of the warm-up and of every run."""
    tree, runs = selection.tree, selection.covered()
    rewards = [name for name in selection.experiment.curves if not is_metric(name)]
    under_way = tree.is_locked()
    named = [("warm-up", base) for base in bases(runs.values())]
    named += [(f"{arm} seed{seed}", run) for (arm, seed), run in runs.items()]
    rows = [_row(name, run, under_way, rewards) for name, run in named]
    lines = [["run", "state", "step", *rewards, "", ""]]
    for row in rows:
        means = ["" if value is None else f"{value:.3f}" for value in row["rewards"].values()]
        steps = f"{row['step']}/{row['total_steps']}" if row["total_steps"] else ""
        alarms = f"{len(row['alarms'])} alarms: gdpo monitor RUN" if row["alarms"] else ""
        lines.append([row["name"], row["state"], steps, *means, row["rewards_from"], alarms])
    text = f"{tree.path}{', under way' if under_way else ''}\n{table(lines)}"
    return with_damage(text, {"path": str(tree.path), "under_way": under_way, "runs": rows}, rows)


def with_damage(text: str, data: Any, rows: Sequence[Mapping[str, Any]]) -> Answer:
    """What a status shows, and below it the ``error`` of each row that has one; the exit code is 1 then."""
    unreadable = [row["error"] for row in rows if "error" in row]
    lines = [text, *([sentences(unreadable, "  ")] if unreadable else [])]
    return Answer("\n".join(lines), data, exit_code=1 if unreadable else 0)


def _row(name: str, run: RunDir, under_way: bool, rewards: Sequence[str]) -> dict[str, Any]:
    if text := damage(run):  # the others are shown all the same
        return {
            "name": name,
            "state": "unreadable",
            "step": 0,
            "total_steps": None,
            "rewards": dict.fromkeys(rewards),
            "rewards_from": "",
            "alarms": [],
            "path": str(run.path),
            "error": text,
        }
    state, steps, result = run.state(), run.metrics(), run.result()
    words = {"missing": "not run", "started": "waiting" if under_way else "stopped"}
    alarms, halted = run.alarms(), run.halted_by()
    if halted and state == "started":
        words["started"] = f"stopped by {halted['rule']}"
    source, values = ("evaluation", result["evaluation"]) if result else ("last step", steps[-1] if steps else {})
    found = {reward: values.get(f"reward/{reward}/mean") for reward in rewards}
    means = {reward: None if value is None or math.isnan(value) else value for reward, value in found.items()}
    return {
        "name": name,
        "state": words.get(state, state),
        "step": int(steps[-1]["step"]) if steps else 0,
        "total_steps": total_steps(run.config()) if run.exists() else None,
        "rewards": means,
        "rewards_from": source if any(value is not None for value in means.values()) else "",
        "alarms": alarms,
        "path": str(run.path),
    }


def list_programs(out: Path) -> Answer:
    """Every experiment: scales, arms, and how many runs are finished where."""
    rows = [_described(program, out) for program in all_programs()]
    return Answer("\n".join(_listed(row) for row in rows), rows)


def _described(program: Program, out: Path) -> dict[str, Any]:
    experiment, progress = program.experiment, []
    for folder in sorted((out / experiment.name).glob("*/*")):
        states = ["unreadable" if run.damage() else run.state() for run in RunTree(folder).found().values()]
        if states:
            progress.append({"path": str(folder), "runs": len(states), "finished": states.count("finished")})
    return {
        "name": experiment.name,
        "title": experiment.title,
        "scales": {scale: list(seeds) for scale, seeds in experiment.seeds.items()},
        "arms": [{"name": arm.name, "label": arm.label, "default": arm.default} for arm in experiment.arms],
        "script": str(program.script),
        "runs": progress,
        "exhibits": [exhibits.progress(experiment, exhibit, out) for exhibit in experiment.all_exhibits()],
    }


def _listed(row: dict[str, Any]) -> str:
    extra = [arm["name"] for arm in row["arms"] if not arm["default"]]
    pairs = [
        (
            "scales",
            ", ".join(f"{scale} (seeds {', '.join(map(str, seeds))})" for scale, seeds in row["scales"].items()),
        ),
        ("arms", ", ".join(arm["name"] for arm in row["arms"] if arm["default"])),
        ("with --arms all", ", ".join(extra)),
        ("script", row["script"]),
        ("runs", "; ".join(f"{run['finished']} of {run['runs']} finished in {run['path']}" for run in row["runs"])),
    ]
    shown = [[one["name"], one["state"], f"{one['title']}; needs {one['needs']}"] for one in row["exhibits"]]
    head = sentences([f"{row['name']}: {row['title']}"])
    return f"{head}\n{listing(pairs)}\n{table(shown, indent='    ')}"
