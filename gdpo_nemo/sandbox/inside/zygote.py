"""The process that keeps untrusted programs: it isolates itself, then forks once for each test.

It never sees a program or its input: those are files in memory that the caller opens and the fork reads, so that
nothing of one program is left in memory for the next. Messages are JSON objects on a packet socket:

    -> {"call": name or null, "prelude": bool, "limits": {...}}   with descriptors: source, code, stdin, stdout, report
    <- {"end": "exit" | "signal", "code": n, "stopped": null | "cpu" | "wall" | "memory" | "scratch", "compiled": bool,
        "cpu_s": x, "wall_s": x, "memory": bytes} or {"failure": text}

Before the first: <- {"layers": {name: state}} or {"failure": text}.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import math
import mmap
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from gdpo_nemo.sandbox.inside import harness, landlock, leftovers, namespaces, privileges, seccomp, syscalls

NUM_DESCRIPTORS = 5
START_S = 10.0
"""Seconds that a fork may take to isolate itself."""
TICK_MS = 50
"""How often the memory of a program's processes, or its scratch folder, is looked at."""
MAX_MESSAGE = 1 << 16
PAGE = os.sysconf("SC_PAGESIZE")


def isolate(config: dict[str, Any], sock: socket.socket) -> dict[str, str]:
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
    """Forks, waits, kills and cleans up; one test at a time."""

    def __init__(self, config: dict[str, Any], sock: socket.socket) -> None:
        self.sock = sock
        self.layers = isolate(config, sock)
        self._own_pids = bool(config["namespaces"])
        self._filtered = bool(config["seccomp"])
        self._counts_all = self._own_pids or self._filtered
        """Whether the CPU time of all that a program starts is counted, so that it cannot starve itself for free."""
        self._scratch, self._scratch_bytes = os.getcwd(), config["scratch_mb"] << 20
        self._proc = self._own_pids and os.path.exists("/proc/self/statm")
        # Not os.fork, whose work in the child (a new seed for random, hooks of threading) costs more than all the rest.
        # This process has one thread, so there is nothing to put right; and a program's random numbers are the same
        # on every run.
        self._fork = ctypes.PyDLL(None).fork
        self._restrict: Callable[[], int] | None = None
        if config["landlock"]:
            readable, written = [*config["read_only"], *namespaces.DEVICES], [self._scratch, *namespaces.DEVICES[:2]]
            self._restrict = landlock.restriction(landlock.ruleset(readable, written, directories=self._own_pids))
        lonely = self._filtered and not self._own_pids
        self._alone = seccomp.AloneFilter(syscalls.architecture()) if lonely else None
        self._null = os.open("/dev/null", os.O_RDWR)
        self._ready = mmap.mmap(-1, PAGE)
        self._base_memory = self._own_memory()
        for number in range(3):
            os.dup2(self._null, number)
        self._stage = harness.Stage()
        gc.collect()
        gc.freeze()

    def _own_memory(self) -> int:
        """Bytes of address space in use before a program starts."""
        try:
            with open("/proc/self/statm", encoding="ascii") as handle:
                return int(handle.read().split()[0]) * PAGE
        except OSError:
            return 512 << 20

    def serve(self) -> None:
        """Answer orders until the caller closes its end."""
        while True:
            data, descriptors, _, _ = socket.recv_fds(self.sock, MAX_MESSAGE, NUM_DESCRIPTORS)
            if not data:
                return
            try:
                if len(descriptors) != NUM_DESCRIPTORS:
                    raise OSError(f"{len(descriptors)} descriptors came, expected {NUM_DESCRIPTORS}")
                answer = self._run(json.loads(data), harness.Descriptors(*descriptors))
            except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
                answer = {"failure": f"{type(error).__name__}: {error}"}
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
            clean = self._clean()
            self.sock.send(json.dumps(answer).encode())
            if not clean:  # the next program must not find what this one left
                return

    def leave(self) -> None:
        """Remove the scratch folder, unless it goes with the namespaces; the caller may have been killed."""
        if not self._own_pids:
            self._reap()
            self._clean()
            with contextlib.suppress(OSError):
                os.rmdir(self._scratch)

    def _run(self, order: dict[str, Any], files: harness.Descriptors) -> dict[str, Any]:
        limits = order["limits"]
        self._ready[0] = 0
        started = time.monotonic()
        pid = self._fork()
        if pid == 0:
            self._child(order, files)
        if pid < 0:
            raise OSError("no process can be forked")
        try:
            stopped = self._wait(pid, limits)
        finally:
            self._kill(pid)
            starved_s = _starved_s(pid)
            _, status, usage = os.wait4(pid, 0)
            self._reap()
        wall_s = max(time.monotonic() - started - starved_s, 0.0)
        if not self._ready[0]:
            return {"failure": f"the isolation of a program failed (wait status {status})"}
        signalled = os.WIFSIGNALED(status)
        return {
            "end": "signal" if signalled else "exit",
            "code": os.WTERMSIG(status) if signalled else os.WEXITSTATUS(status),
            "stopped": stopped,
            "compiled": bool(fcntl.fcntl(files.code, harness.F_GET_SEALS) & 1),
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "wall_s": wall_s,
            "memory": usage.ru_maxrss << 10,
        }

    def _child(self, order: dict[str, Any], files: harness.Descriptors) -> None:
        try:
            if self._restrict is not None and self._restrict():
                return
            if self._alone is not None:
                self._alone.install(os.getpid())
            harness.set_limits(order["limits"], self._base_memory)
            self._ready[0] = 1
            self._ready.close()
            self._stage.run(files, order)
        finally:
            os._exit(1)

    def _wait(self, pid: int, limits: dict[str, float]) -> str | None:
        """Wait for the end of a program; what made it necessary to end it, if anything.

        Its wall time counts from when its isolation is seen to stand, and without the time in which no processor was
        free for it, so that a loaded machine spends none of it.
        """
        began, deadline, starved_s = False, time.monotonic() + START_S, 0.0
        longest = deadline
        watched = os.pidfd_open(pid)
        try:
            poll = select.poll()
            poll.register(watched, select.POLLIN)
            poll.register(self.sock, select.POLLRDHUP)
            left_s = limits["cpu_s"]
            while True:
                if not began and self._ready[0]:
                    began, deadline, starved_s = True, time.monotonic() + limits["wall_s"], _starved_s(pid)
                    longest = time.monotonic() + limits["longest_s"]
                left_ms = max((deadline - time.monotonic()) * 1000, 0.0)
                events = dict(poll.poll(math.ceil(min(left_ms, max(left_s * 1000, 1), TICK_MS))))
                if watched in events:
                    return None
                if events:  # the caller is gone
                    self._kill(pid)
                    self.leave()
                    os._exit(0)
                cpu_s, memory = self._use(pid)
                left_s = limits["cpu_s"] - cpu_s
                if left_s <= 0:
                    return "cpu"
                if memory > limits["memory"]:
                    return "memory"
                if not self._own_pids and leftovers.size(self._scratch) > self._scratch_bytes:
                    return "scratch"
                if not left_ms:
                    more_s = _starved_s(pid) - starved_s if self._counts_all else 0.0
                    if more_s < TICK_MS / 1000 or deadline >= longest:
                        return "wall"
                    deadline, starved_s = min(deadline + more_s, longest), starved_s + more_s
        finally:
            os.close(watched)

    def _use(self, pid: int) -> tuple[float, int]:
        """CPU seconds of a program, and resident bytes of its processes if they are several: one has its own limit."""
        pids = [pid]
        if self._proc:
            pids = [int(name) for name in os.listdir("/proc") if name.isdecimal() and name != "1"]
        cpu_s, pages = 0.0, 0
        for each in pids:
            with contextlib.suppress(OSError, IndexError):
                cpu_s += time.clock_gettime((~each << 3) | 2)  # the CPU clock of another process
                if len(pids) > 1:
                    with open(f"/proc/{each}/statm", encoding="ascii") as handle:
                        pages += int(handle.read().split()[1])
        return cpu_s, pages * PAGE

    def _kill(self, pid: int) -> None:
        """Kill the program and all it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1 if self._own_pids else pid, signal.SIGKILL)

    def _reap(self) -> None:
        """Wait until no descendant is left."""
        while True:
            if not self._own_pids and not self._filtered:
                for pid in leftovers.children(os.getpid()):
                    self._kill(pid)
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                return

    def _clean(self) -> bool:
        """Empty the scratch folder; whether that went well."""
        try:
            leftovers.open_up(self._scratch)
            for entry in os.scandir(self._scratch):
                leftovers.remove(entry.path, entry.is_dir(follow_symlinks=False))
        except OSError:
            return False
        return True


def _starved_s(pid: int) -> float:
    """Seconds in which a program could run and no processor was free for it; 0 where the kernel does not say."""
    try:
        with open(f"/proc/{pid}/schedstat", encoding="ascii") as handle:
            return int(handle.read().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def main() -> None:
    """Isolate, say so, serve. The configuration is the first argument."""
    config = json.loads(sys.argv[1])
    sock = socket.socket(fileno=config["socket"])
    try:
        zygote = Zygote(config, sock)
    except OSError as error:
        sock.send(json.dumps({"failure": str(error)}).encode())
        return
    sock.send(json.dumps({"layers": zygote.layers}).encode())
    zygote.serve()
    zygote.leave()
    os._exit(0)
