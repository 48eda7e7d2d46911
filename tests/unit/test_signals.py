"""What a configuration may add to the method: each option changes what it says, and nothing when it is off."""

import math
import re
from dataclasses import fields
from pathlib import Path

import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from reward_batches import EIGHTHS, assert_same, batches
from torch.testing import assert_close

from gdpo_nemo.advantages import diagnostics, gdpo
from gdpo_nemo.conditioning import ConditionWarning
from gdpo_nemo.config import GdpoConfig, RewardConfig, validate
from gdpo_nemo.errors import ConfigError, InputError, UnknownNameError
from gdpo_nemo.method import Method
from gdpo_nemo.signals.quantile import Quantile

few = settings(max_examples=40, deadline=None)
TWO = {"dtypes": [torch.float64], "min_rewards": 2}
GROUPS = torch.arange(4).repeat_interleave(3)
FORMAT = (1, 0, 1, 0, 0, 1, 1, 1, 1, 0, 1, 0)
CORRECT = (3, -3, 1, 0, 2, -1, 3, 3, -2, -3, -3, 1)
REWARDS = torch.tensor([FORMAT, CORRECT], dtype=torch.float64).T


def method(**block):
    return Method(validate(GdpoConfig, {"task": "tool_calling", **block}))


def advantages(rewards_B_K=REWARDS, groups_B=GROUPS, valid_B=None, step=None, **block):
    return method(**block).advantages(rewards_B_K, groups_B, valid_B, step=step)[0]


def metrics(rewards_B_K=REWARDS, groups_B=GROUPS, step=None, **block):
    return method(**block).advantages(rewards_B_K, groups_B, step=step)[1].as_metrics()


def of_correct(**spec):
    return {"format": {}, "correct": spec}


# ---- schedules


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ({"schedule": "constant", "value": 0.5}, {1: 0.5, 99: 0.5}),
        (
            {"schedule": "linear", "start": 0.0, "end": 2.0, "first_step": 3, "last_step": 7},
            {1: 0, 3: 0, 4: 0.5, 6: 1.5, 7: 2, 50: 2},
        ),
        ({"schedule": "linear", "start": 1.0, "end": -1.0, "last_step": 2}, {1: 1, 2: -1, 3: -1}),
        ({"schedule": "step", "values": [1, 0.5, 0], "steps": [4, 9]}, {1: 1, 3: 1, 4: 0.5, 8: 0.5, 9: 0, 100: 0}),
        ({"schedule": "curriculum", "start_step": 5}, {1: 0, 4: 0, 5: 1, 6: 1}),
        ({"schedule": "curriculum", "start_step": 5, "value": 3, "ramp_steps": 3}, {4: 0, 5: 1, 6: 2, 7: 3, 90: 3}),
    ],
)
def test_a_scheduled_weight_is_the_fixed_weight_of_its_step(schedule, expected):
    scheduled = method(rewards=of_correct(weight=schedule))
    for step, weight in expected.items():
        fixed = advantages(rewards=of_correct(weight=weight))
        made, health = scheduled.advantages(REWARDS, GROUPS, step=step)
        assert_close(made, fixed, rtol=1e-12, atol=1e-12)
        assert health.as_metrics()["reward/correct/weight"] == pytest.approx(weight)
        assert "reward/format/weight" not in health.as_metrics()


def test_a_schedule_needs_the_step_and_a_number_does_not():
    with pytest.raises(InputError, match=r"follows a schedule \(0 before step 5, then 1\), and the step is not given"):
        advantages(rewards=of_correct(weight={"schedule": "curriculum", "start_step": 5}))
    assert_close(advantages(step=7), advantages(), rtol=0, atol=0)


