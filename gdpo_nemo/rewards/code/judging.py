"""Programs in, judgements out: run in the sandbox, compare here.

    pass_rate = tests passed / tests              over all tests, or the first few
    bug       = any test that ended in an error (exception, signal, exit status other than 0), in a memory error or in
                a compile error; a time-out is none, unless asked

Pass and Bug are the measures of Table 5 of arXiv 2601.05242: the average test pass rate, and the share of programs
with a compile or run-time error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gdpo_nemo.errors import InputError, UnknownNameError
from gdpo_nemo.rewards.code.comparing import (
    parse_json,
    prime_same_output,
    prime_same_value,
    same_output,
    same_value,
)
from gdpo_nemo.sandbox.jobs import (
    COMPILE_ERROR,
    ERROR,
    MEMORY,
    OK,
    TIMEOUT,
    Job,
    JobResult,
    Limits,
    Sandbox,
    TestRun,
)
from gdpo_nemo.sandbox.opening import open_sandbox

WRONG: Final = "wrong"
FAULTS: Final = frozenset({ERROR, MEMORY, COMPILE_ERROR})
STRICT, PRIME_COMPAT = "strict", "prime_compat"
SCORERS: Final = (STRICT, PRIME_COMPAT)
PRIME_FIRST_TESTS: Final = 10


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on one program.

    Attributes:
        pass_rate: share of tests passed, 0 to 1; NaN when the sandbox failed.
        bug: whether a test ended in a fault; None when the sandbox failed.
        statuses: one of ok, wrong, error, timeout, memory, output_limit, compile_error for each test.
        details: what happened on each test, for people.
        failure: what went wrong with the sandbox; None when there is a verdict.
    """

    pass_rate: float
    bug: bool | None
    statuses: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Tests:
    """The tests of one problem, in the form that programs are run on.

    Attributes:
        inputs: standard input of each; for calls one JSON argument per line.
        outputs: what must be printed; for calls the JSON text of what must be returned.
        fn_name: the function to call; None for programs that read and print.
    """

    __test__ = False

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    fn_name: str | None = None

    @classmethod
    def parse(cls, tests: Mapping[str, Any] | str) -> Tests:
        """Read tests in the form of Eurus-2-RL-Data: ``inputs``, ``outputs`` and, for calls, ``fn_name``.

        Raises:
            InputError: it is no such mapping, or JSON text of one, with as many inputs as outputs, at least one; or an
                argument of a call is not JSON.
        """
        if isinstance(tests, str):
            try:
                tests = json.loads(tests)
            except (ValueError, RecursionError) as error:
                raise InputError(f"tests are not JSON: {error}; expected an object with inputs and outputs") from error
        if not isinstance(tests, Mapping):
            raise InputError(f"tests are a {type(tests).__name__}, expected a mapping with inputs and outputs")
        inputs, outputs, fn_name = tests.get("inputs"), tests.get("outputs"), tests.get("fn_name")
        if not isinstance(inputs, list | tuple) or not isinstance(outputs, list | tuple):
            raise InputError(f"tests have {', '.join(map(str, tests)) or 'no keys'}, expected lists inputs and outputs")
        if len(inputs) != len(outputs) or not inputs:
            raise InputError(f"{len(inputs)} inputs and {len(outputs)} outputs, expected as many, and at least one")
        if fn_name is not None and not isinstance(fn_name, str):
            raise InputError(f"fn_name is {fn_name!r}, expected the name of a function")
        call = bool(fn_name)
        texts = tuple(_text(item, call) for item in inputs)
        if call:
            for place, text in enumerate(texts):
                _check_arguments(place, text)
        return cls(
            texts, tuple(item if isinstance(item, str) else _value(item, call) for item in outputs), fn_name or None
        )

    def first(self, number: int | None) -> Tests:
        """Only the first tests; all for None."""
        return Tests(self.inputs[:number], self.outputs[:number], self.fn_name)


def _text(item: Any, call: bool) -> str:
    """An input that is not text yet: a list is one argument, or one line, per element."""
    if isinstance(item, str):
        return item
    rows = item if isinstance(item, list | tuple) else [item]
    return "\n".join(json.dumps(row) if call or not isinstance(row, str) else row for row in rows)


def _check_arguments(place: int, text: str) -> None:
    """Arguments that nobody can read are a fault of the tests, and no program's."""
    for line in filter(str.strip, text.split("\n")):
        try:
            parse_json(line)
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"input {place} is {line!r:.60}, not JSON ({error}); expected one JSON value per line, the arguments"
            ) from error


def _value(item: Any, call: bool) -> str:
    return json.dumps(item) if call else _text(item, call)


