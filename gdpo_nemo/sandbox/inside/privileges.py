"""Who a program runs as: a uid that owns nothing, without capabilities, and no way back."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Sequence

from gdpo_nemo.sandbox.inside import syscalls

FREE_UIDS_FROM = 1_900_000_000
"""A range that neither users nor containers are given by convention (systemd, UIDS-GIDS)."""
NOBODY = 65534


def free_uids() -> tuple[int, ...]:
    """Uids to try for this process: one of its own, so that no limit is shared, else nobody's."""
    return FREE_UIDS_FROM + os.getpid(), NOBODY


def readable(paths: Sequence[str]) -> bool:
    """Whether the effective uid can read all of these."""
    return all(os.access(path, os.R_OK | (os.X_OK if os.path.isdir(path) else 0), effective_ids=True) for path in paths)


def switch_uid(needed: Sequence[str], scratch: str) -> str:
    """As root, become a free uid that can read what is needed, and own the scratch folder; else stay.

    Returns:
        "yes", or why not.
    """
    if os.getuid() != 0:
        return f"yes: uid {os.getuid()} of the caller"
    for uid in free_uids():
        try:
            os.seteuid(uid)
        except OSError:
            continue
        can_read = readable(needed)
        os.seteuid(0)
        if not can_read:
            return (
                f"no: another uid cannot read {next(path for path in needed)}; programs stay root without capabilities"
            )
        os.chown(scratch, uid, uid)
        become(uid)
        return "yes"
    return "no: this container maps no other uid; programs stay root without capabilities"


def become(uid: int) -> None:
    """Take a uid and the gid of the same number for good.

    Raises:
        OSError: the kernel refuses.
    """
    with contextlib.suppress(PermissionError):  # a user namespace without setgroups
        os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def drop_capabilities() -> None:
    """Give up every capability and the way to get one back; the process cannot be looked into."""
    for capability in range(64):
        if syscalls.libc.prctl(24, ctypes.c_ulong(capability), 0, 0, 0) < 0:  # PR_CAPBSET_DROP
            break
    syscalls.libc.prctl(47, ctypes.c_ulong(4), 0, 0, 0)  # PR_CAP_AMBIENT, CLEAR_ALL
    syscalls.call("capset", struct.pack("Ii", 0x20080522, 0), struct.pack("6I", *([0] * 6)))
    syscalls.prctl(38, 1)  # PR_SET_NO_NEW_PRIVS
    syscalls.prctl(4, 0)  # PR_SET_DUMPABLE
