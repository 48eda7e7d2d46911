"""Namespaces: a program sees its own processes, no network, and a file tree made for it.

The tree is a small tmpfs that holds the interpreter and /usr read-only, four devices, an empty folder for files (/tmp
is a link to it) and /proc of its own processes. Nothing else of the machine's files exists there.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Sequence

from gdpo_nemo.sandbox.inside import leftovers, privileges, syscalls

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
OTHERS = NEWNS | NEWUTS | NEWIPC | NEWPID | NEWNET
RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, REC, PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
SCRATCH = "/scratch"
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
_MOUNT_POINTS = ("/mnt", "/media", "/srv", "/opt", "/home", "/var", "/tmp")
_INSIDE_UID = 65534


def unshare(flags: int) -> None:
    """Leave namespaces of the caller for new ones.

    Raises:
        OSError: the kernel, its limits or the container's policy refuse.
    """
    syscalls.checked(int(syscalls.libc.unshare(flags)), "unshare")


def enter() -> str:
    """New namespaces for this process and, of PIDs, for its next child.

    Returns:
        "root" or "user": whether the mounts are made with root's rights or in a user namespace.

    Raises:
        OSError: neither works here.
    """
    if os.geteuid() == 0:
        try:
            unshare(OTHERS)
        except PermissionError:
            pass
        else:
            return "root"
    uid, gid = os.getuid(), os.getgid()
    unshare(OTHERS | NEWUSER)
    _map_ids(_INSIDE_UID if uid == 0 else uid, uid, _INSIDE_UID if gid == 0 else gid, gid)
    return "user"


def _map_ids(uid: int, outer_uid: int, gid: int, outer_gid: int) -> None:
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {outer_uid} 1"),
        ("gid_map", f"{gid} {outer_gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as handle:
            handle.write(text)


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """One ``mount(2)``.

    Raises:
        OSError: it failed.
    """
    words = [None if word is None else word.encode() for word in (source, target, kind)]
    data = None if options is None else options.encode()
    result = syscalls.libc.mount(*words, ctypes.c_ulong(flags), data)
    syscalls.checked(int(result), f"mount {target}")


def build_root(read_only: Sequence[str], scratch_mb: int) -> str:
    """Make the file tree and move into it; to be called by PID 1 of the new PID namespace.

    Returns:
        "yes", or what the tree lacks.

    Raises:
        OSError: a mount failed.
    """
    mount("none", "/", None, REC | PRIVATE)
    root = _mount_point(read_only)
    mount("tmpfs", root, "tmpfs", NOSUID | NODEV, "mode=755,size=1m")
    for path in read_only:
        _show(path, root)
    for path in DEVICES:
        if os.path.exists(path):
            _bind(path, root + path, directory=False)
    for name, target in (("stdin", "self/fd/0"), ("stdout", "self/fd/1"), ("stderr", "self/fd/2"), ("fd", "self/fd")):
        os.symlink(f"/proc/{target}", f"{root}/dev/{name}")
    os.makedirs(root + SCRATCH, exist_ok=True)
    options = f"size={scratch_mb}m,nr_inodes={leftovers.MAX_ENTRIES},mode=777"
    mount("tmpfs", root + SCRATCH, "tmpfs", NOSUID | NODEV, options)
    os.symlink(SCRATCH, root + "/dev/shm")  # where libraries keep semaphores
    if not os.path.exists(root + "/tmp"):
        os.symlink(SCRATCH, root + "/tmp")
    os.makedirs(root + "/proc")
    lacks = "yes"
    try:
        mount("proc", root + "/proc", "proc", NOSUID | NODEV | NOEXEC)
    except OSError as error:  # a container that hides parts of /proc
        lacks = f"yes, without /proc: {error.strerror}"
    os.chdir(root)
    syscalls.call("pivot_root", b".", b".")
    syscalls.checked(int(syscalls.libc.umount2(b".", 2)), "umount of the old root")  # MNT_DETACH
    os.chdir("/")
    mount("none", "/", None, REMOUNT | BIND | RDONLY | NOSUID | NODEV)
    with contextlib.suppress(OSError):
        syscalls.libc.sethostname(b"sandbox", 7)
    return lacks


def give_up_root() -> str:
    """From root to a free uid, in a user namespace of its own where the kernel gives one.

    Returns:
        "yes", or why programs stay root (of a container that has no other uid, and without capabilities).
    """
    for uid in privileges.free_uids():
        with contextlib.suppress(OSError):
            privileges.become(uid)
            break
    syscalls.prctl(4, 1)  # PR_SET_DUMPABLE: the maps of a process that changed its uid are root's otherwise
    uid, gid = os.getuid(), os.getgid()
    with contextlib.suppress(OSError):
        unshare(NEWUSER)
        _map_ids(_INSIDE_UID, uid, _INSIDE_UID, gid)
    return "yes" if os.getuid() else "no: this container maps no other uid; programs stay root without capabilities"


def _mount_point(shown: Sequence[str]) -> str:
    for point in _MOUNT_POINTS:
        if os.path.isdir(point) and not any(f"{path}/".startswith(f"{point}/") for path in shown):
            return point
    raise OSError(2, f"no folder to mount on among {', '.join(_MOUNT_POINTS)}")


def _show(path: str, root: str) -> None:
    """Make a file or folder of the machine appear under the new root; a link at the top level stays a link."""
    if os.path.islink(path) and os.path.dirname(path) == "/":
        os.symlink(os.readlink(path), root + path)
    elif os.path.exists(path) and not os.path.exists(root + path):
        _bind(path, root + path, directory=os.path.isdir(path))


def _bind(source: str, target: str, *, directory: bool) -> None:
    if directory:
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    mount(source, target, None, BIND | REC)
    device = source in DEVICES
    attributes = 1 | 2 | (0 if device else 4)  # MOUNT_ATTR_RDONLY, NOSUID, NODEV; a device can be written even so
    try:
        syscalls.call("mount_setattr", -100, target.encode(), 0x8000, struct.pack("QQQQ", attributes, 0, 0, 0), 32)
    except OSError:  # before kernel 5.12: the top mount only, with the flags it must keep
        kept = os.statvfs(target).f_flag & (NOSUID | NODEV | NOEXEC)
        flags = RDONLY | NOSUID | (0 if device else NODEV)
        mount("none", target, None, REMOUNT | BIND | flags | kept)
