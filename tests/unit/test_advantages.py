"""Hand-worked advantages, and the facts about GDPO that follow from its equations."""

import itertools
import math

import pytest
import torch

from gdpo_nemo.advantages import gdpo, grpo

SQRT_HALF = math.sqrt(0.5)


def f64(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def close(actual, expected, tolerance=1e-12):
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=actual.dtype), rtol=0, atol=tolerance)


def test_figure_2_totals_of_one_and_two_differ_only_under_gdpo():
    # two groups of two rollouts: the better one meets one reward in group 0 and both in group 1
    rewards, groups = f64([0, 0], [1, 0], [0, 0], [1, 1]), torch.tensor([0, 0, 1, 1])
    close(grpo(rewards, groups), [-SQRT_HALF, SQRT_HALF, -SQRT_HALF, SQRT_HALF])
    close(grpo(rewards, groups, scale_by_std=False), [-0.5, 0.5, -1, 1])
    close(gdpo(rewards, groups, batch_norm=False), [-SQRT_HALF, SQRT_HALF, -2 * SQRT_HALF, 2 * SQRT_HALF])


def test_two_rewards_by_hand():
    # r1 of the only group: mean 0.5, squares 4 * 0.25; r2: mean 3, deviations -3 1 1 1, squares 12
    rewards, groups = f64([0, 0], [0, 4], [1, 4], [1, 4]), torch.zeros(4, dtype=torch.int64)
    a1, a2 = 0.5 / math.sqrt(1 / 3), 1 / math.sqrt(12 / 3)
    expected = torch.tensor([-a1 - 3 * a2, -a1 + a2, a1 + a2, a1 + a2], dtype=torch.float64)
    close(gdpo(rewards, groups, batch_norm=False), expected)
    close(gdpo(rewards, groups, eps=0.0), expected / math.sqrt(expected.square().sum() / 3))
    weighted = torch.tensor([-a1 - 1.5 * a2, -a1 + a2 / 2, a1 + a2 / 2, a1 + a2 / 2], dtype=torch.float64)
    close(gdpo(rewards, groups, weights=[1.0, 0.5], batch_norm=False), weighted)


def test_grpo_weighs_before_it_normalises():
    rewards, groups = f64([0, 1], [1, 0], [1, 1]), torch.zeros(3, dtype=torch.int64)
    # totals 2, 1, 3
    close(grpo(rewards, groups, weights=[1.0, 2.0]), [0, -1, 1])
    close(grpo(rewards, groups, weights=[10.0, 20.0], scale_by_std=False), [0, -10, 10])


@pytest.mark.parametrize(("ddof", "group_value"), [(1, SQRT_HALF), (0, 1.0)])
def test_ddof_holds_for_both_steps(ddof, group_value):
    rewards, groups = f64([0], [1], [0], [1]), torch.tensor([0, 0, 1, 1])
    close(grpo(rewards, groups, ddof=ddof), [-group_value, group_value] * 2)
    close(gdpo(rewards, groups, ddof=ddof, batch_norm=False), [-group_value, group_value] * 2)
    batch_value = math.sqrt((4 - ddof) / 4)
    close(gdpo(rewards, groups, ddof=ddof, eps=0.0), [-batch_value, batch_value] * 2)


def test_eps_is_added_to_the_batch_standard_deviation_only():
    rewards, groups = f64([0], [1]), torch.tensor([0, 0])
    close(gdpo(rewards, groups, eps=0.25), [-SQRT_HALF / 1.25, SQRT_HALF / 1.25])
    close(gdpo(rewards, groups), [-SQRT_HALF / (1 + 1e-6), SQRT_HALF / (1 + 1e-6)])


def test_dead_groups_and_single_rows_count_in_the_batch_and_unscorable_rows_do_not():
    nan = math.nan
    rewards = f64([0, nan], [1, nan], [3, nan], [3, nan], [5, nan], [nan, nan], [7, 7])
    groups = torch.tensor([0, 0, 1, 1, 2, 0, 0])
    valid = torch.tensor([True] * 6 + [False])
    # s = -+0.7071 and three zeros: std = sqrt(1 / (5 - 1))
    expected = [-SQRT_HALF / 0.5, SQRT_HALF / 0.5, 0, 0, 0, 0, 0]
    close(gdpo(rewards, groups, valid_B=valid, eps=0.0), expected)
    assert gdpo(rewards, groups, valid_B=valid)[2:].tolist() == [0.0] * 5
    close(grpo(rewards, groups, valid_B=valid), [-SQRT_HALF, SQRT_HALF, 0, 0, 0, 0, 0])