def test_dynamic_sampling_goes_by_the_weights_in_force():
    only_correct_differs = torch.tensor([[1.0, 0.0], [1.0, 3.0]], dtype=torch.float64)
    late = method(rewards=of_correct(weight={"schedule": "curriculum", "start_step": 5}))
    kept = [bool(late.informative(only_correct_differs, torch.zeros(2).long(), step=step).any()) for step in (4, 5)]
    assert kept == [False, True]


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        ({"schedule": "cosine"}, "weight: no such schedule; known: constant, linear, step, curriculum"),
        ({"value": 1.0}, "weight: no such schedule"),
        ({"schedule": "linear", "start": 0, "end": 1}, "weight.last_step: Field required|weight.last_step: Missing"),
        ({"schedule": "linear", "start": 0, "end": 1, "last_step": 1}, "from step 1 to step 1; expected a first_step"),
        ({"schedule": "linear", "start": 0, "end": math.inf, "last_step": 9}, "end of a schedule is inf"),
        ({"schedule": "step", "values": [1, 2], "steps": [3, 4]}, "2 values and 2 steps"),
        ({"schedule": "step", "values": [1, 2, 3], "steps": [4, 4]}, r"\[4, 4\]; expected rising numbers"),
        ({"schedule": "step", "values": [1, 2], "steps": [1]}, "above 1"),
        ({"schedule": "curriculum", "start_step": 0}, "expected at least 1"),
        ({"schedule": "curriculum", "start_step": 5, "ramp_step": 2}, "Did you mean .*weight.ramp_steps'"),
        ({"schedule": "constant", "value": True}, "not a truth value"),
        ("much", "weight: .*valid number"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(weight, words):
    with pytest.raises(ConfigError, match=words):
        method(rewards=of_correct(weight=weight))


# ---- the batch step: none (MO-GRPO), and a bound


@few
@given(batches(**TWO))
def test_without_the_batch_step_it_is_the_formula_of_mo_grpo(batch):
    """arXiv 2509.22047: the sum over the objectives of (R - mean R) / std R in the group."""
    rewards, groups, _ = batch
    rewards = rewards.nan_to_num(nan=0.5)
    expected = torch.zeros(len(rewards), dtype=torch.float64)
    for label in groups.unique():
        rows = groups == label
        group = rewards[rows]
        for k in range(rewards.shape[1]):
            if group[:, k].max() - group[:, k].min() > 1e-6 * group[:, k].abs().max():
                expected[rows] += (group[:, k] - group[:, k].mean()) / group[:, k].std()
    assert_close(gdpo(rewards, groups, batch_norm=False), expected, rtol=1e-9, atol=1e-9)


def one_group_alive_of_nine():
    rewards_B_K = torch.ones(36, 2, dtype=torch.float64)
    rewards_B_K[0, 0] = 0
    return rewards_B_K, torch.arange(9).repeat_interleave(4)


def test_a_cap_bounds_the_amplification_and_nothing_else():
    batch = one_group_alive_of_nine()
    plain = advantages(*batch)
    for cap, factor in ((1.0, 1 / 3), (2.0, 2 / 3), (3.0, 1.0), (50.0, 1.0)):
        assert_close(advantages(*batch, amplification_cap=cap), plain * factor, rtol=1e-12, atol=0)
        assert metrics(*batch, amplification_cap=cap)["advantage/cap_factor"] == pytest.approx(factor)
    alive = advantages(*batch, amplification_cap=1.0, eps=0.0)[:4]
    assert alive.square().mean() == pytest.approx(35 / 36)  # as if the dead groups were not there; n - 1 of the batch


@few
@given(batches(**TWO), st.floats(1, 4))
def test_a_cap_keeps_signs_and_zeros_and_lowers_the_size(batch, cap):
    rewards, groups, options = batch
    valid_B = options["valid_B"]
    chosen = method(amplification_cap=cap)
    made, health = chosen.advantages(rewards[:, :2], groups, valid_B)
    plain = advantages(rewards[:, :2], groups, valid_B)
    assert made.sign().equal(plain.sign()) and (made.abs() <= plain.abs()).all()
    assert health.amplification <= cap or not made.any() or (made.abs() < plain.abs()).any()


# ---- clip


@few
@given(batches(**TWO), st.floats(0.1, 2))
def test_a_clip_bounds_every_advantage_and_leaves_those_within(batch, bound):
    rewards, groups, options = batch
    plain = advantages(rewards[:, :2], groups, options["valid_B"])
    made = advantages(rewards[:, :2], groups, options["valid_B"], clip_advantage=bound)
    inside = plain.abs() <= bound
    assert made[inside].equal(plain[inside])
    assert made[~inside].equal(bound * plain[~inside].sign())


def test_the_log_says_how_many_advantages_were_cut():
    plain = advantages()
    assert metrics(clip_advantage=1.0)["advantage/num_clipped"] == (plain.abs() > 1).sum() > 0
    assert metrics(clip_advantage=9.0)["advantage/num_clipped"] == 0
    assert (advantages(method="grpo", clip_advantage=0.5).abs() <= 0.5).all()


# ---- veto


@few
@given(batches(**TWO), EIGHTHS)
def test_what_is_under_the_threshold_is_never_pushed_up_and_the_rest_is_not_touched(batch, below):
    rewards, groups, options = batch
    veto = {"reward": "correct", "below": below}
    for name in ("gdpo", "grpo"):
        plain = advantages(rewards[:, :2], groups, options["valid_B"], method=name)
        made = advantages(rewards[:, :2], groups, options["valid_B"], method=name, veto=veto)
        under = rewards[:, 1] < below
        assert (made[under] <= 0).all()
        assert made.equal(torch.where(under & (plain > 0), 0.0, plain))


def test_a_veto_reads_the_raw_reward_at_any_weight_and_holds_after_every_bound():
    rewards = {"format": {"weight": 0.0}, "correct": {}}
    veto = {"reward": "format", "below": 0.5}
    plain = advantages(rewards=rewards)
    vetoed = REWARDS[:, 0] < 0.5
    assert (plain[vetoed] > 0).any()
    made = method(rewards=rewards, veto=veto, clip_advantage=0.25, amplification_cap=1.0).advantages(REWARDS, GROUPS)
    assert (made[0][vetoed] <= 0).all() and (made[0][~vetoed] > 0).any()
    assert made[1].as_metrics()["advantage/num_vetoed"] == (vetoed & (plain > 0)).sum()
    # a condition has already set the reward to a passing value
    gated = {"format": {"condition": {"on": "correct", "at_least": 9, "else_value": 1.0}}, "correct": {}}
    with pytest.warns(ConditionWarning):
        assert (advantages(rewards=gated, veto=veto)[vetoed] <= 0).all()


def test_a_missing_reward_vetoes_nothing():
    rewards_B_K = REWARDS.clone()
    rewards_B_K[:, 0] = math.nan
    veto = {"reward": "format", "below": 0.5}
    assert_close(advantages(rewards_B_K, veto=veto), advantages(rewards_B_K), rtol=0, atol=0)


# ---- families


def loop_family(rewards, weights, groups):
    """One family of all rewards: eq. 1 inside, then one normalised column."""
    total = (rewards * torch.tensor(weights, dtype=rewards.dtype)).nansum(1)
    return total.masked_fill(rewards.isnan().all(1), math.nan)[:, None]


def test_a_family_counts_once():
    rewards_B_3 = torch.cat([REWARDS, torch.tensor(FORMAT)[:, None].double()], dim=1)  # format, correct, format again
    block = {"rewards": {name: own(range=[-3, 3]) for name in "abc"}, "task": None}
    made = advantages(rewards_B_3, **block, families={"style": ["a", "c"]})
    assert_close(made, gdpo(REWARDS[:, [1, 0]], GROUPS))
    assert not torch.allclose(made, advantages(rewards_B_3, **block))


def own(**spec):
    return {"fn": "operator:add", "range": [0, 1], **spec}


def test_weights_of_members_count_inside_and_the_weight_of_the_family_outside():
    block = {"task": None, "rewards": {"a": own(weight=2.0), "b": own(weight=-0.5), "c": own(weight=3.0)}}
    rewards_B_3 = torch.rand(12, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    families = {"pair": {"rewards": ["b", "a"], "weight": 0.25}}
    total = 2 * rewards_B_3[:, 0] - 0.5 * rewards_B_3[:, 1]
    expected = gdpo(torch.stack([rewards_B_3[:, 2], total], dim=1), GROUPS, weights=[3.0, 0.25])
    made, health = method(**block, families=families).advantages(rewards_B_3, GROUPS)
    assert_close(made, expected)
    assert list(health.rewards) == ["a", "b", "c", "pair"]
    assert health.rewards["a"].mean == pytest.approx(rewards_B_3[:, 0].mean().item())
    assert math.isnan(health.rewards["a"].advantage_share)
    shares = [health.rewards[name].advantage_share for name in ("c", "pair")]
    assert sum(shares) == pytest.approx(1)


@few
@given(batches(**TWO))
def test_one_family_of_all_is_grpo_before_the_batch_step(batch):
    rewards, groups, options = batch
    block = {"task": None, "rewards": dict(zip("abc", map(lambda w: own(weight=w), options["weights"]), strict=False))}
    names = list(block["rewards"])
    valid_B = options["valid_B"]
    made = advantages(rewards, groups, valid_B, **block, batch_norm=False, families={"all": names})
    assert_same(made, advantages(rewards, groups, valid_B, **block, method="grpo"))


@few
@given(batches(**TWO))
def test_a_family_of_one_is_that_reward(batch):
    rewards, groups, options = batch
    rewards, valid_B = rewards[:, :2], options["valid_B"]
    block = {"rewards": {"format": {"weight": 2.0}, "correct": {"weight": 0.5}}}
    families = {"alone": {"rewards": ["correct"], "weight": 0.5}}
    assert_same(
        advantages(rewards, groups, valid_B, **block, families=families), advantages(rewards, groups, valid_B, **block)
    )


def test_members_that_cancel_leave_no_noise():
    first = torch.rand(64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    groups = torch.arange(64) // 8
    block = {"task": None, "rewards": {"a": own(), "b": own(), "c": own(weight=-1)}}
    rewards_B_3 = torch.stack([first, 1 - first, torch.zeros(64)], dim=1)
    assert not advantages(rewards_B_3, groups, **block, families={"f": ["a", "b"], "g": ["c"]}).any()
    opposite = torch.stack([first + 1000, torch.zeros(64), first + 1000 + 1e-9], dim=1)
    assert not advantages(opposite, groups, **block, families={"f": ["a", "c"]}).any()


def test_members_are_rescaled_by_their_ranges_where_that_is_asked_for():
    block = {"task": None, "rewards": {"a": own(range=[0, 10]), "b": own(), "c": own(range=[0, 7])}}
    rewards_B_3 = torch.rand(12, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    total = rewards_B_3[:, 0] / 10 + rewards_B_3[:, 1]
    expected = gdpo(torch.stack([rewards_B_3[:, 2], total], dim=1), GROUPS)
    assert_close(advantages(rewards_B_3, **block, families={"f": ["a", "b"]}, rescale_by_range=True), expected)


def test_the_weight_of_a_family_follows_a_schedule_and_is_logged():
    families = {"f": {"rewards": ["correct"], "weight": {"schedule": "curriculum", "start_step": 3}}}
    for step, weight in ((2, 0.0), (3, 1.0)):
        assert_close(advantages(families=families, step=step), advantages(rewards=of_correct(weight=weight)))
        assert metrics(families=families, step=step)["reward/f/weight"] == weight


@pytest.mark.parametrize(
    ("families", "error", "words"),
    [
        ({"f": []}, InputError, r"gdpo\.families\.f has no rewards"),
        ({"f": ["correkt"]}, UnknownNameError, r"in gdpo\.families\.f 'correkt'\. Did you mean 'correct'"),
        ({"correct": ["format"]}, ConfigError, r"gdpo\.families\.correct is called like a reward"),
        ({"f": ["format"], "g": ["format"]}, InputError, r"in gdpo\.families\.f and again in gdpo\.families\.g"),
        ({"f": ["format", "format"]}, InputError, "once is all"),
    ],
)
def test_families_that_cannot_be_formed_are_refused(families, error, words):
    with pytest.raises(error, match=words):
        method(families=families)


def test_a_family_is_not_called_like_a_reward_that_is_only_logged():
    with pytest.raises(ConfigError, match=r"gdpo\.families\.correct is called like a reward"):
        method(rewards={"format": {}}, families={"correct": ["format"]})


# ---- together


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ({"amplification_cap": 2, "method": "grpo"}, "amplification_cap bounds GDPO's batch step"),
        ({"amplification_cap": 2, "batch_norm": False}, "amplification_cap bounds GDPO's batch step"),
        ({"families": {"f": ["format"]}, "method": "grpo"}, "families belong to method gdpo"),
        ({"quantile": {"window": 9}}, "no reward has normalise: quantile"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(block, words):
    with pytest.raises(ConfigError, match=words):
        method(**block)


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ({"amplification_cap": 0.5}, "amplification_cap: .*greater than or equal to 1"),
        ({"clip_advantage": 0}, "clip_advantage: .*greater than 0"),
        ({"clip_advantage": math.inf}, "clip_advantage: .*finite"),
        ({"veto": {"reward": "format", "below": math.nan}}, "below of the veto by 'format' is nan"),
        ({"veto": {"reward": "format", "bellow": 1}}, "Did you mean 'gdpo.veto.below'"),
        ({"quantile": {"window": 0}}, "window 0"),
        ({"rewards": of_correct(normalise="quantiles")}, "normalise: .*'quantile'"),
    ],
)
def test_a_wrong_value_names_its_key(block, words):
    with pytest.raises(ConfigError, match=words):
        method(**block)


def test_a_veto_by_a_reward_that_is_not_in_use_is_refused():
    with pytest.raises(UnknownNameError, match=r"unknown reward in gdpo\.veto\.reward 'format'\. Known: correct"):
        method(rewards={"correct": {}}, veto={"reward": "format", "below": 1})


@few
@given(batches(dtypes=[torch.float64, torch.float32], min_rewards=2))
def test_without_signals_it_is_the_method_bit_for_bit(batch):
    rewards, groups, options = batch
    rewards, valid_B = rewards[:, :2], options["valid_B"]
    weights = options["weights"][:2]
    block = {"rewards": {"format": {"weight": weights[0]}, "correct": {"weight": weights[1]}}}
    made, health = method(**block).advantages(rewards, groups, valid_B, step=4)
    assert made.equal(gdpo(rewards, groups, weights=weights, valid_B=valid_B))
    expected = diagnostics(rewards, groups, names=["format", "correct"], weights=weights, valid_B=valid_B).as_metrics()
    assert str(health.as_metrics()) == str(expected)


def test_the_page_lists_every_option_with_its_default():
    page = (Path(__file__).resolve().parents[2] / "docs" / "signals.md").read_text("utf-8")
    listed = dict(re.findall(r"^\| `(\S+)` \| `(\S+)` \|", page, re.M))
    of_block, of_reward = GdpoConfig(), RewardConfig()
    expected = {
        **{f"rewards.<name>.{key}": getattr(of_reward, key) for key in ("weight", "normalise")},
        **{f"quantile.{field.name}": getattr(of_block.quantile, field.name) for field in fields(Quantile)},
        **{
            key: getattr(of_block, key)
            for key in ("families", "batch_norm", "amplification_cap", "clip_advantage", "veto")
        },
    }
    assert {key: yaml.safe_load(default) for key, default in listed.items()} == expected
    yaml_blocks = re.findall(r"```yaml\n(gdpo:.*?)```", page, re.S)
    assert yaml_blocks and all(Method(validate(GdpoConfig, yaml.safe_load(one)["gdpo"])) for one in yaml_blocks)