def judge(
    program: str | None,
    tests: Mapping[str, Any] | str | Tests,
    *,
    limits: Limits | None = None,
    scorer: str = STRICT,
    first_tests: int | None = None,
    timeout_is_bug: bool = False,
    sandbox: Sandbox | None = None,
) -> Judgement:
    """Judge one program; see ``judge_many``."""
    (judgement,) = judge_many(
        [(program, tests)],
        limits=limits, scorer=scorer, first_tests=first_tests, timeout_is_bug=timeout_is_bug, sandbox=sandbox,
    )  # fmt: skip
    return judgement


def judge_many(
    items: Sequence[tuple[str | None, Mapping[str, Any] | str | Tests]],
    *,
    limits: Limits | None = None,
    scorer: str = STRICT,
    first_tests: int | None = None,
    timeout_is_bug: bool = False,
    sandbox: Sandbox | None = None,
) -> list[Judgement]:
    """Judge programs side by side, one judgement each, in order.

    Args:
        items: (program, tests) pairs; a program of None (no code block) is a compile error on every test.
        limits: of each test and each program; the defaults of ``Limits`` when None.
        scorer: ``strict``, or ``prime_compat`` for the numbers of PRIME's public checker: all tests, and if one fails
            the first 10 again, where calls pass none; numbers compared loosely; an exit status is no fault.
        first_tests: only this many tests of each; all when None.
        timeout_is_bug: count a time-out as a fault.
        sandbox: where to run them; ``open_sandbox()`` when None.

    Raises:
        InputError: tests that cannot be read.
        UnknownNameError: no such scorer.
        SandboxError: no sandbox can run here.
    """
    if scorer not in SCORERS:
        raise UnknownNameError("scorer", scorer, SCORERS)
    if first_tests is not None and first_tests < 1:
        raise InputError(f"first_tests is {first_tests}, expected at least 1, or null for all")
    parsed = [tests if isinstance(tests, Tests) else Tests.parse(tests) for _, tests in items]
    parsed = [tests.first(first_tests) for tests in parsed]
    comparisons = [_Comparison(tests, scorer) for tests in parsed]
    jobs = [
        Job(program, each.tests.inputs, each.tests.fn_name, limits or Limits(), reading=each)
        for (program, _), each in zip(items, comparisons, strict=True)
        if program is not None
    ]
    results = iter((sandbox or open_sandbox()).run(jobs) if jobs else ())
    faults = FAULTS | {TIMEOUT} if timeout_is_bug else FAULTS
    return [
        _judgement(_no_program(each.tests) if program is None else next(results), each, faults)
        for (program, _), each in zip(items, comparisons, strict=True)
    ]


class _Compared(TestRun):
    """A run whose status says whether its output is right."""


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Compares what a program gave on a test, as soon as that is over, and keeps the outcome only."""

    tests: Tests
    scorer: str

    def __call__(self, place: int, run: TestRun) -> _Compared:
        if isinstance(run, _Compared):
            return run
        passes = _prime_passes if self.scorer == PRIME_COMPAT else _passes
        passed = passes(run, self.tests.outputs[place], self.tests.fn_name is not None)
        status = run.status if passed is None else OK if passed else WRONG
        return _Compared(status, detail=run.detail, cpu_s=run.cpu_s, wall_s=run.wall_s, exited=run.exited)

    def pass_rate(self, statuses: Sequence[str]) -> float:
        if self.scorer != PRIME_COMPAT or set(statuses) == {OK}:
            return statuses.count(OK) / len(statuses)
        first = statuses[:PRIME_FIRST_TESTS]
        return 0.0 if self.tests.fn_name is not None else first.count(OK) / len(first)


def _passes(run: TestRun, expected: str, call: bool) -> bool | None:
    """Whether an output is right; None where the run's own status stands."""
    if run.status != OK:
        return None
    if call:
        return run.value is not None and same_value(expected, run.value)
    return same_output(expected, run.stdout)


def _prime_passes(run: TestRun, expected: str, call: bool) -> bool | None:
    """As ``_passes``, as PRIME's checker has it: an exit status is no fault."""
    if run.status != OK and (call or run.status != ERROR or not run.exited):
        return None
    if call:
        return run.value is not None and prime_same_value(expected, run.value)
    return prime_same_output(expected, run.stdout)


def _no_program(tests: Tests) -> JobResult:
    return JobResult(tuple(TestRun(COMPILE_ERROR, detail="no code block") for _ in tests.inputs))


def _judgement(result: JobResult, comparison: _Comparison, faults: frozenset[str]) -> Judgement:
    failure, num_tests = result.failure, len(comparison.tests.inputs)
    if failure is None and len(result.runs) != num_tests:
        failure = f"the sandbox gave {len(result.runs)} runs for {num_tests} tests"
    if failure is not None:
        return Judgement(math.nan, None, failure=failure)
    runs = list(map(comparison, range(num_tests), result.runs))  # where the sandbox has not read them
    statuses = tuple(run.status for run in runs)
    bug = not faults.isdisjoint(statuses)
    return Judgement(comparison.pass_rate(statuses), bug, statuses, tuple(run.detail for run in runs))