def test_a_missing_reward_leaves_its_own_baseline_and_no_other():
    nan = math.nan
    rewards, groups = f64([0, 2], [1, nan], [nan, 4]), torch.zeros(3, dtype=torch.int64)
    close(gdpo(rewards, groups, batch_norm=False), [-2 * SQRT_HALF, SQRT_HALF, SQRT_HALF])
    # totals 2, 1, 4 over the rewards that apply: mean 7/3
    close(grpo(rewards, groups, scale_by_std=False), [-1 / 3, -4 / 3, 5 / 3])


def test_two_rewards_with_a_constant_total_cancel_to_exactly_zero():
    # section 3.1 of the paper says that such rollouts are told apart
    rewards, groups = f64([0, 3], [1, 2], [2, 1], [3, 0]), torch.zeros(4, dtype=torch.int64)
    assert gdpo(rewards, groups).tolist() == [0.0] * 4
    assert grpo(rewards, groups).tolist() == [0.0] * 4
    assert gdpo(rewards, groups, weights=[1.0, 0.5]).abs().min() > 0.1
    three = f64([0, 0, 3], [1, 0, 2], [2, 1, 0], [0, 3, 0])
    assert grpo(three, groups).tolist() == [0.0] * 4
    assert gdpo(three, groups).abs().min() > 0.01


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("num_alive", [1, 4, 32])
def test_live_rows_are_scaled_by_the_share_of_live_groups(dtype, num_alive):
    num_groups, size = 64, 4
    rewards = torch.ones(num_groups * size, 1, dtype=dtype)
    rewards[: num_alive * size : 2] = 0
    groups = torch.arange(num_groups).repeat_interleave(size)
    num_rows = num_groups * size
    one_reward = gdpo(rewards, groups, eps=0.0) / grpo(rewards, groups)
    expected = math.sqrt((num_rows - 1) / (num_alive * (size - 1)))
    close(one_reward[: num_alive * size], [expected] * num_alive * size, 1e-5)


# K = 2 binary rewards; distinct advantage group: the unordered advantages of one group
GROUP_COUNTS = {
    2: (2, 3, 3),
    3: (4, 6, 6),
    4: (7, 10, 14),
    5: (11, 15, 26),
    6: (16, 21, 38),
    7: (22, 28, 59),
    8: (29, 36, 81),
    9: (37, 45, 109),
    10: (46, 55, 145),
    11: (56, 66, 186),
    12: (67, 78, 230),
    13: (79, 91, 288),
    14: (92, 105, 350),
    15: (106, 120, 419),
    16: (121, 136, 497),
}


def every_group(size, num_rewards):
    """Each unordered choice of ``size`` binary reward vectors, as one group."""
    vectors = list(itertools.product([0.0, 1.0], repeat=num_rewards))
    groups = list(itertools.combinations_with_replacement(vectors, size))
    rewards = torch.tensor(groups, dtype=torch.float64).reshape(-1, num_rewards)
    return rewards, torch.arange(len(groups)).repeat_interleave(size)


def count_distinct(advantages, size):
    ordered = advantages.view(-1, size).sort(dim=1).values
    return len((ordered * 1e6).round().to(torch.int64).unique(dim=0))


