"""How far an evaluation is, on standard error: a line that renews itself on a terminal, or one every ten seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

LOG_EVERY_S = 10.0
TERMINAL_EVERY_S = 0.2


class Progress:
    """Counts finished samples and estimates what is left from the pace of this process alone."""

    def __init__(
        self,
        name: str,
        total: int,
        done: int,
        *,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.total, self.before = name, total, done
        self.answered, self.failed, self.tokens = 0, 0, 0
        self._stream, self._clock = stream or sys.stderr, clock
        self._terminal = self._stream.isatty()
        self._started = self._shown = clock()

    def add(self, *, failed: bool = False, tokens: int = 0) -> None:
        """One more sample is finished."""
        self.answered += not failed
        self.failed += failed
        self.tokens += tokens
        if self._clock() - self._shown >= (TERMINAL_EVERY_S if self._terminal else LOG_EVERY_S):
            self.show()

    def text(self) -> str:
        """The line."""
        elapsed = max(self._clock() - self._started, 1e-9)
        done = self.before + self.answered
        left = self.total - done - self.failed
        line = f"{self.name}: {done:,} of {self.total:,} samples"
        if self.failed:
            line += f", {self.failed:,} failed"
        finished = self.answered + self.failed
        if finished:
            line += f", {self.answered / elapsed:.2g}/s"
            line += f", {self.tokens / elapsed:,.0f} tokens/s" if self.tokens else ""
            line += f", {duration(left * elapsed / finished)} left" if left else ""
        return line

    def show(self) -> None:
        """Print the line."""
        self._shown = self._clock()
        before, end = ("\r\x1b[2K", "") if self._terminal else ("", "\n")
        print(f"{before}{self.text()}", file=self._stream, end=end, flush=True)

    def close(self) -> None:
        """Print the last line."""
        self.show()
        if self._terminal:
            print(file=self._stream, flush=True)


def duration(seconds: float) -> str:
    """Hours, minutes and seconds, e.g. ``1:02:03``."""
    minutes, second = divmod(round(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02}:{second:02}"
