"""A program that the zygote runs itself, before any other: what it touches, no fork has to touch first.

The interpreter looks names up, specializes code and allocates when something runs for the first times, and writes down
what it found. A fork that does so copies a page for each.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable
from typing import Final

from gdpo_nemo.sandbox.inside import harness, running

PROGRAM: Final = """
import sys, math
from collections import defaultdict, deque
class Item:
    def __init__(self, value):
        self.value = value
    def double(self):
        return self.value * 2
def f(*rest):
    return [item.double() for item in map(Item, range(3))]
n = int(input())
numbers = list(map(int, input().split()))
counts = defaultdict(list)
for number in numbers:
    counts[number].append(number)
queue = deque(sorted(numbers))
queue.append(queue.popleft())
print(n, *numbers, sep=" ")
print(" ".join(map(str, numbers)), f"{n:.2f}", len(counts), sum(f()))
lines = [line.strip() for line in sys.stdin] + sys.stdin.read().split()
sys.stdout.write(str(max(1, min(2, abs(-3)))) + "\\n")
"""
STDIN: Final = b"3\n1 2 3\nx\n"
NUM_TIMES: Final = 16
"""More than it takes CPython 3.11 to specialize a function."""
NUM_FILES: Final = 5


def files() -> list[int]:
    """The files of a test, to be made while they can be."""
    return [os.memfd_create("rehearsal", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING) for _ in range(NUM_FILES)]


def rehearse(stage: harness.Stage, numbers: list[int], refused: Callable[[], int] | None) -> None:
    """Go through all that a fork does. Programs find nothing of it.

    Args:
        stage: as the forks will have it.
        numbers: ``files()``, which are closed.
        refused: isolation that is asked for in a way that the kernel refuses.
    """
    test = harness.Descriptors(*numbers)
    streams = [os.dup(number) for number in (0, 1)]
    os.write(test.source, PROGRAM.encode())
    os.write(test.stdin, STDIN)
    for turn in range(NUM_TIMES):
        os.lseek(test.stdin, 0, os.SEEK_SET)
        stage.set_up()
        if refused is not None:
            refused()
        harness.set_limits([(kind, resource.getrlimit(kind)) for kind in (resource.RLIMIT_AS, resource.RLIMIT_CORE)])
        data = stage.enter(test, test.report)
        os.closerange(test.report, test.report)
        stage.perform(data, {"call": "f" if turn % 2 else None, "prelude": True}, test.report)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    for number in numbers:
        os.close(number)
    del sys.modules[running.CALLED]
    stage.set_up()
