"""The filter of each architecture, on any machine: its numbers are the kernel's, and it decides as it should.

``tests/data/syscall_numbers.txt`` holds the kernel's own tables; the filters are run by a small machine here.
"""

from __future__ import annotations

import errno
import struct
from pathlib import Path

import pytest

from gdpo_nemo.sandbox.inside import seccomp, syscalls

NUMBERS = Path(__file__).parents[1] / "data" / "syscall_numbers.txt"
ARCHITECTURES = ("x86_64", "aarch64")
ELF_MACHINE = {"x86_64": 62, "aarch64": 183}  # linux/elf-em.h
AUDIT_ARCH_64BIT, AUDIT_ARCH_LE = 0x80000000, 0x40000000  # linux/audit.h
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000  # linux/seccomp.h
CLONE_VM, CLONE_THREAD, CLONE_NEWUSER = 0x100, 0x10000, 0x10000000  # linux/sched.h
PID = 4321


def kernel_table(arch: str) -> dict[str, int]:
    rows = [line.split() for line in NUMBERS.read_text("utf-8").splitlines() if not line.startswith("#")]
    column = 1 + ARCHITECTURES.index(arch)
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


def decide(code: bytes, arch: int, number: int, first: int = 0, second: int = 0, third: int = 0) -> int:
    """What a filter returns for a call: the kernel's machine, as far as these filters use it."""
    data = struct.pack("IIQQQQ", number, arch, 0, first, second, third)
    rows, at, value = list(struct.iter_unpack("HBBI", code)), 0, 0
    while True:
        operation, yes, no, constant = rows[at]
        at += 1
        if operation == 0x06:  # BPF_RET | BPF_K
            return int(constant)
        if operation == 0x20:  # BPF_LD | BPF_W | BPF_ABS
            (value,) = struct.unpack_from("I", data, constant)
            continue
        if operation == 0x54:  # BPF_ALU | BPF_AND | BPF_K
            value &= constant
            continue
        holds = {0x15: value == constant, 0x35: value >= constant, 0x45: bool(value & constant)}[operation]
        at += yes if holds else no


@pytest.fixture(params=ARCHITECTURES)
def arch(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_numbers_are_the_kernel_s(arch: str) -> None:
    kernel, ours = kernel_table(arch), syscalls.TABLES[arch]
    assert {name: number for name, number in ours.items() if kernel.get(name) != number} == {}
    denied = {*seccomp.DENIED, *seccomp.EXEC, *seccomp.NEW_CALLS_ALLOWED, *seccomp.OWNED}
    assert {name for name in denied if name in kernel and name not in ours} == set()


def test_the_architecture_is_the_kernel_s(arch: str) -> None:
    assert syscalls.AUDIT_ARCH[arch] == ELF_MACHINE[arch] | AUDIT_ARCH_64BIT | AUDIT_ARCH_LE


def test_the_filter_refuses_what_is_denied_and_lets_the_rest_through(arch: str) -> None:
    kernel, code, audit = kernel_table(arch), seccomp.base_filter(arch), syscalls.AUDIT_ARCH[arch]
    verdicts = {name: decide(code, audit, number) for name, number in kernel.items()}
    denied = {name for name, verdict in verdicts.items() if verdict == ERRNO | errno.EPERM}
    unknown = {name for name, verdict in verdicts.items() if verdict == ERRNO | errno.ENOSYS}
    assert denied == {name for name in (*seccomp.DENIED, *seccomp.EXEC) if kernel.get(name, 424) < 424}
    assert unknown == {name for name, number in kernel.items() if number >= 424} - {*seccomp.NEW_CALLS_ALLOWED}
    assert all(verdicts[name] == ALLOW for name in verdicts.keys() - denied - unknown)
    assert verdicts["read"] == verdicts["futex"] == verdicts["mmap"] == verdicts["clone"] == ALLOW
    assert decide(code, audit, kernel["clone"], CLONE_NEWUSER) == ERRNO | errno.EPERM
    assert decide(code, audit, kernel["prlimit64"], 0) == ALLOW
    assert decide(code, audit, kernel["prlimit64"], 1) == ERRNO | errno.EPERM
    set_owner, is_terminal = 0x8901, 0x5401  # asm-generic/sockios.h, ioctls.h
    assert decide(code, audit, kernel["ioctl"], 0, set_owner) == ERRNO | errno.EPERM
    assert decide(code, audit, kernel["ioctl"], 0, is_terminal) == ALLOW
    assert decide(seccomp.base_filter(arch, allow_exec=True), audit, kernel["execve"]) == ALLOW


def test_calls_of_another_architecture_end_the_program(arch: str) -> None:
    (other,) = {*ARCHITECTURES} - {arch}
    assert decide(seccomp.base_filter(arch), syscalls.AUDIT_ARCH[other], kernel_table(arch)["read"]) == KILL


def test_a_program_without_a_namespace_reaches_itself_only(arch: str) -> None:
    kernel, audit = kernel_table(arch), syscalls.AUDIT_ARCH[arch]
    alone = seccomp.AloneFilter(arch)
    code = alone._code.replace(struct.pack("I", alone._PID), struct.pack("I", PID))

    def verdict(name: str, *arguments: int) -> int:
        return decide(code, audit, kernel[name], *arguments)

    for name in ("kill", "tgkill"):
        assert verdict(name, PID) == ALLOW
        assert verdict(name, PID + 1) == verdict(name, (1 << 32) - 1) == ERRNO | errno.EPERM
    assert verdict("kill", 0) == ERRNO | errno.EPERM
    assert verdict("clone", CLONE_VM) == ERRNO | errno.EAGAIN and verdict("clone", CLONE_THREAD) == ALLOW
    assert verdict("tkill", PID) == verdict("rt_sigqueueinfo", PID) == ERRNO | errno.EPERM
    set_owner, get_flags = 8, 3  # asm-generic/fcntl.h
    assert verdict("fcntl", 0, set_owner) == ERRNO | errno.EPERM and verdict("fcntl", 0, get_flags) == ALLOW


def test_a_program_without_a_namespace_changes_no_file_that_it_may_not_open(arch: str) -> None:
    kernel, audit, code = kernel_table(arch), syscalls.AUDIT_ARCH[arch], seccomp.AloneFilter(arch)._code
    for name in {*seccomp.OWNED} & {*kernel}:
        assert decide(code, audit, kernel[name]) == ERRNO | errno.EPERM
    read, read_truncate, write_truncate, read_write = 0, 0o1000, 0o1101, 0o2  # asm-generic/fcntl.h
    for flags in (read, read_truncate, write_truncate, read_write):
        verdict = ERRNO | errno.EPERM if flags == read_truncate else ALLOW
        assert decide(code, audit, kernel["openat"], 0, read_truncate, flags) == verdict
        assert "open" not in kernel or decide(code, audit, kernel["open"], read_truncate, flags) == verdict
