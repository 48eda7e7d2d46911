"""Calls rewards of your own, each with its time-out and its limit of calls at once.

Functions run in threads, coroutine functions in one event loop that lives as long as the scorer, so that a
client they keep stays usable. What can go wrong:

    stops the run     a value outside the declared range, a wrong type, a wrong number of values; an exception that no
                      sample can cause (ImportError, NameError, NotImplementedError, SyntaxError); an exit; a
                      ``GdpoError``, which a function may raise to stop on purpose
    not graded        any other exception (code ``error:<its name>``) and a late answer (code ``timeout``): the reward
                      of that sample is NaN, never 0, and a message names the sample. So is a reward that the caller's
                      deadline (``gdpo_nemo.deadline``) leaves no time for (code ``error:budget``); no fault of its own
    stops in the end  every sample of a call, and at least ``MOST_FAILURES`` in a row, not graded

A late thread cannot be stopped. Nobody waits for it and its answer is dropped, but it runs on beside the next
calls, so give what may hang a time-out of its own. A late coroutine is cancelled.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from numbers import Real
from queue import SimpleQueue
from typing import Any

from gdpo_nemo import deadline
from gdpo_nemo.deadline import OVER_BUDGET
from gdpo_nemo.errors import GdpoError, InfiniteRewardError, RewardError
from gdpo_nemo.rewards.own import OwnReward
from gdpo_nemo.types import NOT_APPLICABLE, RewardVector, Rollout, Row

MOST_FAILURES = 8
TIMEOUT, ERROR = "timeout", "error:"
ROUNDING = 1e-9
STOPPING = (GdpoError, ImportError, NameError, NotImplementedError, SyntaxError)

logger = logging.getLogger(__name__)


def is_failure(code: str) -> bool:
    """Whether a reason code says that a reward of one's own gave no answer."""
    return code == TIMEOUT or code.startswith(ERROR)


@dataclass(frozen=True)
class _Outcome:
    """What a call gave: an answer, an exception, or neither: within the time-out, or the time that the caller had."""

    answer: Any = None
    error: BaseException | None = None
    late: bool = False
    over_budget: bool = False

    @property
    def stops(self) -> bool:
        """Whether no sample can have caused the exception."""
        return isinstance(self.error, STOPPING) or not isinstance(self.error, Exception | asyncio.CancelledError | None)


class Scorer:
    """Scores rollouts with some rewards; several threads may call it at once.

    Attributes:
        rewards: in the order of the values.
    """

    def __init__(self, rewards: Sequence[OwnReward]) -> None:
        self.rewards = tuple(rewards)
        self._limits = {reward.name: asyncio.Semaphore(reward.concurrency) for reward in self.rewards}
        self._failed_in_a_row = {reward.name: 0 for reward in self.rewards}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads: _Threads | None = None
        self._starting = threading.Lock()

    def score(self, rows: Sequence[Row], rollouts: Sequence[Rollout]) -> list[RewardVector]:
        """One vector per rollout; ``rows[i]`` is the row that ``rollouts[i]`` answers.

        Raises:
            RewardError: a reward is wrong, or fails throughout; the message names it and a sample.
        """
        if not rollouts:
            return []
        outcomes = self._run(self._outcomes(list(rows), list(rollouts), deadline.current()))
        columns = [self._column(reward, given, rollouts) for reward, given in zip(self.rewards, outcomes, strict=True)]
        names = [reward.name for reward in self.rewards]
        return [
            RewardVector(
                {name: value for name, (value, _) in zip(names, graded, strict=True)},
                {name: codes for name, (_, codes) in zip(names, graded, strict=True)},
            )
            for graded in zip(*columns, strict=True)
        ]

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        with self._starting:
            if self._loop is None:
                self._loop, self._threads = asyncio.new_event_loop(), _Threads()
                threading.Thread(target=self._loop.run_forever, name="gdpo-rewards", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _outcomes(
        self, rows: list[Row], rollouts: list[Rollout], wanted_by: float | None
    ) -> list[list[_Outcome]]:
        return await asyncio.gather(*(self._calls(reward, rows, rollouts, wanted_by) for reward in self.rewards))

    async def _calls(
        self, reward: OwnReward, rows: list[Row], rollouts: list[Rollout], wanted_by: float | None
    ) -> list[_Outcome]:
        """One outcome per sample; of a batched reward one for all of them. After one that stops, no call is begun."""
        assert self._threads is not None
        threads, stopped = self._threads, list[_Outcome]()

        async def call(*arguments: Any) -> _Outcome:
            async with self._limits[reward.name]:
                if stopped:
                    return stopped[0]
                left_s = deadline.left_s(wanted_by)
                if left_s == 0:
                    return _Outcome(over_budget=True)
                run = _awaited if reward.is_async else threads.call
                within_s = reward.timeout_s if left_s is None else min(left_s, reward.timeout_s)
                outcome = await _within(within_s, run(reward.function, arguments))
                if outcome.late and within_s < reward.timeout_s:
                    return _Outcome(over_budget=True)
            if outcome.stops:
                stopped.append(outcome)
            return outcome

        calls = [(rows, rollouts)] if reward.batched else zip(rows, rollouts, strict=True)
        return await asyncio.gather(*(call(*arguments) for arguments in calls))

    def _column(
        self, reward: OwnReward, outcomes: Sequence[_Outcome], rollouts: Sequence[Rollout]
    ) -> list[tuple[float, tuple[str, ...]]]:
        if reward.batched:
            outcomes = _one_each(reward, outcomes[0], rollouts)
        graded = [_grade(reward, outcome, rollout) for outcome, rollout in zip(outcomes, rollouts, strict=True)]
        called = [i for i, (_, codes) in enumerate(graded) if OVER_BUDGET not in codes]
        failed = [i for i in called if any(map(is_failure, graded[i][1]))]
        if called:
            before = self._failed_in_a_row[reward.name]
            self._failed_in_a_row[reward.name] = before + len(failed) if len(failed) == len(called) else 0
        if failed:
            first = failed[0]
            message = f"{_name(reward, rollouts[first])} {_explained(reward, outcomes[first])}"
            if self._failed_in_a_row[reward.name] >= MOST_FAILURES:
                raise RewardError(
                    f"{message}; none of the last {self._failed_in_a_row[reward.name]} samples could be graded. "
                    f"Mend the reward, or raise gdpo.rewards.{reward.name}.timeout_s, and go on"
                ) from outcomes[first].error
            logger.warning(
                "%s; %d of %d samples are not graded", message, len(failed), len(graded), exc_info=outcomes[first].error
            )
        return graded


class _Threads:
    """Threads that are used again, and that the end of the process does not wait for. For one event loop."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._num_free = 0

    async def call(self, function: Callable[..., Any], arguments: Sequence[Any]) -> _Outcome:
        """What the function gives; never raises what it raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Outcome] = loop.create_future()

        def settle(outcome: _Outcome) -> None:
            self._num_free += 1
            if not future.done():
                future.set_result(outcome)

        def job() -> None:
            try:
                outcome = _Outcome(function(*arguments))
            except BaseException as error:
                outcome = _Outcome(error=error)
            loop.call_soon_threadsafe(settle, outcome)

        if self._num_free:
            self._num_free -= 1
        else:
            try:
                threading.Thread(target=self._serve, name="gdpo-reward", daemon=True).start()
            except RuntimeError as error:  # the system gives no more threads
                return _Outcome(error=error)
        self._jobs.put(job)
        return await future

    def _serve(self) -> None:
        while True:
            self._jobs.get()()


