"""System calls that Python has no name for: numbers on x86-64 and aarch64, and one way to call them.

Numbers are those of the kernel (arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h).
From 424 on both agree.
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

X86_64, AARCH64 = "x86_64", "aarch64"
AUDIT_ARCH: Final = {X86_64: 0xC000003E, AARCH64: 0xC00000B7}
SHARED_FROM: Final = 424
"""The first number that means the same on every architecture."""

_SHARED: Final = {
    "pidfd_send_signal": 424, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "pidfd_open": 434, "clone3": 435, "close_range": 436, "openat2": 437, "pidfd_getfd": 438, "faccessat2": 439,
    "process_madvise": 440, "epoll_pwait2": 441, "mount_setattr": 442, "landlock_create_ruleset": 444,
    "landlock_add_rule": 445, "landlock_restrict_self": 446, "memfd_secret": 447, "futex_waitv": 449,
    "fchmodat2": 452,
}  # fmt: skip
_X86_64: Final = {
    "open": 2, "ioctl": 16, "shmget": 29, "shmat": 30, "shmctl": 31, "socket": 41, "connect": 42, "accept": 43,
    "bind": 49, "listen": 50, "clone": 56, "fork": 57, "vfork": 58, "execve": 59, "kill": 62, "semget": 64, "semop": 65,
    "semctl": 66, "shmdt": 67, "msgget": 68, "msgsnd": 69, "msgrcv": 70, "msgctl": 71, "fcntl": 72, "truncate": 76,
    "chmod": 90, "fchmod": 91, "chown": 92, "fchown": 93, "lchown": 94, "ptrace": 101, "syslog": 103, "capset": 126,
    "rt_sigqueueinfo": 129, "utime": 132, "mknod": 133, "uselib": 134, "personality": 135, "setpriority": 141,
    "sched_setparam": 142, "sched_setscheduler": 144, "modify_ldt": 154, "pivot_root": 155, "adjtimex": 159,
    "chroot": 161, "acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168,
    "reboot": 169, "sethostname": 170, "setdomainname": 171, "iopl": 172, "ioperm": 173, "init_module": 175,
    "delete_module": 176, "quotactl": 179, "setxattr": 188, "lsetxattr": 189, "fsetxattr": 190, "removexattr": 197,
    "lremovexattr": 198, "fremovexattr": 199, "tkill": 200, "sched_setaffinity": 203, "io_setup": 206,
    "lookup_dcookie": 212, "semtimedop": 220, "clock_settime": 227, "tgkill": 234, "utimes": 235, "mbind": 237,
    "set_mempolicy": 238, "mq_open": 240, "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250,
    "ioprio_set": 251, "migrate_pages": 256, "openat": 257, "mknodat": 259, "fchownat": 260, "futimesat": 261,
    "fchmodat": 268, "unshare": 272, "vmsplice": 278, "move_pages": 279, "utimensat": 280, "accept4": 288,
    "rt_tgsigqueueinfo": 297, "perf_event_open": 298, "fanotify_init": 300, "prlimit64": 302, "name_to_handle_at": 303,
    "open_by_handle_at": 304, "clock_adjtime": 305, "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311,
    "kcmp": 312, "finit_module": 313, "sched_setattr": 314, "seccomp": 317, "memfd_create": 319, "kexec_file_load": 320,
    "bpf": 321, "execveat": 322, "userfaultfd": 323,
}  # fmt: skip
_AARCH64: Final = {
    "io_setup": 0, "setxattr": 5, "lsetxattr": 6, "fsetxattr": 7, "removexattr": 14, "lremovexattr": 15,
    "fremovexattr": 16, "lookup_dcookie": 18, "fcntl": 25, "ioctl": 29, "ioprio_set": 30, "mknodat": 33, "umount2": 39,
    "mount": 40, "pivot_root": 41, "truncate": 45, "chroot": 51, "fchmod": 52, "fchmodat": 53, "fchownat": 54,
    "fchown": 55, "openat": 56, "quotactl": 60, "vmsplice": 75, "utimensat": 88, "acct": 89, "capset": 91,
    "personality": 92, "unshare": 97, "kexec_load": 104, "init_module": 105, "delete_module": 106, "clock_settime": 112,
    "syslog": 116, "ptrace": 117, "sched_setparam": 118, "sched_setscheduler": 119, "sched_setaffinity": 122,
    "kill": 129, "tkill": 130, "tgkill": 131, "rt_sigqueueinfo": 138, "setpriority": 140, "reboot": 142,
    "sethostname": 161, "setdomainname": 162, "settimeofday": 170, "adjtimex": 171, "mq_open": 180, "msgget": 186,
    "msgctl": 187, "msgrcv": 188, "msgsnd": 189, "semget": 190, "semctl": 191, "semtimedop": 192, "semop": 193,
    "shmget": 194, "shmctl": 195, "shmat": 196, "shmdt": 197, "socket": 198, "bind": 200, "listen": 201, "accept": 202,
    "connect": 203, "add_key": 217, "request_key": 218, "keyctl": 219, "clone": 220, "execve": 221, "swapon": 224,
    "swapoff": 225, "mbind": 235, "set_mempolicy": 237, "migrate_pages": 238, "move_pages": 239,
    "rt_tgsigqueueinfo": 240, "perf_event_open": 241, "accept4": 242, "prlimit64": 261, "fanotify_init": 262,
    "name_to_handle_at": 264, "open_by_handle_at": 265, "clock_adjtime": 266, "setns": 268, "process_vm_readv": 270,
    "process_vm_writev": 271, "kcmp": 272, "finit_module": 273, "sched_setattr": 274, "seccomp": 277,
    "memfd_create": 279, "bpf": 280, "execveat": 281, "userfaultfd": 282, "kexec_file_load": 294,
}  # fmt: skip
TABLES: Final = {X86_64: _X86_64 | _SHARED, AARCH64: _AARCH64 | _SHARED}
"""Architecture -> name -> number. aarch64 has no fork, vfork, mknod, uselib, modify_ldt, iopl and ioperm."""

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def architecture() -> str:
    """The machine's architecture as the tables name it."""
    machine = os.uname().machine
    return {"arm64": AARCH64, "amd64": X86_64}.get(machine, machine)


def checked(result: int, what: str) -> int:
    """The result of a C call, or the ``OSError`` it stands for."""
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")
    return result


def call(name: str, *arguments: int | bytes | None) -> int:
    """One system call by name; bytes are passed as a pointer.

    Raises:
        OSError: it failed, or this architecture has no table.
    """
    table = TABLES.get(architecture())
    if table is None:
        raise OSError(38, f"{name}: no table of system calls for {architecture()}")
    values = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return checked(int(libc.syscall(ctypes.c_long(table[name]), *values)), name)


def prctl(option: int, *arguments: int) -> int:
    """``prctl`` with its unused arguments 0.

    Raises:
        OSError: it failed.
    """
    values = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    return checked(int(libc.prctl(option, *values)), f"prctl {option}")
