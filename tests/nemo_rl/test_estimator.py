"""The estimator in NeMo RL's hands, and beside NeMo RL's own on what it gets wrong with several rewards."""

import checkout
import pytest
import torch

checkout.require()

from batches import rollout_batch  # noqa: E402
from nemo_rl.algorithms.advantage_estimator import GDPOAdvantageEstimator  # noqa: E402

from gdpo_nemo.advantages import gdpo, grpo  # noqa: E402
from gdpo_nemo.backends.nemo_rl.estimator import MethodEstimator  # noqa: E402
from gdpo_nemo.config import ConditionConfig, GdpoConfig, RewardConfig  # noqa: E402
from gdpo_nemo.errors import InputError, PrerequisiteError  # noqa: E402
from gdpo_nemo.method import Method  # noqa: E402

NAN = float("nan")


def ours(group=4, **options):
    return MethodEstimator(Method(GdpoConfig(task="tool_calling", **options)), group)


def theirs():
    """NeMo RL's GDPO with the settings nearest to the paper."""
    settings = {"name": "gdpo", "use_leave_one_out_baseline": False, "normalize_rewards": True}
    try:
        return GDPOAdvantageEstimator(settings, None)
    except (AttributeError, TypeError):  # main takes a model
        from nemo_rl.algorithms.advantage_estimator import AdvEstimatorConfig

        return GDPOAdvantageEstimator(AdvEstimatorConfig(**settings), None)


def compute(estimator, made):
    batch, prompt_ids, mask, totals = made
    return estimator.compute_advantage(prompt_ids=prompt_ids, rewards=totals, mask=mask, repeated_batch=batch)


