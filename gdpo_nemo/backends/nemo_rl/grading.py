"""What grading costs a step: measured in the environment's process, logged by the driver under ``grading/``.

seconds              in which at least one response was being graded
seconds_exposed      those of them after the last response had come: generation was over, and the step waited
share_hidden         1 - seconds_exposed / seconds; 0 with synchronous generation, which hands all in at its end
num_over_budget      responses that were not graded because ``env.gdpo.grading_budget_s`` was used up
queue_high_water     most responses that waited for their grades at once
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

CALLS_AT_ONCE: Final = 1024
"""Responses of asynchronous rollouts that wait for their grades at once; the sandbox runs as many as it has cores."""


class GradingLog:
    """Counts between two calls of ``take``. Any thread may call it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._waiting = 0
        self._restart(clock())

    def _restart(self, now: float) -> None:
        self._since = now  # when the time in which responses wait was last added up
        self._seconds = self._hidden = 0.0
        self._over_budget, self._high_water = 0, self._waiting

    def _add_up(self) -> None:
        now = self._clock()
        if self._waiting:
            self._seconds += now - self._since
        self._since = now

    def came(self, number: int) -> None:
        """So many responses are to be graded."""
        with self._lock:
            self._add_up()
            self._hidden = self._seconds
            self._waiting += number
            self._high_water = max(self._high_water, self._waiting)

    def done(self, number: int, over_budget: int = 0) -> None:
        """So many of them need no more waiting; ``over_budget`` of these were not graded in time."""
        with self._lock:
            self._add_up()
            self._waiting -= number
            self._over_budget += over_budget

    def take(self) -> dict[str, float]:
        """The numbers since the last call, by the names that are logged; none if nothing was graded."""
        with self._lock:
            self._add_up()
            seconds, hidden = self._seconds, self._hidden
            numbers = {
                "grading/seconds": seconds,
                "grading/seconds_exposed": seconds - hidden,
                "grading/num_over_budget": float(self._over_budget),
                "grading/queue_high_water": float(self._high_water),
            }
            graded = self._high_water > 0
            self._restart(self._since)
        return numbers | {"grading/share_hidden": hidden / seconds if seconds else 0.0} if graded else {}


def grading_metrics(task_to_env: Mapping[str, Any] | None) -> dict[str, float]:
    """What the environments of this package counted since they were last asked; others are not asked."""
    import ray

    asked = [actor.grading_metrics.remote() for actor in _ours((task_to_env or {}).values())]
    return {name: value for numbers in ray.get(asked) for name, value in numbers.items()}


def _ours(actors: Iterable[Any]) -> Iterator[Any]:
    """Each once: several tasks can have the same environment."""
    seen: list[Any] = []
    for actor in actors:
        if hasattr(actor, "grading_metrics") and not any(actor is other for other in seen):
            seen.append(actor)
            yield actor
