"""The sandbox of a Ray cluster: one local pool on each node, all fed from one line.

Any thread may hand programs in, one or thousands. Each goes to the node with the most room; a node has at most
``AHEAD`` programs in hand for each of its workers, and the rest waits here, where it can still be dropped. One thread
owns the line and hears of everything as an event, so callers wait for their own programs only.

The actors reserve no CPUs of Ray: they use what the node's trainers and engines leave free.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from queue import SimpleQueue
from typing import Any, Final

from gdpo_nemo.errors import PrerequisiteError
from gdpo_nemo.sandbox import isolation
from gdpo_nemo.sandbox.jobs import CLOSED, Job, JobResult, SandboxError, collect
from gdpo_nemo.sandbox.pool import LocalPool

RETRIES: Final = 2
"""Times that Ray repeats a call to a pool that was lost and came back."""
ATTEMPTS: Final = 2
"""Such calls, the second with this program alone and to any node, before a program is given up."""
AHEAD: Final = 2
"""Programs that a node has in hand for each worker: one to run, one to go on with."""
MOST_IN_A_CALL: Final = 8
"""A call to an actor costs about what a short program does; a long line is handed out a few at a time."""
CLOSE_S: Final = 10.0


class NodePool:
    """The local pool of one node, as a Ray actor; asynchronous, so that it takes any number of calls at once."""

    def __init__(self, mode: str, num_workers: int | None) -> None:
        self._pool = LocalPool(num_workers, mode=mode)
        self._threads = ThreadPoolExecutor(AHEAD * self._pool.num_workers, thread_name_prefix="gdpo-node")

    def describe(self) -> tuple[str, int]:
        """Isolation mode and number of workers."""
        return self._pool.mode, self._pool.num_workers

    async def run(self, jobs: Sequence[Job]) -> list[JobResult]:
        """As ``LocalPool.run``."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._pool.run, jobs)

    def close(self) -> None:
        """As ``LocalPool.close``."""
        self._pool.close()


@dataclass
class _Task:
    """A program in line, and what its caller waits for."""

    job: Job
    future: Future[JobResult]
    attempts: int = 0

    def settle(self, result: JobResult) -> None:
        with suppress(InvalidStateError):  # the caller no longer waits
            self.future.set_result(result)


@dataclass
class _Node:
    """A node's actor, how many programs its pool runs side by side, and how many it has in hand."""

    actor: Any
    num_workers: int
    in_hand: int = 0

    @property
    def room(self) -> float:
        """Programs that it may still get, per worker."""
        return AHEAD - self.in_hand / self.num_workers


def _settle_closed(tasks: Sequence[_Task]) -> None:
    for task in tasks:
        task.settle(JobResult(failure=CLOSED))


