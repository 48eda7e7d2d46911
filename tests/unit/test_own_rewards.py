"""Rewards of one's own: what is called how, what becomes of failures, and what stops at once."""

import asyncio
import logging
import math
import threading
from fractions import Fraction

import numpy as np
import pytest
import torch

from gdpo_nemo.errors import PrerequisiteError, RewardError
from gdpo_nemo.rewards.own import OwnReward
from gdpo_nemo.rewards.scoring import Scorer
from gdpo_nemo.types import Rollout, Row

ROWS = [Row(f"row{i // 2}", {"length": i}, "gold") for i in range(8)]
ROLLOUTS = [Rollout(row.id, i % 2, "x" * i, i) for i, row in enumerate(ROWS)]


def score(function, **options):
    settings = {"range": (0, 10)} | options
    return Scorer([OwnReward("mine", function, **settings)]).score(ROWS, ROLLOUTS)


def values(vectors):
    return [vector["mine"] for vector in vectors]


def by_length(row, rollout):
    assert row.id == rollout.row_id
    return len(rollout.response)


# ---- calls


def test_each_rollout_is_scored_with_its_row_in_order():
    assert values(score(by_length)) == list(range(8))


def test_a_coroutine_function_is_awaited():
    async def mine(row, rollout):
        await asyncio.sleep(0)
        return by_length(row, rollout)

    assert values(score(mine)) == list(range(8))


def test_an_object_with_an_async_call_is_awaited():
    class Mine:
        async def __call__(self, row, rollout):
            return by_length(row, rollout)

    assert values(score(Mine())) == list(range(8))


@pytest.mark.parametrize("convert", [list, tuple, np.array, torch.tensor])
def test_a_batched_function_is_called_once_for_all(convert):
    calls = []

    def mine(rows, rollouts):
        calls.append((rows, rollouts))
        return convert([len(rollout.response) for rollout in rollouts])

    assert values(score(mine, batched=True)) == list(range(8))
    assert calls == [(ROWS, ROLLOUTS)]


def test_a_batched_coroutine_function_too():
    async def mine(rows, rollouts):
        return [row.fields["length"] for row in rows]

    assert values(score(mine, batched=True)) == list(range(8))


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        (True, 1.0),
        (Fraction(1, 2), 0.5),
        (np.float32(0.25), 0.25),
        (np.bool_(True), 1.0),
        (np.array(3), 3.0),
        (torch.tensor(4.5), 4.5),
        (10 + 1e-12, 10.0),
    ],
)
def test_numbers_of_every_kind_count(answer, value):
    assert set(values(score(lambda row, rollout: answer))) == {value}


@pytest.mark.parametrize("answer", [None, math.nan, np.nan, torch.tensor(math.nan)])
def test_none_and_nan_mean_that_the_reward_does_not_apply(answer):
    vectors = score(lambda row, rollout: answer)
    assert all(math.isnan(value) for value in values(vectors))
    assert {vector.reasons["mine"] for vector in vectors} == {("does_not_apply",)}


def test_no_more_calls_at_once_than_allowed_and_no_fewer():
    """Three calls wait for each other; a fourth at the same time would be seen."""
    meeting, running, most, lock = threading.Barrier(3, timeout=30), 0, 0, threading.Lock()

    def mine(row, rollout):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        meeting.wait()
        with lock:
            running -= 1
        return 0

    scorer = Scorer([OwnReward("mine", mine, (0, 1), timeout_s=60, concurrency=3)])
    assert values(scorer.score(ROWS[:6], ROLLOUTS[:6])) == [0] * 6
    assert most == 3


def test_a_client_made_in_one_batch_works_in_the_next():
    """It belongs to its event loop, which must therefore stay."""
    clients = []

    async def mine(row, rollout):
        if not clients:
            clients.append((asyncio.get_running_loop(), asyncio.Lock()))
        loop, lock = clients[0]
        async with lock:
            await asyncio.sleep(0)
        return float(loop is asyncio.get_running_loop())

    scorer = Scorer([OwnReward("mine", mine, (0, 1))])
    assert values(scorer.score(ROWS, ROLLOUTS)) + values(scorer.score(ROWS, ROLLOUTS)) == [1.0] * 16


def test_scoring_works_inside_a_running_event_loop():
    async def main():
        return values(score(by_length))

    assert asyncio.run(main()) == list(range(8))


def test_nothing_to_score_is_nothing_to_call():
    assert Scorer([OwnReward("mine", by_length, (0, 1))]).score([], []) == []


