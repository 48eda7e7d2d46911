"""Properties of the advantages on generated batches, and agreement with the formulas written as a loop."""

import math
import runpy
from pathlib import Path

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reward_batches import EIGHTHS, LABELS, assert_same, batches

from gdpo_nemo.advantages import gdpo, grpo

BENCH = runpy.run_path(str(Path(__file__).parents[1] / "bench" / "bench_advantages.py"))
loop_gdpo, loop_grpo = BENCH["loop_gdpo"], BENCH["loop_grpo"]

few = settings(max_examples=40, deadline=None)
many = settings(max_examples=100, deadline=None)


def scorable(rewards, valid_B):
    return valid_B & ~rewards.isnan().all(1)


@many
@given(batches(), st.sampled_from([0, 1]), st.booleans(), st.sampled_from([1e-6, 0.1]))
def test_gdpo_is_the_loop(batch, ddof, batch_norm, eps):
    rewards, groups, options = batch
    options = {**options, "ddof": ddof, "batch_norm": batch_norm, "eps": eps}
    assert_same(gdpo(rewards, groups, **options), loop_gdpo(rewards, groups, **options))


@many
@given(batches(), st.sampled_from([0, 1]), st.booleans())
def test_grpo_is_the_loop(batch, ddof, scale_by_std):
    rewards, groups, options = batch
    options = {**options, "ddof": ddof, "scale_by_std": scale_by_std}
    assert_same(grpo(rewards, groups, **options), loop_grpo(rewards, groups, **options))


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([torch.float32, torch.float64]), st.booleans())
def test_larger_batches_are_the_loop(seed, dtype, complete):
    random = torch.Generator().manual_seed(seed)
    num_rows, num_rewards = 200, 4
    scale, offset = torch.tensor([1.0, 1e-4, 50.0, 1e3]), torch.tensor([0.0, 0.0, -20.0, 5e3])
    rewards = (torch.rand(num_rows, num_rewards, generator=random) * scale + offset).to(dtype)
    if not complete:
        rewards[torch.rand(num_rows, num_rewards, generator=random) < 0.2] = math.nan
    groups = torch.randint(-20, 20, (num_rows,), generator=random)
    weights = [1.0, 0.3, 2.0, -0.7]
    assert_same(gdpo(rewards, groups, weights=weights), loop_gdpo(rewards, groups, weights=weights))
    assert_same(grpo(rewards, groups, weights=weights), loop_grpo(rewards, groups, weights=weights))


@few
@given(batches())
def test_every_group_adds_to_zero_and_unscorable_rows_are_exactly_zero(batch):
    rewards, groups, options = batch
    tolerance = 1e-10 if rewards.dtype == torch.float64 else 1e-4
    for batch_norm in (False, True):
        advantages = gdpo(rewards, groups, batch_norm=batch_norm, **options)
        for label in groups.unique():
            assert abs(advantages[groups == label].double().sum()) < tolerance
        assert not advantages[~scorable(rewards, options["valid_B"])].any()


@few
@given(batches(dtypes=[torch.float64]), st.sampled_from([0, 1]))
def test_squares_add_to_the_number_of_scorable_rows_less_ddof(batch, ddof):
    rewards, groups, options = batch
    advantages = gdpo(rewards, groups, ddof=ddof, eps=0.0, **options)
    if advantages.any():
        num_rows = int(scorable(rewards, options["valid_B"]).sum())
        assert math.isclose(advantages.square().sum(), num_rows - ddof, rel_tol=1e-9)
        with_eps = gdpo(rewards, groups, ddof=ddof, **options)
        assert math.isclose(with_eps.square().sum(), num_rows - ddof, rel_tol=1e-4)


@few
@given(batches(dtypes=[torch.float64], reward=st.one_of(st.just(math.nan), EIGHTHS)), st.data())
def test_positive_affine_maps_of_one_reward_in_one_group_change_nothing(batch, data):
    rewards, groups, options = batch
    column = data.draw(st.integers(0, rewards.shape[1] - 1))
    rows = groups == data.draw(st.sampled_from(groups.tolist()))
    slope, offset = data.draw(st.floats(1e-3, 1e3)), data.draw(st.floats(-10, 10))
    mapped = rewards.clone()
    mapped[rows, column] = slope * mapped[rows, column] + offset
    for batch_norm in (False, True):
        assert_same(
            gdpo(mapped, groups, batch_norm=batch_norm, **options),
            gdpo(rewards, groups, batch_norm=batch_norm, **options),
        )


