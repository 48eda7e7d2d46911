"""The caller's end of one zygote: starts it, sends it a test, ends it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import gdpo_nemo
from gdpo_nemo.sandbox.isolation import Layers, needed_paths, read_only_paths
from gdpo_nemo.sandbox.jobs import (
    ERROR,
    MIB,
    OK,
    Job,
    Limits,
    SandboxError,
    TestRun,
    classify,
    value_of,
)

WARM_IMPORTS: Final = (
    "array", "bisect", "cmath", "collections", "copy", "datetime", "decimal", "fractions", "functools", "heapq", "io",
    "itertools", "json", "math", "operator", "queue", "random", "re", "statistics", "string", "struct", "threading",
    "time", "typing",
)  # fmt: skip
"""Imported once, before the first program, so that no test pays for them."""
START_S: Final = 60.0
GRACE_S: Final = 10.0
"""Seconds beyond the longest wall time after which a zygote that does not answer is ended."""
CLOSE_S: Final = 2.0
SCRATCH_MB: Final = 64
"""Most that a program can keep in files at once."""
STACK_KIB: Final = 256 << 10
_BOOT: Final = (
    "import sys; sys.path.insert(0, sys.argv[2]); from gdpo_nemo.sandbox.inside.zygote import main; "
    "sys.path.pop(0); main()"
)
REPORT_KEPT: Final = 4000
_REPORT_MOST: Final = 64 * MIB


class Keeper:
    """One zygote. Not for several threads at once.

    Attributes:
        states: layer -> its state, as the zygote reports it.
    """

    def __init__(
        self,
        layers: Layers,
        *,
        imports: Sequence[str] = WARM_IMPORTS,
        extra_paths: tuple[str, ...] = (),
        allow_exec: bool = False,
    ) -> None:
        """Start it.

        Args:
            layers: what keeps programs apart.
            imports: modules that programs find loaded.
            extra_paths: what programs may read beside the interpreter and the system's libraries.
            allow_exec: whether programs may become other programs; for trusted ones.

        Raises:
            SandboxError: a layer does not hold.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = ours
        self._job: Job | None = None
        self._order = b""
        own_tree = layers.namespaces
        self._scratch = "" if own_tree else tempfile.mkdtemp(prefix="gdpo-sandbox-", dir=_scratch_base())
        config = {
            "socket": theirs.fileno(),
            "namespaces": layers.namespaces,
            "landlock": layers.landlock,
            "seccomp": layers.seccomp,
            "read_only": read_only_paths(extra_paths),
            "needed": needed_paths(),
            "scratch": self._scratch,
            "scratch_mb": SCRATCH_MB,
            "warm": list(imports),
            "allow_exec": allow_exec,
        }
        package = str(Path(gdpo_nemo.__file__).resolve().parents[1])
        # The stack's limit must be there when the interpreter starts: the kernel lays out memory by it.
        shell = f'ulimit -s {STACK_KIB} 2>/dev/null; exec "$@"'
        command = ["/bin/sh", "-c", shell, "sh", sys.executable, "-s", "-P", "-c", _BOOT, json.dumps(config), package]
        try:
            self._process = subprocess.Popen(
                command,
                env=_environment(),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        finally:
            theirs.close()
        ours.settimeout(START_S)
        answer = self._receive()
        if "layers" not in answer:
            self.close()
            raise SandboxError(f"the sandbox did not start: {answer.get('failure', 'its process ended')}")
        self.states: dict[str, str] = answer["layers"]

    @property
    def pid(self) -> int:
        """Process id of the zygote, or of its outer half where it has namespaces."""
        return self._process.pid

    def _receive(self) -> dict[str, Any]:
        try:
            data = self._socket.recv(1 << 16)
        except OSError as error:
            return {"failure": f"no answer: {error}"}
        if not data:
            return {"failure": "the process that runs programs ended"}
        answer: dict[str, Any] = json.loads(data.decode())
        return answer

    def run(self, job: Job, source: int, code: int, stdin: str) -> TestRun | str:
        """One test of a program; a text says how the sandbox failed.

        Args:
            job: the program's settings.
            source: descriptor of its text.
            code: descriptor that keeps its compiled form from the first test on.
            stdin: the test's input.

        Raises:
            OSError: the zygote is gone, or this process has no descriptors left.
        """
        limits = job.limits
        with contextlib.ExitStack() as opened:
            written = memory_file(opened, stdin.encode("utf-8", "surrogatepass"))
            given = os.open(f"/proc/self/fd/{written}", os.O_RDONLY | os.O_CLOEXEC)  # as `< file` is
            opened.callback(os.close, given)
            stdout, report = memory_file(opened), memory_file(opened)
            files = source, code, given, stdout, report
            if job is not self._job:
                self._job, self._order = job, _order(job)
                self._socket.settimeout(limits.longest_s + GRACE_S)
            self._socket.sendmsg([self._order], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("5i", *files))])
            answer = self._receive()
            if "failure" in answer:
                return str(answer["failure"])
            size = os.fstat(stdout).st_size
            told = os.pread(report, min(os.fstat(report).st_size, _REPORT_MOST), 0)
            status, detail, exited = classify(answer, limits, size, told)
            shown = os.pread(stdout, size, 0) if status in (OK, ERROR) else b""
            value = value_of(told) if status == OK and job.call is not None else None
            return TestRun(status, shown, value, detail, answer["cpu_s"], answer["wall_s"], exited, told[-REPORT_KEPT:])

    def interrupt(self) -> None:
        """End what runs in the zygote, and it, from another thread than the one that waits for it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the zygote and what runs in it, and remove its scratch folder."""
        self._socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_S)
        self._process.kill()
        self._process.wait()
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)


def _order(job: Job) -> bytes:
    """What the zygote is told of each test of a program, the same for all."""
    return json.dumps({"call": job.call, "prelude": job.prelude, "limits": _numbers(job.limits)}).encode()


def _numbers(limits: Limits) -> dict[str, float]:
    """Limits as the zygote takes them: bytes and seconds."""
    return {
        "cpu_s": limits.cpu_s,
        "wall_s": limits.wall_s,
        "longest_s": limits.longest_s,
        "memory": limits.memory_mb * MIB,
        "output": int(limits.output_mb * MIB),
        "files": limits.files,
        "processes": limits.processes,
    }


def _environment() -> dict[str, str]:
    """Nothing of the caller's: no keys, no paths."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return threads | {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONINTMAXSTRDIGITS": "0",
        "LD_BIND_NOW": "1",  # once, and not in each fork
    }


def _scratch_base() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else None


def memory_file(opened: contextlib.ExitStack, content: bytes = b"", *, flags: int = 0) -> int:
    """A file in memory with this content, to be read from its start, until the stack closes it.

    Raises:
        OSError: this process has no descriptors or no memory left.
    """
    descriptor = os.memfd_create("test", os.MFD_CLOEXEC | flags)
    opened.callback(os.close, descriptor)
    if content:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
