"""Runs whole programs, one at a time, on zygotes that it starts when needed and replaces when they are gone."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Final

from gdpo_nemo.sandbox.isolation import Layers
from gdpo_nemo.sandbox.jobs import CLOSED, Job, JobResult, SandboxError, TestRun, run_in_turn
from gdpo_nemo.sandbox.keeper import WARM_IMPORTS, Keeper, memory_file

ATTEMPTS: Final = 3
"""Zygotes that may fail on one test before the sandbox gives the program up."""


class Worker:
    """A plain zygote and, once a program names numpy, one that has it loaded: each fork copies what is loaded.

    Not for several threads at once, but for ``interrupt``.

    Attributes:
        states: layer -> its state.
    """

    def __init__(self, layers: Layers) -> None:
        """Start the plain zygote.

        Raises:
            SandboxError: a layer does not hold.
        """
        self._layers = layers
        self._keepers: dict[bool, Keeper] = {}
        self._interrupted = False
        self.states = self._keeper(False).states

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the zygotes that are up."""
        return tuple(keeper.pid for keeper in self._keepers.values())

    def run(self, job: Job) -> JobResult:
        """Run a program on its inputs. Never raises for what a program does."""
        try:
            return run_job(job, lambda source, code, stdin: self._run_test(job, source, code, stdin))
        except OSError as error:  # this process has no descriptors left
            return JobResult(failure=f"{type(error).__name__}: {error}")

    def _run_test(self, job: Job, source: int, code: int, stdin: str) -> TestRun | str:
        """One test, on as many zygotes as it takes; a text says that all of them failed."""
        numeric, failure = "numpy" in job.source, ""
        for _ in range(ATTEMPTS):
            if self._interrupted:
                return CLOSED
            try:
                run = self._keeper(numeric).run(job, source, code, stdin)
            except (OSError, SandboxError) as error:
                run = f"{type(error).__name__}: {error}"
            if isinstance(run, TestRun):
                return run
            failure = run
            self._drop(numeric)
        return f"{failure} ({ATTEMPTS} attempts)"

    def _keeper(self, numeric: bool) -> Keeper:
        if numeric not in self._keepers:
            imports = (*WARM_IMPORTS, "numpy") if numeric else WARM_IMPORTS
            self._keepers[numeric] = Keeper(self._layers, imports=imports)
            if self._interrupted:
                self._keepers[numeric].interrupt()
        return self._keepers[numeric]

    def _drop(self, numeric: bool) -> None:
        keeper = self._keepers.pop(numeric, None)
        if keeper is not None:
            with contextlib.suppress(OSError):
                keeper.close()

    def interrupt(self) -> None:
        """End the program that another thread runs here, for good."""
        self._interrupted = True
        for keeper in list(self._keepers.values()):
            keeper.interrupt()

    def close(self) -> None:
        """End the zygotes and what runs in them, and remove their scratch folders."""
        for numeric in list(self._keepers):
            self._drop(numeric)


def run_job(job: Job, test: Callable[[int, int, str], TestRun | str]) -> JobResult:
    """As ``run_in_turn``, with a test that takes descriptors of the source and of its compiled form, and an input."""
    with contextlib.ExitStack() as opened:
        source = memory_file(opened, job.source.encode("utf-8", "surrogatepass"))
        code = memory_file(opened, flags=os.MFD_ALLOW_SEALING)
        return run_in_turn(job, lambda stdin: test(source, code, stdin))
