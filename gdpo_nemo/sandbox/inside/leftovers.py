"""What a program leaves behind: its files, and the processes it started."""

from __future__ import annotations

import contextlib
import os


def empty(folder: str) -> None:
    """Remove all that a folder holds, and take back the rights to it.

    Raises:
        OSError: something is left.
    """
    open_up(folder)
    if os.listdir(folder):
        for entry in os.scandir(folder):
            remove(entry.path, entry.is_dir(follow_symlinks=False))


def remove(path: str, is_folder: bool) -> None:
    """Remove a file, or a folder with all in it.

    A scratch folder has either a small number of entries or no folders in it, so this is never deep.

    Raises:
        OSError: something is left.
    """
    if is_folder:
        empty(path)
        os.rmdir(path)
    else:
        os.unlink(path)


def open_up(folder: str) -> None:
    """Take back the rights to a folder that its program may have given away."""
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        os.chmod(folder, 0o700)


def size(folder: str) -> int:
    """Bytes of the files in a folder; 0 while its program has locked it."""
    total = 0
    with contextlib.suppress(PermissionError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                total += entry.stat(follow_symlinks=False).st_size
    return total


def children(parent: int) -> list[int]:
    """The processes that a process has started and not reaped."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as handle:
                if int(handle.read().rpartition(")")[2].split()[1]) == parent:
                    found.append(int(name))
    return found
