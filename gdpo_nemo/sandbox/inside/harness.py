"""One program, one test, in a process of its own: set limits, compile, run, report.

``Stage.run`` is called right after the fork. The program's standard streams are files in memory. What
happened is told by the exit status and, for what a status cannot say, by a letter and JSON in the report file; the
program can write there too, and gains nothing: neither says that a test passed.
"""

from __future__ import annotations

import _thread
import atexit
import builtins
import contextlib
import fcntl
import io
import marshal
import os
import resource
import signal
import sys
import threading
import types
from collections.abc import Callable
from json import dumps, loads  # by name: a program may put its own in the module
from typing import Any, Final

STAR_MODULES: Final = (
    "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics",
    "itertools", "functools", "operator", "io", "sys", "json", "typing",
)  # fmt: skip
"""Modules whose names contest solutions use without importing them. Builtins keep their own names."""
RECURSION_LIMIT: Final = 600_000
MAX_VALUE_DEPTH: Final = 200
SEALS: Final = 0x000F  # F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE
F_ADD_SEALS, F_GET_SEALS = 1033, 1034
FILE_NAME: Final = "solution.py"
READS_ITSELF: Final = (b"__file__", b"inspect", b"linecache")
"""What stands in the code of programs that may want to read their own text."""
VALUE, FAULT = "V", "F"
"""First letter of a report: the JSON text after it is a call's value, or says how the program failed."""


def builtins_with_prelude() -> types.ModuleType:
    """A builtins module that also has what ``from module import *`` and ``import module`` would give of each.

    Programs find these names without having them: what a program defines itself is told apart, and nothing is copied
    for each test.
    """
    names: dict[str, Any] = {}
    lines = [f"from {module} import *\nimport {module}" for module in STAR_MODULES]
    exec("\n".join(lines), names)
    module = types.ModuleType("builtins", builtins.__doc__)
    module.__dict__.update({name: value for name, value in names.items() if not name.startswith("__")})
    module.__dict__.update(builtins.__dict__)
    return module


class Descriptors:
    """The files of one test: source, compiled code (shared by the tests of a program), streams, report."""

    def __init__(self, source: int, code: int, stdin: int, stdout: int, report: int) -> None:
        self.source, self.code, self.stdin, self.stdout, self.report = source, code, stdin, stdout, report


class Stage:
    """What a program finds when it starts: made once, before any fork, so that a fork touches little memory.

    From then on this process has the program's standard streams, ``__main__`` and recursion limit.
    """

    def __init__(self) -> None:
        self.with_prelude = builtins_with_prelude()
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        sys.setrecursionlimit(RECURSION_LIMIT)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.argv = [FILE_NAME]
        self.set_up()

    def set_up(self) -> None:
        """New streams and an empty ``__main__``."""
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
        self.main = sys.modules["__main__"] = types.ModuleType("__main__")
        self.main.__dict__["__file__"] = os.path.join(os.getcwd(), FILE_NAME)

    def run(self, files: Descriptors, order: dict[str, Any]) -> int:
        """Run the program of ``files``, in a fork whose isolation and limits are in force; its exit status.

        Args:
            files: descriptors as inherited; the report's takes the highest number allowed, and every other number
                above 2 is closed.
            order: ``call`` (a function's name, or None), ``prelude`` and ``limits``.
        """
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
        scope = self.main.__dict__
        scope["__builtins__"] = self.with_prelude if order["prelude"] else builtins
        return _execute(marshal.loads(data), order["call"], scope, report, has_last_words=b"__del__" in data)


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
        _write_report(files.report, _fault(error))
        raise
    os.ftruncate(files.code, 0)
    _write_all(files.code, data)
    fcntl.fcntl(files.code, F_ADD_SEALS, SEALS)
    return data


def _write_source(source: int) -> None:
    """Put the program's text where ``__file__`` says; in vain if its limits forbid that."""
    with contextlib.suppress(OSError), open(FILE_NAME, "wb") as handle:
        handle.write(_content(source))


