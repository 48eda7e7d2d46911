"""The worker processes: killed in time, limited, replaced, and gone when they should be."""

from __future__ import annotations

import multiprocessing
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gdpo_nemo.rewards.math import grade
from gdpo_nemo.rewards.math.pool import Job, Outcome, Pool, close_pools

EASY = Job("strict", r"\sqrt{8}", r"2\sqrt{2}")
TOWER = "9^{9^{9^{9}}}"


def workers() -> set[int]:
    """Process ids of this process's workers, zombies included."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields, command = path.read_text().rpartition(")")[2].split(), (path.parent / "cmdline").read_text()
        except OSError:
            continue
        if int(fields[1]) == os.getpid() and ("rewards.math.worker" in command or not command):
            found.add(int(path.parent.name))
    return found


@pytest.fixture
def pool() -> Iterator[Pool]:
    close_pools()
    before = workers()
    pool = Pool(num_workers=1, timeout_s=1.0)
    yield pool
    pool.close()
    assert workers() <= before, "a worker is left"


def test_a_worker_that_hangs_is_killed_and_the_next_answer_comes_from_a_new_one(pool: Pool) -> None:
    assert pool.run(EASY) == Outcome(True)
    (first,) = workers()
    assert pool.run(Job("strict", "7", TOWER)) == Outcome(False, "timed_out", timed_out=True)
    assert first not in workers()
    assert pool.run(EASY) == Outcome(True)


def test_a_gold_that_hangs_is_no_verdict(pool: Pool) -> None:
    assert pool.run(Job("strict", TOWER, "7")) == Outcome(None, "gold_timed_out", timed_out=True)


@pytest.mark.parametrize("grader", ["strict", "math_verify", "dler_compat"])
def test_a_huge_factorial_is_never_right(pool: Pool, grader: str) -> None:
    answer = r"\boxed{100000000!}" if grader == "math_verify" else "100000000!"
    assert pool.run(Job(grader, "7", answer)).verdict is False
    assert pool.run(EASY).verdict is True


def test_a_worker_that_dies_by_itself_is_replaced(pool: Pool) -> None:
    pool.run(EASY)
    (first,) = workers()
    os.kill(first, 9)
    assert pool.run(EASY) == Outcome(True)


def test_a_worker_is_limited_and_replaced_after_some_answers() -> None:
    pool = Pool(num_workers=1, memory_bytes=3 * 1024**3, jobs_per_worker=2)
    pool.run(EASY)
    (first,) = workers()
    limits = Path(f"/proc/{first}/limits").read_text().splitlines()
    rows = {line[:26].strip(): line[26:].split()[0] for line in limits}
    assert rows["Max address space"] == str(3 * 1024**3)
    assert int(rows["Max cpu time"]) < 60
    assert rows["Max core file size"] == "0"
    pool.run(EASY)
    assert not workers()


def test_threads_share_the_workers() -> None:
    pool = Pool(num_workers=2)
    jobs = [Job("strict", rf"\sqrt{{{n * n * 2}}}", rf"{n + n % 2}\sqrt{{2}}") for n in range(2, 10)]
    with ThreadPoolExecutor(8) as threads:
        verdicts = [outcome.verdict for outcome in threads.map(pool.run, jobs)]
    assert verdicts == [n % 2 == 0 for n in range(2, 10)]
    assert len(workers()) <= 2
    pool.close()


def test_a_forked_process_starts_workers_of_its_own(pool: Pool) -> None:
    pool.run(EASY)
    (ours,) = workers()

    def child() -> None:
        right = pool.run(EASY) == Outcome(True)
        own = workers()
        pool.close()
        os._exit(0 if right and own and ours not in own else 1)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    assert process.exitcode == 0
    assert pool.run(EASY) == Outcome(True)
    assert workers() == {ours}


def test_workers_end_with_a_parent_that_is_killed() -> None:
    program = (
        "import os, signal\n"
        "from gdpo_nemo.rewards.math.pool import Job, Pool\n"
        "pool = Pool(1)\n"
        f"pool.run({EASY!r})\n"
        "print(pool._idle[0].process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    try:
        descriptor = os.pidfd_open(int(done.stdout))
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], 30)[0], "the worker outlived its parent"
    finally:
        os.close(descriptor)


def test_a_verdict_is_asked_for_once() -> None:
    close_pools()
    assert grade(r"\boxed{3\sqrt{7}}", r"\sqrt{63}").path == "library"
    close_pools()
    assert grade(r"\boxed{3\sqrt{7}}", r"\sqrt{63}").correct is True
    assert not workers(), "the second verdict needed a worker"
