"""What a program leaves for the next one, and does to the process that runs both: nothing, in any mode."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from gdpo_nemo.sandbox import isolation
from gdpo_nemo.sandbox.jobs import Job, Limits, SandboxError, TestRun
from gdpo_nemo.sandbox.pool import LocalPool

MODES = [mode for mode in isolation.MODES if mode != isolation.AUTO]
LIMITS = Limits(cpu_s=1.0, memory_mb=256)
ACL = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", tag, 0, 0xFFFFFFFF) for tag in (1, 4, 32))
"""A default ACL that gives nobody a right to the files made below."""
SEEN = """
import os, resource
state = os.stat(".")
print(oct(state.st_mode), state.st_mtime_ns == 987, os.listxattr("."), os.listdir("."))
print([resource.getrlimit(kind) for kind in (resource.RLIMIT_DATA, resource.RLIMIT_NOFILE, resource.RLIMIT_STACK)])
open("f", "w").write("x")
print(open("f").read(), len(bytearray(5 << 20)), input())
"""


@pytest.fixture(scope="module", params=MODES)
def pool(request: pytest.FixtureRequest) -> Iterator[LocalPool]:
    try:
        made = LocalPool(1, mode=request.param)
    except SandboxError as error:
        pytest.skip(f"{request.param} does not hold here: {error}")
    with made:
        yield made


def run(pool: LocalPool, source: str, stdin: str = "") -> TestRun:
    (result,) = pool.run([Job(source, (stdin,), limits=LIMITS)])
    assert result.failure is None
    return result.runs[0]


@pytest.mark.parametrize(
    "source",
    [
        "import os, resource\nresource.prlimit(os.getppid(), resource.RLIMIT_DATA, (1 << 20, 1 << 20))",
        "import os, resource\nresource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (4, 4))",
        "import os\nfor n in range(1, 65):\n    try: os.kill(os.getppid(), n)\n    except OSError: pass",
        "import fcntl, os, socket, struct, time\na, b = socket.socketpair()\n"
        "fcntl.ioctl(a, 0x8901, struct.pack('i', os.getppid()))\n"
        "fcntl.ioctl(a, 0x5452, struct.pack('i', 1))\nb.send(b'x')\ntime.sleep(0.1)",
        "import os\nos.setxattr('.', 'user.note', b'x')",
        f"import os\nos.setxattr('.', 'system.posix_acl_default', {ACL!r})",
        "import os\nos.utime('.', ns=(987, 987))",
        "import os\nos.chmod('.', 0o1333)",
        "import os\nfor _ in range(100): os.mkdir('d' * 200); os.chdir('d' * 200)",
        "import os\nos.makedirs('a/b')\nopen('a/b/c', 'w')\nos.chmod('a/b', 0); os.chmod('a', 0)",
    ],
)
def test_the_next_program_finds_what_the_first_found(pool: LocalPool, source: str) -> None:
    before, pids = run(pool, SEEN, "still here"), pool.pids
    assert before.stdout.endswith(b"[]\n" + before.stdout.split(b"\n")[1] + b"\nx 5242880 still here\n")
    run(pool, source)
    assert run(pool, SEEN, "still here").stdout == before.stdout
    assert pool.pids == pids, "the zygote was lost"


def test_a_program_that_makes_files_without_end_is_stopped_early(pool: LocalPool) -> None:
    source = """
import os
try: os.chmod(".", 0o300)
except OSError: pass
i = 0
while True:
    os.close(os.open(str(i), 66))
    i += 1
"""
    made = run(pool, source)
    own_tree = pool.mode in (isolation.FULL, isolation.NAMESPACES)
    assert made.status == ("error" if own_tree else "output_limit"), made
    assert made.cpu_s < LIMITS.cpu_s


def test_an_interrupt_is_an_exception_as_in_a_script(pool: LocalPool) -> None:
    source = "import signal\ntry: signal.raise_signal(2)\nexcept KeyboardInterrupt: print('seen')"
    assert run(pool, source).stdout == b"seen\n"
