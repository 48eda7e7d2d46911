"""The time by which work has to be done: set by who waits for it, read by the pools that do it.

Grading is many layers deep, and only the lowest can drop what has not begun. The deadline belongs to the thread that
sets it; a pool reads it in the thread that calls it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

OVER_BUDGET: Final = "error:budget"
"""Reason code of a sample whose time for grading was used up: not graded, in any of its rewards."""

_at: ContextVar[float | None] = ContextVar("deadline", default=None)


@contextmanager
def deadline(at: float | None) -> Iterator[None]:
    """Work of this thread in this block is wanted by then, in seconds of ``time.monotonic``; None: whenever."""
    token = _at.set(at)
    try:
        yield
    finally:
        _at.reset(token)


def current() -> float | None:
    """The deadline in force, None without one."""
    return _at.get()


def left_s(at: float | None) -> float | None:
    """Seconds until then, at least 0; None without a deadline."""
    return None if at is None else max(0.0, at - time.monotonic())
