"""Which layers keep programs apart, by name, and what this interpreter needs to see.

full               namespaces, Landlock and the system-call filter
namespaces         without Landlock: kernels before 5.13
landlock_seccomp   without namespaces: containers that forbid them. A program cannot start processes there
rlimits_only       resource limits; Landlock and the filter where they hold, but none is demanded
auto               the first of the first three that holds; refuses when none does
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from gdpo_nemo.errors import UnknownNameError
from gdpo_nemo.sandbox.jobs import SandboxError

T = TypeVar("T")

AUTO, FULL, NAMESPACES, LANDLOCK_SECCOMP, RLIMITS_ONLY = (
    "auto", "full", "namespaces", "landlock_seccomp", "rlimits_only",
)  # fmt: skip
MODES: Final = (AUTO, FULL, NAMESPACES, LANDLOCK_SECCOMP, RLIMITS_ONLY)
AUTOMATIC: Final = (FULL, NAMESPACES, LANDLOCK_SECCOMP)
WAYS_OUT: Final = (
    "Allow user namespaces in the container, or use Linux 5.13 or newer with Landlock, or a remote sandbox; "
    f"or accept resource limits alone by naming {RLIMITS_ONLY}"
)
SYSTEM_PATHS: Final = (
    "/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/localtime", "/etc/alternatives",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers of one mode."""

    namespaces: bool
    landlock: bool
    seccomp: bool

    @property
    def can_fork(self) -> bool:
        """Whether programs can start processes: only where all of them can be found and ended."""
        return self.namespaces or not self.seccomp


def layers_of(mode: str) -> Layers:
    """The layers of a named mode other than auto, on this machine.

    Raises:
        UnknownNameError: no such mode.
    """
    if mode == RLIMITS_ONLY:
        from gdpo_nemo.sandbox.inside import landlock, seccomp

        return Layers(False, landlock.abi() > 0, seccomp.supported())
    fixed = {
        FULL: Layers(True, True, True),
        NAMESPACES: Layers(True, False, True),
        LANDLOCK_SECCOMP: Layers(False, True, True),
    }
    if mode not in fixed:
        raise UnknownNameError("isolation mode", mode, MODES)
    return fixed[mode]


def start(mode: str, starter: Callable[[Layers], T]) -> tuple[str, T]:
    """Start something in a mode; for auto, in the strongest that holds.

    Returns:
        the mode, never auto, and what was started.

    Raises:
        SandboxError: the mode does not hold here, or for auto, none of them.
        UnknownNameError: no such mode.
    """
    if mode != AUTO:
        return mode, starter(layers_of(mode))
    reasons = []
    for candidate in AUTOMATIC:
        try:
            return candidate, starter(layers_of(candidate))
        except SandboxError as error:
            reasons.append(f"{candidate}: {error}")
    raise SandboxError(
        "this machine cannot keep model-written programs apart: neither namespaces nor Landlock with seccomp hold. "
        f"{WAYS_OUT}. `python -m gdpo_nemo.sandbox` shows each layer. {'; '.join(reasons)}"
    )


@functools.cache
def interpreter_paths() -> tuple[str, ...]:
    """Folders that this interpreter and its packages live in; what an import may read."""
    folders = {sys.base_prefix, sys.prefix, sys.base_exec_prefix, sys.exec_prefix}
    folders |= {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return _outermost({os.path.abspath(folder) for folder in folders if folder} - {"/"})


def paths_of(python: str) -> tuple[str, ...]:
    """Folders of another interpreter: its environment, and the installation behind it."""
    path = Path(os.path.abspath(python))
    folders = {str(path.parents[1]), str(path.resolve().parents[1])}
    config = path.parents[1] / "pyvenv.cfg"
    if config.is_file():
        for line in config.read_text("utf-8").splitlines():
            name, _, value = line.partition("=")
            if name.strip() == "home":
                home = Path(value.strip())
                folders |= {str(home.parent), str(home.resolve().parent)}
    return tuple(sorted(folders - {"/"}))


def needed_paths() -> tuple[str, ...]:
    """What must be readable for a program to import anything: the standard library."""
    return (sysconfig.get_path("stdlib"), os.__file__)


def read_only_paths(extra: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Everything a program may read: the system's libraries, the interpreter, and what else is named."""
    chosen = {*interpreter_paths(), *(os.path.abspath(path) for path in extra)}
    inner = {path for path in chosen if any(Path(path).is_relative_to(system) for system in SYSTEM_PATHS)}
    return SYSTEM_PATHS + _outermost(chosen - inner)


def _outermost(folders: set[str]) -> tuple[str, ...]:
    return tuple(sorted(a for a in folders if not any(a != b and Path(a).is_relative_to(b) for b in folders)))
