"""What the advantage functions refuse, and how weights by name become weights by position."""

import math
import re

import pytest
import torch

from gdpo_nemo.advantages import align_weights, diagnostics, gdpo, grpo
from gdpo_nemo.errors import GdpoError, InputError, UnknownNameError

GROUPS = torch.tensor([0, 0, 1, 1])


def health(rewards, groups, **options):
    num_rewards = rewards.shape[1] if isinstance(rewards, torch.Tensor) and rewards.dim() == 2 else 1
    return diagnostics(rewards, groups, names=[f"r{k}" for k in range(num_rewards)], **options)


EVERY = pytest.mark.parametrize("function", [gdpo, grpo, health])


@EVERY
@pytest.mark.parametrize(
    ("rewards", "groups", "options", "message"),
    [
        ([[1.0]], torch.tensor([0]), {}, "rewards_B_K is a list; expected a torch.Tensor"),
        (torch.ones(4, 2), [0, 0, 1, 1], {}, "group_ids_B is a list; expected a torch.Tensor"),
        (torch.ones(4, 2), GROUPS, {"valid_B": [True] * 4}, "valid_B is a list; expected a torch.Tensor"),
        (torch.ones(4), GROUPS, {}, r"rewards_B_K has shape \[4\]; expected \[B, K\].*unsqueeze"),
        (torch.ones(2, 2, 1), GROUPS, {}, r"rewards_B_K has shape \[2, 2, 1\]; expected \[B, K\]"),
        (torch.ones(4, 2).half(), GROUPS, {}, "rewards_B_K is torch.float16; expected float32 or float64"),
        (torch.ones(4, 2, dtype=torch.int64), GROUPS, {}, "rewards_B_K is torch.int64; expected float32 or float64"),
        (torch.ones(4, 0), GROUPS, {}, r"no reward columns \(K = 0\)"),
        (torch.ones(4, 2), GROUPS.double(), {}, "group_ids_B is torch.float64; expected integer labels"),
        (torch.ones(4, 2), GROUPS.bool(), {}, "group_ids_B is torch.bool; expected integer labels"),
        (torch.ones(4, 2), GROUPS[:3], {}, r"group_ids_B has shape \[3\]; expected \[4\]"),
        (torch.ones(4, 2), GROUPS.view(4, 1), {}, r"group_ids_B has shape \[4, 1\]; expected \[4\]"),
        (torch.ones(4, 2), GROUPS, {"valid_B": torch.ones(4)}, "valid_B is torch.float32; expected bool"),
        (torch.ones(4, 2), GROUPS, {"valid_B": torch.ones(2).bool()}, r"valid_B has shape \[2\]; expected \[4\]"),
        (torch.ones(4, 2), GROUPS.to("meta"), {}, "group_ids_B is on meta and rewards_B_K on cpu"),
        (torch.ones(4, 2), GROUPS, {"weights": [1.0]}, "weights has 1 entries for 2 rewards"),
        (torch.ones(4, 2), GROUPS, {"weights": [1.0, math.nan]}, r"weights\[1\] is nan; expected a finite number"),
        (torch.ones(4, 2), GROUPS, {"weights": [-math.inf, 1.0]}, r"weights\[0\] is -inf; expected a finite number"),
        (torch.ones(4, 2), GROUPS, {"weights": [1.0, "2"]}, r"weights\[1\] is '2'; expected a number"),
        (torch.ones(4, 2), GROUPS, {"weights": [1.0, True]}, r"weights\[1\] is True; expected a number"),
        (torch.ones(4, 2), GROUPS, {"weights": {"a": 1.0, "b": 1.0}}, "weights is a mapping.*align_weights"),
        (torch.ones(4, 2), GROUPS, {"weights": 1.0}, "weights is 1.0; expected a sequence of 2 numbers"),
        (torch.ones(4, 2), GROUPS, {"weights": "11"}, "weights is '11'; expected a sequence of 2 numbers"),
    ],
)
def test_wrong_inputs_are_named(function, rewards, groups, options, message):
    with pytest.raises(InputError, match=message) as caught:
        function(rewards, groups, **options)
    assert isinstance(caught.value, GdpoError) and isinstance(caught.value, ValueError)


@EVERY
@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e101])
@pytest.mark.parametrize("with_nan", [False, True])
def test_infinite_rewards_are_located(function, value, with_nan):
    rewards = torch.ones(4, 2, dtype=torch.float64)
    rewards[2, 1] = value
    if with_nan:
        rewards[0, 0] = math.nan
    with pytest.raises(InputError, match=rf"rewards_B_K\[2, 1\] is {re.escape(str(value))}.*expected a finite value"):
        function(rewards, GROUPS)
    function(rewards, GROUPS, valid_B=torch.tensor([True, True, False, True]))


@pytest.mark.parametrize("ddof", [2, -1, True, 0.5, None])
@pytest.mark.parametrize("function", [gdpo, grpo])
def test_ddof_is_zero_or_one(function, ddof):
    with pytest.raises(InputError, match=r"ddof is .*; expected 1"):
        function(torch.ones(4, 2), GROUPS, ddof=ddof)


@pytest.mark.parametrize("eps", [-1e-6, math.nan, math.inf])
def test_eps_is_a_finite_number_of_at_least_zero(eps):
    with pytest.raises(InputError, match=r"eps is .*; expected a finite number"):
        gdpo(torch.ones(4, 2), GROUPS, eps=eps)


@pytest.mark.parametrize("weights", [(2, 1), [2.0, 1.0], torch.tensor([2.0, 1.0]), torch.tensor([2, 1])])
def test_any_sequence_of_numbers_is_a_weight(weights):
    rewards = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert torch.equal(gdpo(rewards, GROUPS, weights=weights), gdpo(rewards, GROUPS, weights=[2.0, 1.0]))


def test_align_weights_follows_the_names_and_not_the_mapping():
    assert align_weights(["correct", "length"], {"length": 2, "correct": 0.5}) == (0.5, 2.0)
    assert align_weights([], {}) == ()


def test_align_weights_refuses_what_does_not_match():
    with pytest.raises(UnknownNameError, match=r"'lenght'.* Did you mean 'length'"):
        align_weights(["correct", "length"], {"correct": 1.0, "lenght": 1.0})
    with pytest.raises(
        InputError, match=r"no weight for reward 'length'; weights are given for correct. Add 'length: "
    ):
        align_weights(["correct", "length"], {"correct": 1.0})
    with pytest.raises(InputError, match="weight of reward 'correct' is nan"):
        align_weights(["correct"], {"correct": math.nan})
    with pytest.raises(InputError, match="weight of reward 'correct' is '1'; expected a number"):
        align_weights(["correct"], {"correct": "1"})
    with pytest.raises(InputError, match="'correct' comes more than once"):
        align_weights(["correct", "correct"], {"correct": 1.0})
    with pytest.raises(InputError, match="weights by name are a list; expected a mapping"):
        align_weights(["correct"], [1.0])
    with pytest.raises(InputError, match="names is 'correct'; expected a sequence"):
        align_weights("correct", {"correct": 1.0})


def test_diagnostics_need_one_distinct_name_per_column():
    with pytest.raises(InputError, match=r"names has 1 entries \(a\) for 2 rewards"):
        diagnostics(torch.ones(4, 2), GROUPS, names=["a"])
    with pytest.raises(InputError, match="'a' comes more than once"):
        diagnostics(torch.ones(4, 2), GROUPS, names=["a", "a"])
    with pytest.raises(InputError, match="names is 'ab'; expected a sequence"):
        diagnostics(torch.ones(4, 2), GROUPS, names="ab")
