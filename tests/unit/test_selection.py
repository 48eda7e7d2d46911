"""The groups that dynamic sampling keeps."""

import pytest
import torch

from gdpo_nemo.advantages import gdpo, informative

NAN = float("nan")
CANCELLING = [[1.0, 0.0], [0.0, 1.0]]
CONSTANT = [[1.0, 1.0], [1.0, 1.0]]
DIFFERING = [[1.0, 1.0], [0.0, 1.0]]


def kept(groups, **options):
    """Which of these groups of two are kept."""
    rewards = torch.tensor([row for group in groups for row in group])
    rows = informative(rewards, torch.arange(len(rewards)) // 2, **options).view(-1, 2)
    assert (rows[:, 0] == rows[:, 1]).all()
    return rows[:, 0].tolist()


def test_some_reward_or_the_sum_must_differ():
    groups = [CANCELLING, CONSTANT, DIFFERING]
    assert kept(groups) == [True, False, True]
    assert kept(groups, criterion="sum") == [False, False, True]


def test_weights_decide_what_counts():
    assert kept([DIFFERING], weights=[0.0, 1.0]) == [False]
    assert kept([CANCELLING], weights=[2.0, 1.0], criterion="sum") == [True]


def test_masked_and_missing_rewards_are_no_signal():
    assert kept([DIFFERING], valid_B=torch.tensor([True, False])) == [False]
    assert kept([[[1.0, NAN], [0.0, 5.0]], [[NAN, 2.0], [NAN, 3.0]], [[NAN, 1.0], [3.0, NAN]]]) == [True, True, False]


@pytest.mark.parametrize("criterion", ["any_component", "sum"])
def test_any_labels_in_any_order(criterion):
    generator = torch.Generator().manual_seed(0)
    rewards = torch.randint(3, (60, 2), generator=generator).float()
    labels = torch.randint(-5, 5, (60,), generator=generator) * 10**9
    rows = informative(rewards, labels, criterion=criterion)
    order = torch.randperm(60, generator=generator)
    assert informative(rewards[order], labels[order], criterion=criterion).equal(rows[order])


def test_gdpo_gives_a_signal_to_every_kept_group_without_cancellation():
    rewards = torch.tensor([row for group in (CONSTANT, DIFFERING, CONSTANT, DIFFERING) for row in group])
    labels = torch.arange(8) // 2
    assert (gdpo(rewards, labels) != 0).equal(informative(rewards, labels))
