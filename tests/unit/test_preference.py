"""Rankings, pairs and the DPO loss: worked by hand, by their properties, and against a slow second writing."""

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from gdpo_nemo.errors import InputError
from gdpo_nemo.preference import borda, dpo, quantile_scores, response_logp, select

NAN = math.nan
some = settings(max_examples=40, deadline=None)


def rows(*values):
    return torch.tensor(values, dtype=torch.float64)


def ones(n):
    return torch.zeros(n, dtype=torch.int64)


# ---- rankings


def test_borda_by_hand():
    """First reward: ranks 0, 1.5, 1.5, 3, the tie by average rank. Second: 3, 2, 1, 0, with twice the weight."""
    points = borda(rows([0, 9], [1, 5], [1, 2], [7, 1]), ones(4), weights=[1, 2])
    by_hand = [(0 + 2 * 3) / 9 - 0.5, (1.5 + 2 * 2) / 9 - 0.5, (1.5 + 2 * 1) / 9 - 0.5, (3 + 0) / 9 - 0.5]
    assert points.tolist() == pytest.approx(by_hand)


def test_quantiles_by_hand():
    """Among all five, 0 0 1 2 5: both zeros lie in the middle of the first two places, 1/8; then 2/4, 3/4 and 1."""
    scores = quantile_scores(rows([0], [5], [1], [0], [2]))
    assert scores.tolist() == pytest.approx([1 / 8 - 0.5, 0.5, 0.0, 1 / 8 - 0.5, 0.25])


def test_borda_looks_at_the_group_and_quantiles_at_the_batch():
    groups = torch.tensor([0, 0, 1, 1])
    rewards = rows([0], [0.1], [0.1], [10])
    assert borda(rewards, groups).tolist() == [-0.5, 0.5, -0.5, 0.5]
    assert quantile_scores(rewards).tolist() == pytest.approx([-0.5, 0, 0, 0.5])


def test_a_reward_that_does_not_apply_is_neither_for_nor_against_a_response():
    """The second reward ranks rows 0 and 2 only, each against the other."""
    rewards = rows([1, 0], [2, NAN], [3, 4], [NAN, NAN])
    expected = [(-0.5 - 0.5) / 2, (0 + 0) / 2, (0.5 + 0.5) / 2, NAN]
    assert_close(borda(rewards, ones(4)), rows(*expected), equal_nan=True)
    assert_close(quantile_scores(rewards), rows(*expected), equal_nan=True)


def test_a_response_alone_with_a_reward_is_not_ranked_by_it():
    assert borda(rows([NAN, 3], [NAN, NAN], [5, NAN]), ones(3)).nan_to_num(nan=9).tolist() == [0, 9, 0]


def test_rows_that_are_not_valid_are_ungraded_and_outrank_nobody():
    valid = torch.tensor([True, False, True])
    for scores in (
        borda(rows([1], [99], [2]), ones(3), valid_B=valid),
        quantile_scores(rows([1], [99], [2]), valid_B=valid),
    ):
        assert_close(scores, rows(-0.5, NAN, 0.5), equal_nan=True)


def test_rounding_makes_no_rank():
    points = borda(rows([0.1 + 0.2], [0.3], [0.30001]), ones(3))
    assert points.tolist() == [-0.25, -0.25, 0.5]


def test_weights_order_and_leave_out():
    rewards = rows([0, 3], [1, 1])
    assert borda(rewards, ones(2), weights=[1, 0]).tolist() == [-0.5, 0.5]
    assert borda(rewards, ones(2), weights=[-1, 0]).tolist() == [0.5, -0.5]
    assert borda(rewards, ones(2), weights=[1, 1]).tolist() == [0, 0]


def test_no_rows_have_no_scores():
    empty = torch.empty(0, 2, dtype=torch.float64)
    assert borda(empty, ones(0)).shape == quantile_scores(empty).shape == (0,)


