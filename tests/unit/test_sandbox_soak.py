"""Ten thousand hostile programs, and the pool as it was before."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

import pytest

from gdpo_nemo.sandbox.jobs import RUN_STATUSES, Job, Limits
from gdpo_nemo.sandbox.pool import LocalPool

NUM_PROGRAMS = 10_000
LIMITS = Limits(cpu_s=0.1, memory_mb=128, output_mb=0.5, files=32, processes=12, scratch_mb=4)
QUICK = (
    "1 / 0",
    "def f(:",
    "import os\nos._exit(7)",
    "import os\nos.kill(os.getpid(), 9)",
    "import os\nfor pid in range(1, 400):\n    try: os.kill(pid, 9)\n    except OSError: pass",
    "import ctypes\nctypes.string_at(0)",
    "raise MemoryError",
    "x = bytearray(1 << 40)",
    "import os\nfor i in range(20):\n    open(str(i), 'w').write('x' * 1000)\nos.chmod('.', 0)",
    "import os\ntry:\n    for i in range(40): os.makedirs('a/' * i + 'b', exist_ok=True)\nexcept OSError: pass",
    "import os\nos.symlink('/etc', 'etc')",
    "import os\nos.mkfifo('pipe'); open('pipe')",
    "import os\nif os.fork() == 0:\n    os.setsid()\n    import time\n    time.sleep(600)",
    "import os\nfor _ in range(3): os.fork()",
    "import sys\nsys.stdout.write('x' * (1 << 20))",
    "import os\nfor n in range(3, 64):\n    try: os.write(n, b'V3')\n    except OSError: pass",
    "import gc\nfor each in gc.get_objects():\n    if isinstance(each, (dict, list)): each.clear()",
    "import sys\nsys.stdin.close(); sys.stdout.close(); sys.stderr.close()",
    "import threading, time\nfor _ in range(3): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
    "import atexit, os\natexit.register(lambda: os.abort())",
    "import socket\nsocket.create_connection(('127.0.0.1', 22), 1)",
    "import mmap\nm = mmap.mmap(-1, 1 << 20)\nm[:] = b'x' * (1 << 20)",
)
SLOW = (
    "while True: pass",
    "import time\ntime.sleep(600)",
    "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "import threading\nfor _ in range(4): threading.Thread(target=lambda: [0 for _ in iter(int, 1)]).start()",
)
WRITTEN = {*map(str, range(20)), "a", "b", "pipe", "big"}


def _below(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [each for child in map(int, children) for each in (child, *_below(child))]


def _state(pool: LocalPool) -> tuple[int, int, int, set[str]]:
    """Number of processes, resident KiB of them, descriptors of this process, files that programs tried to write."""
    pids = [each for pid in pool.pids for each in (pid, *_below(pid))]
    lines = (line for pid in pids for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    resident = sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    folders = (tempfile.gettempdir(), "/dev/shm", ".", "/")
    names = {f"{folder}/{name}" for folder in folders for name in os.listdir(folder) if name in WRITTEN}
    return len(pids), resident, len(os.listdir("/proc/self/fd")), names


@pytest.mark.slow
def test_ten_thousand_hostile_programs_leave_nothing() -> None:
    draw = random.Random(0)
    sources = [draw.choice(SLOW if draw.random() < 0.01 else QUICK) for _ in range(NUM_PROGRAMS)]
    jobs = [Job(source, ("1 2\n",), limits=LIMITS) for source in sources]
    with LocalPool() as pool:
        pool.run(jobs[:200])
        processes, resident, descriptors, names = _state(pool)
        pids = pool.pids
        results = pool.run(jobs)
        after = _state(pool)
        assert [result.failure for result in results if result.failure] == []
        assert {run.status for result in results for run in result.runs} == set(RUN_STATUSES)
        assert pool.pids == pids, "a zygote was lost"
        assert (after[0], after[2], after[3]) == (processes, descriptors, names)
        assert after[1] <= resident * 1.1, f"{resident} KiB before, {after[1]} KiB after"
        (last,) = pool.run([Job("import os\nprint(os.listdir('.'), input())", ("still here",))])
        assert last.runs[0].stdout == b"[] still here\n"
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
