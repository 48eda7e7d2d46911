"""``gdpo monitor``: alarms about a run, finished or under way, from the metrics that it logs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from gdpo_nemo.errors import RunDirError
from gdpo_nemo.health.monitor import DEFAULT, RULES, Alarm, alarms, last_healthy
from gdpo_nemo.health.rules import Series
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.suite.answer import Answer
from gdpo_nemo.suite.grid import split_names
from gdpo_nemo.terminal import table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A run, and what to look at."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run directory, e.g. .../gdpo/seed0")
    parser.add_argument("--metric", metavar="A,B", help="held-out rewards that must not fall while those in use rise "
                        "(default: those that are scored and have no weight)")  # fmt: skip
    parser.add_argument("--alarms", metavar="A,B", help=f"all, or some of {', '.join(RULES)} (default: "
                        f"{', '.join(DEFAULT)})")  # fmt: skip
    parser.add_argument(
        "--watch",
        type=float,
        metavar="SECONDS",
        help="look again until an alarm asks for a checkpoint, or the run ends",
    )


def answer(options: argparse.Namespace) -> Answer:
    """Look at a run; exit code 1 when an alarm asks to stop it or to go back to a checkpoint.

    Raises:
        RunDirError: not a run directory.
        UnknownNameError: an alarm or metric that there is not.
    """
    run = RunDir(options.run)
    names = split_names(options.alarms) if options.alarms else DEFAULT
    names = tuple(RULES) if list(names) == ["all"] else names
    while True:
        state = run.state()
        series = _series(run, split_names(options.metric) if options.metric else None)
        raised = alarms(series, names)
        grave = [alarm for alarm in raised if alarm.level != "warn"]
        if grave or not options.watch or not _goes_on(run, state):
            break
        time.sleep(options.watch)
    checkpoint = last_healthy(run.path, min(alarm.since for alarm in grave)) if grave else None
    data = {
        "run": str(run.path),
        "state": state,
        "steps": int(series.steps[-1]) if len(series.steps) else 0,
        "alarms": [asdict(alarm) for alarm in raised],
        "last_healthy_checkpoint": str(checkpoint) if checkpoint else None,
    }
    return Answer(_text(run, len(series.steps), raised, grave, checkpoint), data, int(bool(grave)))


def _goes_on(run: RunDir, state: str) -> bool:
    """Whether more rows may come; a run on a cluster holds no lock here, and its end is not seen."""
    return state == "running" or (state == "started" and "embedded" not in run.config())


def _series(run: RunDir, watched: Sequence[str] | None) -> Series:
    from gdpo_nemo.config import GdpoConfig, validate
    from gdpo_nemo.method import reward_ranges

    config = run.config()
    if config.get("kind") == "warmup":
        raise RunDirError(f"{run.path} is a warm-up, which has no rewards to follow; name a run .../<arm>/seed<N>")
    gdpo = validate(GdpoConfig, config.get("gdpo") or {}, origin=f"gdpo of {run.path}")
    ranges = reward_ranges(gdpo)
    specs = gdpo.rewards
    weights = {name: specs[name].weight if specs else 1.0 for name in ranges if not specs or name in specs}
    if watched is None:
        watched = [name for name in ranges if not weights.get(name)]
    return Series.of(run.metrics(), weights, ranges, watched)


def _text(run: RunDir, num_steps: int, raised: Sequence[Alarm], grave: Sequence[Alarm], checkpoint: Path | None) -> str:
    head = f"{run.path}: {num_steps} steps, {run.state()}"
    if not raised:
        return f"{head}; no alarm"
    lines = [head, table([[one.level, f"step {one.step}", one.rule, one.text] for one in raised])]
    if grave:
        first = min(alarm.since for alarm in grave)
        found = checkpoint or f"none from step {first} or before is left"
        lines.append(f"last checkpoint before what was seen: {found}")
    return "\n".join(lines)
