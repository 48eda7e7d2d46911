"""One program, one test, in a process of its own: set limits, compile, run, report.

``Stage.run`` is called right after the fork. The program's standard streams are files in memory. What
happened is told by the exit status and, for what a status cannot say, by a letter and JSON in the report file; the
program can write there too, and gains nothing: neither says that a test passed.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # signal, without its enumerations
import builtins
import contextlib
import fcntl
import functools
import io
import marshal
import os
import resource
import sys
import threading
import types
from os import SEEK_SET, ftruncate, lseek, write  # by name: a program may put its own in the module
from typing import Any, Final

from gdpo_nemo.sandbox.inside import running

RECURSION_LIMIT: Final = 600_000
THREAD_STACK: Final = 16 << 20
"""Bytes, unless a program asks for more: with the main stack's size, four threads would use the memory up."""
SEALS: Final = 0x000F  # F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE
F_ADD_SEALS, F_GET_SEALS = 1033, 1034
FILE_NAME: Final = "solution.py"
READS_ITSELF: Final = (b"__file__", b"argv", b"inspect", b"linecache", b"traceback")
"""What stands in the code of programs that may want to read their own text."""


class Descriptors:
    """The files of one test: source, compiled code (shared by the tests of a program), streams, report."""

    def __init__(self, source: int, code: int, stdin: int, stdout: int, report: int) -> None:
        self.source, self.code, self.stdin, self.stdout, self.report = source, code, stdin, stdout, report


class Stage:
    """What a program finds when it starts: made once, before any fork, so that a fork touches little memory.

    From then on this process has the program's standard streams, ``builtins`` and recursion limit.
    """

    def __init__(self) -> None:
        self.with_prelude = sys.modules["builtins"] = running.builtins_with_prelude()
        _signal.signal(_signal.SIGXFSZ, _signal.SIG_DFL)
        sys.setrecursionlimit(RECURSION_LIMIT)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        threading.stack_size(THREAD_STACK)
        sys.argv = [FILE_NAME]
        self.file = os.path.join(os.getcwd(), FILE_NAME)
        self.set_up()

    def set_up(self) -> None:
        """New streams."""
        stdin, stdout, stderr = (
            io.FileIO(0, closefd=False),
            io.FileIO(1, "w", closefd=False),
            io.FileIO(2, "w", closefd=False),
        )
        stdin.name, stdout.name, stderr.name = "<stdin>", "<stdout>", "<stderr>"  # type: ignore[misc]
        sys.stdin = io.TextIOWrapper(io.BufferedReader(stdin), "utf-8", "surrogateescape")
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(stdout), "utf-8", "surrogateescape")
        sys.stderr = io.TextIOWrapper(stderr, "utf-8", "backslashreplace", write_through=True)
        sys.stdin.mode, sys.stdout.mode, sys.stderr.mode = "r", "w", "w"  # type: ignore[misc]
        sys.__dict__.update(__stdin__=sys.stdin, __stdout__=sys.stdout, __stderr__=sys.stderr)

    def run(self, files: Descriptors, order: dict[str, Any]) -> int:
        """Run the program of ``files``, in a fork whose isolation and limits are in force; its exit status.

        Args:
            files: descriptors as inherited; the report's takes the highest number allowed, and every other number
                above 2 is closed.
            order: ``call`` (a function's name, or None), ``prelude`` and ``limits``.
        """
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
        report = order["limits"]["files"] - 1
        code = self.enter(files, report)
        os.closerange(3, report)
        os.closerange(report + 1, 1 << 20)
        return self.perform(code, order, report)

    def enter(self, files: Descriptors, report: int) -> bytes:
        """Take the files of a test; its program's code, marshalled."""
        data = _compiled(files)
        if any(word in data for word in READS_ITSELF):
            _write_source(files.source)
        os.dup2(files.stdin, 0)
        os.dup2(files.stdout, 1)
        os.dup2(files.report, report)
        return data

    def perform(self, data: bytes, order: dict[str, Any], report: int) -> int:
        """Run it as ``__main__``; its exit status."""
        main = sys.modules["__main__"] = types.ModuleType("__main__")  # here, so that its objects can go at the end
        main.__dict__["__builtins__"] = self.with_prelude if order["prelude"] else builtins
        main.__dict__["__file__"] = self.file
        del main
        has_last_words = any(word in data for word in running.LAST_WORDS)
        write = functools.partial(_write_report, report)
        return running.execute(marshal.loads(data), order["call"], write, has_last_words=has_last_words)


def hard_limits(limits: dict[str, Any], base_memory: int) -> list[tuple[int, tuple[int, int]]]:
    """What ``set_limits`` takes, from the limits of an order.

    Raises:
        ValueError, LookupError, TypeError: they are not limits.
    """
    return [
        (kind, (value, value))
        for kind, value in (
            (resource.RLIMIT_AS, base_memory + limits["memory"]),
            (resource.RLIMIT_CPU, int(limits["cpu_s"]) + 2),  # whole seconds; the zygote ends a program to the tick
            (resource.RLIMIT_FSIZE, limits["output"]),
            (resource.RLIMIT_NOFILE, limits["files"]),
            (resource.RLIMIT_NPROC, limits["processes"]),
        )
    ]


def set_limits(limits: list[tuple[int, tuple[int, int]]]) -> None:
    """Limits of this process and of what it forks, for good.

    Raises:
        OSError, ValueError: a limit cannot be set.
    """
    for kind, pair in limits:
        resource.setrlimit(kind, pair)


def _compiled(files: Descriptors) -> bytes:
    """The program's code, marshalled. The first test compiles it, and seals it before any of it runs."""
    if fcntl.fcntl(files.code, F_GET_SEALS) & 1:
        return _content(files.code)
    try:
        data = marshal.dumps(compile(_content(files.source), FILE_NAME, "exec", dont_inherit=True))
    except BaseException as error:
        _write_report(files.report, running.fault(error))
        raise
    os.ftruncate(files.code, 0)
    _write_all(files.code, data)
    fcntl.fcntl(files.code, F_ADD_SEALS, SEALS)
    return data


def _write_source(source: int) -> None:
    """Put the program's text where ``__file__`` says; in vain if its limits forbid that."""
    with contextlib.suppress(OSError), open(FILE_NAME, "wb") as handle:
        handle.write(_content(source))


def _content(descriptor: int) -> bytes:
    return os.pread(descriptor, os.lseek(descriptor, 0, os.SEEK_END), 0)


def _write_report(descriptor: int, text: str) -> None:
    with contextlib.suppress(OSError):  # closed by the program: then there is no report
        ftruncate(descriptor, 0)
        lseek(descriptor, 0, SEEK_SET)
        _write_all(descriptor, text.encode("utf-8", "surrogatepass"))


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[write(descriptor, view) :]
