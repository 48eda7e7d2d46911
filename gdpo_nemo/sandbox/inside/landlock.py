"""Landlock: the files a program can reach, given up once and for all. Kernel 5.13 or newer.

Constants and structures are those of include/uapi/linux/landlock.h.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
from collections.abc import Callable, Sequence

from gdpo_nemo.sandbox.inside import syscalls

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE = (1 << bit for bit in range(6))
MAKE_DIR, MAKE_REG, TRUNCATE = 1 << 7, 1 << 8, 1 << 14
READ = EXECUTE | READ_FILE | READ_DIR
SCRATCH = READ_FILE | READ_DIR | WRITE_FILE | REMOVE_FILE | MAKE_REG | TRUNCATE
FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | 1 << 15
_O_PATH = 0o10000000


def abi() -> int:
    """The version of the kernel's Landlock; 0 where there is none."""
    try:
        return syscalls.call("landlock_create_ruleset", None, 0, 1)
    except OSError:
        return 0


def ruleset(read_only: Sequence[str], scratch: Sequence[str], *, directories: bool) -> int:
    """A descriptor of the rules: everything is denied but reading and, in scratch folders, files.

    Args:
        read_only: files and folders that can be read and executed; those that do not exist are left out.
        scratch: files and folders that can be written.
        directories: whether folders can be made in scratch folders.

    Raises:
        OSError: the kernel has no Landlock.
    """
    version = abi()
    handled = (1 << (13 if version < 2 else 14 if version < 3 else 15 if version < 5 else 16)) - 1
    network, scope = (3 if version >= 4 else 0), (3 if version >= 6 else 0)
    size = 8 if version < 4 else 16 if version < 6 else 24
    rules = syscalls.call("landlock_create_ruleset", struct.pack("QQQ", handled, network, scope), size, 0)
    made = SCRATCH | (MAKE_DIR | REMOVE_DIR if directories else 0)
    for paths, rights in ((read_only, READ), (scratch, made)):
        for path in paths:
            _add(rules, path, rights & handled)
    return rules


def _add(rules: int, path: str, rights: int) -> None:
    try:
        target = os.open(path, _O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not os.path.isdir(path):
            rights &= FILE_RIGHTS
        syscalls.call("landlock_add_rule", rules, 1, struct.pack("=Qi", rights, target), 0)
    finally:
        os.close(target)


def restriction(rules: int) -> Callable[[], int]:
    """A call that puts the rules on the process that makes it and all it will fork; 0 when it could.

    Made once and called in each fork, so it does as little as can be: no errno is kept. No new privileges must be
    promised before.
    """
    number = ctypes.c_long(syscalls.TABLES[syscalls.architecture()]["landlock_restrict_self"])
    return functools.partial(ctypes.PyDLL(None).syscall, number, ctypes.c_long(rules), ctypes.c_long(0))
