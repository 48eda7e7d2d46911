import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gdpo_nemo.errors import InputError
from gdpo_nemo.stats import (
    Interval,
    bootstrap_questions,
    crossed_t,
    hierarchical_bootstrap,
    iqm,
    mean_over_seeds,
    minimum_detectable_effect,
    paired_difference,
    wilson,
)

NAN = math.nan
GRIDS = arrays(np.float64, st.tuples(st.integers(2, 4), st.integers(2, 6)), elements=st.floats(-3, 3, width=32))


def spread(seed: int, shape=(3, 64), seed_std=0.3, question_std=1.0, rest_std=0.5):
    rng = np.random.default_rng(seed)
    num_seeds, num_questions = shape
    return (
        seed_std * rng.standard_normal((num_seeds, 1))
        + question_std * rng.standard_normal((1, num_questions))
        + rest_std * rng.standard_normal((num_seeds, num_questions))
    )


# ---- Wilson


@pytest.mark.parametrize(("hits", "total"), [(0, 10), (1, 10), (7, 13), (13, 13), (400, 512)])
@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
def test_wilson_agrees_with_scipy(hits, total, level):
    expected = scipy.stats.binomtest(hits, total).proportion_ci(confidence_level=level, method="wilson")
    got = wilson(hits, total, level)
    assert (got.low, got.high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert got.level == level


def test_wilson_by_hand():
    # 0 of 10: high = z^2 / (10 + z^2) with z^2 = 3.8415
    assert wilson(0, 10).low == 0.0
    assert wilson(0, 10).high == pytest.approx(3.8415 / 13.8415, abs=1e-5)


@pytest.mark.parametrize(
    ("hits", "total", "level"), [(1, 0, 0.95), (3, 2, 0.95), (-1, 2, 0.95), (1, 2, 1.0), (1, 2, 95)]
)
def test_wilson_refuses_what_is_no_share(hits, total, level):
    with pytest.raises(InputError):
        wilson(hits, total, level)


# ---- crossed t


def test_crossed_t_by_hand():
    # Seed means 2 and 5: v_seed = 4.5 / 2 = 2.25. Question effects -2 and 2: v_floor = 8 / 2 = 4.
    # Rest [[1, -1], [-1, 1]]: mean square 4 on one degree of freedom, so v_question = 4 - 4 / 4 = 3.
    # t(1) at 95 % is 12.7062: half = 12.7062 sqrt(2.25 + 3).
    got = crossed_t([[1, 3], [2, 8]])
    half = 12.706205 * math.sqrt(5.25)
    assert (got.low, got.high) == pytest.approx((3.5 - half, 3.5 + half), rel=1e-6)


def test_crossed_t_is_never_narrower_than_the_questions_require():
    # Both seeds have mean 0.5 by luck, on different questions: v_seed = 0, v_question = 0, v_floor = 1/16 x 4/3 / 4 ...
    values_S_Q = np.array([[1, 1, 0, 0], [0, 1, 1, 0]], dtype=float)
    effect_Q = values_S_Q.mean(axis=0)
    half = scipy.stats.t.ppf(0.975, 3) * math.sqrt(effect_Q.var(ddof=1) / 4)
    got = crossed_t(values_S_Q)
    assert (got.low, got.high) == pytest.approx((0.5 - half, 0.5 + half))


@pytest.mark.parametrize("level", [0.9, 0.95])
def test_crossed_t_without_question_noise_is_the_t_interval_over_seeds(level):
    means_S = np.array([0.2, 0.5, 0.4])
    expected = scipy.stats.t.interval(level, 2, means_S.mean(), scipy.stats.sem(means_S))
    got = crossed_t(np.repeat(means_S[:, None], 8, axis=1), level=level)
    assert (got.low, got.high) == pytest.approx(expected)


def test_crossed_t_without_seed_noise_is_the_t_interval_over_questions():
    values_Q = np.array([0.0, 1.0, 1.0, 3.0, -1.0])
    expected = scipy.stats.t.interval(0.95, 4, values_Q.mean(), scipy.stats.sem(values_Q))
    got = crossed_t(np.tile(values_Q, (3, 1)))
    assert (got.low, got.high) == pytest.approx(expected)


def test_crossed_t_agrees_with_mean_squares_of_the_two_way_table():
    values_S_Q = spread(3, (4, 30), rest_std=0.2)
    grand = values_S_Q.mean()
    seeds, questions = values_S_Q.mean(1) - grand, values_S_Q.mean(0) - grand
    rest = values_S_Q - grand - seeds[:, None] - questions
    ms_seed, ms_question = 30 * (seeds**2).sum() / 3, 4 * (questions**2).sum() / 29
    ms_rest = (rest**2).sum() / (3 * 29)
    t_seed, t_question = scipy.stats.t.ppf(0.975, [3, 29])
    half = math.sqrt((t_seed**2 * ms_seed + t_question**2 * (ms_question - ms_rest)) / 120)
    got = crossed_t(values_S_Q)
    assert (got.low, got.high) == pytest.approx((grand - half, grand + half))


@settings(max_examples=40, deadline=None)
@given(GRIDS, st.floats(-2, 2), st.floats(0.5, 4))
def test_crossed_t_moves_and_stretches_with_the_values(values_S_Q, shift, factor):
    plain, moved = crossed_t(values_S_Q), crossed_t(values_S_Q * factor + shift)
    assert moved.low == pytest.approx(plain.low * factor + shift, abs=1e-5)
    assert moved.high == pytest.approx(plain.high * factor + shift, abs=1e-5)


def test_more_confidence_is_wider():
    values_S_Q = spread(0)
    for method in (crossed_t, hierarchical_bootstrap, lambda v, level: bootstrap_questions(v[0], level=level)):
        narrow, wide = method(values_S_Q, level=0.8), method(values_S_Q, level=0.95)
        assert wide.low < narrow.low < narrow.high < wide.high


# ---- ungraded


def test_ungraded_values_are_left_out_and_zero_is_a_score():
    assert mean_over_seeds([[1, NAN, 1], [0, 0, 1]]) == pytest.approx((1 + 1 / 3) / 2)
    assert mean_over_seeds([[1, 0, 1], [0, 0, 1]]) == pytest.approx((2 / 3 + 1 / 3) / 2)


def test_a_question_that_nobody_graded_does_not_matter():
    values_S_Q = spread(1, (3, 12))
    with_hole = np.insert(values_S_Q, 5, NAN, axis=1)
    assert crossed_t(with_hole) == crossed_t(values_S_Q)
    assert bootstrap_questions(with_hole[0]) == bootstrap_questions(values_S_Q[0])


def test_few_holes_change_the_interval_little():
    values_S_Q = spread(2, (3, 200))
    holes = values_S_Q.copy()
    holes[0, 3], holes[2, 50] = NAN, NAN
    full, part = crossed_t(values_S_Q), crossed_t(holes)
    assert part.high - part.low == pytest.approx(full.high - full.low, rel=0.05)
    full, part = hierarchical_bootstrap(values_S_Q), hierarchical_bootstrap(holes)
    assert (part.low, part.high) == pytest.approx((full.low, full.high), abs=0.1 * (full.high - full.low))


@pytest.mark.parametrize("method", [crossed_t, hierarchical_bootstrap, mean_over_seeds])
@pytest.mark.parametrize("values", [[1, 2], [[NAN, NAN], [1, 2]], [[math.inf, 1], [1, 2]], np.empty((2, 0))])
def test_matrices_without_a_mean_are_refused(method, values):
    with pytest.raises(InputError):
        method(values)


@pytest.mark.parametrize("values", [[[1, 2]], [[1], [2]], [[1, NAN], [2, NAN]]])
def test_crossed_t_needs_two_seeds_and_two_graded_questions(values):
    with pytest.raises(InputError, match="at least two seeds"):
        crossed_t(values)


# ---- bootstrap


def test_bootstrap_over_questions_agrees_with_scipy():
    values_Q = np.random.default_rng(0).exponential(size=80)
    got = bootstrap_questions(values_Q, resamples=20_000)
    expected = scipy.stats.bootstrap(
        (values_Q,), np.mean, method="percentile", n_resamples=20_000, rng=np.random.default_rng(1)
    ).confidence_interval
    width = expected.high - expected.low
    assert (got.low, got.high) == pytest.approx((expected.low, expected.high), abs=0.03 * width)


@pytest.mark.parametrize("shared", [True, False])
def test_hierarchical_bootstrap_agrees_with_all_resamples_of_a_small_table(shared):
    values_S_Q = np.array([[0.0, 1.0, 5.0], [1.1, 2.3, 8.0]])
    if shared:
        means = [
            values_S_Q[np.ix_(seeds, questions)].mean()
            for seeds in itertools.product(range(2), repeat=2)
            for questions in itertools.product(range(3), repeat=3)
        ]
    else:
        one_seed = [
            [values_S_Q[s, list(questions)].mean() for questions in itertools.product(range(3), repeat=3)]
            for s in range(2)
        ]
        means = [
            (left + right) / 2
            for seeds in itertools.product(range(2), repeat=2)
            for left in one_seed[seeds[0]]
            for right in one_seed[seeds[1]]
        ]
    got = hierarchical_bootstrap(values_S_Q, shared_questions=shared, level=0.8, resamples=40_000)
    expected = np.quantile(means, [0.1, 0.9])
    assert (got.low, got.high) == pytest.approx(expected, abs=0.08)


@settings(max_examples=25, deadline=None)
@given(GRIDS, st.randoms(use_true_random=False), st.booleans())
def test_order_of_questions_and_seeds_has_no_influence(values_S_Q, random, shared):
    seeds, questions = (random.sample(range(n), n) for n in values_S_Q.shape)
    shuffled = values_S_Q[:, questions]
    assert bootstrap_questions(shuffled[0], resamples=50) == bootstrap_questions(values_S_Q[0], resamples=50)
    both = [hierarchical_bootstrap(v, shared_questions=shared, resamples=50) for v in (values_S_Q, shuffled)]
    assert both[0] == both[1]
    ours, theirs = crossed_t(values_S_Q), crossed_t(shuffled[seeds])
    assert (theirs.low, theirs.high) == pytest.approx((ours.low, ours.high), abs=1e-9)


def test_bootstraps_repeat_and_follow_their_seed():
    values_S_Q = spread(5)
    for shared in (True, False):
        first = hierarchical_bootstrap(values_S_Q, shared_questions=shared)
        assert hierarchical_bootstrap(values_S_Q[::-1], shared_questions=shared) == first
        assert hierarchical_bootstrap(values_S_Q, shared_questions=shared, seed=1) != first
    assert bootstrap_questions(values_S_Q[0], seed=1) != bootstrap_questions(values_S_Q[0])


# ---- paired difference


def test_paired_difference_by_hand():
    got = paired_difference({0: [1, 0, 1], 1: [1, 1, 1], 7: [0, 0, 0]}, {1: [0, 1, 1], 0: [1, 1, 1], 9: [5, 5, 5]})
    assert got.by_seed == pytest.approx({0: -1 / 3, 1: 1 / 3})
    assert got.value == pytest.approx(0.0)
    assert got.values_S_Q.tolist() == [[0, -1, 0], [1, 0, 0]]
    assert got.interval == crossed_t(got.values_S_Q)
    assert (got.num_seeds_with_sign(1), got.num_seeds_with_sign(-1)) == (1, 1)


def test_what_both_arms_share_cancels():
    right = dict(enumerate(spread(6, seed_std=2.0)))
    got = paired_difference({seed: values_Q + 0.25 for seed, values_Q in right.items()}, right)
    assert (got.value, got.interval.low, got.interval.high) == pytest.approx((0.25, 0.25, 0.25))
    assert got.num_seeds_with_sign(1) == 3


def test_a_question_counts_where_both_sides_are_graded():
    got = paired_difference({0: [1, NAN, 1], 1: [1, 1, 0]}, {0: [0, 0, NAN], 1: [0, 0, 0]})
    assert got.by_seed == {0: 1.0, 1: pytest.approx(2 / 3)}


def test_one_seed_or_one_question_gives_a_difference_without_interval():
    assert paired_difference({4: [1, 0, 1]}, {4: [0, 0, 0]}).interval is None
    assert paired_difference({0: [1], 1: [0]}, {0: [0], 1: [0]}).interval is None


@pytest.mark.parametrize(
    ("left", "right"),
    [({0: [1, 2]}, {1: [1, 2]}), ({0: [1, 2]}, {0: [1]}), ({0: [1, 2], 1: [1]}, {0: [1, 2], 1: [1]}), ({}, {})],
)
def test_what_cannot_be_paired_is_refused(left, right):
    with pytest.raises(InputError):
        paired_difference(left, right)


# ---- planning, IQM, intervals


def test_minimum_detectable_effect_by_hand():
    # Four seeds with constant rows: v_seed = var / 4; t(3) is 3.1824 at 95 % and 0.9785 at 80 % power.
    means_S = np.array([1.0, 2.0, 3.0, 4.0])
    got = minimum_detectable_effect(np.repeat(means_S[:, None], 5, axis=1))
    assert got == pytest.approx((3.18245 + 0.97847) * math.sqrt(means_S.var(ddof=1) / 4), rel=1e-4)
    # The same spread with nine seeds: t(8) is 2.3060 and 0.8889.
    got = minimum_detectable_effect(np.repeat(means_S[:, None], 5, axis=1), num_seeds=9)
    assert got == pytest.approx((2.30600 + 0.88889) * math.sqrt(means_S.var(ddof=1) / 9), rel=1e-4)


def test_more_seeds_detect_less():
    difference_S_Q = spread(8)
    effects = [minimum_detectable_effect(difference_S_Q, num_seeds=n) for n in (2, 3, 5, 10)]
    assert effects == sorted(effects, reverse=True)
    assert effects[1] == minimum_detectable_effect(difference_S_Q)
    for wrong in ({"num_seeds": 1}, {"power": 0.4}):
        with pytest.raises(InputError):
            minimum_detectable_effect(difference_S_Q, **wrong)


@pytest.mark.parametrize("count", [4, 5, 7, 8, 12])
def test_iqm_agrees_with_scipy(count):
    values_S = np.random.default_rng(count).standard_normal(count)
    assert iqm(values_S) == pytest.approx(scipy.stats.trim_mean(values_S, 0.25))


@pytest.mark.parametrize("values", [[1, 2, 3], [1, 2, 3, NAN], [[1, 2], [3, 4]]])
def test_iqm_needs_four_graded_seeds(values):
    with pytest.raises(InputError, match="at least 4"):
        iqm(values)


def test_intervals_are_cut_scaled_and_widened():
    interval = Interval(-0.1, 0.8, 0.95, "m")
    assert interval.within(0, 1) == Interval(0.0, 0.8, 0.95, "m")
    assert interval.times(100) == Interval(-10.0, 80.0, 0.95, "m")
    assert interval.covering(Interval(0.0, 0.9, 0.95, "other")) == Interval(-0.1, 0.9, 0.95, "m")


def test_import_needs_numpy_only():
    code = "import sys, gdpo_nemo.stats; assert not {'scipy', 'torch', 'matplotlib'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- what the intervals promise, measured

SPREADS = [(0.0, 0.0, 0.5), (0.0, 0.4, 0.3), (0.02, 0.3, 0.4), (0.05, 0.3, 0.4), (0.2, 0.3, 0.4)]


def coverage(method, num_seeds, num_questions, parts, repeats):
    hits = 0
    for repeat in range(repeats):
        interval = method(spread(repeat, (num_seeds, num_questions), *parts))
        hits += interval.low <= 0 <= interval.high
    return hits / repeats


@pytest.mark.slow
@pytest.mark.parametrize("parts", SPREADS)
@pytest.mark.parametrize(("num_seeds", "num_questions"), [(2, 64), (3, 8), (3, 256), (5, 64)])
def test_crossed_t_covers_at_least_as_often_as_it_says(num_seeds, num_questions, parts):
    assert coverage(crossed_t, num_seeds, num_questions, parts, 1500) > 0.94  # 95 % less two standard errors


@pytest.mark.slow
def test_crossed_t_does_not_find_differences_between_equal_arms():
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(1500):
        hard_Q = rng.standard_normal(256)
        left, right = (
            rng.random((3, 256)) < 1 / (1 + np.exp(-(hard_Q + rng.normal(0.5, 0.4, (3, 1))))) for _ in range(2)
        )
        interval = crossed_t(left.astype(float) - right)
        found += interval.low > 0 or interval.high < 0
    assert found / 1500 < 0.06


@pytest.mark.slow
def test_why_three_seeds_are_not_judged_by_a_bootstrap_nor_by_seed_means_alone():
    def quick(values_S_Q):
        return hierarchical_bootstrap(values_S_Q, resamples=500)

    assert coverage(quick, 3, 64, (0.5, 0.3, 0.4), 300) < 0.88

    def seeds_alone(values_S_Q):
        means_S = values_S_Q.mean(axis=1)
        low, high = scipy.stats.t.interval(0.95, len(means_S) - 1, means_S.mean(), scipy.stats.sem(means_S))
        return Interval(low, high, 0.95, "t over seeds")

    assert coverage(seeds_alone, 5, 64, (0.0, 0.4, 0.3), 500) < 0.7


@pytest.mark.slow
@pytest.mark.parametrize(("num_seeds", "parts"), [(3, (0.2, 0.1, 0.3)), (5, (0.2, 0.1, 0.3)), (3, (0.01, 0.3, 0.3))])
def test_the_detectable_effect_is_found_with_about_the_promised_power(num_seeds, parts):
    pilot_S_Q = spread(10_000, (300, 64), *parts)  # many seeds, so that the planned spread is the true one
    effect = minimum_detectable_effect(pilot_S_Q, num_seeds=num_seeds)
    samples = [spread(repeat, (num_seeds, 64), *parts) for repeat in range(1000)]
    found = np.mean([crossed_t(values_S_Q + effect).low > 0 for values_S_Q in samples])
    assert 0.7 < found < 0.85
