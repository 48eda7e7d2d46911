"""What grading cost, from when responses came and when they were done."""

import checkout
import pytest

checkout.require()

from gdpo_nemo.backends.nemo_rl.grading import GradingLog  # noqa: E402


class Clock:
    """Seconds that pass only when told."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def log(clock):
    return GradingLog(clock)


def numbers(log):
    return {name.removeprefix("grading/"): value for name, value in log.take().items()}


def test_a_batch_at_the_end_of_generation_is_exposed(log, clock):
    log.came(3)
    clock.now += 5
    log.done(3, over_budget=1)
    clock.now += 7  # nothing waits
    assert numbers(log) == {
        "seconds": 5, "seconds_exposed": 5, "num_over_budget": 1, "queue_high_water": 3, "share_hidden": 0
    }  # fmt: skip


def test_what_ends_before_the_last_response_comes_is_hidden(log, clock):
    """Waiting from 0 to 2, from 5 to 9 (two at once from 6 to 8); the last comes at 6."""
    for at, come, done in ((0, 1, 0), (2, 0, 1), (5, 1, 0), (6, 1, 0), (8, 0, 1), (9, 0, 1)):
        clock.now = 100.0 + at
        log.came(come) if come else log.done(done)
    assert numbers(log) == {
        "seconds": 6, "seconds_exposed": 3, "num_over_budget": 0, "queue_high_water": 2, "share_hidden": 0.5
    }  # fmt: skip


def test_what_still_waits_is_carried_on(log, clock):
    log.came(2)
    clock.now += 4
    assert numbers(log)["seconds"] == 4
    clock.now += 3
    log.done(2)
    after = numbers(log)
    assert after["seconds"] == after["seconds_exposed"] == 3 and after["queue_high_water"] == 2


def test_nothing_is_said_when_nothing_was_graded(log):
    assert numbers(log) == {}
