"""From a program's code to its exit status: what the interpreter does with a script, in a process that reports.

Whole in itself: where the sandbox is another machine's, its text is sent along with the program.
"""

from __future__ import annotations

import _thread
import atexit
import builtins
import contextlib
import gc
import io
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
MAX_VALUE_DEPTH: Final = 200
LAST_WORDS: Final = (b"__del__", b"open", b"IO", b"Buffered")
"""What stands in the code of programs that may have something to say, or to write out, when their objects go."""
CALLED: Final = "solution"
"""``__name__`` of a program whose function is called: such a program is imported, so a main guard in it is not run."""
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


def execute(code: types.CodeType, call: str | None, write: Callable[[str], None], *, has_last_words: bool) -> int:
    """Run the code in ``__main__``, whose module is there, and do all that the interpreter does after it.

    Args:
        code: the program's.
        call: the function to call when it has run, with what standard input held before it ran.
        write: takes the report: a letter and JSON text.
        has_last_words: whether its objects are to go one by one.

    Returns:
        the exit status.
    """
    stdout, flush, callbacks = sys.stdout, sys.stdout.flush, atexit._ncallbacks()
    scope, status = sys.modules["__main__"].__dict__, 0
    try:
        if call is None:
            exec(code, scope)
        else:
            scope["__name__"], sys.modules[CALLED] = CALLED, sys.modules["__main__"]
            arguments = arguments_text()
            exec(code, scope)
            write(VALUE + dumps(call_function(call, scope, arguments)))
    except SystemExit as stop:
        status = exit_status(stop)
        if status:
            write(fault(stop))
    except BaseException as error:
        status = 1
        error.__traceback__ = error.__context__ = error.__cause__ = None  # frees what the program's frames hold
        write(fault(error))
    is_flushed(sys.__dict__.get("stdout"))
    if _thread._count() > 0:
        with contextlib.suppress(BaseException):
            threading._shutdown()  # type: ignore[attr-defined]
    if atexit._ncallbacks() > callbacks:
        with contextlib.suppress(BaseException):
            atexit._run_exitfuncs()
    if not is_flushed(sys.__dict__.get("stdout")):
        status = status or 120
    if has_last_words:
        sys.stdout = stdout
        left = gc.get_objects()
        for kind in (io.TextIOWrapper, io.BufferedWriter):  # text first, which then stands in the bytes below it
            for each in left:
                if issubclass(type(each), kind):
                    is_flushed(each)
        del left, each, scope
        sys.modules["__main__"] = sys.modules[CALLED] = types.ModuleType("__main__")
        gc.collect()
    with contextlib.suppress(BaseException):  # not the stream that was looked at, if the program has one of its own
        flush()
    return status


def is_flushed(stream: Any) -> bool:
    """Flush a standard stream, if it is there and open; False when that fails."""
    try:
        if stream is None or stream.closed:
            return True
    except BaseException:  # it has no such attribute: then it is open
        pass
    try:
        stream.flush()
    except BaseException:
        return False
    return True


def exit_status(stop: SystemExit) -> int:
    """The exit status that the interpreter gives for a ``SystemExit``."""
    if stop.code is None:
        return 0
    if not isinstance(stop.code, int):
        return 1
    return stop.code & 255 if -(1 << 63) <= stop.code < 1 << 63 else 255


def arguments_text() -> str:
    """What standard input holds; a program that reads it too finds it again, where it is a file."""
    text = sys.stdin.read()
    with contextlib.suppress(OSError):
        sys.stdin.seek(0)
    return text


def call_function(name: str, scope: dict[str, Any], text: str) -> Any:
    """What the required function returns for arguments, one JSON value per line."""
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


def fault(error: BaseException) -> str:
    """The report of an uncaught exception."""
    memory = isinstance(error, MemoryError)
    try:
        detail = str(error)[:200]
    except BaseException:  # the program's own exception class
        detail = ""
    return FAULT + dumps({"fault": type(error).__name__[:200], "detail": detail, "memory": memory})
