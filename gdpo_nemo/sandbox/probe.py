"""What isolation this machine can give, found out by trying it: each mode is started and a program tries to get out."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from gdpo_nemo.sandbox import isolation
from gdpo_nemo.sandbox.inside import landlock, seccomp, syscalls
from gdpo_nemo.sandbox.jobs import OK, Job, Limits, SandboxError
from gdpo_nemo.sandbox.worker import Worker

_CANARY: Final = """
import json, os, signal, socket, sys
target, canary, parent = sys.stdin.read().split("\\n")
out = []
def attempt(name, action):
    try:
        action()
    except BaseException:
        return
    out.append(name)
def write():
    with open(os.path.join(target, "escaped"), "w") as handle:
        handle.write("x")
attempt("opens a socket", socket.socket)
attempt("writes outside its folder", write)
attempt("reads a file of the caller", lambda: open(canary).read())
attempt("reads the caller's environment", lambda: open(f"/proc/{parent}/environ").read())
attempt("signals the caller", lambda: os.kill(int(parent), 0))
attempt("runs another program", lambda: os.posix_spawn("/bin/true", ["true"], {}))
attempt("raises its limits", lambda: __import__("resource").setrlimit(__import__("resource").RLIMIT_AS, (-1, -1)))
print(json.dumps(out))
"""


@dataclass(frozen=True, slots=True)
class Mode:
    """One isolation mode as it was found.

    Attributes:
        holds: whether it could be started.
        states: layer -> its state; empty when it does not hold.
        breaches: what a program could do that the mode is there to prevent.
        reason: why it does not hold.
    """

    holds: bool
    states: Mapping[str, str]
    breaches: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What this machine can give.

    Attributes:
        kernel: release and architecture.
        layers: layer -> "yes", or why not.
        modes: every mode but auto.
        chosen: what auto stands for here; None when it refuses.
    """

    kernel: str
    layers: Mapping[str, str]
    modes: Mapping[str, Mode]
    chosen: str | None

    def to_json(self) -> str:
        """The report as one JSON object."""
        return json.dumps(asdict(self), indent=2)

    def lines(self) -> list[str]:
        """The report for people."""
        shown = [f"kernel: {self.kernel}"]
        shown += [f"layer {name}: {state}" for name, state in self.layers.items()]
        for name, mode in self.modes.items():
            state = "holds" if mode.holds else f"does not hold: {mode.reason}"
            breaches = f"; a program {', '.join(mode.breaches)}" if mode.breaches else ""
            shown.append(f"mode {name}: {state}{breaches}")
        shown.append(f"auto: {self.chosen}" if self.chosen else f"auto: refused. {isolation.WAYS_OUT}")
        return shown


def probe() -> Report:
    """Try every layer and every mode; takes a second or two and leaves nothing behind."""
    modes = {name: _try(name) for name in isolation.MODES if name != isolation.AUTO}
    version = landlock.abi()
    spaces = next((modes[name] for name in (isolation.NAMESPACES, isolation.FULL) if modes[name].holds), None)
    layers = {
        "namespaces": spaces.states["namespaces"] if spaces else f"no: {modes[isolation.NAMESPACES].reason}",
        "landlock": f"yes, version {version}" if version else "no: needs Linux 5.13 or newer with Landlock switched on",
        "seccomp": "yes" if seccomp.supported() else f"no: no filter, or no table for {syscalls.architecture()}",
        "rlimits": "yes",
        "uid": next((mode.states["uid"] for mode in modes.values() if mode.holds), "not tried"),
    }
    chosen = next((name for name in isolation.AUTOMATIC if modes[name].holds), None)
    return Report(f"{os.uname().release} {os.uname().machine}", layers, modes, chosen)


def _try(name: str) -> Mode:
    layers = isolation.layers_of(name)
    try:
        worker = Worker(layers)
    except SandboxError as error:
        return Mode(False, {}, reason=str(error).removeprefix("the sandbox did not start: "))
    try:
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o777)
            canary = Path(folder, "canary")
            canary.write_text("x")
            canary.chmod(0o644)
            stdin = f"{folder}\n{canary}\n{os.getpid()}"
            result = worker.run(Job(_CANARY, (stdin,), limits=Limits(cpu_s=2.0)))
    finally:
        worker.close()
    if result.failure is not None or result.runs[0].status != OK:
        return Mode(False, worker.states, reason=result.failure or f"a first program: {result.runs[0].detail}")
    return Mode(True, worker.states, tuple(json.loads(result.runs[0].stdout)))
