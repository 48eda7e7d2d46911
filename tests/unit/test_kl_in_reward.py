import pytest
import torch
from torch.testing import assert_close

from gdpo_nemo.advantages.kl_in_reward import sequence_kl
from gdpo_nemo.config import GdpoConfig, validate
from gdpo_nemo.errors import ConfigError, InputError
from gdpo_nemo.method import Method

LOGP = torch.tensor([[-1.0, -2, -9], [-1, -1, 0], [-3, -1, -1]])
REFERENCE = torch.tensor([[-2.0, -2, 0], [-1.5, -1, 5], [-1, -1, -1]])
MASK = torch.tensor([[1, 1, 0], [1, 1, 0], [1, 1, 1]])
KL = torch.tensor([1.0, 0.5, -2.0], dtype=torch.float64)  # by hand from the three above
REWARDS = torch.tensor([[1.0, 3.0], [1.0, 3.0], [0.0, -3.0]], dtype=torch.float64)
GROUP = torch.zeros(3, dtype=torch.int64)


def method(**block):
    return Method(validate(GdpoConfig, {"task": "tool_calling", "method": "grpo", **block}))


def advantages(rewards_B_K=REWARDS, kl_B=KL, group_ids_B=GROUP, valid_B=None, **block):
    return method(**block).advantages(rewards_B_K, group_ids_B, valid_B, kl_B=kl_B)[0]


def test_the_kl_of_a_response_is_the_sum_over_its_tokens_alone():
    assert sequence_kl(LOGP, REFERENCE, MASK).tolist() == KL.tolist()
    noise = torch.where(MASK.bool(), LOGP, torch.nan)
    assert sequence_kl(noise, REFERENCE, MASK.bool()).tolist() == KL.tolist()
    learning = LOGP.clone().requires_grad_()
    assert not sequence_kl(learning, REFERENCE, MASK).requires_grad


def test_the_total_pays_it_before_the_group_step():
    """Totals 4, 4, -3 less half of 1, 0.5, -2 are 3.5, 3.75, -2: mean 1.75, std 3.25."""
    assert_close(advantages(kl_in_reward=0.5), torch.tensor([7.0, 8.0, -15.0], dtype=torch.float64) / 13)
    centred = advantages(kl_in_reward=0.5, scale_by_std=False)
    assert_close(centred, torch.tensor([1.75, 2.0, -3.75], dtype=torch.float64))


def test_in_a_group_of_equal_rewards_the_penalty_alone_decides():
    equal = REWARDS[:1].expand(3, -1)
    kl = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    assert_close(advantages(equal, kl, kl_in_reward=0.001), torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64))
    assert advantages(equal, kl).tolist() == [0.0, 0.0, 0.0]


def test_off_it_changes_no_bit():
    generator = torch.Generator().manual_seed(0)
    rewards, groups = torch.randn(64, 2, generator=generator, dtype=torch.float64), torch.arange(64) // 4
    kl = torch.randn(64, generator=generator, dtype=torch.float64)
    assert GdpoConfig(task="tool_calling").kl_in_reward == 0
    plain = method().advantages(rewards, groups)[0]
    assert torch.equal(advantages(rewards, kl, groups), plain)
    assert torch.equal(advantages(rewards, torch.zeros_like(kl), groups, kl_in_reward=0.001), plain)
    assert not torch.equal(advantages(rewards, kl, groups, kl_in_reward=0.001), plain)


@pytest.mark.parametrize("scale_by_std", [True, False])
def test_it_is_what_a_penalty_per_token_comes_to(scale_by_std):
    """The released code's way: scores on the last token, the penalty on each, added up per response."""
    generator = torch.Generator().manual_seed(1)
    num_samples, length, coef = 32, 9, 0.001
    logp, reference = (-torch.rand(num_samples, length, generator=generator) for _ in range(2))
    lengths = torch.randint(1, length + 1, (num_samples,), generator=generator)
    mask = torch.arange(length) < lengths[:, None]
    rewards = torch.randint(-3, 4, (num_samples, 2), generator=generator).double()
    groups = torch.arange(num_samples) // 4

    per_token = torch.zeros(num_samples, length, dtype=torch.float64)
    per_token[torch.arange(num_samples), lengths - 1] = rewards.sum(dim=1)
    per_token -= coef * (logp - reference).double() * mask
    totals = per_token.sum(dim=1).reshape(-1, 4)
    expected = totals - totals.mean(dim=1, keepdim=True)
    if scale_by_std:
        expected = expected / totals.std(dim=1, keepdim=True)

    kl = sequence_kl(logp, reference, mask)
    found = advantages(rewards, kl, groups, kl_in_reward=coef, scale_by_std=scale_by_std)
    assert_close(found, expected.flatten(), rtol=1e-6, atol=1e-8)


def test_weights_and_ranges_of_rewards_are_not_its_business():
    """Range 1 and 6, weight 2: 2 * 1 / 1 + 3 / 6 = 2.5, 2.5 and -0.5, less half of the KL."""
    rewards = {"format": {"weight": 2.0}, "correct": {}}
    found = advantages(kl_in_reward=0.5, rescale_by_range=True, rewards=rewards, scale_by_std=False)
    totals = torch.tensor([2.5 - 0.5, 2.5 - 0.25, -0.5 + 1.0], dtype=torch.float64)
    assert_close(found, totals - totals.mean())


def test_a_sample_without_grades_pays_nothing_and_is_in_no_statistic():
    nan = float("nan")
    rewards = torch.cat([REWARDS, torch.tensor([[nan, nan]], dtype=torch.float64)])
    kl, groups = torch.cat([KL, torch.tensor([50.0])]), torch.zeros(4, dtype=torch.int64)
    found = advantages(rewards, kl, groups, kl_in_reward=0.5)
    assert_close(found, torch.tensor([7.0, 8.0, -15.0, 0.0], dtype=torch.float64) / 13)
    masked = advantages(rewards.nan_to_num(), kl, groups, torch.tensor([True, True, True, False]), kl_in_reward=0.5)
    assert_close(masked, found)


def test_it_is_logged_beside_the_rewards():
    _, health = method(kl_in_reward=0.5).advantages(REWARDS, GROUP, kl_B=KL)
    metrics = health.as_metrics()
    assert metrics["reward/kl_in_reward/mean"] == pytest.approx(-0.5 / 3)
    assert sum(metrics[f"advantage/{name}/share"] for name in ("format", "correct", "kl_in_reward")) == pytest.approx(1)


def test_gdpo_has_none_and_a_missing_kl_is_no_zero():
    with pytest.raises(ConfigError, match=r"gdpo\.kl_in_reward=0\.001 belongs to method grpo"):
        method(method="gdpo", kl_in_reward=0.001)
    with pytest.raises(InputError, match="without their KL"):
        advantages(kl_B=None, kl_in_reward=0.001)
    with pytest.raises(ConfigError, match="greater than or equal to 0"):
        method(kl_in_reward=-0.001)


def test_a_reward_of_ones_own_is_not_called_like_the_penalty():
    rewards = {"kl_in_reward": {"fn": "operator:add", "range": [0, 1]}}
    assert method(rewards=rewards)
    with pytest.raises(ConfigError, match=r"gdpo\.rewards\.kl_in_reward has the name under which"):
        method(rewards=rewards, kl_in_reward=0.001)
