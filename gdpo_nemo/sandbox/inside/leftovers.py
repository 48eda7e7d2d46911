"""What a program leaves behind: its files, and the processes it started."""

from __future__ import annotations

import contextlib
import os
from typing import Final

MAX_ENTRIES: Final = 256
"""Files and folders that a program can keep at once."""
NOTES: Final = ("user.", "system.posix_acl")
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def is_own(folder: str) -> bool:
    """Whether this process may set the rights of a folder. Its uid does not tell: unmapped ones look like nobody's."""
    try:
        os.chmod(folder, 0o700)
    except PermissionError:
        return False
    return True


def empty(folder: str, *, owned: bool) -> None:
    """Remove all that a folder holds, and what its program noted on it: attributes and, if owned, rights and times.

    Raises:
        OSError: something is left.
    """
    for name in os.listxattr(folder):
        if name.startswith(NOTES):
            os.removexattr(folder, name)
    if owned:
        os.chmod(folder, 0o700)
        os.utime(folder, (0, 0))
    if os.listdir(folder):
        opened = os.open(folder, _FOLDER)
        try:
            _empty(opened)
        finally:
            os.close(opened)


def _empty(folder: int) -> None:
    """Remove what an open folder holds, name by name: whole paths can be longer than the kernel takes."""
    with os.scandir(folder) as found:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
    for name, is_folder in entries:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
            continue
        os.chmod(name, 0o700, dir_fd=folder)
        inner = os.open(name, _FOLDER, dir_fd=folder)
        try:
            _empty(inner)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=folder)


def is_full(folder: str, most_bytes: int) -> bool:
    """Whether the files in a folder are too many or too large together; its program cannot hide them."""
    with contextlib.suppress(PermissionError):
        os.chmod(folder, 0o700)
    total = 0
    with os.scandir(folder) as entries:
        for number, entry in enumerate(entries):
            with contextlib.suppress(FileNotFoundError):
                total += entry.stat(follow_symlinks=False).st_size
            if total > most_bytes or number >= MAX_ENTRIES:
                return True
    return False


def children(parent: int) -> list[int]:
    """The processes that a process has started and not reaped."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as handle:
                if int(handle.read().rpartition(")")[2].split()[1]) == parent:
                    found.append(int(name))
    return found
