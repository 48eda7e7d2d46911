import math

import pytest
import torch
from torch.testing import assert_close

from gdpo_nemo.advantages import gdpo, grpo
from gdpo_nemo.conditioning import ConditionWarning
from gdpo_nemo.config import GdpoConfig, RewardConfig
from gdpo_nemo.errors import ConfigError, InputError, UnknownNameError
from gdpo_nemo.method import Method, reward_ranges
from gdpo_nemo.types import RewardVector

GROUPS = torch.arange(4).repeat_interleave(3)
FORMAT = (1, 0, 1, 0, 0, 1, 1, 1, 1, 0, 1, 0)
CORRECT = (3, -3, 1, 0, 2, -1, 3, 3, -2, -3, -3, 1)
REWARDS = torch.tensor([FORMAT, CORRECT], dtype=torch.float64).T


def method(**block):
    return Method(GdpoConfig(task="tool_calling", **block))


def advantages(rewards_B_K=REWARDS, valid_B=None, **block):
    return method(**block).advantages(rewards_B_K, GROUPS, valid_B)[0]


# ---- names


def test_without_a_list_all_rewards_count_with_weight_one():
    assert (method().names, method().weights) == (("format", "correct"), (1.0, 1.0))


def test_weights_and_conditions_find_their_reward_whatever_the_order_of_the_keys():
    block = {"correct": {"weight": 2.0, "condition": {"on": "format", "at_least": 0.5}}, "format": {"weight": 0.25}}
    with pytest.warns(ConditionWarning):
        chosen = method(rewards=block)
    assert (chosen.names, chosen.weights) == (("format", "correct"), (0.25, 2.0))
    (condition,) = chosen.conditions
    assert (condition.reward, condition.on, condition.at_least, condition.else_value) == ("correct", "format", 0.5, 0.0)


def test_a_reward_that_is_not_listed_does_not_count():
    chosen = method(rewards={"correct": {}})
    assert (chosen.names, chosen.weights, list(chosen.ranges)) == (("correct",), (1.0,), ["correct"])
    vectors = [RewardVector({"format": 1.0, "correct": value}) for value in (3.0, -3.0)]
    assert chosen.matrix(vectors).tolist() == [[3.0], [-3.0]]


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ({"rewards": {"corect": {}}}, "'corect'. Did you mean 'correct'? Known: format, correct."),
        ({"rewards": {"correct": {"condition": {"on": "fromat"}}, "format": {}}}, "'fromat'. Did you mean 'format'?"),
        ({"rewards": {"correct": {"condition": {"on": "format"}}}}, "'format'. Known: correct."),
        ({"task_options": {"mode": "toolr1"}}, "unknown mode 'toolr1'. Did you mean 'toolrl'?"),
    ],
)
def test_an_unknown_name_is_refused_at_once(block, words):
    with pytest.raises(UnknownNameError) as error:
        method(**block)
    assert words in str(error.value)


def test_a_held_out_metric_that_is_no_reward_is_refused_where_a_run_is_planned():
    monitor = {"metrics": ["corect"]}
    for call in (Method, reward_ranges):
        with pytest.raises(UnknownNameError, match=r"gdpo.monitor.metrics 'corect'\. Did you mean 'correct'"):
            call(GdpoConfig.model_validate({"task": "tool_calling", "monitor": monitor}))


def test_an_unknown_task_is_refused():
    with pytest.raises(UnknownNameError, match="Did you mean 'tool_calling'"):
        Method(GdpoConfig(task="tool_caling"))


def test_conditions_in_a_circle_are_refused_at_once():
    rewards = {"format": {"condition": {"on": "correct"}}, "correct": {"condition": {"on": "format"}}}
    with pytest.raises(InputError, match="circle"):
        method(rewards=rewards)


@pytest.mark.parametrize(("chosen", "key"), [("gdpo", "scale_by_std"), ("grpo", "batch_norm")])
def test_an_option_of_the_other_method_is_refused(chosen, key):
    with pytest.raises(ConfigError, match=f"gdpo.{key}=false belongs to method"):
        method(method=chosen, **{key: False})


# ---- rewards to advantages


def test_the_matrix_has_the_order_of_names_and_keeps_what_is_missing():
    vectors = [RewardVector({"correct": -3.0, "format": 1.0}), RewardVector({"correct": math.nan, "format": 0.0})]
    matrix_B_K = method().matrix(vectors)
    assert matrix_B_K.dtype == torch.float64
    assert_close(matrix_B_K, torch.tensor([[1.0, -3.0], [0.0, math.nan]], dtype=torch.float64), equal_nan=True)