def random_rewards(num_samples, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.stack(
        [torch.randint(2, (num_samples,), generator=generator), torch.randn(num_samples, generator=generator)], dim=1
    )


@pytest.mark.parametrize("options", [{}, {"batch_norm": False}, {"method": "grpo"}], ids=str)
@pytest.mark.parametrize("group", [4, 8])
def test_advantages_are_those_of_the_package(options, group):
    rewards = random_rewards(32)
    advantages = compute(ours(group, **options), rollout_batch(rewards.tolist(), group=group))
    labels = torch.arange(32) // group
    function = grpo if options.get("method") == "grpo" else gdpo
    named = {key: value for key, value in options.items() if key != "method"}
    assert advantages.shape == (32, 6) and advantages.dtype == torch.float32
    torch.testing.assert_close(advantages[:, 0], function(rewards.float(), labels, **named), rtol=1e-5, atol=1e-6)
    assert (advantages == advantages[:, :1]).all()


def test_weights_and_conditions_go_by_name():
    gate = ConditionConfig(on="format", at_least=1.0, else_value=-3.0)
    config = {"correct": RewardConfig(weight=2.0, condition=gate), "format": RewardConfig(weight=0.5)}
    rewards = random_rewards(16)
    conditioned = rewards.clone()
    conditioned[rewards[:, 0] < 1, 1] = -3.0
    expected = gdpo(conditioned.float(), torch.arange(16) // 4, weights=[0.5, 2.0])
    torch.testing.assert_close(compute(ours(rewards=config), rollout_batch(rewards.tolist()))[:, 0], expected)


def test_agrees_with_nemo_rl_where_that_follows_the_paper():
    made = rollout_batch(random_rewards(64).tolist(), group=8)
    torch.testing.assert_close(compute(ours(8), made), compute(theirs(), made), rtol=1e-4, atol=1e-4)


def test_constant_rewards_teach_nothing_and_nemo_rl_makes_noise_of_their_rounding():
    rewards = [[0.1, value] for value in (0.7, 0.3, 1.1, 2.3) for _ in range(32)]
    made = rollout_batch(rewards, group=32)
    assert (compute(ours(32), made) == 0).all()
    assert compute(theirs(), made).abs().max() > 0.1


def test_one_missing_reward_leaves_the_others_alone_and_nemo_rl_loses_the_batch():
    rewards = random_rewards(16).tolist()
    rewards[0][1] = NAN
    advantages = compute(ours(), rollout_batch(rewards))
    expected = gdpo(torch.tensor(rewards), torch.arange(16) // 4)
    torch.testing.assert_close(advantages[:, 0], expected)
    assert compute(theirs(), rollout_batch(rewards)).isnan().all()


def test_an_ungraded_sample_is_counted_and_taken_out_of_the_loss():
    rewards = random_rewards(16).tolist()
    rewards[5] = [NAN, NAN]
    batch, prompt_ids, mask, totals = rollout_batch(rewards)
    sample_mask = batch["loss_multiplier"].clone()
    estimator = ours()
    advantages = estimator.compute_advantage(prompt_ids, totals, mask, batch, sample_mask=sample_mask)
    assert (advantages[5] == 0).all() and advantages.isfinite().all()
    assert estimator.last_metrics["reward/frac_ungraded"] == 1 / 16
    assert batch["loss_multiplier"].tolist() == sample_mask.tolist() == [float(i != 5) for i in range(16)]
    others = [row for i, row in enumerate(rewards) if i != 5]
    mean = sum(map(sum, others)) / 15
    assert totals.mean().item() == pytest.approx(mean, rel=1e-5)
    # the asynchronous trainer logs these over the NaN of its collector
    assert estimator.last_metrics["mean_total_reward"] == pytest.approx(mean, rel=1e-5)
    assert estimator.last_metrics["max_total_reward"] == pytest.approx(max(map(sum, others)), rel=1e-5)


def test_a_masked_rollout_is_in_no_statistic_and_in_nemo_rl_it_is():
    rewards = random_rewards(16).tolist()
    rewards[3] = [1.0, 100.0]
    made = rollout_batch(rewards)
    made[2][3] = 0
    kept = torch.arange(16) != 3
    expected = gdpo(torch.tensor(rewards)[kept], (torch.arange(16) // 4)[kept])
    torch.testing.assert_close(compute(ours(), made)[kept, 0], expected)
    assert (compute(ours(), made)[3] == 0).all()
    assert (compute(theirs(), made)[kept, 0] - expected).abs().max() > 0.1


def test_rows_with_equal_prompts_stay_two_groups_and_nemo_rl_merges_them():
    rewards = random_rewards(8).tolist()
    expected = gdpo(torch.tensor(rewards), torch.arange(8) // 4)
    made = rollout_batch(rewards, prompts=[7, 7])
    torch.testing.assert_close(compute(ours(), made)[:, 0], expected)
    assert (compute(theirs(), made)[:, 0] - expected).abs().max() > 1e-2


def test_an_offset_costs_no_digits_and_in_nemo_rl_it_does():
    rewards = [[1000.0 + 0.125 * (i % 2), float(i % 4 == 0)] for i in range(16)]
    shifted = [[value - 1000.0, other] for value, other in rewards]
    torch.testing.assert_close(compute(ours(), rollout_batch(rewards)), compute(ours(), rollout_batch(shifted)))
    difference = compute(theirs(), rollout_batch(rewards)) - compute(theirs(), rollout_batch(shifted))
    assert difference.abs().max() > 0.1


def test_opposite_rewards_cancel_in_float32():
    first = torch.rand(32, generator=torch.Generator().manual_seed(3))
    made = rollout_batch(torch.stack([first, 1 - first], dim=1).tolist(), group=8)
    assert (compute(ours(8), made) == 0).all()


def test_a_reward_of_its_own_needs_no_second():
    config = {"correct": RewardConfig()}
    rewards = [[float(i % 3)] for i in range(16)]
    made = rollout_batch(rewards, names=("correct",))
    expected = gdpo(torch.tensor(rewards), torch.arange(16) // 4)
    torch.testing.assert_close(compute(ours(rewards=config), made)[:, 0], expected)


def test_the_data_plane_trainer_hands_over_enough():
    """grpo_train_sync with the data plane passes these keys and no loss_multiplier; not run end to end here."""
    batch, prompt_ids, mask, totals = rollout_batch(random_rewards(16).tolist())
    del batch["loss_multiplier"], batch["idx"]
    batch["baseline"], batch["std"] = totals.clone(), totals.clone()
    advantages = compute(ours(), (batch, prompt_ids, mask, totals))
    assert advantages.abs().max() > 0


def test_a_batch_without_single_rewards_is_refused_with_the_reason():
    batch, prompt_ids, mask, totals = rollout_batch(random_rewards(16).tolist())
    bare = type(batch)({"total_reward": batch["total_reward"]})
    with pytest.raises(PrerequisiteError, match="single-controller trainer hands no single rewards"):
        compute(ours(), (bare, prompt_ids, mask, totals))


def test_rows_that_do_not_adjoin_are_refused():
    batch, prompt_ids, mask, totals = rollout_batch(random_rewards(16).tolist())
    mixed = prompt_ids.clone()
    mixed[[1, 6]] = mixed[[6, 1]]
    with pytest.raises(InputError, match="row 1 of the batch has another prompt"):
        compute(ours(), (batch, mixed, mask, totals))
    with pytest.raises(InputError, match="16 rollouts is not made of groups of 5"):
        compute(ours(5), (batch, prompt_ids, mask, totals))


def with_log_probs(made, **log_probs):
    """The advantages of a batch that comes with log-probabilities, in the estimator's own way to be called."""
    batch, prompt_ids, mask, totals = made
    estimator = ours(method="grpo", kl_in_reward=0.001)
    return estimator, estimator.compute_advantage(prompt_ids, totals, mask, batch, **log_probs)


def test_a_penalty_in_the_reward_is_that_of_the_package():
    generator = torch.Generator().manual_seed(0)
    rewards = random_rewards(16)
    made = rollout_batch(rewards.tolist())
    made[2][:, :2] = 0  # the prompt
    made[2][5] = 0  # a masked rollout
    logp, reference = (-torch.rand(16, 6, generator=generator) for _ in range(2))
    estimator, found = with_log_probs(made, logprobs_policy=logp, logprobs_reference=reference)
    method, valid_B = Method(GdpoConfig(task="tool_calling", method="grpo", kl_in_reward=0.001)), torch.arange(16) != 5
    kl = (logp - reference)[:, 2:].double().sum(dim=1)
    expected, _ = method.advantages(rewards.double(), torch.arange(16) // 4, valid_B, kl_B=kl)
    torch.testing.assert_close(found[:, 0].double(), expected, rtol=1e-4, atol=1e-5)
    mean = estimator.last_metrics["reward/kl_in_reward/mean"]
    assert mean == pytest.approx(kl[valid_B].mean().item(), rel=1e-5)
    assert (found - compute(ours(method="grpo"), made)).abs().max() > 1e-4


@pytest.mark.parametrize("missing", ["logprobs_policy", "logprobs_reference"])
@pytest.mark.parametrize("placeholder", [None, torch.zeros(16, 6)], ids=["none", "zeros"])
def test_a_penalty_without_log_probs_is_refused(missing, placeholder):
    both = {"logprobs_policy": -torch.ones(16, 6), "logprobs_reference": -torch.ones(16, 6)}
    with pytest.raises(PrerequisiteError, match=r"did not compute .* the (policy|reference); it needs loss_fn"):
        with_log_probs(rollout_batch(random_rewards(16).tolist()), **(both | {missing: placeholder}))