def _execute(
    code: types.CodeType, call: str | None, scope: dict[str, Any], report: int, *, has_last_words: bool
) -> int:
    """Run the code and what must follow it; the exit status."""
    stdout, flush, write_report, callbacks = sys.stdout, sys.stdout.flush, _write_report, atexit._ncallbacks()
    status = 0
    try:
        exec(code, scope)
        if call is not None:
            write_report(report, VALUE + dumps(call_function(call, scope)))
    except SystemExit as stop:
        status = exit_status(stop)
        if status:
            write_report(report, _fault(stop))
    except BaseException as error:
        status = 1
        error.__traceback__ = error.__context__ = error.__cause__ = None  # frees what the program's frames hold
        write_report(report, _fault(error))
    if _thread._count() > 0:
        with contextlib.suppress(BaseException):
            threading._shutdown()  # type: ignore[attr-defined]
    if atexit._ncallbacks() > callbacks:
        with contextlib.suppress(BaseException):
            atexit._run_exitfuncs()
    if has_last_words:
        with contextlib.suppress(BaseException):
            for name in [name for name in scope if name != "__builtins__"]:  # as the interpreter ends a module
                scope[name] = None
    own = sys.__dict__.get("stdout")
    if own is not stdout and own is not None and not _flushed(lambda: own.flush()):  # one that the program put there
        status = status or 120
    return status if _flushed(flush) else status or 120


def _flushed(flush: Callable[[], object]) -> bool:
    try:
        flush()
    except ValueError:  # closed by the program, which flushes
        pass
    except BaseException:
        return False
    return True


def exit_status(stop: SystemExit) -> int:
    """The exit status that the interpreter gives for a ``SystemExit``."""
    if stop.code is None:
        return 0
    return stop.code & 255 if isinstance(stop.code, int) else 1


def call_function(name: str, scope: dict[str, Any]) -> Any:
    """What the required function returns for the arguments on standard input, one JSON value per line."""
    text = sys.stdin.read()
    arguments = [loads(line) for line in text.split("\n") if line.strip()]
    function = scope.get(name)
    if function is None:
        if "Solution" not in scope:
            raise NameError(f"the program defines neither {name} nor class Solution")
        function = getattr(scope["Solution"](), name)
    return exact(function(*arguments))


def exact(value: Any, depth: int = 0) -> Any:
    """A value made of None, bool, int, float, str, list and dict only, read by the base types' own methods.

    A subclass answers as its base type does, whatever its methods claim; anything else becomes a dict that equals
    no expected value.
    """
    if depth > MAX_VALUE_DEPTH:
        return {"__type__": "nested too deeply"}
    kind = type(value)
    if value is None or kind is bool:
        return value
    if issubclass(kind, int):
        return int.__int__(value)
    if issubclass(kind, float):
        return float.__float__(value)
    if issubclass(kind, str):
        return str.__str__(value)
    if issubclass(kind, list):
        return [exact(item, depth + 1) for item in list.__iter__(value)]
    if issubclass(kind, tuple):
        return [exact(item, depth + 1) for item in tuple.__iter__(value)]
    if kind.__module__ == "numpy" and hasattr(kind, "item") and not getattr(value, "shape", True):
        return exact(value.item(), depth + 1)
    if issubclass(kind, dict):
        return {key_text(key): exact(item, depth + 1) for key, item in dict.items(value)}
    return {"__type__": kind.__name__}


def key_text(key: Any) -> str:
    """The key of a dict as JSON has it: text."""
    if isinstance(key, str):
        return str.__str__(key)
    return dumps(exact(key))


def _fault(error: BaseException) -> str:
    memory = isinstance(error, MemoryError)
    try:
        detail = str(error)[:200]
    except BaseException:  # the program's own exception class
        detail = ""
    return FAULT + dumps({"fault": type(error).__name__, "detail": detail, "memory": memory})


def _content(descriptor: int) -> bytes:
    return os.pread(descriptor, os.lseek(descriptor, 0, os.SEEK_END), 0)


def _write_report(descriptor: int, text: str) -> None:
    with contextlib.suppress(OSError):  # closed by the program: then there is no report
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        _write_all(descriptor, text.encode("utf-8", "surrogatepass"))


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
