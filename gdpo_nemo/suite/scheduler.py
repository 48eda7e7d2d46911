"""Run commands side by side, a few at once: what fails does not stop the others, what is interrupted can go on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Protocol

from gdpo_nemo.errors import GdpoError

POLL_S = 0.1
GRACE_S = 10.0


class Interrupted(GdpoError):
    """A signal asked to stop; every child has ended."""

    exit_code = 130


@dataclass(frozen=True)
class Job:
    """One command.

    Attributes:
        name: for messages.
        command: program and arguments.
        log: where its output is appended.
        environment: added to ours; ``GDPO_PARENT``, our process id, always is.
    """

    name: str
    command: Sequence[str]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ended:
    """A job that is over; ``exit_code`` is minus the signal's number when a signal ended it."""

    job: Job
    exit_code: int
    elapsed_s: float


class Watcher(Protocol):
    """What is told about the jobs while they run."""

    def started(self, job: Job) -> None:
        """A job was started."""

    def ended(self, ended: Ended) -> None:
        """A job is over."""

    def tick(self) -> None:
        """Some time has passed."""


def run_jobs(jobs: Sequence[Job], at_once: int, watcher: Watcher) -> list[Ended]:
    """Run all jobs in order, ``at_once`` side by side, and return how each ended.

    Raises:
        Interrupted: SIGINT or SIGTERM came; the running jobs were terminated first.
    """
    waiting = list(jobs)
    running: list[_Child] = []
    over: list[Ended] = []
    with _signals_noted() as noted:
        try:
            while (waiting or running) and not noted:
                while waiting and len(running) < at_once:
                    running.append(_start(waiting.pop(0)))
                    watcher.started(running[-1].job)
                time.sleep(POLL_S)
                for child in [child for child in running if child.process.poll() is not None]:
                    running.remove(child)
                    over.append(Ended(child.job, child.process.returncode, time.monotonic() - child.since))
                    watcher.ended(over[-1])
                watcher.tick()
        finally:
            _stop(running)
    if noted:
        raise Interrupted(f"stopped by {signal.Signals(noted[0]).name}")
    return over


@dataclass(frozen=True)
class _Child:
    job: Job
    process: subprocess.Popen[bytes]
    since: float


def _start(job: Job) -> _Child:
    job.log.parent.mkdir(parents=True, exist_ok=True)
    with open(job.log, "ab") as log:
        process = subprocess.Popen(
            list(job.command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | {"GDPO_PARENT": str(os.getpid())} | dict(job.environment),
            start_new_session=True,  # Ctrl-C reaches us alone; we pass it on in our own order
        )
    return _Child(job, process, time.monotonic())


def _stop(children: Sequence[_Child]) -> None:
    """Terminate whole process groups, and kill what is left after a while."""
    for child in children:
        _signal_group(child, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    for child in children:
        try:
            child.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            _signal_group(child, signal.SIGKILL)
            child.process.wait()


def _signal_group(child: _Child, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.process.pid, number)


@contextlib.contextmanager
def _signals_noted() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM instead of being stopped by them at any line."""
    noted: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        noted.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