# ---- failures that leave a sample ungraded


@pytest.fixture
def logged(caplog):
    caplog.set_level(logging.WARNING, logger="gdpo_nemo.rewards.scoring")
    return caplog


def fails_on_row_one(row, rollout):
    if row.id == "row1":
        raise KeyError("score")
    return 1.0


def test_an_exception_leaves_its_sample_ungraded_and_says_which(logged):
    vectors = score(fails_on_row_one)
    assert [math.isnan(value) for value in values(vectors)] == [False, False, True, True] + [False] * 4
    assert [vector.reasons["mine"] for vector in vectors[1:3]] == [(), ("error:KeyError",)]
    assert "reward 'mine' of row 'row1', rollout 0 raised KeyError: 'score'; 2 of 8 samples" in logged.text
    assert "fails_on_row_one" in logged.text, "with the traceback"


@pytest.mark.parametrize("kind", ["sync", "async", "batched"])
def test_a_late_answer_is_not_waited_for(kind, logged):
    """The late call goes on until the test lets it go, so waiting for it would never end."""
    let_go = threading.Event()

    def sync(row, rollout):
        if row.id == "row1":
            let_go.wait()
        return 1.0

    async def coroutine(row, rollout):
        if row.id == "row1":
            await asyncio.Event().wait()
        return 1.0

    def batched(rows, rollouts):
        let_go.wait()
        return [1.0] * len(rows)

    function = {"sync": sync, "async": coroutine, "batched": batched}[kind]
    scorer = Scorer([OwnReward("mine", function, (0, 1), timeout_s=0.2, batched=kind == "batched")])
    size = 7 if kind == "batched" else 8  # eight failures in a row would stop
    vectors = scorer.score(ROWS[:size], ROLLOUTS[:size])
    let_go.set()
    late = [math.isnan(value) for value in values(vectors)]
    assert late == ([True] * 7 if kind == "batched" else [False, False, True, True] + [False] * 4)
    assert vectors[2].reasons["mine"] == ("timeout",)
    assert "gave no answer within 0.2 s" in logged.text


def test_the_end_of_the_process_does_not_wait_either(python, tmp_path):
    (tmp_path / "hangs.py").write_text(
        "import threading\n"
        "from gdpo_nemo.rewards.own import OwnReward\n"
        "from gdpo_nemo.rewards.scoring import Scorer\n"
        "from gdpo_nemo.types import Rollout, Row\n"
        "reward = OwnReward('mine', lambda row, rollout: threading.Event().wait(), (0, 1), timeout_s=0.1)\n"
        "print(Scorer([reward]).score([Row('a', {}, '')], [Rollout('a', 0, '', 0)])[0].reasons)\n"
    )
    done = python("hangs.py", cwd=tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, "{'mine': ('timeout',)}")


def test_threads_are_used_again():
    """So that a session that a function keeps per thread pays."""
    threads = set()

    def mine(row, rollout):
        threads.add(threading.get_ident())
        return 0

    scorer = Scorer([OwnReward("mine", mine, (0, 1), concurrency=2)])
    for _ in range(10):
        scorer.score(ROWS, ROLLOUTS)
    assert len(threads) <= 2


def test_an_answer_that_comes_late_because_the_function_blocked_the_loop_is_late():
    async def mine(row, rollout):
        threading.Event().wait(0.3)
        return 1.0

    (vector,) = Scorer([OwnReward("mine", mine, (0, 1), timeout_s=0.1)]).score(ROWS[:1], ROLLOUTS[:1])
    assert vector.reasons["mine"] == ("timeout",)


def test_a_time_out_within_the_function_is_its_own_exception():
    def mine(row, rollout):
        raise TimeoutError("the database")

    (vector,) = Scorer([OwnReward("mine", mine, (0, 1))]).score(ROWS[:1], ROLLOUTS[:1])
    assert vector.reasons["mine"] == ("error:TimeoutError",)


def test_a_stop_iteration_is_an_exception_like_any_other():
    """asyncio refuses it as the result of a future; it must not end as a time-out."""
    (vector,) = Scorer([OwnReward("mine", lambda row, rollout: next(iter(())), (0, 1))]).score(ROWS[:1], ROLLOUTS[:1])
    assert vector.reasons["mine"] == ("error:StopIteration",)