async def _awaited(function: Callable[..., Any], arguments: Sequence[Any]) -> _Outcome:
    try:
        return _Outcome(await function(*arguments))
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # an exit would end the loop and leave the caller waiting
        return _Outcome(error=error)


async def _within(timeout_s: float, call: Coroutine[Any, Any, _Outcome]) -> _Outcome:
    """What a call gives in time. A late one is cancelled and not waited for."""
    clock = asyncio.get_running_loop().time
    started = clock()
    task = asyncio.ensure_future(call)
    try:
        await asyncio.wait({task}, timeout=timeout_s)
        if not task.done() or clock() - started > timeout_s:
            return _Outcome(late=True)
        return _Outcome(error=asyncio.CancelledError()) if task.cancelled() else task.result()
    finally:
        task.cancel()


def _one_each(reward: OwnReward, outcome: _Outcome, rollouts: Sequence[Rollout]) -> list[_Outcome]:
    if outcome.late or outcome.over_budget or outcome.error is not None:
        return [outcome] * len(rollouts)
    values = outcome.answer.tolist() if hasattr(outcome.answer, "tolist") else outcome.answer
    if not isinstance(values, list | tuple) or len(values) != len(rollouts):
        found = f"{len(values)} values" if isinstance(values, list | tuple) else f"a {type(values).__name__}"
        raise RewardError(
            f"{_name(reward, rollouts[0])} and {len(rollouts) - 1} more: one call returned {found}; "
            f"expected a list of {len(rollouts)} values, one for each sample"
        )
    return [_Outcome(value) for value in values]


def _grade(reward: OwnReward, outcome: _Outcome, rollout: Rollout) -> tuple[float, tuple[str, ...]]:
    if outcome.over_budget:
        return math.nan, (OVER_BUDGET,)
    if outcome.late:
        return math.nan, (TIMEOUT,)
    if outcome.error is not None:
        if outcome.stops:
            raise RewardError(f"{_name(reward, rollout)} {_explained(reward, outcome)}") from outcome.error
        return math.nan, (f"{ERROR}{type(outcome.error).__name__}",)
    value = _number(reward, outcome.answer, rollout)
    if math.isnan(value):
        return math.nan, (NOT_APPLICABLE,)
    lowest, highest = reward.range
    slack = ROUNDING * (highest - lowest)
    if not lowest - slack <= value <= highest + slack:
        raise (InfiniteRewardError if math.isinf(value) else RewardError)(
            f"{_name(reward, rollout)} is {value:g}, outside its range [{lowest:g}, {highest:g}]. Mend it, or "
            f"declare gdpo.rewards.{reward.name}.range as it is"
        )
    return min(max(value, lowest), highest), ()


def _number(reward: OwnReward, answer: Any, rollout: Rollout) -> float:
    if answer is None:
        return math.nan
    if getattr(answer, "ndim", None) == 0 and hasattr(answer, "item"):  # scalars of NumPy and torch
        answer = answer.item()
    if isinstance(answer, Real):
        return float(answer)
    raise RewardError(
        f"{_name(reward, rollout)} is {answer!r:.80}, a {type(answer).__name__}; expected a number or None"
    )


def _name(reward: OwnReward, rollout: Rollout) -> str:
    return f"reward {reward.name!r} of row {rollout.row_id!r}, rollout {rollout.index}"


def _explained(reward: OwnReward, outcome: _Outcome) -> str:
    if outcome.late:
        return f"gave no answer within {reward.timeout_s:g} s"
    return f"raised {type(outcome.error).__name__}: {outcome.error}"