REWARD = st.one_of(st.just(NAN), st.integers(-8, 16).map(lambda n: n / 8))
LABELS = [0, 1, 2, -7, 10**12]


@st.composite
def batches(draw):
    num_rows, num_rewards = draw(st.integers(1, 14)), draw(st.integers(1, 3))
    column = st.lists(REWARD, min_size=num_rewards, max_size=num_rewards)
    rewards = rows(*draw(st.lists(column, min_size=num_rows, max_size=num_rows)))
    labels = draw(st.lists(st.sampled_from(LABELS[: draw(st.integers(1, 5))]), min_size=num_rows, max_size=num_rows))
    weights = draw(st.lists(st.sampled_from([1.0, 0.5, 0.0, -1.0, 3.0]), min_size=num_rewards, max_size=num_rewards))
    valid = draw(st.lists(st.sampled_from([True, True, True, False]), min_size=num_rows, max_size=num_rows))
    weights = weights if any(weights) else [1.0] * num_rewards
    return rewards, torch.tensor(labels), {"weights": weights, "valid_B": torch.tensor(valid)}


def slow_scores(rewards, labels, weights, valid_B):
    """Average ranks by position in the sorted list, reward by reward and row by row."""
    table, labels, valid = rewards.tolist(), labels.tolist(), valid_B.tolist()
    scores = []
    for i, row in enumerate(table):
        total = 0.0
        for k, weight in enumerate(weights):
            pool = sorted(
                other[k]
                for j, other in enumerate(table)
                if labels[j] == labels[i] and valid[j] and not math.isnan(other[k])
            )
            if not math.isnan(row[k]) and len(pool) > 1:
                places = [place for place, value in enumerate(pool) if value == row[k]]
                total += weight * (sum(places) / max(len(places), 1) / (len(pool) - 1) - 0.5)
        graded = valid[i] and not all(math.isnan(value) for value in row)
        scores.append(total / sum(map(abs, weights)) if graded else NAN)
    return rows(*scores)


@some
@given(batches())
def test_both_scores_are_the_slow_ones(batch):
    rewards, labels, options = batch
    assert_close(borda(rewards, labels, **options), slow_scores(rewards, labels, **options), equal_nan=True)
    together = slow_scores(rewards, torch.zeros_like(labels), **options)
    assert_close(quantile_scores(rewards, **options), together, equal_nan=True)


@some
@given(batches(), st.integers(0, 99))
def test_increasing_maps_and_the_order_of_rows_change_nothing(batch, seed):
    rewards, labels, options = batch
    points, scores = borda(rewards, labels, **options), quantile_scores(rewards, **options)
    own_of_each_group = torch.tensor([LABELS.index(label) + 1 for label in labels.tolist()])[:, None]
    assert_close(borda(torch.exp(rewards * own_of_each_group), labels, **options), points, equal_nan=True)
    assert_close(quantile_scores(rewards**3 - 7, **options), scores, equal_nan=True)
    order = torch.tensor(random.Random(seed).sample(range(len(labels)), len(labels)))
    moved = {"weights": options["weights"], "valid_B": options["valid_B"][order]}
    assert_close(borda(rewards[order], labels[order], **moved), points[order], equal_nan=True)
    assert_close(quantile_scores(rewards[order], **moved), scores[order], equal_nan=True)


@some
@given(batches())
def test_scores_are_centred_and_bounded(batch):
    rewards, labels, options = batch
    points = borda(rewards, labels, **options)
    for label in labels.unique():
        assert points[labels == label].nansum().item() == pytest.approx(0, abs=1e-9)
    assert points.nan_to_num().abs().max() <= 0.5 + 1e-12


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: borda(rows([1], [2]), ones(2), weights=[0]), "weights are all 0"),
        (lambda: borda(rows([1], [2]), ones(3)), r"group_ids_B has shape \[3\]; expected \[2\]"),
        (lambda: borda(rows([1], [math.inf]), ones(2)), r"rewards_B_K\[1, 0\] is inf"),
        (lambda: quantile_scores(rows([1, 2]), weights=[1]), "weights has 1 entries for 2 rewards"),
    ],
)
def test_wrong_rewards_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


