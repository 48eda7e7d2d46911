"""What a person sees while runs are under way: one bar on a terminal, a line a minute in a log."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from gdpo_nemo.errors import RunDirError
from gdpo_nemo.suite.grid import Run
from gdpo_nemo.suite.scheduler import Ended, Job

LOOK_EVERY_S = 1.0
LINE_EVERY_S = 60.0


class Progress:
    """Follows runs through their directories and reports on a stream (stderr)."""

    def __init__(self, runs: Sequence[Run], stream: TextIO) -> None:
        """``runs`` are those about to be performed, finished ones left out."""
        self._runs = {run.name: run for run in runs}
        self._steps = {run.name: run.dir.last_step() for run in runs}
        self._total = sum(run.total_steps for run in runs)
        self._first, self._since = sum(self._steps.values()), time.monotonic()
        self._running: list[str] = []
        self._num_over = 0
        self._stream = stream
        self._looked = self._spoke = time.monotonic()
        self._bar = self._new_bar() if has_room(stream) else None

    def started(self, job: Job) -> None:
        """A run was started."""
        self._running.append(job.name)

    def ended(self, ended: Ended) -> None:
        """A run is over: one line with its result, or the end of its log."""
        run = self._runs[ended.job.name]
        self._running.remove(run.name)
        self._num_over += 1
        damage = run.dir.damage()
        result = None if damage else run.dir.result()
        if ended.exit_code == 0 and result is not None:
            self._steps[run.name] = run.total_steps
            self.say(f"finished {run.name} in {duration(ended.elapsed_s)}: {summary(result)}")
        else:
            tail = "\n".join(f"    {line}" for line in [*run.dir.log_tail(), *filter(None, [damage])])
            self.say(f"FAILED {run.name}: {describe_exit(ended.exit_code)}. The end of {run.dir.log_path}:\n{tail}")

    def tick(self) -> None:
        """Look at the running ones once a second."""
        now = time.monotonic()
        if now - self._looked < LOOK_EVERY_S:
            return
        self._looked = now
        for name in self._running:
            with contextlib.suppress(RunDirError):  # what cannot be read is told when the run ends
                self._steps[name] = self._runs[name].dir.last_step()
        if self._bar is not None:
            self._bar.set_description_str(f"{self._num_over}/{len(self._runs)} runs", refresh=False)
            self._bar.set_postfix_str(self._current(), refresh=False)
            self._bar.n = sum(self._steps.values())
            self._bar.refresh()
        elif now - self._spoke >= LINE_EVERY_S:
            self._spoke = now
            self.say(
                f"{time.strftime('%H:%M')}  {self._num_over} of {len(self._runs)} runs over, "
                f"{sum(self._steps.values())} of {self._total} steps, {self._remaining()}; {self._current()}"
            )

    def say(self, text: str) -> None:
        """Print lines without tearing the bar."""
        if self._bar is not None:
            self._bar.write(text, file=self._stream)
        else:
            print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()

    def _current(self) -> str:
        return ", ".join(self._where(name) for name in self._running)

    def _where(self, name: str) -> str:
        step, total = self._steps[name], self._runs[name].total_steps
        return f"{name} {step}/{total}{', evaluating' if step >= total else ''}"

    def _remaining(self) -> str:
        done = sum(self._steps.values())
        made = done - self._first
        if done >= self._total:
            return "evaluations left"
        if made <= 0:
            return "time left unknown"
        return f"about {duration((self._total - done) * (time.monotonic() - self._since) / made)} left"

    def _new_bar(self) -> Any:
        from tqdm import tqdm

        return tqdm(total=self._total, initial=self._first, unit="step", file=self._stream, leave=False, smoothing=0.05)


def has_room(stream: TextIO) -> bool:
    """Whether a bar can be drawn there: a terminal that knows its size (some containers' do not)."""
    return stream.isatty() and min(os.get_terminal_size(stream.fileno())) > 0


def summary(result: Mapping[str, Any]) -> str:
    """The mean rewards of a finished run in one line."""
    means = {key.split("/")[1]: value for key, value in result["evaluation"].items() if key.startswith("reward/")}
    return ", ".join(f"{name} {'-' if value is None else format(value, '.3f')}" for name, value in means.items())


def duration(seconds: float) -> str:
    """``45 s``, ``3 min``, ``2.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def describe_exit(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"exit code {code}"
    hint = " (out of memory?)" if code == -signal.SIGKILL else ""
    return f"killed by {signal.Signals(-code).name}{hint}"
