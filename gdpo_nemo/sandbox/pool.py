"""The local sandbox: one worker per core, shared by every thread of this process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

from gdpo_nemo.errors import InputError
from gdpo_nemo.sandbox import isolation
from gdpo_nemo.sandbox.jobs import Job, JobResult, SandboxError, collect
from gdpo_nemo.sandbox.worker import Worker


class LocalPool:
    """Runs programs on this machine.

    Attributes:
        mode: the isolation in force, never ``auto``.
        layers: layer -> its state, as each worker reports it.
    """

    def __init__(self, num_workers: int | None = None, *, mode: str = isolation.AUTO) -> None:
        """Start the workers; by default one per core that this process may use.

        Args:
            num_workers: processes that run programs side by side.
            mode: the isolation, one of ``isolation.MODES``.

        Raises:
            SandboxError: the isolation does not hold here.
            UnknownNameError: no such mode.
            InputError: fewer than one worker.
        """
        if num_workers is None:
            num_workers = len(os.sched_getaffinity(0))
        if num_workers < 1:
            raise InputError(f"num_workers is {num_workers}, expected at least 1")
        self.mode, first = isolation.start(mode, Worker)
        self.layers = first.states
        self._closed = False
        self._workers = [first]
        self._threads = ThreadPoolExecutor(num_workers, thread_name_prefix="gdpo-sandbox")
        chosen = isolation.layers_of(self.mode)
        rest = [self._threads.submit(Worker, chosen) for _ in range(num_workers - 1)]
        try:
            self._workers += [future.result() for future in rest]
        except SandboxError:
            self._workers += [future.result() for future in rest if future.exception() is None]
            self.close()
            raise
        self._free: SimpleQueue[Worker] = SimpleQueue()
        for worker in self._workers:
            self._free.put(worker)

    @property
    def can_fork(self) -> bool:
        """Whether programs can start processes in this isolation."""
        return isolation.layers_of(self.mode).can_fork

    @property
    def num_workers(self) -> int:
        """How many programs run side by side."""
        return len(self._workers)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids that all programs run below."""
        return tuple(pid for worker in self._workers for pid in worker.pids)

    def run(self, jobs: Sequence[Job]) -> list[JobResult]:
        """One result per job, in order; several threads may call this at once.

        Raises:
            SandboxError: the pool is closed.
        """
        if self._closed:
            raise SandboxError("this sandbox is closed; make another LocalPool")
        return collect([self._threads.submit(self._one, job) for job in jobs])

    def _one(self, job: Job) -> JobResult:
        worker = self._free.get()
        try:
            return worker.run(job)
        finally:
            self._free.put(worker)

    def close(self) -> None:
        """End all workers and what runs in them."""
        self._closed = True
        for worker in self._workers:
            worker.interrupt()
        self._threads.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.close()

    def __enter__(self) -> LocalPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
