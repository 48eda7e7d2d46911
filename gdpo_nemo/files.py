"""Files that survive a kill at any moment.

JSON is replaced in one move, JSONL grows by whole lines, and a lock is let go by the kernel.
"""

from __future__ import annotations

import contextlib
import csv
import fcntl
import io
import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from gdpo_nemo.errors import RunDirError

try:  # the same values in half the time; what it does not take, such as NaN, the standard library reads line by line
    from orjson import loads
except ImportError:
    from json import loads  # type: ignore[assignment]

LOCK_ATTEMPTS = 10
LINES_AT_ONCE = 1000
REFUSED = (
    "inline_container",
    "iostream error",
    "I/O error",
)  # an OSError in the words of torch and safetensors


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON mapping, or None when the file is absent."""
    try:
        data: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:  # no JSON, or not even text
        raise RunDirError(f"{path} is corrupt: {error}") from error
    if not isinstance(data, dict):
        raise RunDirError(f"{path} is corrupt: it holds a {type(data).__name__}, expected an object")
    return data


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Replace a JSON file in one move."""
    write_text(path, json.dumps(data, indent=2) + "\n")


def append_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append rows and hand them to the operating system before returning; first drops a half-written line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path), open(path, "a+b") as handle:
        if handle.tell():
            handle.seek(-1, os.SEEK_END)
            if handle.read() != b"\n":
                handle.seek(0)
                handle.truncate(handle.read().rfind(b"\n") + 1)
        handle.write(to_jsonl(rows).encode())


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Name what the system does not let us write: by itself it tells no name when a disk is full.

    Raises:
        RunDirError: the disk is full, the file too large, or the place not ours.
    """
    try:
        yield
    except Exception as error:
        if not (isinstance(error, OSError) or any(words in str(error) for words in REFUSED)):
            raise
        raise RunDirError(
            f"{path} cannot be written: {getattr(error, 'strerror', None) or error}; what was whole before is kept. "
            "When there is room, and the right to write there, the same command goes on"
        ) from error


def to_jsonl(rows: Iterable[Mapping[str, Any]]) -> str:
    """One strict JSON object per line: a number that is not finite, for which JSON has no word, is null.

    Raises:
        ValueError: such a number deeper than in the row itself.
    """
    return "".join(json.dumps({k: _or_null(v) for k, v in row.items()}, allow_nan=False) + "\n" for row in rows)


def csv_text(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table as CSV; None is an empty field."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([headings, *rows])
    return buffer.getvalue()


def _or_null(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """All rows of a JSONL file, as ``iterate_jsonl``."""
    return list(iterate_jsonl(path))


def iterate_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    """Row by row; a last line without its line break was cut off by a kill and does not count. No file: no rows.

    Raises:
        RunDirError: any other line is corrupt.
    """
    try:
        handle = open(path, "rb")  # noqa: SIM115
    except FileNotFoundError:
        return
    with handle:
        first = 1
        while lines := list(islice(handle, LINES_AT_ONCE)):
            if not lines[-1].endswith(b"\n"):
                lines.pop()
            yield from _parse(lines, path, first)
            first += len(lines)


def _parse(lines: list[bytes], path: Path, first: int) -> list[dict[str, Any]]:
    """The objects of some lines: in one go, which halves the time, where each line looks like one object."""
    text = b"".join(lines)
    if text.startswith(b"{") and text.endswith(b"}\n") and text.count(b"}\n{") == len(lines) - 1:
        try:
            rows: list[dict[str, Any]] = loads(b"[" + b",".join(lines) + b"]")
        except ValueError:
            rows = []
        if len(rows) == len(lines):
            return rows
    rows = []
    for number, line in enumerate(lines, start=first):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise RunDirError(f"{path} line {number} is corrupt: {error}; mend or remove it") from error
        if not isinstance(row, dict):
            raise RunDirError(f"{path} line {number} is corrupt: it holds a {type(row).__name__}, expected an object")
        rows.append(row)
    return rows


def half_written(path: Path) -> int:
    """Bytes of a last line without its line break, which a kill left behind; 0 where there is none."""
    try:
        with open(path, "rb") as handle:
            size = handle.seek(0, os.SEEK_END)
            tail = b""
            while size and b"\n" not in tail:
                step = min(size, 65536)
                size = handle.seek(size - step)
                tail = handle.read(step) + tail
    except FileNotFoundError:
        return 0
    return len(tail) - tail.rfind(b"\n") - 1


@contextlib.contextmanager
def hold(path: Path) -> Iterator[None]:
    """Hold a lock file; the kernel lets go when the process ends in any way.

    Raises:
        RunDirError: another process holds it.
    """
    with open(path, "a+", encoding="utf-8") as handle:
        for patience in range(LOCK_ATTEMPTS, 0, -1):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:  # perhaps only ``is_held`` looking in for an instant
                if patience == 1:
                    handle.seek(0)
                    owner = handle.read().strip() or "?"
                    raise RunDirError(f"{path.parent} is in use by process {owner}; wait for it or stop it") from error
            time.sleep(0.02)
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        yield


def is_held(path: Path) -> bool:
    """Whether a process holds this lock file now."""
    try:
        with open(path, encoding="utf-8") as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


class LockableDir:
    """A directory that one process works in at a time; that process holds the file ``lock_name`` in it."""

    lock_name: ClassVar[str]

    def __init__(self, path: Path) -> None:
        self.path = Path(path)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the directory for this process.

        Raises:
            RunDirError: another process holds it.
        """
        with hold(self.path / self.lock_name):
            yield

    def is_locked(self) -> bool:
        """Whether a process works here now."""
        return is_held(self.path / self.lock_name)


def write_text(path: Path, text: str) -> None:
    """Replace a text file in one move, after it has reached the disk."""
    partial = path.with_name(path.name + ".partial")
    with writing(path), open(partial, "w", encoding="utf-8") as handle:
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(partial, path)
