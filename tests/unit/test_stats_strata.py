"""Weighted means of fixed question groups: the interval, the bootstraps, p-values, Holm, seeds needed."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from gdpo_nemo.errors import InputError
from gdpo_nemo.stats import (
    Strata,
    bootstrap_questions,
    crossed_p,
    crossed_t,
    detectable_with_spread,
    effective_size,
    hierarchical_bootstrap,
    holm,
    mean_over_seeds,
    minimum_detectable_effect,
    paired_difference,
    seeds_needed,
)

NAN = math.nan
WEIGHTS = {"a": 0.5, "b": 0.3, "c": 0.2}
GROUPS = ["a"] * 6 + ["b"] * 4 + ["c"] * 3


def strata(groups=GROUPS, weights=WEIGHTS):
    return Strata.of(groups, weights)


def table(seed, sizes=(6, 4, 3), shape_seeds=3, seed_std=0.3, question_std=(1.0, 0.2, 0.5), rest_std=0.4, offset=0.0):
    """Seeds x questions with a spread per group and group means that differ; the weighted mean is ``offset``."""
    rng = np.random.default_rng(seed)
    weights = np.array(list(WEIGHTS.values()))
    means = np.array([3.0, -1.0, 0.0])
    means = means - weights @ means + offset
    parts = [
        mean + std * rng.standard_normal((1, size)) + rest_std * rng.standard_normal((shape_seeds, size))
        for mean, std, size in zip(means, question_std, sizes, strict=True)
    ]
    return np.concatenate(parts, axis=1) + seed_std * rng.standard_normal((shape_seeds, 1))


# ---- the value


def test_the_value_is_the_weighted_sum_of_group_means_and_not_the_mean_of_questions():
    values = [[1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 0], [0] * 6 + [1] * 4 + [0, NAN, 1]]
    expected = [0.5 * 1 + 0.3 * 0 + 0.2 * 2 / 3, 0.3 + 0.2 * 0.5]
    assert mean_over_seeds(values, strata()) == pytest.approx(np.mean(expected))
    got = crossed_t(values, strata=strata())
    assert (got.low + got.high) / 2 == pytest.approx(np.mean(expected))
    assert got.method == "crossed t over seeds and questions, within question groups"


def test_effective_size_is_the_count_for_weights_that_follow_the_counts():
    by_count = {"a": 6 / 13, "b": 4 / 13, "c": 3 / 13}
    assert effective_size(np.zeros((2, 13)), strata(weights=by_count)) == pytest.approx(26)
    assert effective_size(np.zeros((2, 13)), None) == 26
    assert effective_size(np.zeros((1, 13)), strata()) == pytest.approx(1 / (0.25 / 6 + 0.09 / 4 + 0.04 / 3))


@pytest.mark.parametrize(
    ("groups", "weights", "message"),
    [
        (["a", "b", "x"], {"a": 0.5, "b": 0.5}, "without a weight: ['x']"),
        (["a", None], {"a": 1.0}, "without a weight: ['None']"),
        (["a", "a"], {"a": 0.5, "b": 0.5}, "without questions: ['b']"),
        (["a", "b"], {"a": 0.5, "b": 0.6}, "add up to 1"),
        (["a", "b"], {"a": 1.5, "b": -0.5}, "positive"),
    ],
)
def test_strata_that_do_not_fit_are_refused(groups, weights, message):
    with pytest.raises(InputError) as caught:
        Strata.of(groups, weights)
    assert message in str(caught.value)


def test_a_seed_without_a_grade_in_one_group_has_no_value():
    values = np.zeros((2, 13))
    values[1, 10:] = NAN
    with pytest.raises(InputError, match="graded value in group 'c'"):
        crossed_t(values, strata=strata())
    with pytest.raises(InputError, match="12 questions, and strata of 13"):
        crossed_t(values[:, :12], strata=strata())


# ---- the interval


def test_one_group_is_the_unstratified_interval():
    values = table(0)
    one = Strata.of(["x"] * 13, {"x": 1.0})
    plain, weighted = crossed_t(values), crossed_t(values, strata=one)
    assert (weighted.low, weighted.high) == (plain.low, plain.high)
    assert crossed_p(values, strata=one) == crossed_p(values)
    assert minimum_detectable_effect(values, strata=one) == minimum_detectable_effect(values)
    plain, weighted = bootstrap_questions(values[0]), bootstrap_questions(values[0], strata=one)
    assert (weighted.low, weighted.high) == (plain.low, plain.high)


def test_stratified_variances_by_hand():
    # Two seeds, groups of two questions, weights 3/4 and 1/4, no rest: the seeds differ by a constant 1.
    values = np.array([[0.0, 2.0, 10.0, 14.0], [1.0, 3.0, 11.0, 15.0]])
    two = Strata.of(["a", "a", "b", "b"], {"a": 0.75, "b": 0.25})
    v_seed = 0.5 / 2
    a, b = 0.75**2 * 2 / 2, 0.25**2 * 8 / 2
    dof = (a + b) ** 2 / (a**2 + b**2)
    t_seed, t_question = scipy.stats.t.ppf(0.975, [1, dof])
    half = math.sqrt(t_seed**2 * v_seed + t_question**2 * (a + b))
    got = crossed_t(values, strata=two)
    assert (got.low, got.high) == pytest.approx((4.25 - half, 4.25 + half))


def test_distance_between_groups_does_not_widen_the_interval():
    values = table(1)
    shifted = values + np.where(np.array(GROUPS) == "b", 100.0, 0.0)
    before, after = (crossed_t(v, strata=strata()) for v in (values, shifted))
    assert after.high - after.low == pytest.approx(before.high - before.low)
    assert after.low - before.low == pytest.approx(30.0)
    before, after = (bootstrap_questions(v[0], strata=strata()) for v in (values, shifted))
    assert after.high - after.low == pytest.approx(before.high - before.low)


def test_stratified_bootstrap_agrees_with_all_resamples_of_a_small_table():
    values_Q = np.array([0.0, 3.1, 5.3, 1.0, 2.2, 7.7])
    small = Strata.of(["a", "a", "a", "b", "b", "b"], {"a": 0.6, "b": 0.4})
    means = [
        0.6 * values_Q[list(first)].mean() + 0.4 * values_Q[list(second)].mean()
        for first in itertools.product((0, 1, 2), repeat=3)
        for second in itertools.product((3, 4, 5), repeat=3)
    ]
    got = bootstrap_questions(values_Q, strata=small, level=0.8, resamples=40_000)
    assert (got.low, got.high) == pytest.approx(np.quantile(means, [0.1, 0.9]), abs=0.05)


@pytest.mark.parametrize("shared", [True, False])
def test_stratified_bootstraps_repeat_and_ignore_the_order(shared):
    values = table(2)
    order = np.random.default_rng(0).permutation(13)
    first = hierarchical_bootstrap(values, shared_questions=shared, strata=strata(), resamples=200)
    shuffled = strata([GROUPS[q] for q in order])
    assert hierarchical_bootstrap(values[::-1, order], shared_questions=shared, strata=shuffled, resamples=200) == first
    assert hierarchical_bootstrap(values, shared_questions=shared, strata=strata(), resamples=200, seed=1) != first


def test_hierarchical_bootstrap_with_one_group_is_the_unstratified_one():
    values = table(3)
    one = Strata.of(["x"] * 13, {"x": 1.0})
    plain, weighted = hierarchical_bootstrap(values), hierarchical_bootstrap(values, strata=one)
    assert (weighted.low, weighted.high) == (plain.low, plain.high)


def test_paired_difference_within_groups():
    right = dict(enumerate(table(4)))
    left = {seed: values_Q + np.where(np.array(GROUPS) == "a", 1.0, 0.0) for seed, values_Q in right.items()}
    got = paired_difference(left, right, strata=strata())
    assert (got.value, got.interval.low, got.interval.high) == pytest.approx((0.5, 0.5, 0.5))
    assert got.by_seed == pytest.approx({0: 0.5, 1: 0.5, 2: 0.5})


# ---- p-values and Holm


def test_p_without_question_noise_is_that_of_the_t_test_over_seeds():
    means_S = np.array([0.2, 0.5, 0.4])
    expected = scipy.stats.ttest_1samp(means_S, 0.0).pvalue
    assert crossed_p(np.repeat(means_S[:, None], 8, axis=1)) == pytest.approx(expected, rel=1e-6)


def test_p_without_seed_noise_is_that_of_the_t_test_over_questions():
    values_Q = np.array([0.0, 1.0, 1.0, 3.0, -1.0])
    assert crossed_p(np.tile(values_Q, (3, 1))) == pytest.approx(
        scipy.stats.ttest_1samp(values_Q, 0.0).pvalue, rel=1e-6
    )


@pytest.mark.parametrize("seed", range(4))
def test_p_is_where_the_interval_touches_zero(seed):
    values = table(seed, offset=0.4)
    p = crossed_p(values, strata=strata())
    just_in, just_out = (crossed_t(values, strata=strata(), level=1 - p * f) for f in (0.999, 1.001))
    assert just_in.low < 0 < just_in.high
    assert just_out.low > 0 or just_out.high < 0


def test_p_of_no_difference_and_of_one_without_any_spread():
    assert crossed_p([[1.0, -1.0], [-1.0, 1.0]]) == 1.0
    assert crossed_p([[1.0, 1.0], [1.0, 1.0]]) < 1e-90


def test_holm_by_hand():
    # Sorted .01 .02 .03 .04 with factors 4 3 2 1: .04, .06, .06 and .04 raised to .06.
    assert holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
    assert holm([0.2]) == [0.2]


# ---- seeds needed


def test_seeds_needed_is_the_first_number_that_suffices():
    difference = table(5)

    def detectable(num_seeds):
        return minimum_detectable_effect(difference, strata=strata(), num_seeds=num_seeds)

    effect = detectable(7)
    assert seeds_needed(effect, detectable) == seeds_needed(-effect, detectable) == 7
    assert seeds_needed(detectable(7) * 1.0001, detectable) == 7
    assert seeds_needed(detectable(7) * 0.9999, detectable) == 8
    assert seeds_needed(1e6, detectable) == 2
    assert seeds_needed(0.0, detectable) is None
    assert seeds_needed(detectable(1000) * 0.99, detectable) is None  # the questions alone stand in the way


def test_detectable_with_a_stated_spread_is_that_of_constant_rows():
    means_S = np.array([1.0, 2.0, 3.0, 4.0])
    rows = np.repeat(means_S[:, None], 5, axis=1)
    stated = detectable_with_spread(means_S.std(ddof=1), 9)
    assert stated == pytest.approx(minimum_detectable_effect(rows, num_seeds=9))
    for wrong in ((0.0, 3), (math.nan, 3), (1.0, 1)):
        with pytest.raises(InputError):
            detectable_with_spread(*wrong)


# ---- what the interval promises, measured


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(6, 4, 3), (60, 200, 16), (400, 50, 24)])
@pytest.mark.parametrize("num_seeds", [2, 3, 5])
@pytest.mark.parametrize("seed_std", [0.0, 0.05, 0.5])
def test_the_stratified_interval_covers_at_least_as_often_as_it_says(sizes, num_seeds, seed_std):
    groups = [name for name, size in zip(WEIGHTS, sizes, strict=True) for _ in range(size)]
    own = strata(groups)
    hits = 0
    for repeat in range(1500):
        interval = crossed_t(table(repeat, sizes, num_seeds, seed_std), strata=own)
        hits += interval.low <= 0 <= interval.high
    assert hits / 1500 > 0.94  # 95 % less two standard errors


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(60, 200, 16), (400, 50, 24)])
def test_the_stratified_bootstrap_of_one_model_covers_about_as_often_as_it_says(sizes):
    groups = [name for name, size in zip(WEIGHTS, sizes, strict=True) for _ in range(size)]
    own = strata(groups)
    hits = 0
    for repeat in range(600):
        values = table(repeat, sizes, 1, 0.0)
        interval = bootstrap_questions(values[0], strata=own, resamples=600)
        hits += interval.low <= 0 <= interval.high
    assert 0.92 < hits / 600 < 0.97


@pytest.mark.slow
def test_why_weighted_groups_are_not_treated_as_questions_of_one_kind():
    """The unweighted interval is about another number, and far too wide where the groups differ."""
    sizes = (60, 200, 16)
    groups = [name for name, size in zip(WEIGHTS, sizes, strict=True) for _ in range(size)]
    own = strata(groups)
    values = table(0, sizes)
    plain, weighted = crossed_t(values), crossed_t(values, strata=own)
    assert not plain.low <= 0 <= plain.high
    assert weighted.low <= 0 <= weighted.high


@pytest.mark.slow
def test_claims_without_any_effect_are_seldom_supported_after_holm():
    found = 0
    for repeat in range(400):
        rng = np.random.default_rng(repeat)
        p_values = [crossed_p(rng.standard_normal((3, 1)) * 0.3 + rng.standard_normal((3, 40))) for _ in range(6)]
        found += min(holm(p_values)) < 0.05
    assert found / 400 < 0.075
