"""Every error a user can meet, under one base class.

A message says what happened (with the value), what was expected, and the key or
command that mends it. Each class also derives from the standard exception it
stands for, so that ``except ValueError`` keeps working.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class GdpoError(Exception):
    """Base of all errors raised on purpose by this package."""

    exit_code = 1


def refusal(error: OSError) -> str:
    """What the system refuses, with the name that it is about where there is one: ``runs: Permission denied``."""
    names = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return f"{' -> '.join(names)}: {error.strerror or error}" if names else str(error)


class InputError(GdpoError, ValueError):
    """An argument has the wrong value, shape or type."""

    exit_code = 2


class UnknownNameError(InputError):
    """A name that nothing answers to: a reward, an arm, a key, a target."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        """Say which name of which kind is unknown, the nearest known one, and all that are known."""
        self.kind, self.name, self.known = kind, name, tuple(known)
        near = difflib.get_close_matches(name, self.known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        listing = ", ".join(self.known) or "none"
        super().__init__(f"unknown {kind} {name!r}.{hint} Known: {listing}.")


class UsageError(GdpoError, ValueError):
    """The command line does not make sense."""

    exit_code = 2


class ConfigError(GdpoError, ValueError):
    """A configuration is wrong: a key, a type or a combination."""

    exit_code = 2


class PrerequisiteError(GdpoError, RuntimeError):
    """Something outside this package is missing: a dependency, a file, a device."""

    exit_code = 3


class RewardError(GdpoError, RuntimeError):
    """A reward of the user's own is wrong, or answers no sample any more."""


class NonFiniteError(GdpoError, ArithmeticError):
    """A reward, a log-probability or a gradient is no number, or an infinite one."""


class InfiniteRewardError(RewardError, NonFiniteError):
    """A reward of the user's own is infinite."""


class RunHaltedError(GdpoError, RuntimeError):
    """An alarm stopped a run."""

    exit_code = 5


class RunDirError(GdpoError, RuntimeError):
    """A run directory cannot be used as asked."""


class NotARunError(RunDirError):
    """A folder that was named as a run is none."""

    exit_code = 2


class OutsideBandError(GdpoError, AssertionError):
    """A reproduction ran, and its outcome is not the expected one."""

    exit_code = 4
