"""From the name of a sandbox to the sandbox."""

from __future__ import annotations

from typing import Final

from gdpo_nemo.errors import UnknownNameError
from gdpo_nemo.sandbox.isolation import AUTO, MODES
from gdpo_nemo.sandbox.jobs import Sandbox
from gdpo_nemo.sandbox.pool import shared_pool

BACKENDS: Final = MODES


def open_sandbox(name: str = AUTO) -> Sandbox:
    """The sandbox of this process that a name stands for; opened once, closed at exit.

    Args:
        name: an isolation mode.

    Raises:
        SandboxError: the isolation does not hold here.
        UnknownNameError: no such sandbox.
    """
    if name not in BACKENDS:
        raise UnknownNameError("sandbox", name, BACKENDS)
    return shared_pool(name)
