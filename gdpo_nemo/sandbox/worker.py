"""The caller's end of one zygote: starts it, sends it one test at a time, starts another when it is gone."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import gdpo_nemo
from gdpo_nemo.sandbox.isolation import Layers, needed_paths, read_only_paths
from gdpo_nemo.sandbox.jobs import (
    COMPILE_ERROR,
    ERROR,
    MIB,
    OK,
    TIMEOUT,
    Job,
    JobResult,
    Limits,
    SandboxError,
    TestRun,
    classify,
    value_of,
)

WARM_IMPORTS: Final = (
    "array", "bisect", "cmath", "collections", "copy", "datetime", "decimal", "fractions", "functools", "heapq", "io",
    "itertools", "json", "math", "numpy", "operator", "queue", "random", "re", "statistics", "string", "struct",
    "threading", "time", "typing",
)  # fmt: skip
"""Imported once, before the first program, so that no test pays for them."""
START_S: Final = 60.0
GRACE_S: Final = 10.0
"""Seconds beyond the wall limit after which a zygote that does not answer is ended."""
ATTEMPTS: Final = 3
STACK_KIB: Final = 256 << 10
_BOOT: Final = (
    "import sys; sys.path.insert(0, sys.argv[2]); from gdpo_nemo.sandbox.inside.zygote import main; "
    "sys.path.pop(0); main()"
)
_REPORT_MOST: Final = 64 * MIB


class Worker:
    """One zygote and its replacements. Not for several threads at once."""

    def __init__(self, layers: Layers, *, python: str = sys.executable, extra_paths: tuple[str, ...] = ()) -> None:
        """Start the first zygote.

        Raises:
            SandboxError: a layer does not hold.
        """
        self._layers, self._python, self._extra_paths = layers, python, extra_paths
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._scratch = ""
        self.states: dict[str, str] = {}
        self._scratch_mb = Limits().scratch_mb
        self._start()

    @property
    def pid(self) -> int | None:
        """Process id of the zygote's outer half, None when it is gone."""
        return None if self._process is None else self._process.pid

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._scratch = tempfile.mkdtemp(prefix="gdpo-sandbox-", dir=_scratch_base())
        config = {
            "socket": theirs.fileno(),
            "namespaces": self._layers.namespaces,
            "landlock": self._layers.landlock,
            "seccomp": self._layers.seccomp,
            "read_only": read_only_paths(self._extra_paths),
            "needed": needed_paths(),
            "scratch": self._scratch,
            "scratch_mb": self._scratch_mb,
            "warm": WARM_IMPORTS,
        }
        package = str(Path(gdpo_nemo.__file__).resolve().parents[1])
        # The stack's limit must be there when the interpreter starts: the kernel lays out memory by it.
        shell = f'ulimit -s {STACK_KIB} 2>/dev/null; exec "$@"'
        command = ["/bin/sh", "-c", shell, "sh", self._python, "-s", "-P", "-c", _BOOT, json.dumps(config), package]
        try:
            self._process = subprocess.Popen(
                command, env=_environment(), cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), start_new_session=True,
            )  # fmt: skip
        finally:
            theirs.close()
        self._socket = ours
        ours.settimeout(START_S)
        answer = self._receive()
        if "layers" not in answer:
            self.close()
            raise SandboxError(f"the sandbox did not start: {answer.get('failure', 'its process ended')}")
        self.states = answer["layers"]

    def _receive(self) -> dict[str, Any]:
        assert self._socket is not None
        try:
            data = self._socket.recv(1 << 16)
        except OSError as error:
            return {"failure": f"no answer: {error}"}
        if not data:
            return {"failure": "the process that runs programs ended"}
        answer: dict[str, Any] = json.loads(data)
        return answer

    def run(self, job: Job) -> JobResult:
        """Run a program on its inputs. Never raises for what a program does."""
        source = _memory_file(job.source.encode("utf-8", "surrogatepass"))
        code = os.memfd_create("code", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        runs: list[TestRun] = []
        left_s, num_timeouts = job.limits.budget_s, 0
        try:
            for stdin in job.stdins:
                if left_s <= 0 or num_timeouts == job.stop_after_timeouts:
                    runs.append(TestRun(TIMEOUT, detail=f"budget_s = {job.limits.budget_s:g} is used up"))
                    continue
                run = self._run_test(job, source, code, stdin)
                if isinstance(run, str):
                    return JobResult(failure=run)
                runs.append(run)
                if run.status == COMPILE_ERROR:
                    return JobResult(tuple(replace(run, cpu_s=0.0, wall_s=0.0) for _ in job.stdins))
                num_timeouts += run.status == TIMEOUT
                left_s -= max(run.cpu_s, run.wall_s / job.limits.wall_factor)
        finally:
            os.close(source)
            os.close(code)
        return JobResult(tuple(runs))

    def _run_test(self, job: Job, source: int, code: int, stdin: str) -> TestRun | str:
        """One test, on as many zygotes as it takes; a text says that all of them failed."""
        failure = ""
        for _ in range(ATTEMPTS):
            try:
                if self._process is None:
                    self._start()
                run = self._attempt(job, source, code, stdin)
            except (OSError, SandboxError) as error:
                run = f"{type(error).__name__}: {error}"
            if isinstance(run, TestRun):
                return run
            failure = run
            self.close()
        return f"{failure} ({ATTEMPTS} attempts)"

    def _attempt(self, job: Job, source: int, code: int, stdin: str) -> TestRun | str:
        assert self._socket is not None
        limits = job.limits
        files = [source, code, _memory_file(stdin.encode("utf-8", "surrogatepass")), _memory_file(), _memory_file()]
        stdout, report = files[3:]
        try:
            order = {"call": job.call, "prelude": job.prelude, "limits": _numbers(limits)}
            self._socket.settimeout(limits.wall_s + GRACE_S)
            socket.send_fds(self._socket, [json.dumps(order).encode()], files)
            answer = self._receive()
            if "failure" in answer:
                return str(answer["failure"])
            size = os.fstat(stdout).st_size
            told = os.pread(report, min(os.fstat(report).st_size, _REPORT_MOST), 0)
            status, detail, exited = classify(answer, limits, size, told)
            shown = os.pread(stdout, size, 0) if status in (OK, ERROR) else b""
            value = value_of(told) if status == OK and job.call is not None else None
            return TestRun(status, shown, value, detail, answer["cpu_s"], answer["wall_s"], exited)
        finally:
            for descriptor in files[2:]:
                os.close(descriptor)

    def close(self) -> None:
        """End the zygote and what runs in it, and remove its scratch folder. Another starts when one is needed."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = ""


def _numbers(limits: Limits) -> dict[str, float]:
    """Limits as the zygote takes them: bytes and seconds."""
    return {
        "cpu_s": limits.cpu_s,
        "wall_s": limits.wall_s,
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
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONINTMAXSTRDIGITS": "0",
    }


def _scratch_base() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else None


def _memory_file(content: bytes = b"") -> int:
    descriptor = os.memfd_create("test", os.MFD_CLOEXEC)
    if content:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