# ---- pairs


def pairs(borda_B, quantile_B, groups=None, **options):
    groups = ones(len(borda_B)) if groups is None else torch.tensor(groups)
    masks = {key: torch.tensor(options.pop(key)) for key in ("vetoed_B", "anchor_B") if key in options}
    return select(groups, rows(*borda_B), rows(*quantile_B), **masks, **options)


def chosen(found):
    return [*zip(found.winner_N.tolist(), found.loser_N.tolist(), strict=True)]


def fates(found):
    skipped = (found.num_ungraded, found.num_vetoed, found.num_disagreeing, found.num_close)
    assert len(found.winner_N) + sum(skipped) == found.num_groups
    return skipped


def test_the_best_by_both_wins_and_the_worst_loses():
    found = pairs([0.1, 0.4, -0.3, -0.2], [0.1, 0.2, -0.1, -0.2])
    assert chosen(found) == [(1, 2)]
    assert found.gap_N.tolist() == pytest.approx([min(math.tanh(0.7), 0.3)])
    assert found.as_metrics() == {
        "preference/frac_used": 1.0,
        **{f"preference/frac_{fate}": 0.0 for fate in ("ungraded", "vetoed", "disagreeing", "close")},
        "preference/gap_mean": pytest.approx(0.3),
    }


def test_groups_are_labels_in_any_order():
    found = pairs([0.1, 0.5, -0.1, -0.5], [0.1, 0.5, -0.1, -0.5], [7, -2, 7, -2])
    assert chosen(found) == [(1, 3), (0, 2)]


def test_two_winners_are_none():
    found = pairs([0.5, 0.4, -0.5], [0.2, 0.4, -0.5])
    assert chosen(found) == [] and fates(found) == (0, 0, 1, 0)
    assert math.isnan(found.as_metrics()["preference/gap_mean"])


def test_of_several_best_by_one_score_the_other_decides_and_then_the_place():
    assert chosen(pairs([0.5, 0.5, -0.5], [0.1, 0.4, -0.5])) == [(1, 2)]
    assert chosen(pairs([0.5, 0.5, -0.5, -0.5], [0.4, 0.4, -0.2, -0.4])) == [(0, 3)]
    assert chosen(pairs([0.1 + 0.2, 0.3, -0.5], [0.1, 0.4, -0.5])) == [(1, 2)]


def test_a_veto_takes_the_win_and_not_the_place_in_the_ranking():
    scores = [0.5, 0.2, -0.5]
    assert chosen(pairs(scores, scores)) == [(0, 2)]
    assert chosen(pairs(scores, scores, vetoed_B=[True, False, False])) == [(1, 2)]
    assert chosen(pairs(scores, scores, vetoed_B=[False, False, True])) == [(0, 2)]
    assert fates(pairs(scores, scores, vetoed_B=[True] * 3)) == (0, 1, 0, 0)
    only_a_better_one_could_lose = pairs([0.5, -0.5], [0.5, -0.5], vetoed_B=[True, False])
    assert fates(only_a_better_one_could_lose) == (0, 0, 0, 1)


def test_an_anchor_wins_where_it_is_better_and_never_loses():
    anchor = [False, False, True]
    assert chosen(pairs([0.2, -0.5, 0.5], [0.2, -0.5, 0.5], anchor_B=anchor)) == [(2, 1)]
    assert chosen(pairs([0.5, -0.5, 0.5], [0.5, -0.5, 0.5], anchor_B=anchor)) == [(0, 1)]
    assert chosen(pairs([0.5, 0.2, -0.5], [0.5, 0.2, -0.5], anchor_B=anchor)) == [(0, 1)]
    assert fates(pairs([NAN, 0.5, -0.5], [NAN, 0.5, -0.5], anchor_B=anchor)) == (0, 0, 0, 1)