@few
@given(batches(dtypes=[torch.float64]), st.floats(0.05, 20))
def test_a_common_weight_factor_changes_nothing_after_the_normalisation(batch, factor):
    rewards, groups, options = batch
    scaled = {**options, "weights": [factor * weight for weight in options["weights"]]}
    assert_same(gdpo(rewards, groups, eps=0.0, **scaled), gdpo(rewards, groups, eps=0.0, **options))
    assert_same(grpo(rewards, groups, **scaled), grpo(rewards, groups, **options))


@few
@given(batches(dtypes=[torch.float64]), st.randoms(use_true_random=False))
def test_order_of_rows_rewards_and_labels_does_not_matter(batch, random):
    rewards, groups, options = batch
    rows = random.sample(range(len(rewards)), len(rewards))
    columns = random.sample(range(rewards.shape[1]), rewards.shape[1])
    labels = dict(zip(LABELS, random.sample(range(-100, 100), len(LABELS)), strict=True))
    renamed = torch.tensor([labels[label] for label in groups.tolist()])
    moved = {"weights": [options["weights"][k] for k in columns], "valid_B": options["valid_B"][rows]}
    for function in (gdpo, grpo):
        expected = function(rewards, groups, **options)
        assert_same(function(rewards[rows][:, columns], renamed[rows], **moved), expected[rows])


@few
@given(batches())
def test_masking_a_row_is_removing_it(batch):
    rewards, groups, options = batch
    valid, weights = options["valid_B"], options["weights"]
    garbage = rewards.clone()
    garbage[~valid] = torch.tensor([math.inf, math.nan, -1e30])[: rewards.shape[1]].to(rewards.dtype)
    for function in (gdpo, grpo):
        masked = function(garbage, groups, weights=weights, valid_B=valid)
        assert_same(masked[valid], function(rewards[valid], groups[valid], weights=weights))
        assert not masked[~valid].any()


@few
@given(batches(dtypes=[torch.float64], min_rewards=2))
def test_one_reward_is_grpo_up_to_the_scale_of_the_batch(batch):
    rewards, groups, options = batch
    rewards, valid = rewards[:, :1], options["valid_B"]
    by_grpo = grpo(rewards, groups, valid_B=valid)
    assert_same(gdpo(rewards, groups, valid_B=valid, batch_norm=False), by_grpo)
    num_rows = int(scorable(rewards, valid).sum())
    std = math.sqrt(by_grpo.square().sum() / max(num_rows - 1, 1)) or 1.0
    assert_same(gdpo(rewards, groups, valid_B=valid, eps=0.0), by_grpo / std)


@few
@given(batches(dtypes=[torch.float64]))
def test_a_weight_of_zero_and_a_repeated_reward(batch):
    rewards, groups, options = batch
    valid = options["valid_B"]
    single = rewards[:, :1]
    with_silent = torch.cat([single, single.square()], dim=1)
    expected = gdpo(single, groups, valid_B=valid, eps=0.0)
    assert_same(gdpo(with_silent, groups, weights=[1.0, 0.0], valid_B=valid, eps=0.0), expected)
    assert_same(gdpo(torch.cat([single, single], dim=1), groups, valid_B=valid, eps=0.0), expected)


@few
@given(
    st.lists(st.floats(0, 1, width=32), min_size=2, max_size=12),
    st.integers(1, 4),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_a_constant_total_of_two_rewards_is_exactly_zero(values, num_groups, dtype):
    first = torch.tensor(values, dtype=dtype)
    if first.max() - first.min() < 0.05:
        first[0] = 1.0 - first[1].round()
    rewards = torch.stack([first, 1 - first], dim=1)
    groups = torch.arange(len(values)) % num_groups
    narrow = any(0 < first[groups == g].max() - first[groups == g].min() < 0.05 for g in groups.unique())
    if not narrow:
        assert not gdpo(rewards, groups).any()
