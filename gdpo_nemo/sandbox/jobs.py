"""What a sandbox is asked and what it answers: plain values, the same for every back end."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, runtime_checkable

from gdpo_nemo import deadline
from gdpo_nemo.errors import GdpoError, InputError

OK, ERROR, TIMEOUT, MEMORY = "ok", "error", "timeout", "memory"
OUTPUT_LIMIT, COMPILE_ERROR = "output_limit", "compile_error"
RUN_STATUSES: Final = (OK, ERROR, TIMEOUT, MEMORY, OUTPUT_LIMIT, COMPILE_ERROR)
"""How a program can end on one test. ``ok`` says that it ended well, not that its output is right."""

MIB: Final = 1 << 20
FAULT_MOST: Final = 1 << 16
"""Bytes of a report that says how a program failed; a longer one is the program's own, and is not read."""
PATIENCE: Final = 8.0
OUT_OF_TIME: Final = "the deadline of the caller passed"
"""The failure of a job that was wanted by a time and had not ended by then."""
CLOSED: Final = "the sandbox was closed"
"""The failure of a job that was in a sandbox when it was closed."""


class SandboxError(GdpoError, RuntimeError):
    """The sandbox itself failed, or cannot keep programs apart on this machine; no verdict about any program."""

    exit_code = 3


@dataclass(frozen=True, slots=True)
class Limits:
    """What a program may use.

    Attributes:
        cpu_s: CPU seconds of one test; decides the verdict, so that a loaded machine does not change it.
        wall_factor: wall-clock seconds per CPU second, the back-stop for programs that sleep. Time in which a program
            could run and no processor was free does not count, up to ``PATIENCE`` times the limit.
        memory_mb: address space beyond the interpreter's own, and resident memory of all its processes together.
        output_mb: size of standard output, and of each file.
        files: open files.
        processes: processes and threads.
        scratch_mb: size of the private folder for files.
        budget_s: seconds of all tests of a program together, where a test counts its CPU time, or its wall time
            over ``wall_factor`` if that is more. Tests beyond it time out without being run.
    """

    cpu_s: float = 4.0
    wall_factor: float = 2.5
    memory_mb: int = 1024
    output_mb: float = 16.0
    files: int = 64
    processes: int = 64
    scratch_mb: int = 64
    budget_s: float = 16.0

    def __post_init__(self) -> None:
        """Check every limit.

        Raises:
            InputError: a limit that nothing can run under.
        """
        if self.wall_factor < 1:
            raise InputError(f"wall_factor is {self.wall_factor:g}, expected at least 1; 2 to 3 suits loaded machines")
        if not 16 <= self.files <= 1024:
            raise InputError(f"files is {self.files}, expected 16 to 1024")
        for name in ("cpu_s", "memory_mb", "output_mb", "processes", "scratch_mb", "budget_s"):
            if getattr(self, name) <= 0:
                raise InputError(f"{name} is {getattr(self, name)!r}, expected a positive number")

    @property
    def wall_s(self) -> float:
        """Wall-clock seconds of one test."""
        return self.cpu_s * self.wall_factor

    @property
    def longest_s(self) -> float:
        """Wall-clock seconds after which a test is over however loaded the machine is."""
        return self.wall_s * PATIENCE


@dataclass(frozen=True, slots=True)
class Job:
    """One program and the inputs to run it on, one after the other.

    Attributes:
        source: Python source text.
        stdins: standard input of each test; for a call, one JSON argument per line.
        call: the function (or method of class Solution) whose value is the answer; None: what is printed is.
        limits: of each test, and of all together.
        prelude: whether common names (``math``, ``deque``, ``List``) are there without an import.
        reading: (place, run) -> the run as the caller wants it; can be pickled. A sandbox asks it as soon as a test is
            over, outside of what programs can reach, so that outputs, up to ``output_mb`` each, are not kept for a
            whole batch, and are read on the node that ran the program. None: as it is.
    """

    source: str
    stdins: tuple[str, ...]
    call: str | None = None
    limits: Limits = field(default_factory=Limits)
    prelude: bool = True
    reading: Callable[[int, TestRun], TestRun] | None = None

    def read(self, place: int, run: TestRun) -> TestRun:
        """What the caller wants of a run."""
        return run if self.reading is None else self.reading(place, run)


@dataclass(frozen=True, slots=True)
class TestRun:
    """How a program ended on one test.

    Attributes:
        status: one of ``RUN_STATUSES``.
        stdout: what it printed, at most the limit; empty unless the status is ok or error.
        value: for a call, the JSON text of what it returned; None when there is none.
        detail: what happened, for people; never a part of a verdict.
        cpu_s: CPU seconds, start-up excluded.
        wall_s: wall-clock seconds, without those in which no processor was free for it.
        exited: the program ended by itself through ``sys.exit`` or the like with a status other than 0.
        report: the end of what was written to the report file; nothing that can be trusted.
    """

    __test__ = False

    status: str
    stdout: bytes = b""
    value: str | None = None
    detail: str = ""
    cpu_s: float = 0.0
    wall_s: float = 0.0
    exited: bool = False
    report: bytes = b""


