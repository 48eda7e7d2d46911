"""Rewards by their place among recent ones: what the map is, what it makes of a reward, and how it outlives a stop."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reward_batches import EIGHTHS, batches
from torch.testing import assert_close

from gdpo_nemo.advantages import gdpo, grpo
from gdpo_nemo.config import GdpoConfig, validate
from gdpo_nemo.errors import InputError, RunDirError
from gdpo_nemo.method import Method
from gdpo_nemo.signals.quantile import Quantile, Quantiles

few = settings(max_examples=40, deadline=None)
GROUPS = torch.arange(2).repeat_interleave(4)
EXACT = st.one_of(st.just(math.nan), EIGHTHS)


def method(**block):
    rewards = {"format": {}, "correct": {"normalise": "quantile"}}
    return Method(validate(GdpoConfig, {"task": "tool_calling", "rewards": rewards, **block}))


def column(*values):
    return torch.tensor(values, dtype=torch.float64)[:, None]


def places(windows, values, groups=None, **options):
    """Q of the values of a batch."""
    groups = torch.zeros(len(values)).long() if groups is None else torch.tensor(groups)
    return windows.map(column(*values), groups, ["r"], **options)[:, 0].tolist()


def windows(window=256, refresh=1):
    return Quantiles(["r"], Quantile(window, refresh))


def test_a_value_becomes_its_mid_rank():
    assert places(windows(), [5.0, -1e9, 5.0, 7.0]) == [0.5, 0.125, 0.5, 0.875]
    assert places(windows(), [0, 1, 1, 1]) == [0.125, 0.625, 0.625, 0.625]


@few
@given(st.lists(EIGHTHS, min_size=1, max_size=30), st.lists(EIGHTHS, max_size=30))
def test_the_map_counts_what_is_below_and_half_of_what_is_equal(earlier, now):
    seen = windows()
    places(seen, earlier)
    if now:
        every = earlier + now
        expected = [(sum(u < v for u in every) + sum(u <= v for u in every)) / (2 * len(every)) for v in now]
        assert places(seen, now) == pytest.approx(expected)


def test_prompts_leave_the_window_one_by_one():
    seen = windows(window=3)
    assert places(seen, [1, 2, 3, 4], [0, 0, 1, 2]) == [0.125, 0.375, 0.625, 0.875]
    assert places(seen, [3.5], [0]) == [0.5]  # 3, 4 and itself: the prompt of 1 and 2 has left
    assert places(seen, [9, 9, 9, 9], [0, 1, 2, 3]) == [0.5] * 4  # more than the window holds


def test_between_refreshes_the_same_values_count():
    seen = windows(refresh=3)
    assert places(seen, [0, 1]) == [0.25, 0.75]
    assert places(seen, [5, -5, 0.5]) == [1, 0, 0.5]
    assert places(seen, [5, -5]) == [1, 0]
    assert places(seen, [5, -5]) == [pytest.approx(15 / 18), pytest.approx(3 / 18)]  # -5 -5 -5 0 0.5 1 5 5 5


def test_a_method_moves_its_windows_as_configured():
    def second(earlier, now, **quantile):
        """Advantages of a second batch of one prompt, on ``correct`` alone."""
        made, group = method(quantile=quantile), torch.zeros(3).long()
        for values in (earlier, now):
            rewards = torch.cat([column(0, 0, 0), column(*values)], dim=1)
            advantages, _ = made.advantages(rewards, group)
        return advantages.tolist()

    low, spread, high = (0.1, 0.2, 0.3), (0, 0.5, 1), (1, 2, 3)
    assert second(low, spread, window=1)[1] == pytest.approx(0)
    assert second(low, spread, window=2)[1] > 0.1
    assert second(low, high, refresh=1)[2] > 0.1
    assert second(low, high, refresh=2) == [0, 0, 0]


def test_rounding_is_no_rank_and_missing_values_are_in_no_window():
    noisy = [0.1 + 0.2, 0.3, 0.3 * (1 + 1e-9), math.nan]
    assert places(windows(), noisy)[:3] == [0.5] * 3
    assert math.isnan(places(windows(), noisy)[3])
    valid = torch.tensor([True, True, False])
    assert places(windows(), [0, 1, 100], valid_B=valid) == [0.25, 0.75, 1.0]


def test_rows_that_are_only_looked_at_are_mapped_and_forgotten():
    seen = windows()
    places(seen, [0, 1])
    before = places(seen, [0.5, 2], keep=False)
    assert before == places(seen, [0.5, 2], keep=False) == places(seen, [0.5, 2])
    assert places(seen, [0.5, 2], keep=False) != before


@few
@given(batches(dtypes=[torch.float64], reward=EXACT, min_rewards=2), st.sampled_from(["gdpo", "grpo"]))
def test_any_rising_map_of_the_reward_changes_nothing(batch, name):
    rewards, groups, options = batch
    rewards, valid_B = rewards[:, :2], options["valid_B"]
    bent = rewards.clone()
    bent[:, 1] = (3 * bent[:, 1]).exp()
    made = [method(method=name).advantages(given, groups, valid_B)[0] for given in (rewards, bent)]
    assert_close(*made, rtol=0, atol=0)


def test_one_value_far_outside_takes_nothing_from_the_others():
    format_B = torch.tensor([0, 1, 0, 1, 1, 0, 1, 0])
    correct_B = torch.tensor([0, 1, 2, 1e6, 0, 1, 2, 3])
    rewards_B_K = torch.stack([format_B, correct_B], dim=1).double()
    plain = gdpo(rewards_B_K, GROUPS)
    made, health = method().advantages(rewards_B_K, GROUPS)
    assert plain[2] - plain[0] < 1e-3 < 0.5 < made[2] - made[0]
    assert health.rewards["correct"].mean == pytest.approx(correct_B.mean().item())  # people read the reward itself


def test_of_the_named_reward_alone():
    rewards_B_K = torch.rand(8, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    mapped_B_K = rewards_B_K.clone()
    mapped_B_K[:, 1] = (rewards_B_K[:, 1].argsort().argsort() + 0.5) / 8
    assert_close(method().advantages(rewards_B_K, GROUPS)[0], gdpo(mapped_B_K, GROUPS))
    made, _ = method(method="grpo", rescale_by_range=True).advantages(rewards_B_K, GROUPS)
    assert_close(made, grpo(mapped_B_K, GROUPS))  # a place is not divided by the range of the value


def test_it_comes_after_conditions_and_before_families():
    gated = {"format": {}, "correct": {"normalise": "quantile", "condition": {"on": "format", "else_value": -3}}}
    rewards_B_K = torch.rand(8, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rewards_B_K[:, 0].round_()
    conditioned_B = rewards_B_K[:, 1].where(rewards_B_K[:, 0] == 1, -3.0)
    below = (conditioned_B[None] < conditioned_B[:, None]).sum(1) + (conditioned_B[None] <= conditioned_B[:, None]).sum(
        1
    )
    mapped_B_K = torch.stack([rewards_B_K[:, 0], below / 16], dim=1)
    assert_close(method(rewards=gated).advantages(rewards_B_K, GROUPS)[0], gdpo(mapped_B_K, GROUPS))
    made, _ = method(rewards=gated, families={"f": ["format", "correct"]}).advantages(rewards_B_K, GROUPS)
    assert_close(made, gdpo(mapped_B_K.sum(1, keepdim=True), GROUPS))


def test_dynamic_sampling_sees_the_places_and_leaves_the_window_alone():
    """1 and 0.5 + 0.5: a constant sum of values, and no constant sum of places."""
    rewards_B_K = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.0, 0.0], [0.0, 0.9]], dtype=torch.float64)
    groups_B = torch.tensor([0, 0, 1, 1])
    chosen = method(method="grpo", dynamic_sampling="sum")
    first = chosen.informative(rewards_B_K, groups_B)
    assert first.tolist() == [True] * 4
    plain = Method(GdpoConfig(task="tool_calling", method="grpo", dynamic_sampling="sum"))
    assert plain.informative(rewards_B_K, groups_B).tolist() == [False, False, True, True]
    fresh = method(method="grpo", dynamic_sampling="sum").advantages(rewards_B_K, groups_B)[0]
    assert_close(chosen.advantages(rewards_B_K, groups_B)[0], fresh, rtol=0, atol=0)


def test_an_infinite_value_is_refused_as_without_the_map():
    rewards_B_K = torch.zeros(8, 2, dtype=torch.float64)
    rewards_B_K[3, 1] = math.inf
    with pytest.raises(InputError, match=r"rewards_B_K\[3, 1\] is inf"):
        method().advantages(rewards_B_K, GROUPS)


# ---- checkpoints


@pytest.mark.parametrize(("window", "refresh", "stop"), [(5, 1, 2), (5, 3, 2), (64, 2, 3)])
def test_a_method_that_goes_on_from_a_checkpoint_is_one_that_never_stopped(window, refresh, stop, tmp_path):
    draw = torch.Generator().manual_seed(0)
    steps = [torch.rand(8, 2, dtype=torch.float32, generator=draw) for _ in range(7)]
    block = {"quantile": {"window": window, "refresh": refresh}}
    whole, first, second, forgetful = (method(**block) for _ in range(4))
    expected = [whole.advantages(rewards, GROUPS)[0] for rewards in steps]
    for rewards in steps[:stop]:
        first.advantages(rewards, GROUPS)
    first.save(tmp_path)
    second.restore(tmp_path)
    made = [second.advantages(rewards, GROUPS)[0] for rewards in steps[stop:]]
    assert all(a.equal(b) for a, b in zip(made, expected[stop:], strict=True))
    forgetful.restore(None)
    assert not forgetful.advantages(steps[stop], GROUPS)[0].equal(expected[stop])


def test_a_checkpoint_without_the_windows_is_refused(tmp_path):
    with pytest.raises(RunDirError, match=r"has no quantiles\.pt"):
        method().restore(tmp_path)
    Quantiles(["format"], Quantile()).save(tmp_path)
    with pytest.raises(RunDirError, match="expected correct"):
        method().restore(tmp_path)
    plain = Method(GdpoConfig(task="tool_calling"))
    plain.save(tmp_path / "nowhere")
    plain.restore(tmp_path)
