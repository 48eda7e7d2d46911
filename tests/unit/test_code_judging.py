"""Programs that try to be judged wrongly, and the verdict each must get."""

from __future__ import annotations

import json
import math
import tracemalloc
from dataclasses import replace

import pytest

from gdpo_nemo.errors import InputError, UnknownNameError
from gdpo_nemo.rewards.code import SCORERS, CodeReward, judge, judge_many
from gdpo_nemo.sandbox.jobs import JobResult, Limits
from gdpo_nemo.sandbox.opening import open_sandbox
from gdpo_nemo.types import Rollout, Row

DOUBLE = {"inputs": ["2\n", "-7\n"], "outputs": ["4\n", "-14\n"]}
PAIR = {"inputs": ["1\n2", "5\n-7"], "outputs": ["3", "-2"], "fn_name": "add"}
LISTS = {"inputs": ["3"], "outputs": ["[1, 2, 3]"], "fn_name": "upto"}


@pytest.mark.parametrize(
    ("program", "tests", "statuses", "bug"),
    [
        ("print(2 * int(input()))", DOUBLE, "ok ok", False),
        (
            "import sys\nfor l in sys.stdin.buffer: sys.stdout.buffer.write(b'%d' % (2 * int(l)))",
            DOUBLE,
            "ok ok",
            False,
        ),
        ("if '__main__' == __name__:\n    print(2 * int(open(0).read()))\nx = 1", DOUBLE, "ok ok", False),
        ("from __future__ import annotations\nprint(2 * int(input()))\nexit()", DOUBLE, "ok ok", False),
        ("n = int(input())\nprint(2 * n if n > 0 else 'x')", DOUBLE, "ok wrong", False),
        ("n = int(input())\nprint(2 * n)\nassert n > 0", DOUBLE, "ok error", True),
        ("print(2 * int(input()))\nraise SystemExit(3)", DOUBLE, "error error", True),
        ("import os\nprint(2 * int(input()), flush=True)\nos.kill(os.getpid(), 9)", DOUBLE, "error error", True),
        ("import os\nos._exit(0)", DOUBLE, "wrong wrong", False),
        ("", DOUBLE, "wrong wrong", False),
        ("import os\nos.path.dirname(__file__) == os.getcwd() and print(2 * int(input()))", DOUBLE, "ok ok", False),
        ("n = 2 * int(input())\nprint(n if open(__file__).readline()[0] == 'n' else 0)", DOUBLE, "ok ok", False),
        ("import sys\nprint(2 * int(input()) if open(sys.argv[0]).read(1) == 'i' else 0)", DOUBLE, "ok ok", False),
        (
            "import inspect\ndef f(): return 2\nprint(int(input()) * int(inspect.getsource(f).split()[-1]))",
            DOUBLE,
            "ok ok",
            False,
        ),
        (
            "class Last:\n    def __del__(self): print(self.n)\nlast = Last()\nlast.n = 2 * int(input())",
            DOUBLE,
            "ok ok",
            False,
        ),
        (
            "import io, os, sys\nclass Fast(io.IOBase):\n    def __init__(self, file):\n"
            "        self.number, self.text = file.fileno(), '' if 'r' not in file.mode else None\n"
            "    def write(self, text): self.text += text\n"
            "    def flush(self): os.write(self.number, self.text.encode()); self.text = ''\n"
            "sys.stdout = Fast(sys.stdout)\nprint(2 * int(input()))",
            DOUBLE,
            "ok ok",
            False,
        ),
        (
            "import sys\nsys.setrecursionlimit(10**7)\nimport threading\nthreading.stack_size(2**27)\n"
            "def f(n): return f(n - 1) + 1 if n else 0\n"
            "def main(): print(2 * int(input()) + f(10**5) - 10**5)\n"
            "t = threading.Thread(target=main)\nt.start()\nt.join()",
            DOUBLE,
            "ok ok",
            False,
        ),
        ("def f(:", DOUBLE, "compile_error compile_error", True),
        ("x = '\\ud800'", DOUBLE, "wrong wrong", False),
        ("\x00", DOUBLE, "compile_error compile_error", True),
        (None, DOUBLE, "compile_error compile_error", True),
        ("x = [0] * (1 << 40)", DOUBLE, "memory memory", True),
        ("x = []\nwhile True: x.append(bytearray(1 << 26))", DOUBLE, "memory memory", True),
        ("while True: print('x' * 100000)", DOUBLE, "output_limit output_limit", False),
        ("def add(a, b): return a + b", PAIR, "ok ok", False),
        ("class Solution:\n    def add(self, a, b): return a + b", PAIR, "ok ok", False),
        ("def add(a, b): print('noise'); return a + b", PAIR, "ok ok", False),
        ("import json\njson.loads = json.dumps = None\ndef add(a, b): return a + b", PAIR, "ok ok", False),
        ("import numpy\ndef add(a, b): return numpy.int64(a) + b", PAIR, "ok ok", False),
        ("import os\nos._exit = os.write = os.lseek = None\ndef add(a, b): return a + b", PAIR, "ok ok", False),
        (
            "class N:\n    __module__, shape = 'numpy', ()\n    def item(self): return self\ndef add(a, b): return N()",
            PAIR,
            "wrong wrong",
            False,
        ),
        (
            "def add(a, b): return float('inf')",
            {"inputs": ["1\n2"], "outputs": ["Infinity"], "fn_name": "add"},
            "ok",
            False,
        ),
        (
            "import builtins\nbuiltins.type = builtins.isinstance = None\ndef add(a, b): return a + b",
            PAIR,
            "ok ok",
            False,
        ),
        ("import numpy\ndef upto(n): return numpy.arange(1, n + 1)", LISTS, "wrong", False),
        (
            "import traceback\nn = int(input())\ntry: 1 / 0\nexcept ZeroDivisionError: "
            "print(2 * n if 'try' in traceback.format_exc() else 0)",
            DOUBLE,
            "ok ok",
            False,
        ),
        *(
            (f"{first}\ndef add(a, b): return a + b\n{last}", PAIR, "ok ok", False)
            for first, last in (
                ("", "if __name__ == '__main__': print(add(*map(int, input().split())))"),
                ("import sys\nassert sys.stdin.read().split()[0] in '15'", ""),
                ("import io, os\ninput = io.BytesIO(os.read(0, os.fstat(0).st_size)).readline", ""),
                ("import sys\nsys.stdin.close()", ""),
                ("import sys\nsys.stdin = None", ""),
                ("import sys", "sys.modules.clear()"),
                ("from dataclasses import dataclass\n@dataclass\nclass P: a: 'int'", "P(1)"),
                ("import pickle\nclass P: pass", "pickle.loads(pickle.dumps(P()))"),
                ("class P:\n    def __del__(self): print('x')", "p = P()"),
            )
        ),
        ("import sys\nprint(2 * int(input()) if 'solution' not in sys.modules else 0)", DOUBLE, "ok ok", False),
        ("def add(a, b): print(a + b)", PAIR, "wrong wrong", False),
        ("def add(a, b): return str(a + b)", PAIR, "wrong wrong", False),
        ("def sub(a, b): return a + b", PAIR, "error error", True),
        ("import sys\ndef add(a, b): sys.exit(0)", PAIR, "wrong wrong", False),
        (
            "def add(a, b):\n    class E(int):\n        __eq__ = lambda s, o: True\n    return E(9)",
            PAIR,
            "wrong wrong",
            False,
        ),
        (
            "def add(a, b):\n    class A:\n        __eq__ = lambda s, o: True\n    return A()",
            PAIR,
            "wrong wrong",
            False,
        ),
        ("def upto(n): return tuple(range(1, n + 1))", LISTS, "ok", False),
        ("def upto(n): return 1", LISTS, "wrong", False),
        ("def upto(n): return [True, 2, 3]", LISTS, "wrong", False),
        ("def mul(a, b): return a * b", PAIR | {"fn_name": "mul", "outputs": ["2", "-35"]}, "ok ok", False),
        ("pass", PAIR | {"fn_name": "mul", "outputs": ["2", "-35"]}, "error error", True),
    ],
)
def test_verdicts(program: str | None, tests: dict[str, object], statuses: str, bug: bool) -> None:
    judgement = judge(program, tests, limits=Limits(memory_mb=256))
    assert (" ".join(judgement.statuses), judgement.bug) == (statuses, bug), judgement.details
    assert judgement.pass_rate == statuses.split().count("ok") / len(statuses.split())


