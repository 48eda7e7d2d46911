"""Rewards that break naive arithmetic: rounding noise, offsets, tiny scales, near-cancellation."""

import math
from fractions import Fraction

import pytest
import torch

from gdpo_nemo.advantages import gdpo, grpo

BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def exact(values):
    """(v - mean) / std of the stored values, without rounding before the square root."""
    values = [Fraction(v) for v in values]
    mean = sum(values) / len(values)
    variance = sum((v - mean) ** 2 for v in values) / (len(values) - 1)
    return [float((v - mean) / Fraction(math.sqrt(variance))) if variance else 0.0 for v in values]


def column(values, dtype):
    return torch.tensor(values, dtype=dtype).unsqueeze(1), torch.zeros(len(values), dtype=torch.int64)


@BOTH
@pytest.mark.parametrize("value", [0.1, 1.0, -3.7, 1e4, 1e-5])
def test_one_rounding_step_is_no_signal(dtype, value):
    base = torch.tensor(value, dtype=dtype)
    step = torch.nextafter(base, base + 1)
    rewards = torch.stack([base, step, base, step, step, base]).unsqueeze(1).repeat(1, 2)
    groups = torch.tensor([0, 0, 0, 1, 1, 1])
    for function in (gdpo, grpo):
        assert not function(rewards, groups).any()
    # and beside a group with a signal
    rewards, groups = torch.cat([rewards, rewards.new_tensor([[0, 0], [1, 1]])]), torch.tensor([0, 0, 0, 1, 1, 1, 2, 2])
    for function in (gdpo, grpo):
        advantages = function(rewards, groups)
        assert not advantages[:6].any() and advantages[6] < 0 < advantages[7]


@pytest.mark.parametrize("value", [1.0, -1.0, 250.0, 1e-30])
def test_zero_variance_is_a_range_of_a_millionth_of_the_largest_magnitude(value):
    groups = torch.tensor([0, 0, 0])
    below = torch.tensor([[value], [value * (1 - 0.9e-6)], [value]], dtype=torch.float64)
    above = torch.tensor([[value], [value * (1 - 1.1e-6)], [value]], dtype=torch.float64)
    for function in (gdpo, grpo):
        assert not function(below, groups).any()
        assert function(above, groups).all()
    assert not grpo(below, groups, scale_by_std=False).any()
    assert grpo(above, groups, scale_by_std=False).all()


def test_zero_variance_of_a_total_is_measured_by_its_terms():
    # totals 0 and 0.001 (or 0.01) out of terms of 1000
    groups = torch.tensor([0, 0])
    below = torch.tensor([[1000.0, 1000.0], [1000.001, 1000.0]], dtype=torch.float64)
    above = torch.tensor([[1000.0, 1000.0], [1000.01, 1000.0]], dtype=torch.float64)
    for scale_by_std in (True, False):
        options = {"weights": [1.0, -1.0], "scale_by_std": scale_by_std}
        assert not grpo(below, groups, **options).any()
        assert grpo(above, groups, **options).all()


@BOTH
def test_constant_totals_with_rounding_are_dead_for_grpo(dtype):
    first = torch.rand(64, dtype=dtype, generator=torch.Generator().manual_seed(0))
    rewards, groups = torch.stack([first, 1 - first], dim=1), torch.arange(64) // 8
    assert not grpo(rewards, groups).any()
    assert not grpo(rewards, groups, scale_by_std=False).any()


@pytest.mark.parametrize("values", [[1000.01, 999.99, 1000.0, 1000.005], [999.99, 1000.01], [4096.5, 4096.25, 4097.0]])
def test_float32_offsets_keep_the_digits_that_are_there(values):
    rewards, groups = column(values, torch.float32)
    expected = exact(rewards.squeeze(1).tolist())
    for advantages in (gdpo(rewards, groups, batch_norm=False), grpo(rewards, groups)):
        torch.testing.assert_close(advantages, torch.tensor(expected), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "values",
    [
        [1e5, 1e5 + 1, 1e5 + 2, 1e5 + 0.5],
        [-1e7 + 30, -1e7, -1e7 + 11, -1e7 + 12],
        [1e12, 1e12 + 2e6, 1e12 + 5e6],
        [1e-120, 3e-120, 2e-120, 7e-120],
        [1e-149, 4e-149, 2e-149],
        [1e90, -1e90, 3e89],
        [5e-324, 3.0, 1.0],
    ],
)
def test_float64_offsets_and_scales_against_exact_arithmetic(values):
    rewards, groups = column(values, torch.float64)
    expected = torch.tensor(exact(values), dtype=torch.float64)
    for advantages in (gdpo(rewards, groups, batch_norm=False), grpo(rewards, groups)):
        torch.testing.assert_close(advantages, expected, rtol=1e-12, atol=1e-12)