@pytest.mark.parametrize("size", GROUP_COUNTS)
def test_number_of_distinct_advantage_groups(size):
    rewards, groups = every_group(size, 2)
    counts = (
        count_distinct(grpo(rewards, groups), size),
        count_distinct(grpo(rewards, groups, scale_by_std=False), size),
        count_distinct(gdpo(rewards, groups, batch_norm=False), size),
    )
    assert counts == GROUP_COUNTS[size]
    assert counts[:2] == (1 + size * (size - 1) // 2, size * (size + 1) // 2)


@pytest.mark.parametrize(("num_rewards", "expected"), [(3, (14, 20, 45)), (4, (23, 35, 127)), (5, (41, 56, 318))])
def test_number_of_distinct_advantage_groups_of_four_with_more_rewards(num_rewards, expected):
    rewards, groups = every_group(4, num_rewards)
    assert count_distinct(grpo(rewards, groups), 4) == expected[0]
    assert count_distinct(grpo(rewards, groups, scale_by_std=False), 4) == expected[1]
    assert count_distinct(gdpo(rewards, groups, batch_norm=False), 4) == expected[2]


def test_unequal_weights_nearly_close_the_gap_in_distinct_groups():
    rewards, groups = every_group(16, 2)
    weights = [1.0, 0.5]
    assert count_distinct(grpo(rewards, groups, weights=weights), 16) == 786
    assert count_distinct(grpo(rewards, groups, weights=weights, scale_by_std=False), 16) == 816
    assert count_distinct(gdpo(rewards, groups, weights=weights, batch_norm=False), 16) == 921


@pytest.mark.parametrize("function", [gdpo, grpo])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_empty_and_single_row_batches(function, dtype):
    empty = function(torch.zeros(0, 2, dtype=dtype), torch.zeros(0, dtype=torch.int64))
    assert empty.shape == (0,) and empty.dtype == dtype
    single = function(torch.tensor([[0.3, math.nan]], dtype=dtype), torch.tensor([9]))
    assert single.tolist() == [0.0] and single.dtype == dtype
    nothing = function(torch.full((3, 2), math.nan, dtype=dtype), torch.tensor([1, 1, 1]))
    assert nothing.tolist() == [0.0] * 3
    masked = function(torch.rand(3, 2, dtype=dtype), torch.tensor([1, 1, 1]), valid_B=torch.zeros(3, dtype=torch.bool))
    assert masked.tolist() == [0.0] * 3


@pytest.mark.parametrize("function", [gdpo, grpo])
def test_rewards_are_constants_and_stay_as_they_are(function):
    for num_rewards in (1, 2):
        rewards = torch.rand(6, num_rewards, dtype=torch.float64, requires_grad=True)
        groups = torch.tensor([3, 3, 5, 5, 5, 3])
        before, groups_before = rewards.detach().clone(), groups.clone()
        advantages = function(rewards, groups, valid_B=torch.tensor([True] * 5 + [False]))
        assert not advantages.requires_grad
        function(rewards, groups)
        assert torch.equal(rewards.detach(), before) and torch.equal(groups, groups_before)


@pytest.mark.parametrize("function", [gdpo, grpo])
def test_labels_are_any_integers(function):
    rewards = torch.rand(8, 3, generator=torch.Generator().manual_seed(0))
    expected = function(rewards, torch.tensor([0, 1, 0, 1, 2, 2, 0, 1]))
    low, high = torch.iinfo(torch.int64).min, torch.iinfo(torch.int64).max
    for a, b, c in [(-5, -4, -6), (low, high, 0), (high, low, -1), (10**15, 7, -3)]:
        labels = torch.tensor([a, b, a, b, c, c, a, b])
        close(function(rewards, labels), expected, 1e-6)
    for dtype in (torch.int32, torch.int16, torch.int8, torch.uint8):
        close(function(rewards, torch.tensor([4, 9, 4, 9, 1, 1, 4, 9], dtype=dtype)), expected, 1e-6)


def test_strided_rewards():
    wide = torch.rand(3, 16, dtype=torch.float32, generator=torch.Generator().manual_seed(1))
    groups = torch.tensor([0, 1] * 4)
    view = wide.t()[::2]
    assert not view.is_contiguous()
    assert torch.equal(gdpo(view, groups), gdpo(view.contiguous(), groups))


def test_same_input_same_bits():
    rewards = torch.rand(4096, 3, generator=torch.Generator().manual_seed(2))
    groups = torch.randint(0, 300, (4096,), generator=torch.Generator().manual_seed(3))
    assert torch.equal(gdpo(rewards, groups), gdpo(rewards, groups))
    assert torch.equal(grpo(rewards, groups), grpo(rewards, groups))
