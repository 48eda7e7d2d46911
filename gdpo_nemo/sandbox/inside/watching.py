"""Waiting for a program: until it ends, or must be ended."""

from __future__ import annotations

import _socket
import contextlib
import math
import mmap
import os
import select
import time
from typing import Final

from gdpo_nemo.sandbox.inside import leftovers

START_S: Final = 10.0
"""Seconds that a fork may take to isolate itself."""
TICK_MS: Final = 50
"""How often the memory of a program's processes, or its scratch folder, is looked at."""
CALLER_GONE: Final = "caller"
PAGE: Final = os.sysconf("SC_PAGESIZE")


class Watch:
    """The limits of one program at a time."""

    def __init__(
        self, sock: _socket.socket, ready: mmap.mmap, *, own_pids: bool, counts_all: bool, scratch: str, scratch_mb: int
    ) -> None:
        """Made once, so that waiting touches little memory.

        Args:
            sock: the caller's; when its other end is closed, nobody waits any more.
            ready: its first byte is 1 from when the isolation of a program stands.
            own_pids: whether every process but this one is the program's, and the kernel limits its files.
            counts_all: whether the CPU time of all that a program starts is counted, so that it cannot starve itself
                for free.
            scratch: the folder for its files.
            scratch_mb: what they may have together.
        """
        self._ready, self._own_pids, self._counts_all = ready, own_pids, counts_all
        self._scratch, self._scratch_bytes = scratch, scratch_mb << 20
        self._lists_pids = own_pids and os.path.exists("/proc/self/statm")
        self._poll = select.poll()
        self._poll.register(sock, select.POLLRDHUP)

    def wait(self, pid: int, limits: dict[str, float]) -> str | None:
        """Wait for the end of a program; why it must be ended, if it must: ``CALLER_GONE`` or a limit."""
        watched = os.pidfd_open(pid)
        self._poll.register(watched, select.POLLIN)
        try:
            events = self._poll.poll(_tick_ms(min(limits["cpu_s"], limits["wall_s"])))
            return None if events and events[-1][0] == watched else self._stopped_by(pid, watched, limits)
        finally:
            self._poll.unregister(watched)
            os.close(watched)

    def _stopped_by(self, pid: int, watched: int, limits: dict[str, float]) -> str | None:
        """Look at a program at every tick.

        Its wall time counts from when its isolation is seen to stand, and without the time in which no processor was
        free for it, so that a loaded machine spends none of it.
        """
        began, deadline, starved = False, time.monotonic() + START_S, 0.0
        longest = deadline
        while True:
            if not began and self._ready[0]:
                began, deadline, starved = True, time.monotonic() + limits["wall_s"], starved_s(pid)
                longest = time.monotonic() + limits["longest_s"]
            cpu_s, memory = self._use(pid)
            if cpu_s >= limits["cpu_s"]:
                return "cpu"
            if memory > limits["memory"]:
                return "memory"
            if not self._own_pids and leftovers.is_full(self._scratch, self._scratch_bytes):
                return "scratch"
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                more_s = starved_s(pid) - starved if self._counts_all else 0.0
                if more_s < TICK_MS / 1000 or deadline >= longest:
                    return "wall"
                deadline, starved = min(deadline + more_s, longest), starved + more_s
            events = dict(self._poll.poll(_tick_ms(min(left_s, limits["cpu_s"] - cpu_s))))
            if watched in events:
                return None
            if events:
                return CALLER_GONE

    def _use(self, pid: int) -> tuple[float, int]:
        """CPU seconds of a program, and resident bytes of its processes if they are several: one has its own limit."""
        pids = [pid]
        if self._lists_pids:
            pids = [int(name) for name in os.listdir("/proc") if name.isdecimal() and name != "1"]
        cpu_s, pages = 0.0, 0
        for each in pids:
            with contextlib.suppress(OSError, IndexError):
                cpu_s += time.clock_gettime((~each << 3) | 2)  # the CPU clock of another process
                if len(pids) > 1:
                    with open(f"/proc/{each}/statm", encoding="ascii") as handle:
                        pages += int(handle.read().split()[1])
        return cpu_s, pages * PAGE


def _tick_ms(left_s: float) -> int:
    return max(1, math.ceil(min(left_s * 1000, TICK_MS)))


def starved_s(pid: int) -> float:
    """Seconds in which a program could run and no processor was free for it; 0 where the kernel does not say."""
    try:
        file = os.open(f"/proc/{pid}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0.0
    try:
        return int(os.read(file, 100).split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0
    finally:
        os.close(file)
