"""Percentile bootstraps over questions, and over seeds and questions.

The bootstrap over seeds is coarse at S = 3: only 10 different multisets of seeds exist, and the spread of
three draws with replacement is too small by sqrt(2/3). A nominal 95 % interval then covers about 75 % where seeds
differ more than questions do. It serves ten seeds and more; tables and verdicts use ``crossed_t``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gdpo_nemo.randomness import stream
from gdpo_nemo.stats.intervals import Interval, checked_level, graded_matrix, strata_words
from gdpo_nemo.stats.strata import FloatArray, Strata, split

RESAMPLES = 10_000
BLOCK_DRAWS = 1 << 20  # question draws held in memory at once


def bootstrap_questions(
    values_Q: ArrayLike,
    *,
    strata: Strata | None = None,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Percentile bootstrap of a mean over its graded questions; says nothing about other seeds.

    Raises:
        InputError: no graded value.
    """
    values_1_Q = graded_matrix(np.asarray(values_Q, dtype=np.float64).reshape(1, -1))
    parts = [(weight, np.sort(own_1_Q[:, ~np.isnan(own_1_Q[0])])) for weight, own_1_Q in split(values_1_Q, strata)]
    means = _resampled_means(parts, resamples, seed, "questions")
    return _percentile(means, level, f"bootstrap over questions{strata_words(strata)}")


def bootstrap_samples(
    values_Q_N: ArrayLike, *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Percentile bootstrap of a mean over questions for these very questions: draws samples within each.

    It answers how far the mean would move if the same model were asked the same questions again; about other questions
    it says nothing. A question with a single graded sample adds no width.

    Args:
        values_Q_N: one value per question and sample, NaN where ungraded.
        level: of the interval.
        resamples: number of resamples.
        seed: root of the random stream.

    Raises:
        InputError: no graded value.
    """
    values_Q_N = graded_matrix(np.asarray(values_Q_N, dtype=np.float64)[~np.isnan(values_Q_N).all(axis=1)])
    rng = stream(seed, "bootstrap", "samples")
    total = np.zeros(resamples)
    for row_N in values_Q_N:
        graded_N = np.sort(row_N[~np.isnan(row_N)])
        total += graded_N[rng.integers(0, len(graded_N), size=(resamples, len(graded_N)))].mean(axis=1)
    return _percentile(total / len(values_Q_N), level, "bootstrap over samples, questions fixed")


def hierarchical_bootstrap(
    values_S_Q: ArrayLike,
    *,
    shared_questions: bool = True,
    strata: Strata | None = None,
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
        strata: draws questions within fixed groups and weighs the groups' means.
        level: of the interval.
        resamples: number of resamples.
        seed: root of the random stream; the order of seeds and questions has no influence.

    Raises:
        InputError: not a matrix, or a seed without any graded value.
    """
    values_S_Q = graded_matrix(values_S_Q)
    parts = _canonical(split(values_S_Q, strata), shared_questions)
    means = _resampled_means(parts, resamples, seed, "shared" if shared_questions else "within")
    return _percentile(means, level, f"hierarchical bootstrap over seeds and questions{strata_words(strata)}")


def _resampled_means(parts: list[tuple[float, FloatArray]], resamples: int, seed: int, kind: str) -> FloatArray:
    rng = stream(seed, "bootstrap", kind)
    num_seeds, num_values = len(parts[0][1]), sum(own_S_Q.size for _, own_S_Q in parts)
    block = max(1, BLOCK_DRAWS // num_values)
    means = np.empty(resamples)
    for start in range(0, resamples, block):
        size = min(block, resamples - start)
        # Within: the i-th drawn seed has its own draw of questions. Shared: each seed is scored once and then picked.
        draws = [
            rng.integers(
                0, own_S_Q.shape[1], (size, num_seeds if kind == "within" else 1, own_S_Q.shape[1]), dtype=np.int32
            )
            for _, own_S_Q in parts
        ]
        picked_seeds = rng.integers(0, num_seeds, size=(size, num_seeds))
        rows = picked_seeds[:, :, None] if kind == "within" else np.arange(num_seeds)[None, :, None]
        scored = np.zeros((size, num_seeds))
        for (weight, own_S_Q), drawn in zip(parts, draws, strict=True):
            scored += weight * _means_of(own_S_Q, rows, drawn)
        if kind != "within":
            scored = np.take_along_axis(scored, picked_seeds, axis=1)
        means[start : start + size] = scored.mean(axis=1)
    return means


def _means_of(values_S_Q: FloatArray, rows: NDArray[np.intp], drawn: NDArray[np.int32]) -> FloatArray:
    graded_S_Q = ~np.isnan(values_S_Q)
    total = np.nan_to_num(values_S_Q)[rows, drawn].sum(axis=2)
    count = float(values_S_Q.shape[1]) if graded_S_Q.all() else graded_S_Q[rows, drawn].sum(axis=2)
    with np.errstate(invalid="ignore"):
        means: FloatArray = total / count
    return means


def _canonical(parts: list[tuple[float, FloatArray]], shared_questions: bool) -> list[tuple[float, FloatArray]]:
    """The same for every order of seeds and questions."""
    sorted_parts = [(weight, np.sort(own_S_Q, axis=1)) for weight, own_S_Q in parts]
    order_S = np.lexsort(np.concatenate([own_S_Q for _, own_S_Q in sorted_parts], axis=1).T[::-1])
    if not shared_questions:
        return [(weight, own_S_Q[order_S]) for weight, own_S_Q in sorted_parts]
    by_seed = [(weight, own_S_Q[order_S]) for weight, own_S_Q in parts]
    return [(weight, own_S_Q[:, np.lexsort(own_S_Q[::-1])]) for weight, own_S_Q in by_seed]


def _percentile(means: FloatArray, level: float, method: str) -> Interval:
    tail = (1 - checked_level(level)) / 2
    low, high = np.nanquantile(means, [tail, 1 - tail])
    return Interval(float(low), float(high), level, method)
