"""Percentile bootstraps over questions, and over seeds and questions.

The bootstrap over seeds is coarse at S = 3: only 10 different multisets of seeds exist, and the spread of
three draws with replacement is too small by sqrt(2/3). A nominal 95 % interval then covers about 75 % where seeds
differ more than questions do. It serves ten seeds and more; tables and verdicts use ``crossed_t``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from gdpo_nemo.randomness import stream
from gdpo_nemo.stats.intervals import FloatArray, Interval, checked_level, graded_matrix

RESAMPLES = 10_000
BLOCK_DRAWS = 1 << 20  # question draws held in memory at once


def bootstrap_questions(
    values_Q: ArrayLike, *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Percentile bootstrap of a mean over its graded questions; says nothing about other seeds.

    Raises:
        InputError: no graded value.
    """
    values_1_Q = graded_matrix(np.asarray(values_Q, dtype=np.float64).reshape(1, -1))
    graded_1_Q = values_1_Q[:, ~np.isnan(values_1_Q[0])]
    means = _resampled_means(np.sort(graded_1_Q), resamples, seed, "questions")
    return _percentile(means, level, "bootstrap over questions")


def hierarchical_bootstrap(
    values_S_Q: ArrayLike,
    *,
    shared_questions: bool = True,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Percentile bootstrap of the mean over seeds: draws seeds, then questions.

    Coarse with few seeds, see the module's docstring; a claim is judged by ``crossed_t``.

    Args:
        values_S_Q: one value per seed and question, NaN where ungraded.
        shared_questions: one draw of questions for all seeds of a resample, as they answer the same
            questions (the pigeonhole bootstrap, Owen 2007, Ann. Appl. Stat. 1, 386-411). False draws anew within each
            seed, which treats a hard question as a separate accident in every seed.
        level: of the interval.
        resamples: number of resamples.
        seed: root of the random stream; the order of seeds and questions has no influence.

    Raises:
        InputError: not a matrix, or a seed without any graded value.
    """
    ordered_S_Q = _canonical(graded_matrix(values_S_Q), shared_questions)
    means = _resampled_means(ordered_S_Q, resamples, seed, "shared" if shared_questions else "within")
    return _percentile(means, level, "hierarchical bootstrap over seeds and questions")


def _resampled_means(values_S_Q: FloatArray, resamples: int, seed: int, kind: str) -> FloatArray:
    rng = stream(seed, "bootstrap", kind)
    num_seeds, num_questions = values_S_Q.shape
    graded_S_Q, filled_S_Q = ~np.isnan(values_S_Q), np.nan_to_num(values_S_Q)
    complete = bool(graded_S_Q.all())
    seeds_S = np.arange(num_seeds)
    block = max(1, BLOCK_DRAWS // values_S_Q.size)
    means = np.empty(resamples)
    for start in range(0, resamples, block):
        size = min(block, resamples - start)
        if kind == "within":
            drawn = rng.integers(0, num_questions, size=(size, num_seeds, num_questions), dtype=np.int32)
        else:
            drawn = rng.integers(0, num_questions, size=(size, 1, num_questions), dtype=np.int32)
        picked_seeds = rng.integers(0, num_seeds, size=(size, num_seeds))
        # Within: the i-th drawn seed has its own draw of questions. Shared: each seed is scored once and then picked.
        rows = picked_seeds[:, :, None] if kind == "within" else seeds_S[None, :, None]
        total = filled_S_Q[rows, drawn].sum(axis=2)
        count = float(num_questions) if complete else graded_S_Q[rows, drawn].sum(axis=2)
        with np.errstate(invalid="ignore"):
            scored = total / count
        if kind != "within":
            scored = np.take_along_axis(scored, picked_seeds, axis=1)
        means[start : start + size] = scored.mean(axis=1)
    return means


def _canonical(values_S_Q: FloatArray, shared_questions: bool) -> FloatArray:
    sorted_S_Q = np.sort(values_S_Q, axis=1)
    order_S = np.lexsort(sorted_S_Q.T[::-1])
    if not shared_questions:
        return sorted_S_Q[order_S]
    values_S_Q = values_S_Q[order_S]
    return values_S_Q[:, np.lexsort(values_S_Q[::-1])]


def _percentile(means: FloatArray, level: float, method: str) -> Interval:
    tail = (1 - checked_level(level)) / 2
    low, high = np.nanquantile(means, [tail, 1 - tail])
    return Interval(float(low), float(high), level, method)