def test_a_time_out_spares_the_other_tests_and_is_no_bug_unless_asked() -> None:
    program = "n = int(input())\nwhile n < 0: pass\nprint(2 * n)"
    items = [(program, DOUBLE)]
    (judgement,) = judge_many(items, limits=Limits(cpu_s=0.3))
    assert (judgement.statuses, judgement.pass_rate, judgement.bug) == (("ok", "timeout"), 0.5, False)
    assert judge(program, DOUBLE, limits=Limits(cpu_s=0.3), timeout_is_bug=True).bug is True
    assert judge(program, DOUBLE, first_tests=1).pass_rate == 1.0


def test_the_loose_scorer_has_the_holes_of_the_published_checker() -> None:
    late_exit = "print(2 * int(input()))\nraise SystemExit(3)"
    assert judge(late_exit, DOUBLE, scorer="prime_compat").pass_rate == 1.0
    near = {"inputs": [""], "outputs": ["-1000000006"]}
    assert judge("print(-1000000007)", near, scorer="prime_compat").pass_rate == 1.0
    assert judge("print(-1000000007)", near).pass_rate == 0.0
    half = "def add(a, b): return a + b if b > 0 else 0"
    assert judge(half, PAIR, scorer="prime_compat").pass_rate == 0.0
    assert judge(half, PAIR).pass_rate == 0.5


UNREADABLE_CALL = {"inputs": ["1\n2", "1\n{'a': 2}"], "outputs": ["3", "3"], "fn_name": "add"}


