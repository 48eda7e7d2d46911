"""From the name of a sandbox to the sandbox."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from typing import Final

from gdpo_nemo.errors import UnknownNameError
from gdpo_nemo.sandbox import ray_pool
from gdpo_nemo.sandbox.fusion import FusionClient
from gdpo_nemo.sandbox.isolation import AUTO, MODES
from gdpo_nemo.sandbox.jobs import Sandbox
from gdpo_nemo.sandbox.pool import LocalPool

LOCAL, RAY = "local", "ray"
BACKENDS: Final = (*MODES, LOCAL, RAY)

_open: dict[tuple[str, int | None], Sandbox] = {}
_opening = threading.Lock()


def open_sandbox(name: str = AUTO, num_workers: int | None = None) -> Sandbox:
    """The sandbox of this process that a name stands for; opened once, closed at exit.

    Args:
        name: ``auto`` (all nodes when Ray is up in this process, else this machine; the strongest isolation that
            holds), ``local`` (this machine), ``ray`` (all nodes), an isolation mode (on this machine), or the address
            of a Sandbox Fusion server.
        num_workers: programs that run side by side on each machine, one per core when None; of a server, requests
            under way at once.

    Raises:
        SandboxError: the isolation does not hold here.
        PrerequisiteError: ``ray`` without Ray.
        UnknownNameError: no such sandbox.
    """
    with _opening:
        if name == AUTO:
            name = RAY if ray_pool.is_up() else LOCAL
        if (name, num_workers) not in _open:
            _open[name, num_workers] = _opener(name)(num_workers)
        return _open[name, num_workers]


def check_name(name: str) -> None:
    """Refuse what no sandbox is named.

    Raises:
        UnknownNameError: no such sandbox.
    """
    _opener(name)


def _opener(name: str) -> Callable[[int | None], Sandbox]:
    if name.startswith(("http://", "https://")):
        return lambda num_workers: FusionClient(name, num_workers)
    if name not in BACKENDS:
        raise UnknownNameError("sandbox", name, (*BACKENDS, "http://host:port"))
    if name == RAY:
        return ray_pool.RayPool
    return lambda num_workers: LocalPool(num_workers, mode=AUTO if name == LOCAL else name)


def close_all() -> None:
    """Close every sandbox that was opened by name."""
    with _opening:
        for name, num_workers in list(_open):
            sandbox = _open.pop((name, num_workers))
            if name != RAY or ray_pool.is_up():
                sandbox.close()


def _forget() -> None:
    """In a forked child: the parent's sandboxes are the parent's."""
    global _opening
    _opening = threading.Lock()
    _open.clear()


atexit.register(close_all)
os.register_at_fork(after_in_child=_forget)