class RayPool:
    """Runs programs on every node of the Ray cluster that this process is connected to.

    Attributes:
        modes: isolation mode of each node.
        num_workers: programs that run side by side, all nodes together.
    """

    def __init__(self, num_workers: int | None = None, *, mode: str = isolation.AUTO) -> None:
        """Start a pool on every node that is up and has CPUs.

        Args:
            num_workers: of each node; by default one per core.
            mode: the isolation, one of ``isolation.MODES``.

        Raises:
            PrerequisiteError: Ray is not installed, or not started.
            SandboxError: the isolation does not hold on a node.
        """
        ray = _ray()
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        again = {"max_restarts": -1, "max_task_retries": RETRIES}  # a pool whose node is up comes back
        actor = ray.remote(num_cpus=0, **again)(NodePool)
        self._actors: list[Any] = [
            actor.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(
                mode, num_workers
            )
            for node in nodes
        ]
        try:
            described = [call.future().result() for call in [each.describe.remote() for each in self._actors]]
        except ray.exceptions.RayError as error:
            self._end_actors()
            raise SandboxError(f"no sandbox on a node of the Ray cluster: {error}") from error
        self.modes = tuple(mode for mode, _ in described)
        self.num_workers = sum(size for _, size in described)
        self._nodes = [_Node(each, size) for each, (_, size) in zip(self._actors, described, strict=True)]
        self._closed = False
        self._line: deque[_Task] = deque()
        self._events: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._dispatcher = threading.Thread(target=self._dispatch, name="gdpo-dispatcher", daemon=True)
        self._dispatcher.start()

    def run(self, jobs: Sequence[Job]) -> list[JobResult]:
        """One result per job, in order; several threads may call this at once.

        What a lost node had in hand is run on another.

        Raises:
            SandboxError: the pool is closed.
        """
        if self._closed:
            raise SandboxError("this sandbox is closed; make another RayPool")
        tasks = [_Task(job, Future()) for job in jobs]
        self._events.put(lambda: self._line.extend(tasks))
        if self._closed:  # perhaps nobody hears of them any more
            _settle_closed(tasks)
        return collect([task.future for task in tasks])

    def close(self) -> None:
        """End the pools of all nodes; programs that are still wanted get a failure."""
        self._closed = True
        self._events.put(None)
        self._dispatcher.join()
        wait([actor.close.remote().future() for actor in self._actors], CLOSE_S)
        self._end_actors()

    def _end_actors(self) -> None:
        for actor in self._actors:
            _ray().kill(actor)
        self._actors = []

    # ---- in the dispatcher's thread

    def _dispatch(self) -> None:
        flying: dict[int, list[_Task]] = {}
        while (event := self._events.get()) is not None:
            event()
            self._hand_out(flying)
        _settle_closed([*self._line, *chain.from_iterable(flying.values())])

    def _hand_out(self, flying: dict[int, list[_Task]]) -> None:
        while self._line and self._nodes:
            node = max(self._nodes, key=lambda each: each.room)
            if node.room <= 0:
                return
            if tasks := self._next_tasks():
                node.in_hand += len(tasks)
                call = node.actor.run.remote([task.job for task in tasks]).future()
                flying[id(tasks)] = tasks
                call.add_done_callback(
                    lambda done, node=node, tasks=tasks: self._events.put(
                        lambda: self._take_back(flying, node, tasks, done)
                    )
                )
        while self._line and not self._nodes:
            self._line.popleft().settle(JobResult(failure="the nodes that run programs were lost"))

    def _next_tasks(self) -> list[_Task]:
        """The next of the line that are still wanted; several when it is long. One that was lost goes alone."""
        wanted: list[_Task] = []
        most = min(MOST_IN_A_CALL, 1 + len(self._line) // (AHEAD * self.num_workers))
        while self._line and len(wanted) < most:
            if self._line[0].future.cancelled():
                self._line.popleft()
            elif self._line[0].attempts:
                return wanted or [self._line.popleft()]
            else:
                wanted.append(self._line.popleft())
        return wanted

    def _take_back(
        self, flying: dict[int, list[_Task]], node: _Node, tasks: list[_Task], done: Future[list[JobResult]]
    ) -> None:
        del flying[id(tasks)]
        node.in_hand -= len(tasks)
        error = done.exception()
        if error is None:
            for task, result in zip(tasks, done.result(), strict=True):
                task.settle(result)
            return
        if isinstance(error, _ray().exceptions.ActorDiedError) and node in self._nodes:
            self._nodes.remove(node)
        for task in reversed(tasks):
            task.attempts += 1
            if task.attempts < ATTEMPTS:
                self._line.appendleft(task)
            else:
                task.settle(JobResult(failure=f"lost several times with the process that ran it: {error}"))


def is_up() -> bool:
    """Whether this process is connected to a Ray cluster; does not import Ray."""
    import sys

    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise PrerequisiteError("Ray is not installed: pip install 'gdpo-nemo[nemo]'") from error
    if not ray.is_initialized():
        raise PrerequisiteError("Ray is not started in this process: call ray.init() first, or use sandbox: local")
    return ray