@dataclass(frozen=True, slots=True)
class JobResult:
    """All test runs of one program, or why there are none.

    Attributes:
        runs: one per input, in order; empty after a failure.
        failure: what went wrong with the sandbox itself; None when every test was run.
    """

    runs: tuple[TestRun, ...] = ()
    failure: str | None = None


@runtime_checkable
class Sandbox(Protocol):
    """Runs programs; the one protocol of all back ends."""

    def run(self, jobs: Sequence[Job]) -> list[JobResult]:
        """One result per job, in order; any number of threads may call this at once.

        Every run goes through ``Job.read``. One that does not costs memory only: callers read what they get.

        A failure of the sandbox is a result, never an exception. So is the end of the caller's time
        (``gdpo_nemo.deadline``): what has not begun by then is dropped, what runs goes on to its own limits.
        """
        ...

    def close(self) -> None:
        """End every process and remove every file of this sandbox."""
        ...


def run_in_turn(job: Job, test: Callable[[str], TestRun | str]) -> JobResult:
    """Run a program on its inputs, one after the other, within its budget.

    Args:
        job: the program.
        test: standard input -> how the program ended on it; a text says how the sandbox failed.
    """
    runs: list[TestRun] = []
    left_s = job.limits.budget_s
    for place, stdin in enumerate(job.stdins):
        if left_s <= 0:
            run: TestRun | str = TestRun(TIMEOUT, detail=f"not run: budget_s = {job.limits.budget_s:g} is used up")
        else:
            run = test(stdin)
        if isinstance(run, str):
            return JobResult(failure=run)
        if run.status == COMPILE_ERROR:  # so it would on every other
            run = replace(run, cpu_s=0.0, wall_s=0.0)
            return JobResult(tuple(job.read(place, run) for place in range(len(job.stdins))))
        left_s -= max(run.cpu_s, run.wall_s / job.limits.wall_factor)
        runs.append(job.read(place, run))
    return JobResult(tuple(runs))


def collect(futures: Sequence[Future[JobResult]]) -> list[JobResult]:
    """The results of jobs that are under way, in order; at the caller's deadline a failure for those without one."""
    wanted_by = deadline.current()
    return [_result(future, deadline.left_s(wanted_by)) for future in futures]


def _result(future: Future[JobResult], within_s: float | None) -> JobResult:
    try:
        return future.result(within_s)
    except TimeoutError:
        future.cancel()
        return JobResult(failure=OUT_OF_TIME)
    except CancelledError:
        return JobResult(failure=CLOSED)


def classify(answer: dict[str, Any], limits: Limits, stdout_size: int, report: bytes) -> tuple[str, str, bool]:
    """Status, detail and ``exited`` of one run, from what the kernel says and what the program's harness reported."""
    told = _report(report)
    signalled, code = answer["end"] == "signal", int(answer["code"])
    if answer["stopped"] == "memory":
        return MEMORY, "its processes together used more than memory_mb", False
    if answer["stopped"] == "scratch":
        return OUTPUT_LIMIT, "its files together exceeded scratch_mb, or 256 in number", False
    if answer["stopped"] in ("cpu", "wall") or answer["cpu_s"] >= limits.cpu_s:
        return TIMEOUT, f"{answer['cpu_s']:.2f} s of CPU, {answer['wall_s']:.2f} s in all", False
    if stdout_size >= int(limits.output_mb * MIB) or (signalled and code == 25):  # SIGXFSZ
        return OUTPUT_LIMIT, f"more than output_mb = {limits.output_mb:g} MiB in one file", False
    detail = f"{told.get('fault', '')}: {told.get('detail', '')}".strip(": ")
    if not answer["compiled"]:
        return COMPILE_ERROR, detail or f"the compiler ended with {answer['end']} {code}", False
    if signalled:
        near = answer["memory"] > 0.9 * limits.memory_mb * MIB
        return (MEMORY if code == 9 and near else ERROR), f"signal {code}", False
    if code == 0:
        return OK, "", False
    if told.get("memory") is True:
        return MEMORY, detail, False
    return ERROR, detail or f"exit status {code}", told.get("fault") in (None, "SystemExit")


def value_of(report: bytes) -> str | None:
    """The JSON text of a call's value in a report; None when there is none."""
    return report[1:].decode("utf-8", "replace") if report.startswith(b"V") else None


def _report(report: bytes) -> dict[str, Any]:
    if not report.startswith(b"F") or len(report) > FAULT_MOST:
        return {}
    try:
        told = json.loads(report[1:])
    except (ValueError, RecursionError):  # anything may stand there: the program can write it
        return {}
    return told if isinstance(told, dict) else {}
