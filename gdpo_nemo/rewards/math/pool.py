"""Worker processes that can be killed: a time limit that holds whatever the library does, from any thread.

Workers are new interpreters (no fork of a process that holds threads or CUDA), found in no signal handler of the caller
(SIGALRM works in the main thread only), and end with their parent: their input closes, and the kernel limits the CPU
time of each answer. The limit on an answer is wall time, prolonged up to five times while the machine is so busy that
the worker got less than half of it; one that never got that much leaves no verdict.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final

from gdpo_nemo import deadline
from gdpo_nemo.deadline import OVER_BUDGET
from gdpo_nemo.errors import PrerequisiteError

TIMEOUT_S: Final = 2.0
MEMORY_BYTES: Final = 2 * 1024**3
JOBS_PER_WORKER: Final = 1_000
MOST_WORKERS: Final = 8
_START_S: Final = 120.0
_PROLONGED: Final = 5
STARVED: Final = "starved"
UNDECIDED: Final = frozenset({STARVED, OVER_BUDGET})
"""Reasons that say nothing of the answer."""
_DIED: Final = "worker_died"


@dataclass(frozen=True)
class Job:
    """One comparison: ``answer`` is the boxed text, or the whole response for graders that want it."""

    grader: str
    gold: str
    answer: str


@dataclass(frozen=True)
class Outcome:
    """What a worker said; a killed one leaves False, or None if the gold was not even read or it got no CPU time."""

    verdict: bool | None
    reason: str = ""
    timed_out: bool = False


class Pool:
    """At most ``num_workers`` workers, started when they are needed. Any thread may call it.

    Attributes:
        num_workers: how many processes at most.
        timeout_s: seconds for one answer.
        memory_bytes: address space of a worker.
        jobs_per_worker: answers after which a worker is replaced.
    """

    def __init__(
        self,
        num_workers: int | None = None,
        timeout_s: float = TIMEOUT_S,
        memory_bytes: int = MEMORY_BYTES,
        jobs_per_worker: int = JOBS_PER_WORKER,
    ) -> None:
        """Start nothing yet. ``num_workers`` defaults to the processors this process may use, at most eight."""
        self.num_workers = num_workers or min(len(os.sched_getaffinity(0)), MOST_WORKERS)
        self.timeout_s, self.memory_bytes, self.jobs_per_worker = timeout_s, memory_bytes, jobs_per_worker
        self._idle: list[_Worker] = []
        self._places = threading.BoundedSemaphore(self.num_workers)
        self._pid = os.getpid()

    def start(self) -> None:
        """Start a worker, which the first comparison would start otherwise.

        Raises:
            PrerequisiteError: the library is missing, or no worker starts.
        """
        with self._places:
            self._idle.append(self._take())

    def run(self, job: Job, wanted_by: float | None = None) -> Outcome:
        """One answer; waits for a free worker, but not beyond a time of ``time.monotonic``.

        Raises:
            PrerequisiteError: the library is missing, or no worker starts.
        """
        if not self._places.acquire(timeout=deadline.left_s(wanted_by)):
            return Outcome(None, OVER_BUDGET)
        try:
            worker = self._take()
            outcome = worker.run(job, self.timeout_s)
            if outcome.reason.endswith(_DIED):  # perhaps not of this job: once more, with a new worker
                worker = _Worker(self.memory_bytes, self.timeout_s)
                outcome = worker.run(job, self.timeout_s)
            if worker.is_usable and worker.num_jobs < self.jobs_per_worker:
                self._idle.append(worker)
            else:
                worker.end()
            return outcome
        finally:
            self._places.release()

    def run_all(self, jobs: Sequence[Job]) -> list[Outcome]:
        """One answer for each job, in order, on all workers at once; none for what the caller's deadline leaves over.

        The deadline is ``gdpo_nemo.deadline``'s.
        """
        wanted_by = deadline.current()
        if len(jobs) <= 1:
            return [self.run(job, wanted_by) for job in jobs]
        with ThreadPoolExecutor(min(self.num_workers, len(jobs)), thread_name_prefix="gdpo-math") as threads:
            return list(threads.map(self.run, jobs, repeat(wanted_by)))

    def close(self) -> None:
        """End the idle workers. The pool may be used again."""
        while self._idle:
            self._idle.pop().end()

    def _take(self) -> _Worker:
        if self._pid != os.getpid():  # this process was forked: the workers belong to its parent
            self._pid, self._idle = os.getpid(), []
        while True:
            try:
                worker = self._idle.pop()
            except IndexError:
                return _Worker(self.memory_bytes, self.timeout_s)
            if worker.is_usable:
                return worker
            worker.end()


class _Worker:
    """One process, and the pipes to it."""

    def __init__(self, memory_bytes: int, timeout_s: float) -> None:
        path = os.pathsep.join(entry for entry in sys.path if entry)
        cpu_s = int(timeout_s) + 2
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gdpo_nemo.rewards.math.worker", str(memory_bytes), str(cpu_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.num_jobs = 0
        self._input, self._output = self.process.stdin.fileno(), self.process.stdout.fileno()
        self._buffer = b""
        self._is_open = True
        first = self._read(time.monotonic() + _START_S)
        if first is None or "ready" not in first:
            self.end()
            if first and "missing" in first:
                raise PrerequisiteError(
                    f"the math grader needs math-verify ({first['missing']}). "
                    "Install it with: pip install 'gdpo-nemo[math]'"
                )
            raise PrerequisiteError(f"no worker of the math grader started within {_START_S:g} s: {sys.executable}")

    @property
    def is_usable(self) -> bool:
        """Whether the process still runs."""
        return self.process.poll() is None

    def run(self, job: Job, timeout_s: float) -> Outcome:
        """Send a job and wait for the answer; a late or broken worker is killed."""
        self.num_jobs += 1
        line = json.dumps({"grader": job.grader, "gold": job.gold, "answer": job.answer}).encode() + b"\n"
        started, used = time.monotonic(), self._cpu_s()
        last = started + _PROLONGED * timeout_s
        if not self._write(line, last):
            return self._lost(job, gold_read=True, timed_out=False)
        gold_read, deadline = False, started + timeout_s
        while True:
            message = self._read(deadline)
            if message is None:
                starved = self._is_open and self.is_usable and self._cpu_s() - used < timeout_s / 2
                if starved and time.monotonic() < last:
                    deadline = min(time.monotonic() + timeout_s / 2, last)
                    continue
                lost = self._lost(job, gold_read, timed_out=self._is_open)
                return Outcome(None, STARVED, timed_out=True) if starved else lost
            if "verdict" in message:
                return Outcome(message["verdict"], message.get("reason", ""))
            gold_read = True

    def end(self) -> None:
        """Kill the process, wait for it and close the pipes."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                continue

    def _lost(self, job: Job, gold_read: bool, timed_out: bool) -> Outcome:
        self.end()
        timed_out = timed_out or self.process.returncode == -signal.SIGXCPU
        known = gold_read or job.grader != "strict"
        reason = "timed_out" if timed_out else _DIED
        return Outcome(False if known else None, reason if known else f"gold_{reason}", timed_out)

    def _write(self, line: bytes, deadline: float) -> bool:
        """Send a line that the worker may be slow to take."""
        os.set_blocking(self._input, False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._input, selectors.EVENT_WRITE)
            while line:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return False
                try:
                    line = line[os.write(self._input, line) :]
                except BrokenPipeError:
                    return False
        return True

    def _read(self, deadline: float) -> dict[str, Any] | None:
        """The next message; None when the time is over or the worker has gone."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._output, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return None
                chunk = os.read(self._output, 65536)
                if not chunk:
                    self._is_open = False
                    return None
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def _cpu_s(self) -> float:
        """CPU time that the process has used; infinite where the system does not tell: no limit is prolonged."""
        try:
            with open(f"/proc/{self.process.pid}/stat", encoding="utf-8", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            return float("inf")
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


_pools: dict[tuple[int, int | None], Pool] = {}
_making = threading.Lock()


def shared_pool(num_workers: int | None = None) -> Pool:
    """The pool of this process for some number of workers."""
    with _making:
        return _pools.setdefault((os.getpid(), num_workers), Pool(num_workers))


def close_pools() -> None:
    """End all idle workers of this process. They start again when they are needed."""
    for (pid, _), pool in list(_pools.items()):
        if pid == os.getpid():
            pool.close()


atexit.register(close_pools)