@pytest.mark.parametrize(
    "tests", ["[", "{}", {"inputs": ["1"], "outputs": []}, {"inputs": [], "outputs": []}, 3, UNREADABLE_CALL]
)
def test_tests_that_cannot_be_read_are_refused(tests: object) -> None:
    with pytest.raises(InputError, match=r"expected|JSON"):
        judge("pass", tests)  # type: ignore[arg-type]


def test_arguments_that_are_not_json_are_no_fault_of_a_program() -> None:
    row = Row("r", {}, json.dumps(UNREADABLE_CALL))
    (vector,) = CodeReward(length_limit=10).score_many([row], [_rollout("```python\ndef add(a, b): return 3\n```")])
    assert math.isnan(vector["pass_rate"]) and math.isnan(vector["no_bug"])
    assert vector.reasons["no_bug"] == ("gold_unreadable",)


def test_an_unknown_scorer_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="prime_compat"):
        judge("pass", DOUBLE, scorer="prime")


class Broken:
    """A sandbox that fails."""

    def run(self, jobs):
        return [JobResult(failure="no machine") for _ in jobs]

    def close(self):
        pass


def test_a_failure_of_the_sandbox_is_no_verdict() -> None:
    judgement = judge("pass", DOUBLE, sandbox=Broken())
    assert math.isnan(judgement.pass_rate)
    assert judgement.bug is None and judgement.failure == "no machine"


class Unread:
    """A sandbox of somebody's own: a pool whose runs it hands on as they are, some of them left out."""

    def __init__(self, pool, missing=0):
        self.pool, self.missing = pool, missing

    def run(self, jobs):
        results = self.pool.run([replace(job, reading=None) for job in jobs])
        return [replace(each, runs=each.runs[self.missing :]) for each in results]

    def close(self):
        pass


@pytest.mark.parametrize("scorer", SCORERS)
def test_what_a_sandbox_does_not_read_is_read_by_the_caller(scorer: str) -> None:
    programs = ["print(2 * int(input()))", "print(int(input()))", "1/0", "x =", "import sys; print(2); sys.exit(1)"]
    items = [(program, DOUBLE) for program in programs]
    read = judge_many(items, scorer=scorer)
    assert read == judge_many(items, scorer=scorer, sandbox=Unread(open_sandbox()))
    assert read[0].pass_rate == 1 and read[1].pass_rate < 1


def test_a_sandbox_that_leaves_tests_out_gives_no_verdict() -> None:
    judgement = judge("print(2 * int(input()))", DOUBLE, sandbox=Unread(open_sandbox(), missing=1))
    assert judgement.bug is None and "runs for" in (judgement.failure or "")


def test_outputs_are_not_kept_for_a_whole_batch() -> None:
    size, num_programs = 4 << 20, 40
    loud = f"print('x' * {size})"
    tests = {"inputs": [""] * 2, "outputs": ["x" * size, "y" * size]}
    tracemalloc.start()
    try:
        judgements = judge_many([(f"{loud}  # {i}", tests) for i in range(num_programs)])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [judgement.statuses for judgement in judgements] == [("ok", "wrong")] * num_programs
    assert most < num_programs * size / 2


def _rollout(response: str, length: int = 10) -> Rollout:
    return Rollout("r", 0, response, length)


def test_the_reward_reads_the_last_block_and_names_its_reasons() -> None:
    row = Row("r", {}, json.dumps(DOUBLE))
    reward = CodeReward(length_limit=10)
    good, bad, none, unreadable = reward.score_many(
        [row, row, row, Row("r", {}, "?")],
        [
            _rollout("<think>```python\n1/0\n```</think>```python\nprint(2 * int(input()))\n```"),
            _rollout("```py\n1/0\n```", 11),
            _rollout("print(2 * int(input()))"),
            _rollout("```python\npass\n```"),
        ],
    )
    assert dict(good.values) == {"pass_rate": 1.0, "no_bug": 1.0, "length": 1.0}
    assert dict(bad.values) == {"pass_rate": 0.0, "no_bug": 0.0, "length": 0.0}
    assert bad.reasons == {"pass_rate": ("error",), "no_bug": ("error",), "length": ("over_limit",)}
    assert none.values["no_bug"] == 0.0 and none.reasons["pass_rate"] == ("no_code",)
    assert math.isnan(unreadable["pass_rate"]) and unreadable.reasons["no_bug"] == ("gold_unreadable",)


def test_a_program_that_comes_again_is_not_run_again(monkeypatch) -> None:
    counted = []
    pool = open_sandbox()
    run = pool.run
    monkeypatch.setattr(pool, "run", lambda jobs: counted.extend(jobs) or run(jobs))
    reward = CodeReward()
    row, rollout = Row("r", {}, json.dumps(DOUBLE)), _rollout("```python\nprint(1)\n```")
    first = reward.score_many([row, row], [rollout, rollout])
    assert reward(row, rollout) == first[0] == first[1]
    assert len(counted) == 1
