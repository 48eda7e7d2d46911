"""What happens to work that is wanted by a time: begun work ends, the rest is dropped, and nothing becomes a score."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator

import pytest

from gdpo_nemo.config import GdpoConfig
from gdpo_nemo.deadline import OVER_BUDGET, current, deadline, left_s
from gdpo_nemo.method import Method
from gdpo_nemo.rewards.code.reward import CodeReward
from gdpo_nemo.rewards.math.pool import Job as Comparison
from gdpo_nemo.rewards.math.pool import Outcome, Pool
from gdpo_nemo.rewards.math.reward import MathReward
from gdpo_nemo.rewards.own import OwnReward
from gdpo_nemo.rewards.scoring import MOST_FAILURES, Scorer
from gdpo_nemo.sandbox.jobs import CLOSED, OUT_OF_TIME, Job, JobResult, Limits
from gdpo_nemo.sandbox.pool import LocalPool
from gdpo_nemo.types import Rollout, Row

PAST = 0.0
ENDLESS = Job("while True: pass", ("",), limits=Limits(cpu_s=300, budget_s=300))
SHORT = Job("print(1)", ("",))
ROW = Row(id="1", fields={}, gold='{"inputs": ["1"], "outputs": ["1"]}')
ROLLOUT = Rollout("1", 0, "```python\nprint(1)  # asked by no other test: verdicts are kept\n```", 5)


@pytest.fixture
def pool() -> Iterator[LocalPool]:
    with LocalPool(1) as made:
        yield made


def test_a_deadline_belongs_to_its_block_and_thread() -> None:
    seen: list[float | None] = []
    with deadline(time.monotonic() + 60), deadline(5.0):
        thread = threading.Thread(target=lambda: seen.append(current()))
        thread.start()
        thread.join()
        assert current() == 5.0 and left_s(5.0) == 0.0
    assert current() is None and seen == [None] and left_s(None) is None


def test_a_program_that_is_late_is_no_verdict_and_those_behind_it_are_dropped(pool: LocalPool) -> None:
    assert pool.run([SHORT])[0].runs[0].stdout == b"1\n"
    with deadline(time.monotonic() + 1):
        results = pool.run([ENDLESS, SHORT, SHORT])
    assert results == [JobResult(failure=OUT_OF_TIME)] * 3


def test_closing_a_pool_ends_what_runs_in_it(pool: LocalPool) -> None:
    results: list[JobResult] = []
    thread = threading.Thread(target=lambda: results.extend(pool.run([ENDLESS, SHORT])))
    thread.start()
    while pool._free.qsize() or not pool._threads._work_queue.qsize():  # until the first runs and the second waits
        time.sleep(0.01)
    pool.close()
    thread.join()
    assert results == [JobResult(failure=CLOSED)] * 2


def test_rewards_of_a_program_that_is_late_mask_its_sample() -> None:
    method = Method(GdpoConfig(task="code_reasoning"))
    with deadline(PAST):
        vectors = method.score([ROW], [ROLLOUT])
    assert vectors[0].reasons["pass_rate"] == (OVER_BUDGET,)
    assert method.matrix(vectors).isnan().all()
    reward = CodeReward()
    assert reward(ROW, ROLLOUT)["pass_rate"] == 1.0  # a late verdict is not kept


def test_a_comparison_that_finds_no_worker_in_time_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool(1)
    pool._places.acquire()  # its only worker is busy
    jobs = [Comparison("strict", "x", "y"), Comparison("strict", "x", "z")]
    with deadline(PAST):
        assert pool.run_all(jobs) == [Outcome(None, OVER_BUDGET)] * 2
    monkeypatch.setattr("gdpo_nemo.rewards.math.grading.shared_pool", lambda num_workers: pool)
    row, rollout = Row(id="1", fields={}, gold="\\sqrt{x+1}"), Rollout("1", 0, "\\boxed{\\sqrt{1+x}}", 5)
    with deadline(PAST):
        vector = MathReward()(row, rollout)
    assert math.isnan(vector["correct"]) and vector.reasons["correct"] == (OVER_BUDGET,)


def test_own_rewards_that_the_deadline_leaves_no_time_for_are_not_their_fault() -> None:
    called: list[str] = []
    late = threading.Event()

    def slow(row: Row, rollout: Rollout) -> float:
        called.append(row.id)
        late.wait(60)
        return 1.0

    scorer = Scorer([OwnReward("slow", slow, (0, 1), timeout_s=300, concurrency=1, batched=False)])
    number = 2 * MOST_FAILURES  # more than fail before the run is stopped
    with deadline(time.monotonic() + 0.5):
        vectors = scorer.score([ROW] * number, [ROLLOUT] * number)
    late.set()
    assert all(math.isnan(vector["slow"]) and vector.reasons["slow"] == (OVER_BUDGET,) for vector in vectors)
    assert called == ["1"]
    assert scorer.score([ROW], [ROLLOUT])[0]["slow"] == 1.0