def test_ungraded_rows_neither_win_nor_lose():
    assert chosen(pairs([NAN, 0.5, -0.5, NAN], [NAN, 0.5, -0.5, NAN])) == [(1, 2)]
    assert fates(pairs([NAN, 0.5, NAN, 0.1, 0.1], [NAN, 0.5, NAN, 0.1, 0.1], [0, 0, 1, 2, 2])) == (2, 0, 0, 1)
    assert fates(pairs([0.5, -0.5], [0.5, -0.5], anchor_B=[True, True])) == (1, 0, 0, 0)


def test_the_smallest_gap_is_a_gap_in_both_scores():
    scores = [0.3, -0.3], [0.05, -0.05]
    assert fates(pairs(*scores, min_gap=0.1)) == (0, 0, 0, 0)
    assert fates(pairs(*scores, min_gap=0.11)) == (0, 0, 0, 1)
    assert fates(pairs(*scores[::-1], min_gap=0.11)) == (0, 0, 0, 1)
    assert fates(pairs([0.1, 0.1], [0.1, 0.1])) == (0, 0, 0, 1)


@pytest.mark.parametrize("temperature", [0.05, 0.5, 5.0])
def test_the_lead_is_that_of_the_shares(temperature):
    """The softmax over all of the group; a low temperature takes a narrow lead for a whole one."""
    points = [0.1, 0.3, -0.2, 0.0]
    share = torch.softmax(rows(*points) / temperature, 0)
    lead = ((share[1] - share[2]) / (share[1] + share[2])).item()
    found = pairs(points, [0.0, 0.5, -0.5, 0.0], temperature=temperature)
    assert found.gap_N.tolist() == pytest.approx([lead])
    assert (lead > 0.99, lead < 0.06) == (temperature == 0.05, temperature == 5.0)


@some
@given(batches(), st.floats(0, 1), st.integers(0, 99))
def test_pairs_are_the_slow_ones(batch, min_gap, seed):
    rewards, labels, options = batch
    draw = random.Random(seed)
    vetoed, anchor = ([draw.random() < 0.3 for _ in labels] for _ in range(2))
    points, scores = borda(rewards, labels, **options), quantile_scores(rewards, **options)
    found = select(
        labels, points, scores, min_gap=min_gap, vetoed_B=torch.tensor(vetoed), anchor_B=torch.tensor(anchor)
    )
    fates(found)
    b, q = points.tolist(), scores.tolist()
    expected = []
    for label in sorted(set(labels.tolist())):
        group = [i for i, other in enumerate(labels.tolist()) if other == label and not math.isnan(b[i])]
        free = [i for i in group if not vetoed[i]]
        top = [[i for i in free if s[i] >= max(s[j] for j in free) - 1e-9] for s in (b, q)]
        both = [i for i in top[0] if i in top[1]]
        losers = [i for i in group if i not in both[:1] and not anchor[i]]
        if both and losers:
            loser = min(losers, key=lambda i: (round(b[i], 8), round(q[i], 8), i))
            gap = min(math.tanh(b[both[0]] - b[loser]), q[both[0]] - q[loser])
            if gap > 1e-9 and gap >= min_gap - 1e-9:
                expected.append((both[0], loser))
    assert chosen(found) == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperature": 0.0}, "temperature is 0.0; expected a finite number above 0"),
        ({"min_gap": 1.5}, "min_gap is 1.5; expected a number from 0 to 1"),
        ({"borda_B": torch.zeros(2)}, "borda_B is torch.float32 of shape"),
        ({"borda_B": rows(0.1, NAN)}, "do not grade the same rows"),
        ({"group_ids_B": rows(0, 0)}, "group_ids_B is torch.float64; expected integer labels"),
        ({"vetoed_B": ones(2)}, "vetoed_B is torch.int64; expected bool"),
        ({"anchor_B": torch.ones(3, dtype=torch.bool)}, r"anchor_B has shape \[3\]"),
    ],
)
def test_wrong_scores_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        select(**{"group_ids_B": ones(2), "borda_B": rows(0.1, -0.1), "quantile_B": rows(0.1, -0.1), **change})


