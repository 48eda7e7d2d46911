"""The system-call filter: what a program cannot ask of the kernel, whatever its uid and its files.

A denied call fails with EPERM and the program goes on: what is refused is an ordinary error, not a crash. Calls
newer than the tables are answered with ENOSYS. Two filters:

    base     once, in the process that forks the programs, whose limits no program may set
    alone    in each program that no namespaces keep apart: no new process, signals to itself only, and nothing that the
             owner of a file may do to it without opening it, which Landlock does not govern
"""

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Sequence
from typing import Final

from gdpo_nemo.sandbox.inside import syscalls

DENIED: Final = (
    # other machines and other processes
    *("socket", "connect", "accept", "accept4", "bind", "listen"),
    *("ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd", "pidfd_send_signal"),
    *("shmget", "shmat", "shmctl", "shmdt", "semget", "semop", "semctl", "semtimedop"),
    *("msgget", "msgsnd", "msgrcv", "msgctl", "mq_open"),
    # other file systems, other namespaces, other roots
    *("mount", "umount2", "pivot_root", "chroot", "unshare", "setns", "mknod", "mknodat"),
    *("name_to_handle_at", "open_by_handle_at", "quotactl", "swapon", "swapoff", "acct", "fanotify_init"),
    # memory that no limit counts
    *("memfd_create", "memfd_secret", "vmsplice"),
    # the machine itself
    *("reboot", "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "syslog", "uselib"),
    *("settimeofday", "clock_settime", "adjtimex", "clock_adjtime", "sethostname", "setdomainname", "iopl", "ioperm"),
    *("setpriority", "ioprio_set", "sched_setparam", "sched_setscheduler", "sched_setattr", "sched_setaffinity"),
    *("mbind", "set_mempolicy", "migrate_pages", "move_pages"),
    # parts of the kernel with a history of faults that no program needs
    *("bpf", "perf_event_open", "userfaultfd", "io_setup", "add_key", "request_key", "keyctl", "personality"),
    *("modify_ldt", "lookup_dcookie", "seccomp"),
)
EXEC: Final = ("execve", "execveat")
NEW_CALLS_ALLOWED: Final = (
    "pidfd_open", "close_range", "openat2", "faccessat2", "epoll_pwait2", "futex_waitv", "fchmodat2",
    "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self",
)  # fmt: skip
OWNED: Final = (
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat"),
    *("utime", "utimes", "futimesat", "utimensat"),
    *("setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr"),
    *("truncate", "openat2"),  # with O_TRUNC below: what Landlock governs from Linux 6.2 on
)
"""What changes a file of the same owner whose path Landlock does not even let open."""
O_ACCMODE, O_TRUNC = 0o3, 0o1000
NAMESPACE_FLAGS: Final = 0x7E020000 | 0x80
"""CLONE_NEW* of the first argument of clone: mount, cgroup, uts, ipc, user, pid, net, time."""
CLONE_THREAD: Final = 0x10000
F_SETOWN, F_SETOWN_EX, F_SETSIG = 8, 15, 10
IOCTLS_DENIED: Final = (
    *(0x8901, 0x8902),  # FIOSETOWN, SIOCSPGRP: signals to another process
    *(0x40086602, 0x401C5820),  # FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR: marks that stay on the scratch folder
)

_LOAD, _MASK, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x50000
_NUMBER, _ARCH, _FIRST, _SECOND, _THIRD = 0, 4, 16, 24, 32  # offsets of struct seccomp_data on a little-endian machine


class Filter:
    """A program of the kernel's packet-filter machine, built rule by rule."""

    def __init__(self, arch: str) -> None:
        self.numbers = syscalls.TABLES[arch]
        self._code: list[tuple[int, int, int, int]] = []
        self._emit(_LOAD, _ARCH)
        self._emit(_EQUAL, syscalls.AUDIT_ARCH[arch], yes=1)
        self._emit(_RETURN, _KILL)
        self._emit(_LOAD, _NUMBER)
        if arch == syscalls.X86_64:  # the x32 numbers of the same calls
            self._emit(_AT_LEAST, 0x40000000, no=1)
            self._emit(_RETURN, _KILL)

    def _emit(self, code: int, value: int, *, yes: int = 0, no: int = 0) -> None:
        self._code.append((code, yes, no, value))

    def deny(self, name: str, error: int = errno.EPERM) -> None:
        """Refuse a call; one that this architecture lacks is no rule."""
        if name in self.numbers:
            self._emit(_EQUAL, self.numbers[name], no=1)
            self._emit(_RETURN, _ERRNO | error)

    def deny_new(self, allowed: Sequence[str]) -> None:
        """Answer every call numbered from 424 on with ENOSYS, except these."""
        for name in allowed:
            self._emit(_EQUAL, self.numbers[name], no=1)
            self._emit(_RETURN, _ALLOW)
        self._emit(_AT_LEAST, syscalls.SHARED_FROM, no=1)
        self._emit(_RETURN, _ERRNO | errno.ENOSYS)

    def deny_flags(self, name: str, flags: int, error: int = errno.EPERM) -> None:
        """Refuse a call when its first argument has one of the flags."""
        self._emit(_EQUAL, self.numbers[name], no=4)
        self._emit(_LOAD, _FIRST)
        self._emit(_ANY_BIT, flags, no=1)
        self._emit(_RETURN, _ERRNO | error)
        self._emit(_LOAD, _NUMBER)

    def demand_flag(self, name: str, flag: int, error: int) -> None:
        """Refuse a call when its first argument lacks the flag."""
        self._emit(_EQUAL, self.numbers[name], no=4)
        self._emit(_LOAD, _FIRST)
        self._emit(_ANY_BIT, flag, yes=1)
        self._emit(_RETURN, _ERRNO | error)
        self._emit(_LOAD, _NUMBER)

    def only(self, name: str, values: Sequence[int]) -> None:
        """Refuse a call unless the low half of its first argument is one of the values."""
        self._emit(_EQUAL, self.numbers[name], no=len(values) + 3)
        self._emit(_LOAD, _FIRST)
        for position, value in enumerate(values):
            self._emit(_EQUAL, value, yes=len(values) - position)
        self._emit(_RETURN, _ERRNO | errno.EPERM)
        self._emit(_LOAD, _NUMBER)

    def deny_second(self, name: str, values: Sequence[int]) -> None:
        """Refuse a call when its second argument is one of the values."""
        self._emit(_EQUAL, self.numbers[name], no=2 * len(values) + 2)
        self._emit(_LOAD, _SECOND)
        for value in values:
            self._emit(_EQUAL, value, no=1)
            self._emit(_RETURN, _ERRNO | errno.EPERM)
        self._emit(_LOAD, _NUMBER)

    def deny_truncating_reads(self, name: str, place: int) -> None:
        """Refuse an open that empties a file without asking to write it; its flags are at this place."""
        if name in self.numbers:
            self._emit(_EQUAL, self.numbers[name], no=5)
            self._emit(_LOAD, place)
            self._emit(_MASK, O_ACCMODE | O_TRUNC)
            self._emit(_EQUAL, O_TRUNC, no=1)
            self._emit(_RETURN, _ERRNO | errno.EPERM)
            self._emit(_LOAD, _NUMBER)

    def compiled(self) -> bytes:
        """The instructions as the kernel reads them; whatever no rule refused is allowed."""
        rows = [*self._code, (_RETURN, 0, 0, _ALLOW)]
        return b"".join(struct.pack("HBBI", *row) for row in rows)


def base_filter(arch: str, *, allow_exec: bool = False) -> bytes:
    """What no program may do; ``allow_exec`` for a trusted script's interpreter."""
    rules = Filter(arch)
    rules.deny_new(NEW_CALLS_ALLOWED)
    for name in DENIED + (() if allow_exec else EXEC):
        rules.deny(name)
    rules.deny_flags("clone", NAMESPACE_FLAGS)
    rules.only("prlimit64", (0,))
    rules.deny_second("ioctl", IOCTLS_DENIED)
    return rules.compiled()


class AloneFilter:
    """For a program in its caller's namespaces: no new process, no word to any other, no file but through Landlock.

    Built once; each program's own pid is filled in.
    """

    _PID = 0x7ABCDEF0

    def __init__(self, arch: str) -> None:
        rules = Filter(arch)
        for name in ("fork", "vfork"):
            rules.deny(name, errno.EAGAIN)
        rules.demand_flag("clone", CLONE_THREAD, errno.EAGAIN)
        for name in ("tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", *OWNED):
            rules.deny(name)
        rules.only("kill", (self._PID,))
        rules.only("tgkill", (self._PID,))
        rules.deny_second("fcntl", (F_SETOWN, F_SETOWN_EX, F_SETSIG))
        rules.deny_truncating_reads("open", _SECOND)
        rules.deny_truncating_reads("openat", _THIRD)
        self._code = rules.compiled()

    def install(self, pid: int) -> None:
        """Put it on the process that calls this, whose pid this is.

        Raises:
            OSError: the kernel refuses.
        """
        install(self._code.replace(struct.pack("I", self._PID), struct.pack("I", pid)))


def install(code: bytes) -> None:
    """Put a filter on this process and all it will fork. It cannot be taken off.

    Raises:
        OSError: the kernel refuses.
    """
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer))
    pointer = ctypes.create_string_buffer(header, len(header))
    syscalls.prctl(38, 1)  # PR_SET_NO_NEW_PRIVS
    syscalls.prctl(22, 2, ctypes.addressof(pointer))  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER


def supported() -> bool:
    """Whether this architecture has a table and the kernel takes filters."""
    try:
        syscalls.prctl(21)  # PR_GET_SECCOMP
    except OSError:
        return False
    return syscalls.architecture() in syscalls.TABLES
