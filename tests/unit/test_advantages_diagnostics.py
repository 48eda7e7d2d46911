"""The numbers of a batch by hand, and what holds for any batch."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gdpo_nemo.advantages import Diagnostics, diagnostics, gdpo

NAN = math.nan


def test_a_batch_by_hand():
    rewards = torch.tensor(
        [
            [0.0, 1.0, 0.0],  # group 7: correct and length pull against each other
            [1.0, 0.0, 0.0],
            [1.0, 1.0, NAN],  # group 3: nothing but length varies
            [1.0, 3.0, NAN],
            [2.0, NAN, NAN],  # group 5: a single row
            [NAN, NAN, NAN],  # valid, and no reward applies
            [9.0, 9.0, 9.0],  # masked
        ]
    )
    groups = torch.tensor([7, 7, 3, 3, 5, 7, 7])
    valid = torch.tensor([True] * 6 + [False])
    health = diagnostics(rewards, groups, names=["correct", "length", "format"], weights=[2.0, 1.0, 1.0], valid_B=valid)
    assert health.groups_total == 3
    assert health.groups_alive == 2
    assert health.amplification == pytest.approx(math.sqrt(3 / 2))
    assert health.frac_conflict == pytest.approx(2 / 5)

    correct, length, form = (health.rewards[name] for name in ("correct", "length", "format"))
    assert (correct.mean, length.mean, form.mean) == pytest.approx((1.0, 5 / 4, 0.0))
    assert correct.std == pytest.approx(math.sqrt(2 / 4))
    assert length.std == pytest.approx(math.sqrt((1 / 16 + 25 / 16 + 1 / 16 + 49 / 16) / 3))
    assert form.std == 0.0
    assert (correct.frac_dead_groups, length.frac_dead_groups, form.frac_dead_groups) == pytest.approx(
        (2 / 3, 0.0, 1.0)
    )
    assert (correct.frac_missing, length.frac_missing, form.frac_missing) == pytest.approx((1 / 6, 2 / 6, 4 / 6))
    # halves of one: terms of correct -+2, of length +-1 and then -+1 (times 0.7071); sums -1 1 -1 1
    assert correct.advantage_share == pytest.approx((2 + 2) / 4)
    assert length.advantage_share == pytest.approx((-1 - 1 + 1 + 1) / 4)
    assert form.advantage_share == 0.0


def test_the_metrics_have_flat_names_and_plain_floats():
    health = diagnostics(torch.tensor([[0.0, 1.0], [1.0, 1.0]]), torch.tensor([4, 4]), names=["a", "b"])
    metrics = health.as_metrics()
    assert metrics == pytest.approx(
        {
            "reward/a/mean": 0.5,
            "reward/a/std": math.sqrt(0.5),
            "reward/a/frac_dead_groups": 0.0,
            "reward/a/frac_missing": 0.0,
            "advantage/a/share": 1.0,
            "reward/b/mean": 1.0,
            "reward/b/std": 0.0,
            "reward/b/frac_dead_groups": 1.0,
            "reward/b/frac_missing": 0.0,
            "advantage/b/share": 0.0,
            "groups/alive": 1.0,
            "groups/total": 1.0,
            "advantage/amplification": 1.0,
            "advantage/frac_conflict": 0.0,
        }
    )
    assert all(type(value) is float for value in metrics.values())


def test_a_cancelled_group_is_not_alive_though_none_of_its_rewards_is_dead():
    rewards = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    health = diagnostics(rewards, torch.tensor([0, 0, 1, 1]), names=["a", "b"])
    assert (health.groups_alive, health.groups_total) == (1, 2)
    assert health.rewards["a"].frac_dead_groups == 0.0
    assert health.frac_conflict == 0.5
    assert health.amplification == pytest.approx(math.sqrt(2))


def test_a_weight_of_zero_silences_a_reward_and_does_not_kill_it():
    rewards = torch.tensor([[0.0, 1.0], [1.0, 3.0]])
    health = diagnostics(rewards, torch.tensor([0, 0]), names=["a", "b"], weights=[1.0, 0.0])
    assert health.rewards["b"].frac_dead_groups == 0.0
    assert health.rewards["b"].advantage_share == 0.0
    assert health.rewards["a"].advantage_share == pytest.approx(1.0)


def test_nothing_behind_a_value_is_nan_and_nothing_varying_is_zero():
    absent = diagnostics(torch.tensor([[1.0, NAN], [1.0, NAN]]), torch.tensor([0, 0]), names=["a", "b"])
    b = absent.rewards["b"]
    assert all(math.isnan(value) for value in (b.mean, b.std, b.frac_dead_groups))
    assert (b.frac_missing, b.advantage_share) == (1.0, 0.0)
    assert absent.rewards["a"].advantage_share == 0.0
    assert (absent.groups_alive, absent.amplification, absent.frac_conflict) == (0, 1.0, 0.0)

    empty = diagnostics(torch.zeros(0, 1), torch.zeros(0, dtype=torch.int64), names=["a"])
    assert isinstance(empty, Diagnostics)
    assert (empty.groups_total, empty.groups_alive, empty.amplification) == (0, 0, 1.0)
    assert math.isnan(empty.rewards["a"].frac_missing) and math.isnan(empty.frac_conflict)

    single = diagnostics(torch.tensor([[2.0]]), torch.tensor([0]), names=["a"]).rewards["a"]
    assert single.mean == 2.0 and math.isnan(single.std)


def test_amplification_is_the_size_of_the_live_rows():
    rewards = torch.zeros(400, 1, dtype=torch.float64)
    rewards[:16:2] = 1.0
    groups = torch.arange(100).repeat_interleave(4)
    health = diagnostics(rewards, groups, names=["a"])
    assert health.amplification == 5.0
    live = gdpo(rewards, groups, ddof=0, eps=0.0)[:16]
    assert live.square().mean().sqrt() == pytest.approx(5.0)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 4), st.sampled_from([torch.float32, torch.float64]))
def test_shares_add_to_one_and_are_covariances(seed, num_rewards, dtype):
    random = torch.Generator().manual_seed(seed)
    rewards = torch.randint(0, 3, (24, num_rewards), generator=random).to(dtype)
    rewards[torch.rand(24, num_rewards, generator=random) < 0.1] = NAN
    groups = torch.randint(-3, 3, (24,), generator=random)
    weights = (torch.rand(num_rewards, generator=random) * 2 - 0.5).tolist()
    names = [f"r{k}" for k in range(num_rewards)]
    health = diagnostics(rewards, groups, names=names, weights=weights)
    sums = gdpo(rewards.double(), groups, weights=weights, batch_norm=False)
    if not sums.any():
        assert all(reward.advantage_share == 0.0 for reward in health.rewards.values())
        return
    assert math.isclose(sum(reward.advantage_share for reward in health.rewards.values()), 1.0, rel_tol=1e-9)
    for k, reward in enumerate(health.rewards.values()):
        term = gdpo(rewards[:, k : k + 1].double(), groups, weights=[weights[k]], batch_norm=False)
        covariance = torch.cov(torch.stack([term, sums]))
        assert math.isclose(reward.advantage_share, covariance[0, 1] / covariance[1, 1], rel_tol=1e-6, abs_tol=1e-9)