# ---- loss


def test_the_log_probability_of_a_response_is_a_sum_over_its_tokens():
    logp = torch.tensor([[-1.0, -2.0, -4.0], [-0.5, NAN, -math.inf]], requires_grad=True)
    mask = torch.tensor([[True, True, True], [True, False, False]])
    total = response_logp(logp, mask)
    assert total.tolist() == [-7.0, -0.5]
    total.sum().backward()
    assert logp.grad.tolist() == [[1, 1, 1], [1, 0, 0]]


def test_a_token_under_the_floor_counts_as_the_floor_and_is_pushed_no_further():
    logp = torch.tensor([[-1.0, -30.0, -math.inf]], requires_grad=True)
    total = response_logp(logp, torch.ones(1, 3, dtype=torch.bool), min_logp=-25.0)
    assert total.tolist() == [-51.0]
    total.sum().backward()
    assert logp.grad.tolist() == [[1, 0, 0]]
    no_floor = response_logp(logp[:, :2], torch.ones(1, 2, dtype=torch.bool), min_logp=-math.inf)
    assert no_floor.tolist() == [-31.0]


def test_a_token_of_a_response_that_is_nan_is_not_hidden():
    assert response_logp(torch.tensor([[NAN]]), torch.tensor([[True]])).isnan().all()


def test_the_loss_by_hand():
    """The winner gained 2 nats on its reference, the loser lost 1: margin 0.3, loss log(1 + exp(-0.3))."""
    loss, margin = dpo(*(torch.tensor([x]) for x in (-3.0, -6.0, -5.0, -5.0)), beta=0.1)
    assert margin.item() == pytest.approx(0.3)
    assert loss.item() == pytest.approx(0.554355)


def test_a_policy_that_is_its_reference_has_the_loss_of_a_coin():
    logp = torch.tensor([-3.0, -9.0])
    loss, margin = dpo(logp, logp.flip(0), logp, logp.flip(0), beta=0.7)
    assert margin.tolist() == [0, 0]
    assert loss.tolist() == pytest.approx([math.log(2)] * 2)


def test_the_gradient_is_that_of_the_paper():
    """beta * sigmoid(-margin) up for the winner and down for the loser; none for the reference."""
    winner, loser = (torch.tensor([x], requires_grad=True) for x in (-2.0, -5.0))
    loss, margin = dpo(winner, loser, torch.tensor([-4.0]), torch.tensor([-3.0]), beta=0.5)
    loss.sum().backward()
    push = 0.5 * torch.sigmoid(-margin).item()
    assert (winner.grad.item(), loser.grad.item()) == pytest.approx((-push, push))


def test_wide_margins_stay_finite():
    loss, _ = dpo(*(torch.tensor([x, y]) for x, y in [(0.0, -1e4), (-1e4, 0.0), (0.0, 0.0), (0.0, 0.0)]), beta=1.0)
    assert loss.tolist() == [0.0, 1e4]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dpo(*[torch.zeros(2)] * 4, beta=0.0), "beta is 0.0; expected a finite number above 0"),
        (lambda: dpo(*[torch.zeros(2)] * 3, torch.zeros(1), beta=1.0), "shapes"),
        (lambda: response_logp(torch.zeros(2, 3), torch.zeros(2, 3)), "mask_B_T is torch.float32"),
        (lambda: response_logp(torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.bool), min_logp=0), "min_logp is 0"),
    ],
)
def test_wrong_log_probabilities_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
