"""The monitor of a run that goes on: both backends show it the row of each step, and do what it asks for.

    warn        a line in the run's log, a row in ``logs/alarms.jsonl``
    checkpoint  the same, and the last checkpoint from before what was seen is kept from now on
    stop        the same, and the run ends: it is not finished, and does not go on until somebody accepts the alarm

Alarms depend on the rows of ``metrics.jsonl`` alone, so a run that is resumed raises those of an uninterrupted one.
A step looks at the last rows, and for rules that compare with the start or with the best of a run at one pass over them
all, in NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from gdpo_nemo.config import GdpoConfig
from gdpo_nemo.errors import RunHaltedError
from gdpo_nemo.health.monitor import DEFAULT, LOCAL, RULES, Alarm, Level, alarms, last_healthy
from gdpo_nemo.health.rules import BEFORE, WINDOW, Log, Series
from gdpo_nemo.run_dir import RunDir


class Monitor:
    """Follows one run."""

    def __init__(self, run: RunDir, gdpo: GdpoConfig, start: int = 0) -> None:
        """Take up what the run has logged up to step ``start``.

        Raises:
            RunHaltedError: an alarm stopped the run before, and nobody has accepted it.
            UnknownNameError: a held-out metric that is no reward.
        """
        self._run, self._spec = run, gdpo.monitor
        self._names = selected(gdpo.monitor.alarms)
        self._log = log_for(gdpo, gdpo.monitor.metrics)
        self._rows = [row for row in run.alarms() if row["step"] <= start]
        self._known = {(row["rule"], row["subject"]) for row in self._rows}
        self._step = start
        for row in run.metrics():
            if row["step"] <= start:
                self._log.add(row)
        series = self._log.series()
        self._raise(series, series)
        run.write_alarms(self._rows)
        halted = run.halted_by()
        if halted is not None:
            raise _halted(run, halted)

    def look(self, row: Mapping[str, Any]) -> RunHaltedError | None:
        """Take the row of the step that is over; returns the error to end the run with, where an alarm asks for it."""
        self._log.add(row)
        self._step = int(row["step"])
        series = self._log.series()
        raised = self._raise(series, series.tail(BEFORE + 1))
        if raised:
            self._run.write_alarms(self._rows)
        for one in raised:
            print(f"alarm ({one['action']}) at step {one['step']}: {describe(one)}", flush=True)
        stopping = [one for one in raised if one["action"] == "stop"]
        return _halted(self._run, stopping[0]) if stopping else None

    @property
    def standing_since(self) -> int | None:
        """Last step before the first alarm that asks for more than a warning and that nobody has accepted."""
        standing = [int(row["since"]) for row in self._rows if row["action"] != "warn" and not row["accepted"]]
        return min(standing, default=None)

    @property
    def healthy_until(self) -> int:
        """The newest checkpoint up to here is worth keeping: older than what an alarm rests on, or can rest on."""
        since = self.standing_since
        return self._step - WINDOW if since is None else min(since, self._step - WINDOW)

    def _raise(self, series: Series, recent: Series) -> list[dict[str, Any]]:
        """The rows of alarms that are new."""
        local = [name for name in self._names if name in LOCAL]
        found = alarms(series, [name for name in self._names if name not in LOCAL]) + alarms(recent, local)
        new = [self._row(one) for one in found if (one.rule, one.subject) not in self._known]
        new.sort(key=lambda row: (row["step"], self._names.index(row["rule"])))
        self._rows += new
        self._known |= {(row["rule"], row["subject"]) for row in new}
        return new

    def _row(self, alarm: Alarm) -> dict[str, Any]:
        checkpoint = last_healthy(self._run.path, alarm.since)
        return asdict(alarm) | {
            "action": action(alarm.rule, self._spec.on_alarm),
            "last_healthy_checkpoint": str(checkpoint.relative_to(self._run.path)) if checkpoint else None,
            "accepted": False,
        }


def selected(names: Sequence[str]) -> list[str]:
    """The alarms that ``gdpo.monitor.alarms`` means, each once."""
    sets: Mapping[str, Sequence[str]] = {"default": DEFAULT, "all": tuple(RULES)}
    return list(dict.fromkeys(one for name in names for one in sets.get(name, (name,))))


def action(rule: str, on_alarm: Mapping[Any, Level]) -> Level:
    """What to do at an alarm: as said for it, else for its level, else as its level says."""
    level = RULES[rule][0]
    return on_alarm.get(rule, on_alarm.get(level, level))


def log_for(gdpo: GdpoConfig, watched: Sequence[str] | None) -> Log:
    """An empty log of a run; ``watched`` None: the rewards that are scored and have no weight.

    Raises:
        ConfigError, UnknownNameError: as ``Method``; a held-out metric that is no reward.
    """
    from gdpo_nemo.method import reward_ranges

    ranges, specs = reward_ranges(gdpo), gdpo.rewards
    weights = {name: specs[name].weight if specs else 1.0 for name in ranges if not specs or name in specs}
    if watched is None:
        watched = [name for name in ranges if not weights.get(name)]
    return Log(weights, ranges, watched)


def accept(run: RunDir) -> list[dict[str, Any]]:
    """Let a run go on that an alarm has stopped; returns the alarms that this concerns."""
    rows = run.alarms()
    standing = [row for row in rows if row["action"] == "stop" and not row["accepted"]]
    for row in standing:
        row["accepted"] = True
    run.write_alarms(rows)
    return standing


def describe(row: Mapping[str, Any]) -> str:
    """A row of ``alarms.jsonl`` in a line."""
    checkpoint = row["last_healthy_checkpoint"] or f"none of step {row['since']} or before"
    return f"{row['rule']}: {row['text']}; last checkpoint from before: {checkpoint}"


def _halted(run: RunDir, row: Mapping[str, Any]) -> RunHaltedError:
    return RunHaltedError(
        f"{run.path} was stopped at step {row['step']} by the alarm {describe(row)}. It is not finished. "
        f"`gdpo monitor {run.path} --accept` lets it go on from there when it is started again; other settings make "
        "another run (--out DIR, or --fresh); gdpo.monitor.on_alarm says what an alarm does"
    )
