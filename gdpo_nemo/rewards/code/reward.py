"""``pass_rate``, ``no_bug`` and ``length`` of the coding task (arXiv 2601.05242, section 4.3).

pass_rate  tests passed / tests, 0 to 1
no_bug     1 when no test ends in an error, a memory error or a compile error, else 0
length     1 when the response has at most ``length_limit`` tokens, else 0

The row's gold is the ground truth of Eurus-2-RL-Data: JSON with ``inputs``, ``outputs`` and, for calls, ``fn_name``.
A response without a code block is a compile error. When the sandbox fails, after retries, or the caller's time for
grading is used up, no reward of the sample has a value: both are NaN with a reason that begins with ``error:``, which
masks the sample. A gold that cannot be read is NaN too. A condition of one reward on another is not a reward: it is
set under ``gdpo.rewards``.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gdpo_nemo.deadline import OVER_BUDGET
from gdpo_nemo.errors import InputError, UnknownNameError
from gdpo_nemo.rewards.code.extraction import THINKING, extract_code
from gdpo_nemo.rewards.code.judging import SCORERS, STRICT, Judgement, Tests, judge_many
from gdpo_nemo.sandbox.isolation import AUTO
from gdpo_nemo.sandbox.jobs import OUT_OF_TIME, Limits, Sandbox
from gdpo_nemo.sandbox.opening import check_name, open_sandbox
from gdpo_nemo.types import RewardVector, Rollout, Row

LENGTH_LIMIT: Final = 4000
CACHE_SIZE: Final = 65_536

REASONS: Final[dict[str, str]] = {
    "no_code": "the response has no code block",
    "wrong": "a test got another answer than the expected one",
    "error": "a test ended in an exception, a signal or an exit status other than 0",
    "timed_out": "a test used up its CPU time, its wall time or the program's budget",
    "memory": "a test used up its memory",
    "output_limit": "a test printed or wrote too much",
    "compile_error": "the program does not compile",
    "gold_unreadable": "the gold is not the JSON of any tests",
    "error:sandbox": "the sandbox failed, several times",
    OVER_BUDGET: "the caller's time for grading was used up",
    "over_limit": "more tokens than the limit",
}
"""Code -> meaning. Codes never change; new ones may come."""
SANDBOX_FAILED: Final = "error:sandbox"
_FAILURES: Final = {OUT_OF_TIME: OVER_BUDGET}
_CODES: Final = {"timeout": "timed_out"}  # "timeout" is the code of a reward that gave no answer, which masks a sample


class CodeReward:
    """``pass_rate``, ``no_bug`` and ``length`` of rollouts. A program that comes again is not run again.

    Attributes:
        names: ``("pass_rate", "no_bug", "length")``.
        ranges: 0 to 1 each.
    """

    names: tuple[str, ...] = ("pass_rate", "no_bug", "length")
    ranges: Mapping[str, tuple[float, float]]

    def __init__(
        self,
        length_limit: int = LENGTH_LIMIT,
        first_tests: int | None = None,
        timeout_is_bug: bool = False,
        scorer: str = STRICT,
        thinking: str = "auto",
        sandbox: str = AUTO,
        limits: Mapping[str, Any] | None = None,
        num_workers: int | None = None,
    ) -> None:
        """Choose limits, scorer and sandbox. No process starts yet.

        Args:
            length_limit: tokens.
            first_tests: judge by this many tests of each problem only.
            timeout_is_bug: whether a time-out makes ``no_bug`` 0.
            scorer: one of ``SCORERS``.
            thinking: one of ``THINKING``.
            sandbox: as ``open_sandbox`` takes it.
            limits: fields of ``Limits`` that differ from the defaults.
            num_workers: programs that run side by side on each machine; as many as it has cores when None.

        Raises:
            InputError: a number that makes no sense, or an unknown limit.
            UnknownNameError: no such scorer, thinking or sandbox.
        """
        optional = {"first_tests": first_tests, "num_workers": num_workers}
        given = {name: value for name, value in optional.items() if value is not None}
        for name, value in {"length_limit": length_limit, **given}.items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InputError(f"{name} is {value!r}, expected a positive integer.")
        if scorer not in SCORERS:
            raise UnknownNameError("scorer", str(scorer), SCORERS)
        if thinking not in THINKING:
            raise UnknownNameError("thinking", str(thinking), THINKING)
        check_name(sandbox)
        known = Limits.__dataclass_fields__
        for name in limits or {}:
            if name not in known:
                raise UnknownNameError("limit", name, known)
        self.limits = Limits(**(limits or {}))
        self.length_limit, self.first_tests, self.timeout_is_bug = length_limit, first_tests, timeout_is_bug
        self.scorer, self.thinking, self.sandbox, self.num_workers = scorer, thinking, sandbox, num_workers
        self.ranges = dict.fromkeys(self.names, (0.0, 1.0))
        self._cache: OrderedDict[bytes, Judgement] = OrderedDict()
        self._caching = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        """Without the cache: it belongs to one process."""
        return self.__dict__ | {"_cache": OrderedDict(), "_caching": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore with an empty cache."""
        self.__dict__.update(state)
        self._caching = threading.Lock()

    def __call__(self, row: Row, rollout: Rollout) -> RewardVector:
        """Score one rollout."""
        return self.score_many([row], [rollout])[0]

    def score_many(self, rows: Sequence[Row], rollouts: Sequence[Rollout]) -> list[RewardVector]:
        """Score rollouts on all workers at once; ``rows[i]`` is the row that ``rollouts[i]`` answers.

        Raises:
            SandboxError: no sandbox can run here.
        """
        programs = [extract_code(rollout.response, thinking=self.thinking) for rollout in rollouts]
        keys = [_key(program, row.gold) for program, row in zip(programs, rows, strict=True)]
        verdicts = self._judged(dict(zip(keys, zip(programs, (row.gold for row in rows), strict=True), strict=True)))
        return [
            self._vector(verdicts[key], program, rollout)
            for key, program, rollout in zip(keys, programs, rollouts, strict=True)
        ]

    def _judged(self, wanted: Mapping[bytes, tuple[str | None, str]]) -> dict[bytes, Judgement | None]:
        """The verdict on each program, None where the gold cannot be read."""
        with self._caching:
            verdicts: dict[bytes, Judgement | None] = {key: self._cache[key] for key in wanted if key in self._cache}
        items: dict[bytes, tuple[str | None, Tests]] = {}
        for key, (program, gold) in wanted.items():
            if key not in verdicts:
                tests = _tests(gold)
                if tests is None:
                    verdicts[key] = None
                else:
                    items[key] = program, tests
        judgements = judge_many(
            list(items.values()),
            limits=self.limits,
            scorer=self.scorer,
            first_tests=self.first_tests,
            timeout_is_bug=self.timeout_is_bug,
            sandbox=self._sandbox() if any(program is not None for program, _ in items.values()) else None,
        )
        fresh = dict(zip(items, judgements, strict=True))
        with self._caching:
            self._cache.update({key: verdict for key, verdict in fresh.items() if verdict.failure is None})
            while len(self._cache) > CACHE_SIZE:
                self._cache.popitem(last=False)
        return verdicts | fresh

    def start(self) -> None:
        """Start the sandbox, which the first program would start otherwise.

        Raises:
            SandboxError: no sandbox can run here.
        """
        self._sandbox()

    def _sandbox(self) -> Sandbox:
        return open_sandbox(self.sandbox, self.num_workers)

    def _vector(self, verdict: Judgement | None, program: str | None, rollout: Rollout) -> RewardVector:
        is_short = rollout.length_tokens <= self.length_limit
        length: tuple[str, ...] = () if is_short else ("over_limit",)
        if verdict is None or verdict.bug is None:
            code = "gold_unreadable" if verdict is None else _FAILURES.get(verdict.failure or "", SANDBOX_FAILED)
            values = {"pass_rate": math.nan, "no_bug": math.nan, "length": float(is_short)}
            return RewardVector(values, {"pass_rate": (code,), "no_bug": (code,), "length": length})
        statuses = dict.fromkeys(_CODES.get(status, status) for status in verdict.statuses if status != "ok")
        codes = ("no_code",) if program is None else tuple(statuses)
        return RewardVector(
            {"pass_rate": verdict.pass_rate, "no_bug": float(not verdict.bug), "length": float(is_short)},
            {"pass_rate": codes, "no_bug": codes if verdict.bug else (), "length": length},
        )


def _tests(gold: str) -> Tests | None:
    try:
        return Tests.parse(gold)
    except InputError:
        return None


def _key(program: str | None, gold: str) -> bytes:
    """Of a program and its tests."""
    digest = hashlib.sha256(gold.encode("utf-8", "surrogatepass"))
    digest.update(b"\0none" if program is None else b"\0" + program.encode("utf-8", "surrogatepass"))
    return digest.digest()
