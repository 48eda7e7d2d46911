"""A remote sandbox that speaks Sandbox Fusion's ``/run_code``.

One request per test: ``{"code", "language": "python", "stdin", "compile_timeout", "run_timeout", "memory_limit_MB"}``,
answered by ``{"status": "Success" | "Failed" | "SandboxError", "message", "run_result": {"status": "Finished" |
"TimeLimitExceeded" | "Error", "return_code", "stdout", "stderr", "execution_time"}}``.

The code sent is a small driver that runs the program and reports on standard error behind a word drawn at random for
each request. What differs from the local pool: isolation is the server's (its own default is none), the time limit is
wall-clock time, and files, processes and scratch space are limited as the server is set up.
"""

from __future__ import annotations

import base64
import inspect
import json
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from gdpo_nemo.errors import InputError
from gdpo_nemo.sandbox.inside import harness, running
from gdpo_nemo.sandbox.jobs import (
    COMPILE_ERROR,
    ERROR,
    MEMORY,
    MIB,
    OK,
    OUTPUT_LIMIT,
    TIMEOUT,
    Job,
    JobResult,
    Limits,
    TestRun,
    collect,
    run_in_turn,
)

ATTEMPTS: Final = 4
REQUESTS_AT_ONCE: Final = 32
PAUSE_S: Final = 0.5
"""Before the second attempt; twice as long before each one after."""
GRACE_S: Final = 30.0
_DRIVER: Final = """
{running}

def drive(source, word, call, prelude):
    import base64
    from os import _exit, write as put  # by name: a program may put its own in the module

    def write(text):
        put(2, ("\\n" + word + text + "\\n").encode())

    try:
        data = base64.b64decode(source)
        code = compile(data, "solution.py", "exec", dont_inherit=True)
    except BaseException as error:
        write("C" + fault(error)[1:])
        _exit(1)
    names = builtins_with_prelude()
    sys.modules["__main__"] = types.ModuleType("__main__")
    sys.modules["__main__"].__dict__["__builtins__"] = names if prelude else builtins
    sys.modules["builtins"] = names
    sys.setrecursionlimit({recursion!r})
    _exit(execute(code, call, write, has_last_words=any(each in data for each in LAST_WORDS)))

drive({source!r}, {word!r}, {call!r}, {prelude!r})
"""


class FusionClient:
    """Runs programs on a Sandbox Fusion server.

    Attributes:
        address: of the server, without ``/run_code``.
    """

    def __init__(self, address: str, num_workers: int | None = None) -> None:
        """Nothing is sent yet.

        Args:
            address: of the server.
            num_workers: requests under way at once, ``REQUESTS_AT_ONCE`` when None.

        Raises:
            InputError: no http or https address, or fewer than one request at a time.
        """
        if not address.startswith(("http://", "https://")):
            raise InputError(f"the sandbox's address is {address!r}, expected http://host:port")
        if num_workers is not None and num_workers < 1:
            raise InputError(f"num_workers is {num_workers}, expected at least 1")
        self.address = address.rstrip("/")
        self._threads = ThreadPoolExecutor(num_workers or REQUESTS_AT_ONCE, thread_name_prefix="gdpo-fusion")

    def run(self, jobs: Sequence[Job]) -> list[JobResult]:
        """One result per job, in order; the programs run side by side, the tests of each one after the other."""
        return collect([self._threads.submit(self._one, job) for job in jobs])

    def close(self) -> None:
        """Wait for the requests under way; the server keeps nothing."""
        self._threads.shutdown(cancel_futures=True)

    def _one(self, job: Job) -> JobResult:
        return run_in_turn(job, lambda stdin: self._test(job, stdin))

    def _test(self, job: Job, stdin: str) -> TestRun | str:
        word = secrets.token_hex(16)
        request = {
            "code": driver(job, word),
            "language": "python",
            "stdin": stdin,
            "compile_timeout": job.limits.wall_s,
            "run_timeout": job.limits.wall_s,
            "memory_limit_MB": job.limits.memory_mb,
        }
        failure = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(PAUSE_S * 2 ** (attempt - 1))
            try:
                answer = self._post(request, job.limits.wall_s + GRACE_S)
            except (OSError, ValueError) as error:  # urllib's errors are OSErrors
                failure = f"{self.address}: {error}"
                continue
            if answer.get("status") in ("Success", "Failed") and isinstance(answer.get("run_result"), dict):
                return outcome(answer["run_result"], word, job.limits)
            failure = f"{self.address}: {answer.get('status')}: {str(answer.get('message'))[:200]}"
        return f"{failure} ({ATTEMPTS} attempts)"

    def _post(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        data = json.dumps(request).encode()
        post = urllib.request.Request(f"{self.address}/run_code", data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(post, timeout=timeout_s) as response:
            answer = json.loads(response.read())
        if not isinstance(answer, dict):
            raise ValueError(f"the answer is a {type(answer).__name__}, expected an object")
        return answer


def driver(job: Job, word: str) -> str:
    """The script that runs a job's program on the server and reports behind a word."""
    return _DRIVER.format(
        running=inspect.getsource(running),
        recursion=harness.RECURSION_LIMIT,
        source=base64.b64encode(job.source.encode("utf-8", "surrogatepass")).decode(),
        word=word,
        call=job.call,
        prelude=job.prelude,
    )


def outcome(result: dict[str, Any], word: str, limits: Limits) -> TestRun:
    """How a program ended, from the server's ``run_result`` and the driver's report."""
    stdout, stderr = str(result.get("stdout") or ""), str(result.get("stderr") or "")
    wall_s = float(result.get("execution_time") or 0.0)
    _, found, report = stderr.rpartition("\n" + word)
    letter, text = (report[:1], report[1:].split("\n")[0]) if found else ("", "")
    output = stdout.encode("utf-8", "surrogatepass")
    if result.get("status") == "TimeLimitExceeded":
        return TestRun(TIMEOUT, detail=f"more than {limits.wall_s:g} s", wall_s=max(wall_s, limits.wall_s))
    if len(output) >= limits.output_mb * MIB:
        return TestRun(OUTPUT_LIMIT, detail=f"more than output_mb = {limits.output_mb:g} MiB", wall_s=wall_s)
    code = result.get("return_code")
    if letter == "C":
        return TestRun(COMPILE_ERROR, detail=_fault(text)[0], wall_s=wall_s)
    if code == 0:
        return TestRun(OK, output, text if letter == "V" else None, wall_s=wall_s)
    name, memory = _fault(text) if letter == "F" else ("", False)
    if memory:
        return TestRun(MEMORY, detail=name, wall_s=wall_s)
    exited = name in ("", "SystemExit") and isinstance(code, int) and code > 0
    return TestRun(ERROR, output, detail=name or f"exit status {code}", wall_s=wall_s, exited=exited)


def _fault(text: str) -> tuple[str, bool]:
    try:
        told = json.loads(text)
        return str(told["fault"]), told["memory"] is True
    except (ValueError, KeyError, TypeError, RecursionError):  # the program can write there
        return "", False
