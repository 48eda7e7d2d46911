"""When to ask: retries with exponential back-off, pauses that a server asks for, and a limit per minute.

The pause before attempt k + 1 is ``backoff_s * 2**k``, at most ``longest_wait_s``, times a factor in [0.5, 1] drawn
from a stream named after the sample (jitter). A ``Retry-After`` header (up to an hour) holds up all requests.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from gdpo_nemo.evaluation.sampling import TransientError
from gdpo_nemo.randomness import stream

LONGEST_RETRY_AFTER_S = 3600.0
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class Pace:
    """How requests are made.

    Attributes:
        concurrency: samples under way at once.
        retries: further attempts at a request that failed in a way that may pass.
        backoff_s: before the first of them.
        longest_wait_s: before any of them, unless the server asks for more.
        requests_per_minute: attempts started per minute; None: no limit.
    """

    concurrency: int = 16
    retries: int = 6
    backoff_s: float = 0.5
    longest_wait_s: float = 120.0
    requests_per_minute: float | None = None

    def wait_s(self, attempt: int, jitter: float) -> float:
        """Seconds before attempt ``attempt + 1``; ``jitter`` lies in [0, 1)."""
        return float(min(self.longest_wait_s, self.backoff_s * math.exp2(min(attempt, 60))) * (0.5 + jitter / 2))


class Pacer:
    """Carries out requests at a pace; one per event loop."""

    def __init__(self, pace: Pace, seed: int) -> None:
        self.pace, self.seed = pace, seed
        self._next_start = 0.0  # no attempt starts before, in the loop's clock

    async def call(self, request: Callable[[], Awaitable[ResultT]], *name: str | int) -> ResultT:
        """Make a request until it is answered; ``name`` names the stream of its jitter.

        Raises:
            TransientError: the last one, with ``attempts``.
        """
        jitter = stream(self.seed, "retry", *name)
        loop = asyncio.get_running_loop()
        for attempt in range(self.pace.retries + 1):
            await self._turn(loop)
            try:
                return await request()
            except TransientError as error:
                task = asyncio.current_task()
                if task is not None and task.cancelling():  # a library made a broken connection of an interruption
                    raise asyncio.CancelledError from error
                error.attempts = attempt + 1
                if attempt == self.pace.retries:
                    raise
                asked = min(error.retry_after_s or 0.0, LONGEST_RETRY_AFTER_S)
                if asked:
                    self._next_start = max(self._next_start, loop.time() + asked)
                await asyncio.sleep(max(asked, self.pace.wait_s(attempt, jitter.random())))
        raise AssertionError("unreachable")

    async def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait until an attempt may start, and take the place."""
        while (wait := self._next_start - loop.time()) > 0:
            await asyncio.sleep(wait)
        if self.pace.requests_per_minute:
            self._next_start = max(self._next_start, loop.time()) + 60 / self.pace.requests_per_minute
