"""The sandbox of a Ray cluster: one local pool on each node, fed with a few programs at a time.

The actors reserve no CPUs of Ray: they use what the node's trainers and engines leave free.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from gdpo_nemo.errors import PrerequisiteError
from gdpo_nemo.sandbox import isolation
from gdpo_nemo.sandbox.jobs import Job, JobResult, SandboxError
from gdpo_nemo.sandbox.pool import LocalPool

ATTEMPTS: Final = 3
CHUNKS_AT_ONCE: Final = 2
"""Chunks that a node has in hand: one to run, one to go on with."""


class NodePool:
    """The local pool of one node, as a Ray actor."""

    def __init__(self, mode: str, num_workers: int | None) -> None:
        self._pool = LocalPool(num_workers, mode=mode)

    def describe(self) -> tuple[str, int]:
        """Isolation mode and number of workers."""
        return self._pool.mode, self._pool.num_workers

    def run(self, jobs: Sequence[Job]) -> list[JobResult]:
        """As ``LocalPool.run``."""
        return self._pool.run(jobs)

    def close(self) -> None:
        """As ``LocalPool.close``."""
        self._pool.close()


class RayPool:
    """Runs programs on every node of the Ray cluster that this process is connected to.

    Attributes:
        modes: isolation mode of each node.
        num_workers: programs that run side by side, all nodes together.
    """

    def __init__(self, *, mode: str = isolation.AUTO, workers_per_node: int | None = None) -> None:
        """Start a pool on every node that is up and has CPUs.

        Args:
            mode: the isolation, one of ``isolation.MODES``.
            workers_per_node: by default one per core.

        Raises:
            PrerequisiteError: Ray is not installed, or not started.
            SandboxError: the isolation does not hold on a node.
        """
        ray = _ray()
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        again = {
            "max_restarts": -1,
            "max_task_retries": ATTEMPTS - 1,
        }  # a pool that is lost with its node up comes back
        actor = ray.remote(num_cpus=0, max_concurrency=CHUNKS_AT_ONCE + 1, **again)(NodePool)
        self._actors: list[Any] = [
            actor.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(
                mode, workers_per_node
            )
            for node in nodes
        ]
        try:
            described = ray.get([each.describe.remote() for each in self._actors])
        except ray.exceptions.RayError as error:
            self.close()
            raise SandboxError(f"no sandbox on a node of the Ray cluster: {error}") from error
        self.modes = tuple(mode for mode, _ in described)
        self._sizes = [size for _, size in described]
        self.num_workers = sum(self._sizes)

    def run(self, jobs: Sequence[Job]) -> list[JobResult]:
        """One result per job, in order. What a lost node had in hand is run on another."""
        ray = _ray()
        results: list[JobResult | None] = [None] * len(jobs)
        waiting = deque((index, 0) for index in range(len(jobs)))
        alive = dict(enumerate(self._actors))
        flying: dict[Any, tuple[int, list[tuple[int, int]]]] = {}
        while waiting or flying:
            for place, actor in alive.items():
                while waiting and sum(at == place for at, _ in flying.values()) < CHUNKS_AT_ONCE:
                    chunk = [waiting.popleft() for _ in range(min(self._sizes[place], len(waiting)))]
                    flying[actor.run.remote([jobs[index] for index, _ in chunk])] = place, chunk
            if not flying:
                break
            (done,), _ = ray.wait(list(flying), num_returns=1)
            place, chunk = flying.pop(done)
            try:
                for (index, _), result in zip(chunk, ray.get(done), strict=True):
                    results[index] = result
            except ray.exceptions.RayError:
                alive.pop(place, None)
                waiting.extend((index, attempt + 1) for index, attempt in chunk if attempt + 1 < ATTEMPTS)
        return [result or JobResult(failure="the nodes that had this program were lost") for result in results]

    def close(self) -> None:
        """End the pools of all nodes."""
        ray = _ray()
        closing = [actor.close.remote() for actor in self._actors]
        ray.wait(closing, num_returns=len(closing), timeout=10)
        for actor in self._actors:
            ray.kill(actor)
        self._actors = []


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
