"""``gdpo monitor``: alarms about a run, finished or under way, from the metrics that it logs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from gdpo_nemo.arguments import positive
from gdpo_nemo.config import GdpoConfig, validate
from gdpo_nemo.errors import RunDirError, UsageError
from gdpo_nemo.health.following import accept, action, describe, log_for, selected
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
                        "(default: as the run says, or those that are scored and have no weight)")  # fmt: skip
    parser.add_argument("--alarms", metavar="A,B", help=f"all, default, or some of {', '.join(RULES)} (default: as the "
                        f"run says; default means {', '.join(DEFAULT)})")  # fmt: skip
    parser.add_argument(
        "--watch",
        type=positive,
        metavar="SECONDS",
        help="look again until an alarm asks for a checkpoint, or the run ends",
    )
    parser.add_argument("--accept", action="store_true", help="let a run go on that an alarm has stopped")


def answer(options: argparse.Namespace) -> Answer:
    """Look at a run; exit code 1 when an alarm that nobody has accepted asks to stop it or to go back to a checkpoint.

    Raises:
        NotARunError, UsageError: not a run directory, or one of a warm-up.
        RunDirError: ``--accept`` and no alarm has stopped it.
        UnknownNameError: an alarm or metric that there is not.
    """
    run = RunDir(options.run)
    gdpo = _gdpo(run)
    if options.accept:
        return _accept(run)
    names = selected(split_names(options.alarms) if options.alarms else gdpo.monitor.alarms or DEFAULT)
    watched = split_names(options.metric) if options.metric else gdpo.monitor.metrics
    while True:
        state = run.state()
        series = _series(run, gdpo, watched)
        raised = alarms(series, names)
        actions = [action(alarm.rule, gdpo.monitor.on_alarm) for alarm in raised]
        accepted = {(row["rule"], row["subject"]) for row in run.alarms() if row["accepted"]}
        grave = [
            alarm
            for alarm, asked in zip(raised, actions, strict=True)
            if asked != "warn" and (alarm.rule, alarm.subject) not in accepted
        ]
        if grave or not options.watch or not _goes_on(run, state):
            break
        time.sleep(options.watch)
    checkpoint = last_healthy(run.path, min(alarm.since for alarm in grave)) if grave else None
    halted = run.halted_by()
    data = {
        "run": str(run.path),
        "state": state,
        "steps": int(series.steps[-1]) if len(series.steps) else 0,
        "alarms": [asdict(alarm) | {"action": asked} for alarm, asked in zip(raised, actions, strict=True)],
        "last_healthy_checkpoint": str(checkpoint) if checkpoint else None,
        "halted_by": halted,
    }
    head = f"{run.path}: {len(series.steps)} steps, {state}"
    if halted:
        head += f" by the alarm {describe(halted)}\n`gdpo monitor {run.path} --accept` lets it go on"
    return Answer(_text(head, raised, actions, grave, checkpoint), data, int(bool(grave)))


def _accept(run: RunDir) -> Answer:
    accepted = accept(run)
    if not accepted:
        raise RunDirError(f"no alarm has stopped {run.path}, or it is accepted already; there is nothing to accept")
    lines = [f"accepted: {describe(row)}" for row in accepted]
    text = "\n".join([*lines, "Start the run again, as before; it goes on from where it was stopped."])
    return Answer(text, {"run": str(run.path), "accepted": accepted})


def _goes_on(run: RunDir, state: str) -> bool:
    """Whether more rows may come; a run on a cluster holds no lock here, and its end is not seen."""
    return state == "running" or (state == "started" and "embedded" not in run.config())


def _gdpo(run: RunDir) -> GdpoConfig:
    config = run.config()
    if config.get("kind") == "warmup":
        raise UsageError(f"{run.path} is a warm-up, which has no rewards to follow; name a run .../<arm>/seed<N>")
    return validate(GdpoConfig, config.get("gdpo") or {}, origin=f"gdpo of {run.path}")


def _series(run: RunDir, gdpo: GdpoConfig, watched: Sequence[str] | None) -> Series:
    log = log_for(gdpo, watched)
    for row in run.metrics():
        log.add(row)
    return log.series()


def _text(
    head: str, raised: Sequence[Alarm], actions: Sequence[str], grave: Sequence[Alarm], checkpoint: Path | None
) -> str:
    if not raised:
        return f"{head}; no alarm"
    rows = [[asked, f"step {one.step}", one.rule, one.text] for one, asked in zip(raised, actions, strict=True)]
    lines = [head, table(rows)]
    if grave:
        first = min(alarm.since for alarm in grave)
        found = checkpoint or f"none from step {first} or before is left"
        lines.append(f"last checkpoint before what was seen: {found}")
    return "\n".join(lines)