def test_a_cancelled_coroutine_is_a_failure():
    async def mine(row, rollout):
        raise asyncio.CancelledError

    (vector,) = Scorer([OwnReward("mine", mine, (0, 1))]).score(ROWS[:1], ROLLOUTS[:1])
    assert vector.reasons["mine"] == ("error:CancelledError",)


def test_a_batch_without_a_single_answer_stops():
    def mine(row, rollout):
        raise ConnectionError("refused")

    with pytest.raises(
        RewardError, match=r"'mine' of row 'row0', rollout 0 raised ConnectionError: refused; none of"
    ) as e:
        score(mine)
    assert "last 8 samples" in str(e.value) and isinstance(e.value.__cause__, ConnectionError)


def test_small_batches_stop_once_eight_samples_in_a_row_have_failed():
    failing = True

    def mine(row, rollout):
        if failing:
            raise ConnectionError
        return 1.0

    scorer = Scorer([OwnReward("mine", mine, (0, 1))])
    for _ in range(7):
        scorer.score(ROWS[:1], ROLLOUTS[:1])
    failing = False
    scorer.score(ROWS[:1], ROLLOUTS[:1])
    failing = True
    for _ in range(7):
        scorer.score(ROWS[:1], ROLLOUTS[:1])
    with pytest.raises(RewardError, match="last 8 samples"):
        scorer.score(ROWS[:1], ROLLOUTS[:1])


def test_failures_among_answers_never_stop():
    scorer = Scorer([OwnReward("mine", fails_on_row_one, (0, 1))])
    for _ in range(5):
        assert sum(map(math.isnan, values(scorer.score(ROWS, ROLLOUTS)))) == 2


def test_a_failing_reward_does_not_take_the_others_along():
    rewards = [OwnReward("bad", fails_on_row_one, (0, 1)), OwnReward("good", by_length, (0, 10))]
    vectors = Scorer(rewards).score(ROWS, ROLLOUTS)
    assert [vector["good"] for vector in vectors] == list(range(8))
    assert list(vectors[0].values) == ["bad", "good"]


# ---- mistakes that stop at once


@pytest.mark.parametrize("answer", [10.1, -1, math.inf, -math.inf, 10 + 1e-7])
def test_a_value_outside_the_range_stops_and_names_the_sample(answer):
    with pytest.raises(RewardError, match=r"'mine' of row 'row1', rollout 1 is .*outside its range \[0, 10\]") as error:
        score(lambda row, rollout: answer if len(rollout.response) == 3 else 1)
    assert "gdpo.rewards.mine.range" in str(error.value)


@pytest.mark.parametrize("answer", ["0.5", [1.0], {"score": 1}, np.ones(2), torch.ones(1), 1j, object()])
def test_a_value_that_is_no_number_stops_and_names_the_sample(answer):
    with pytest.raises(RewardError, match=r"row 'row0', rollout 0 is .*expected a number or None"):
        score(lambda row, rollout: answer)


def test_a_sync_function_that_returns_a_coroutine_stops():
    async def inner():
        return 1.0

    kept = []

    def mine(row, rollout):
        kept.append(inner())
        return kept[-1]

    with pytest.raises(RewardError, match="a coroutine; expected a number"):
        score(mine)
    for coroutine in kept:
        coroutine.close()


@pytest.mark.parametrize(
    ("answer", "words"),
    [([1.0] * 7, "returned 7 values"), (1.0, "returned a float"), ({}, "returned a dict"), ("12345678", "a str")],
)
def test_a_batch_of_the_wrong_shape_stops(answer, words):
    with pytest.raises(
        RewardError, match=r"row 'row0', rollout 0 and 7 more: one call .*expected a list of 8"
    ) as error:
        score(lambda rows, rollouts: answer, batched=True)
    assert words in str(error.value)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    "raised", [NameError("x"), ImportError("x"), NotImplementedError("x"), PrerequisiteError("x"), SystemExit("x")]
)
def test_what_no_sample_can_cause_stops(raised, is_async):
    def mine(row, rollout):
        if row.id == "row1":
            raise raised
        return 1.0

    async def coroutine(row, rollout):
        return mine(row, rollout)

    with pytest.raises(RewardError, match=rf"row 'row1', rollout 0 raised {type(raised).__name__}: x"):
        score(coroutine if is_async else mine)


def test_after_what_no_sample_can_cause_no_further_call_is_begun():
    called = []

    def mine(row, rollout):
        called.append(row.id)
        raise NameError("x")

    with pytest.raises(RewardError, match="NameError"):
        score(mine, concurrency=1)
    assert called == ["row0"]
