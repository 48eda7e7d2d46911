"""The process that keeps untrusted programs: it isolates itself, then forks once for each test.

It never sees a program or its input: those are files in memory that the caller opens and the fork reads, so that
nothing of one program is left in memory for the next. Messages are JSON objects on a packet socket:

    -> {"call": name or null, "prelude": bool, "limits": {...}}   with descriptors: source, code, stdin, stdout, report
    <- {"end": "exit" | "signal", "code": n, "stopped": null | "cpu" | "wall" | "memory" | "scratch", "compiled": bool,
        "cpu_s": x, "wall_s": x, "memory": bytes} or {"failure": text}

Before the first: <- {"layers": {name: state}} or {"failure": text}.
"""

from __future__ import annotations

import _socket
import contextlib
import ctypes
import fcntl
import functools
import gc
import importlib
import json
import mmap
import os
import signal
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

from gdpo_nemo.sandbox.inside import (
    harness,
    landlock,
    leftovers,
    namespaces,
    privileges,
    rehearsal,
    seccomp,
    syscalls,
    watching,
)

NUM_DESCRIPTORS = 5
MAX_MESSAGE = 1 << 16
ANSWER = '{"end": "%s", "code": %d, "stopped": %s, "compiled": %s, "cpu_s": %r, "wall_s": %r, "memory": %d}'
REFUSED = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What an order that is none can raise."""
STATUS, RUSAGE = struct.Struct("i"), struct.Struct("5l")
CONTROL_BYTES = _socket.CMSG_LEN(4 * NUM_DESCRIPTORS)


def isolate(config: dict[str, Any], sock: _socket.socket) -> dict[str, str]:
    """Enter every layer of the configuration; the process that returns is the one to serve.

    Returns:
        layer -> "yes", with a note where there is something to say, or "off".

    Raises:
        OSError: a layer that was asked for does not hold.
    """
    layers = dict.fromkeys(("namespaces", "landlock", "seccomp"), "off")
    if config["namespaces"]:
        kind = namespaces.enter()
        pid = os.fork()
        if pid:
            sock.close()
            os.waitpid(pid, 0)
            os._exit(0)
        syscalls.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    _import(config["warm"])
    if config["namespaces"]:
        layers["namespaces"] = namespaces.build_root(config["read_only"], config["scratch_mb"])
        layers["uid"] = namespaces.give_up_root() if kind == "root" else "yes"
        syscalls.prctl(1, signal.SIGKILL)  # a change of uid takes it back
        os.chdir(namespaces.SCRATCH)
    else:
        syscalls.prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
        layers["uid"] = privileges.switch_uid(config["needed"], config["scratch"])
        if layers["uid"].startswith("no") and not config["landlock"]:
            raise OSError(
                f"without Landlock, programs must not run as root, and {layers['uid'].removeprefix('no: ')}; "
                "use an interpreter that other users can read, or start this as another user"
            )
        os.chdir(config["scratch"])
    os.environ.update(dict.fromkeys(("HOME", "TMPDIR"), os.getcwd()))
    if not privileges.readable(config["needed"]):
        raise OSError(f"uid {os.getuid()} cannot read {' or '.join(config['needed'])}")
    privileges.drop_capabilities()
    if config["landlock"]:
        layers["landlock"] = f"yes, version {landlock.abi()}"
    if config["seccomp"]:
        seccomp.install(seccomp.base_filter(syscalls.architecture(), allow_exec=config["allow_exec"]))
        layers["seccomp"] = f"yes, {syscalls.architecture()}"
    return layers


def _import(names: list[str]) -> None:
    for name in names:
        with contextlib.suppress(ImportError):  # what is not installed cannot be imported by a program either
            importlib.import_module(name)


class Zygote:
    """Forks, waits, kills and cleans up; one test at a time.

    After a fork, each page of memory that either process writes is copied, and looking at a Python object writes to
    it. So what is done for each test here is done with few objects.
    """

    def __init__(self, config: dict[str, Any], sock: _socket.socket) -> None:
        self.sock = sock
        files = rehearsal.files()
        self.layers = isolate(config, sock)
        self._own_pids, self._filtered = bool(config["namespaces"]), bool(config["seccomp"])
        self._scratch = os.getcwd()
        self._owned = leftovers.is_own(self._scratch)
        # Not os.fork, whose work in the child (a new seed for random, hooks of threading) costs more than all the rest.
        # This process has one thread, so there is nothing to put right; and a program's random numbers are the same
        # on every run. Not os.waitpid, which raises when there is nothing to wait for, the ordinary case.
        libc = ctypes.PyDLL(None)
        self._fork, self._wait4 = libc.fork, libc.wait4
        self._any_left = functools.partial(libc.wait4, ctypes.c_int(-1), None, ctypes.c_int(os.WNOHANG), None)
        self._status, self._usage = ctypes.create_string_buffer(4), ctypes.create_string_buffer(144)
        self._restrict: Callable[[], int] | None = None
        if config["landlock"]:
            readable, written = [*config["read_only"], *namespaces.DEVICES], [self._scratch, *namespaces.DEVICES[:2]]
            self._restrict = landlock.restriction(landlock.ruleset(readable, written, directories=self._own_pids))
        lonely = self._filtered and not self._own_pids
        self._alone = seccomp.AloneFilter(syscalls.architecture()) if lonely else None
        self._ready = mmap.mmap(-1, mmap.PAGESIZE)
        self._watch = watching.Watch(
            sock,
            self._ready,
            own_pids=self._own_pids,
            counts_all=self._own_pids or self._filtered,
            scratch=self._scratch,
            scratch_mb=config["scratch_mb"],
        )
        self._base_memory = self._own_memory()
        null = os.open("/dev/null", os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        self._stage = harness.Stage()
        os.close(null)
        rehearsal.rehearse(self._stage, files, landlock.restriction(-1) if config["landlock"] else None)
        self._last: tuple[bytes, dict[str, Any]] = b"", {}
        gc.collect()
        gc.freeze()

    def _own_memory(self) -> int:
        """Bytes of address space in use before a program starts."""
        try:
            with open("/proc/self/statm", encoding="ascii") as handle:
                return int(handle.read().split()[0]) * mmap.PAGESIZE
        except OSError:
            return 512 << 20

    def serve(self) -> None:
        """Answer orders until the caller closes its end."""
        while True:
            data, control, _, _ = self.sock.recvmsg(MAX_MESSAGE, CONTROL_BYTES)
            if not data:
                return
            held = control[0][2] if control else b""
            descriptors = struct.unpack(f"{len(held) // 4}i", held)
            try:
                answer = self._run(self._order(data), harness.Descriptors(*descriptors))
            except REFUSED as error:
                answer = json.dumps({"failure": f"{type(error).__name__}: {error}"})
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
            clean = self._clean()
            self.sock.send(answer.encode())
            if not clean:  # the next program must not find what this one left
                return

    def _order(self, data: bytes) -> dict[str, Any]:
        """The order as a dict; read once for all tests of a program."""
        if data != self._last[0]:
            order = json.loads(data)
            order["hard"] = harness.hard_limits(order["limits"], self._base_memory)
            self._last = data, order
        return self._last[1]

    def leave(self) -> None:
        """Remove the scratch folder, unless it goes with the namespaces; the caller may have been killed."""
        if not self._own_pids:
            self._reap()
            self._clean()
            with contextlib.suppress(OSError):
                os.rmdir(self._scratch)

    def _run(self, order: dict[str, Any], files: harness.Descriptors) -> str:
        """One test; the answer."""
        self._ready[0] = 0
        started = time.monotonic()
        pid = self._fork()
        if pid == 0:
            self._child(order, files)
        if pid < 0:
            raise OSError("no process can be forked")
        stopped: str | None = "failure"
        try:
            stopped = self._watch.wait(pid, order["limits"])
        finally:
            if stopped is not None:
                self._kill(pid)
            starved_s = watching.starved_s(pid)
            self._wait4(pid, self._status, 0, self._usage)
            if self._any_left() >= 0:
                self._reap()
        if stopped == watching.CALLER_GONE:
            self.leave()
            os._exit(0)
        wall_s = max(time.monotonic() - started - starved_s, 0.0)
        (status,) = STATUS.unpack(self._status)
        if not self._ready[0]:
            raise OSError(f"the isolation of a program failed (wait status {status})")
        utime, utime_us, stime, stime_us, memory_kb = RUSAGE.unpack_from(self._usage)
        end, code = ("exit", status >> 8) if status & 127 == 0 else ("signal", status & 127)
        compiled = fcntl.fcntl(files.code, harness.F_GET_SEALS) & 1
        cpu_s = utime + stime + (utime_us + stime_us) / 1e6
        told = f'"{stopped}"' if stopped else "null", "true" if compiled else "false"
        return ANSWER % (end, code, *told, cpu_s, wall_s, memory_kb << 10)

    def _child(self, order: dict[str, Any], files: harness.Descriptors) -> None:
        status, leave = 1, os._exit  # by name: a program may put its own in the module
        try:
            if self._restrict is not None and self._restrict():
                return
            if self._alone is not None:
                self._alone.install(os.getpid())
            harness.set_limits(order["hard"])
            self._ready[0] = 1
            self._ready.close()
            status = self._stage.run(files, order)
        finally:
            leave(status)

    def _kill(self, pid: int) -> None:
        """Kill the program and all it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1 if self._own_pids else pid, signal.SIGKILL)

    def _reap(self) -> None:
        """Kill every descendant, and wait until none is left."""
        while True:
            with contextlib.suppress(ProcessLookupError):
                if self._own_pids:
                    os.kill(-1, signal.SIGKILL)
                elif not self._filtered:
                    for pid in leftovers.children(os.getpid()):
                        os.kill(pid, signal.SIGKILL)
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                return

    def _clean(self) -> bool:
        """Empty the scratch folder; whether that went well."""
        try:
            leftovers.empty(self._scratch, owned=self._owned)
        except OSError:
            return False
        return True


def main() -> None:
    """Isolate, say so, serve. The configuration is the first argument."""
    config = json.loads(sys.argv[1])
    os.environ.pop("LD_BIND_NOW", None)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the kernel keeps from PID 1 all that it has no handler for
    sock = _socket.socket(fileno=config["socket"])
    try:
        zygote = Zygote(config, sock)
    except OSError as error:
        sock.send(json.dumps({"failure": str(error)}).encode())
        return
    sock.send(json.dumps({"layers": zygote.layers}).encode())
    zygote.serve()
    zygote.leave()
    os._exit(0)