@pytest.mark.parametrize("batch_norm", [True, False])
@pytest.mark.parametrize(("ddof", "eps"), [(1, 1e-6), (0, 0.5)])
def test_gdpo_is_the_function_with_the_options_of_the_block(batch_norm, ddof, eps):
    rewards = {"correct": {"weight": 2.0}, "format": {"weight": -0.5}}
    expected_B = gdpo(REWARDS, GROUPS, weights=[-0.5, 2.0], ddof=ddof, eps=eps, batch_norm=batch_norm)
    assert_close(advantages(rewards=rewards, ddof=ddof, eps=eps, batch_norm=batch_norm), expected_B, rtol=0, atol=0)


@pytest.mark.parametrize("scale_by_std", [True, False])
@pytest.mark.parametrize("ddof", [0, 1])
def test_grpo_is_the_function_with_the_options_of_the_block(scale_by_std, ddof):
    rewards = {"correct": {"weight": 2.0}, "format": {"weight": -0.5}}
    expected_B = grpo(REWARDS, GROUPS, weights=[-0.5, 2.0], ddof=ddof, scale_by_std=scale_by_std)
    made_B = advantages(method="grpo", rewards=rewards, ddof=ddof, scale_by_std=scale_by_std)
    assert_close(made_B, expected_B, rtol=0, atol=0)


def test_rescaling_divides_each_reward_by_its_range_before_its_weight():
    rewards = {"correct": {"weight": 2.0}, "format": {}}
    scaled_B = advantages(method="grpo", scale_by_std=False, rescale_by_range=True, rewards=rewards)
    divided_B_K = REWARDS / torch.tensor([1.0, 6.0])  # format in [0, 1], correct in [-3, 3]
    assert_close(scaled_B, grpo(divided_B_K, GROUPS, weights=[1.0, 2.0], scale_by_std=False))
    assert not torch.allclose(scaled_B, advantages(method="grpo", scale_by_std=False, rewards=rewards))


def test_rescaling_changes_nothing_for_gdpo():
    assert_close(advantages(rescale_by_range=True), advantages(), rtol=0, atol=0)


def test_a_condition_acts_on_raw_rewards_before_rescaling_and_weights():
    rewards = {"correct": {"weight": 3.0}, "format": {"condition": {"on": "correct", "at_least": 2.0, "else_value": 0}}}
    raised_B_K = REWARDS.clone()
    raised_B_K[REWARDS[:, 1] < 2, 0] = 0
    assert not torch.equal(raised_B_K, REWARDS)
    expected_B = grpo(raised_B_K / torch.tensor([1.0, 6.0]), GROUPS, weights=[1.0, 3.0])
    assert_close(advantages(method="grpo", rescale_by_range=True, rewards=rewards), expected_B)


def test_rows_without_a_reward_are_left_out_of_its_statistics():
    rewards_B_K = REWARDS.clone()
    rewards_B_K[2, 1] = math.nan
    valid_B = torch.ones(12, dtype=torch.bool)
    valid_B[5] = False
    assert_close(advantages(rewards_B_K, valid_B), gdpo(rewards_B_K, GROUPS, valid_B=valid_B), rtol=0, atol=0)
    assert advantages(rewards_B_K, valid_B)[5] == 0


def test_the_diagnostics_are_about_the_conditioned_rewards_and_name_them():
    rewards = {"correct": {}, "format": {"condition": {"on": "correct", "at_least": 99, "else_value": 0}}}
    _, health = method(rewards=rewards).advantages(REWARDS, GROUPS)
    metrics = health.as_metrics()
    assert metrics["reward/format/mean"] == 0 and metrics["reward/format/frac_dead_groups"] == 1
    assert metrics["reward/correct/mean"] == pytest.approx(REWARDS[:, 1].mean().item())
    assert metrics["groups/total"] == 4


def test_a_reward_that_is_scored_and_not_in_use_is_measured_all_the_same():
    method = Method(GdpoConfig(task="tool_calling", rewards={"correct": RewardConfig()}))
    vectors = [RewardVector({"format": value, "correct": 1.0}) for value in (1.0, 0.0, 0.0, math.nan)]
    assert method.names == ("correct",)
    assert method.unused_means(vectors) == {"reward/format/mean": pytest.approx(1 / 3)}
    assert Method(GdpoConfig(task="tool_calling")).unused_means(vectors) == {}
    assert math.isnan(method.unused_means(vectors[-1:])["reward/format/mean"])