@BOTH
@pytest.mark.parametrize("scale", [1e-4, 1e-10, 1e-30, 1e6, 1e30])
def test_the_scale_of_a_reward_does_not_matter(dtype, scale):
    random = torch.Generator().manual_seed(1)
    rewards = torch.rand(60, 2, dtype=torch.float64, generator=random)
    groups = torch.randint(0, 8, (60,), generator=random)
    scaled = (rewards * torch.tensor([scale, 1.0], dtype=torch.float64)).to(dtype)
    torch.testing.assert_close(gdpo(scaled, groups), gdpo(rewards, groups).to(dtype), rtol=2e-6, atol=2e-6)
    alone = gdpo(scaled[:, :1], groups, batch_norm=False)
    torch.testing.assert_close(alone, grpo(rewards[:, :1], groups).to(dtype), rtol=2e-6, atol=2e-6)


def test_a_long_group_with_an_offset_adds_to_zero():
    values = torch.rand(5000, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) + 1e5
    advantages = gdpo(values, torch.zeros(5000, dtype=torch.int64), batch_norm=False)
    assert abs(advantages.sum()) < 1e-9
    assert abs(advantages.square().sum() - 4999) < 1e-8


@BOTH
def test_cancellation_leaves_no_noise_for_the_batch_step(dtype):
    # rows near a group's mean have terms as small as the rounding of 1 - r, so a rule for single rows misses them
    random = torch.Generator().manual_seed(3)
    first = torch.rand(512 * 16, dtype=dtype, generator=random)
    rewards, groups = torch.stack([first, 1 - first], dim=1), torch.arange(512).repeat_interleave(16)
    for options in ({}, {"batch_norm": False}, {"eps": 0.0}, {"weights": [3.0, 3.0]}):
        assert not gdpo(rewards, groups, **options).any()
    offset = torch.stack([first + 1000, 2000 - (first + 1000)], dim=1)
    assert not gdpo(offset, groups).any()
    # beside one group with a signal
    rewards[:16, 1] = first[:16]
    advantages = gdpo(rewards, groups)
    assert not advantages[16:].any() and advantages[:16].all()


@BOTH
def test_a_row_that_cancels_in_a_group_that_does_not_is_exactly_zero(dtype):
    rewards = torch.tensor([[0.1, 0.9], [0.9, 0.1], [0.1, 0.1], [0.9, 0.9], [0.1, 0.9], [0.9, 0.1]], dtype=dtype)
    rewards[:, 1] += 0.2
    advantages = gdpo(rewards, torch.zeros(6, dtype=torch.int64))
    assert advantages[[0, 1, 4, 5]].tolist() == [0.0] * 4
    assert advantages[2] < -1 and advantages[3] > 1


@pytest.mark.parametrize(("dtype", "kept", "dropped"), [(torch.float32, 1e-5, 5e-7), (torch.float64, 1e-9, 5e-13)])
def test_the_tolerance_of_a_cancellation_follows_the_dtype(dtype, kept, dropped):
    rewards = torch.tensor([[0, 1], [1, 0], [0, 1], [1, 0]], dtype=dtype)
    groups = torch.zeros(4, dtype=torch.int64)
    # w1 A + w2 (-A) = (w1 - w2) A out of terms of (w1 + w2) |A|
    assert gdpo(rewards, groups, weights=[1 + 2 * kept, 1.0], batch_norm=False).all()
    assert not gdpo(rewards, groups, weights=[1 + dropped, 1.0], batch_norm=False).any()


@BOTH
def test_no_signal_is_positive_zero(dtype):
    rewards, groups = torch.full((6, 2), -0.3, dtype=dtype), torch.tensor([0, 0, 1, 1, 1, 2])
    rewards[0] = torch.nextafter(rewards[0], torch.zeros((), dtype=dtype))
    rewards[3] = math.nan
    for advantages in (gdpo(rewards, groups), gdpo(rewards, groups, weights=[-1.0, -1.0]), grpo(rewards, groups)):
        assert [math.copysign(1, value) for value in advantages.tolist()] == [1.0] * 6


def test_a_range_whose_square_leaves_float64_is_no_signal():
    rewards, groups = column([0.0, 1e-160, 2e-160], torch.float64)
    for function in (gdpo, grpo):
        assert function(rewards, groups).tolist() == [0.0] * 3


def test_eps_of_zero_on_a_batch_without_variance():
    rewards, groups = torch.ones(4, 2), torch.tensor([0, 0, 1, 1])
    assert gdpo(rewards, groups, eps=0.0).tolist() == [0.0] * 4
