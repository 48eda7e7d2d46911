"""What judging a ten-test program costs: here, with one process per test, with a checker that repeats after failures.

    python tests/bench/bench_sandbox.py [--programs 20] [--json]

CPU milliseconds per program, all processes together, on one worker; only the ratios of one run mean anything on a
shared machine. "One process per test" starts an interpreter for each, without isolation and without a prelude.
"Repeats" is the common public design: a manager and a process for all tests, and when a test fails, a manager and a
process again for each of the first ten.
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import io
import json
import multiprocessing
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from gdpo_nemo.rewards.code import judge
from gdpo_nemo.rewards.code.comparing import same_output
from gdpo_nemo.sandbox.inside.running import STAR_MODULES
from gdpo_nemo.sandbox.jobs import Limits
from gdpo_nemo.sandbox.pool import LocalPool

NUM_TESTS = 10
TESTS = {"inputs": [f"{n}\n" for n in range(NUM_TESTS)], "outputs": [f"{n * n}\n" for n in range(NUM_TESTS)]}
PROGRAMS = {
    "all pass": "n = int(input())\nprint(n * n)\n",
    "4 of 10 wrong": "n = int(input())\nprint(n * n if n < 6 else 0)\n",
    "crash": "n = int(input())\nraise ValueError(n)\n",
    "memory": "n = int(input())\nprint(len([n] * 10**13))\n",
    "compile error": "def f(:\n",
    "endless on 1 of 10": "n = int(input())\nwhile n == 9: pass\nprint(n * n)\n",
}
LIMIT_S = 1
CRASHES = 200


def one_process_per_test(program: str) -> float:
    passed = 0
    for stdin, expected in zip(TESTS["inputs"], TESTS["outputs"], strict=True):
        try:
            done = subprocess.run(
                [sys.executable, "-S", "-c", program], input=stdin.encode(), capture_output=True, timeout=LIMIT_S
            )
        except subprocess.TimeoutExpired:
            continue
        passed += done.returncode == 0 and same_output(expected, done.stdout)
    return passed / NUM_TESTS


def repeats(program: str) -> float:
    everything = list(range(NUM_TESTS))
    results = _in_process(program, everything)
    if results == [True] * NUM_TESTS:
        return 1.0
    return sum(_in_process(program, [index]) == [True] for index in everything) / NUM_TESTS


def _in_process(program: str, indices: list[int]) -> list[bool]:
    context = multiprocessing.get_context("fork")
    with context.Manager() as manager:
        results = manager.list()
        process = context.Process(target=_check, args=(program, indices, results))
        process.start()
        process.join(LIMIT_S * len(indices))
        process.kill()
        process.join()
        return list(results)


def _check(program: str, indices: list[int], results) -> None:
    exec("\n".join(f"from {name} import *" for name in STAR_MODULES), {})
    try:
        code = compile(program, "solution.py", "exec")
        for index in indices:
            printed = io.StringIO()
            lines = iter(TESTS["inputs"][index].splitlines())
            builtins.input = lambda lines=lines: next(lines)
            with contextlib.redirect_stdout(printed):
                exec(code, {"__name__": "__main__"})
            results.append(same_output(TESTS["outputs"][index], printed.getvalue().encode()))
            if not results[-1]:
                break
    except Exception:
        results.append(False)


def cpu_s(pids: tuple[int, ...] = ()) -> float:
    """CPU seconds of this process, of its finished children, and of the process trees below some pids."""
    used = sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
    return used + sum(_tree_s(pid) for pid in pids)


def _tree_s(pid: int) -> float:
    ticks = sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return ticks / 100 + sum(_tree_s(int(child)) for child in below)


def measure(check: Callable[[str], float], program: str, num: int, pids: tuple[int, ...] = ()) -> tuple[float, float]:
    """CPU and wall milliseconds per program."""
    check(program)
    before, started = cpu_s(pids), time.perf_counter()
    for _ in range(num):
        check(program)
    wall = time.perf_counter() - started
    return 1000 * (cpu_s(pids) - before) / num, 1000 * wall / num


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=20, help="programs of each kind (default 20)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    options = parser.parse_args()
    rows: dict[str, dict[str, float]] = {}
    with LocalPool(1) as pool:
        pids = pool.pids
        ours = lambda program: judge(program, TESTS, sandbox=pool, limits=Limits(cpu_s=LIMIT_S)).pass_rate  # noqa: E731
        for kind, program in PROGRAMS.items():
            num = max(1, options.programs // 10) if "endless" in kind else options.programs
            own_cpu, own_wall = measure(ours, program, num, pids)
            single, _ = measure(one_process_per_test, program, num)
            repeated, _ = measure(repeats, program, num)
            rows[kind] = {
                "cpu_ms": own_cpu, "wall_ms": own_wall, "programs_per_cpu_s": 1000 / own_cpu,
                "one_process_per_test": single / own_cpu, "repeats": repeated / own_cpu,
            }  # fmt: skip
        walls = []
        for _ in range(CRASHES):
            started = time.perf_counter()
            ours(PROGRAMS["crash"])
            walls.append(time.perf_counter() - started)
    p99 = statistics.quantiles(walls, n=100)[98]
    if options.json:
        print(json.dumps({"mode": pool.mode, "rows": rows, "crash_p99_s": p99}, indent=2))
        return
    print(f"mode {pool.mode}, {NUM_TESTS} tests, limit {LIMIT_S} s, one worker\n")
    print("| program | this sandbox, CPU ms | programs / CPU s | one process per test | repeats |")
    print("|---|---|---|---|---|")
    for kind, row in rows.items():
        print(
            f"| {kind} | {row['cpu_ms']:.0f} | {row['programs_per_cpu_s']:.0f} "
            f"| {row['one_process_per_test']:.1f}x | {row['repeats']:.1f}x |"
        )
    print(
        f"\na crash is judged in {statistics.median(walls):.3f} s (median), {p99:.3f} s (99th percentile of {CRASHES})"
    )


if __name__ == "__main__":
    main()
