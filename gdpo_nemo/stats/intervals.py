"""Intervals of a share and of a mean over a few seeds and many questions.

``values_S_Q`` holds one number per seed and question (the mean over that question's graded samples).
Its columns are paired: every seed answers the same questions. NaN is "ungraded": it is left out of
the mean and counted apart; 0 is a score.

``crossed_t`` is the interval that tables and verdicts use. Model: value = mean + seed effect
+ question effect + rest, all random. With m_s the mean of a seed and d_q the mean of a question
after m_s is taken off,

    v_seed     = var(m_s, ddof=1) / S                              holds rest / (S Q) already
    v_floor    = var(d_q, ddof=1) / Q
    v_question = max(v_floor - mean_square(rest) / (S Q), 0)       two-way analysis of variance
    half width = sqrt(max(t(S-1)^2 v_seed + t(Q-1)^2 v_question,  t(Q-1)^2 v_floor))

Each t is the two-sided quantile at the level. Such a sum of squares covers at least as often as asked:
P(chi2_1 <= x) is concave in x, so by Jensen the coverage is no less than the weighted mean of the coverages
that each term has alone (Banerjee 1960, Sankhya 22, 357). The second term of the max means: never
narrower than the questions alone require, whatever luck the seeds had. With NaN the rest is
divided by the graded seeds of each question: exact when complete, close otherwise. A plain t over the
seeds' means leaves the questions out: it covers 57 % instead of 95 % with five seeds and questions that differ most.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from gdpo_nemo.errors import InputError
from gdpo_nemo.stats.strata import FloatArray as FloatArray
from gdpo_nemo.stats.strata import Strata, seed_means, split

MIN_SEEDS_IQM = 4
SMALLEST_LOG_P = -100.0


@dataclass(frozen=True, slots=True)
class Interval:
    """A two-sided interval, how it was made, and over what it generalises."""

    low: float
    high: float
    level: float
    method: str

    def within(self, low: float, high: float) -> Interval:
        """Cut at the lowest and highest value that the quantity can take."""
        return Interval(
            float(np.clip(self.low, low, high)), float(np.clip(self.high, low, high)), self.level, self.method
        )

    def times(self, factor: float) -> Interval:
        """In another unit, e.g. 100 for percent."""
        return Interval(self.low * factor, self.high * factor, self.level, self.method)

    def covering(self, other: Interval) -> Interval:
        """Widened where the other one reaches further; keeps its own method."""
        return Interval(min(self.low, other.low), max(self.high, other.high), self.level, self.method)


def wilson(num_hits: float, num_questions: float, level: float = 0.95) -> Interval:
    """Wilson score interval for a share, one yes-or-no outcome per question (Wilson 1927, JASA 22, 209-212).

    Raises:
        InputError: no question, hits outside 0..num_questions, or a level outside (0, 1).
    """
    if num_questions < 1 or not 0 <= num_hits <= num_questions:
        raise InputError(f"wilson needs 0 <= hits <= questions and a question, got {num_hits} of {num_questions}")
    z = NormalDist().inv_cdf(0.5 + checked_level(level) / 2)
    share, shrink = num_hits / num_questions, 1 + z * z / num_questions
    centre = (share + z * z / (2 * num_questions)) / shrink
    half = z * (share * (1 - share) / num_questions + z * z / (4 * num_questions**2)) ** 0.5 / shrink
    low = 0.0 if num_hits == 0 else centre - half
    high = 1.0 if num_hits == num_questions else centre + half
    return Interval(low, high, level, "Wilson")


def mean_over_seeds(values_S_Q: ArrayLike, strata: Strata | None = None) -> float:
    """Mean of the seeds' means over their graded questions: every seed weighs the same.

    Raises:
        InputError: not a matrix, or a seed without any graded value.
    """
    return float(seed_means(graded_matrix(values_S_Q), strata).mean())


def iqm(values_S: ArrayLike) -> float:
    """Interquartile mean: the mean after dropping floor(S / 4) seeds at either end.

    Raises:
        InputError: fewer than four seeds (nothing would be dropped), or a NaN.
    """
    values = np.sort(np.asarray(values_S, dtype=np.float64))
    if values.ndim != 1 or len(values) < MIN_SEEDS_IQM or np.isnan(values).any():
        raise InputError(f"iqm needs one graded value for each of at least {MIN_SEEDS_IQM} seeds, got {values}")
    cut = len(values) // 4
    return float(values[cut : len(values) - cut].mean())


def crossed_t(values_S_Q: ArrayLike, *, strata: Strata | None = None, level: float = 0.95) -> Interval:
    """Interval of the mean for new seeds and new questions; formula in the module's docstring.

    Raises:
        InputError: fewer than two seeds or graded questions (of each group), or a seed without any graded value.
    """
    values_S_Q = graded_matrix(values_S_Q)
    half = variances(values_S_Q, strata).half_width(1 - checked_level(level))
    mean = float(seed_means(values_S_Q, strata).mean())
    return Interval(mean - half, mean + half, level, f"crossed t over seeds and questions{strata_words(strata)}")


def crossed_p(values_S_Q: ArrayLike, *, strata: Strata | None = None) -> float:
    """The two-sided p-value that belongs to ``crossed_t``: 1 less the highest level at which it excludes 0.

    Raises:
        InputError: as ``crossed_t``.
    """
    values_S_Q = graded_matrix(values_S_Q)
    parts, mean = variances(values_S_Q, strata), abs(float(seed_means(values_S_Q, strata).mean()))
    if mean == 0:
        return 1.0
    low, high = SMALLEST_LOG_P, 0.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (low, middle) if mean > parts.half_width(10**middle) else (middle, high)
    return float(10**high)


@dataclass(frozen=True, slots=True)
class Variances:
    """What ``crossed_t`` adds up, see the module's docstring.

    Attributes:
        seed, question, floor: v_seed, v_question and v_floor.
        seed_dof, question_dof: degrees of freedom of their quantiles.
    """

    seed: float
    question: float
    floor: float
    seed_dof: float
    question_dof: float

    def half_width(self, tail: float) -> float:
        """Half the interval that leaves out ``tail`` (0.05 for a level of 95 %)."""
        seed, question = t_tail(tail, self.seed_dof) ** 2, t_tail(tail, self.question_dof) ** 2
        return float(max(seed * self.seed + question * self.question, question * self.floor) ** 0.5)


def variances(values_S_Q: FloatArray, strata: Strata | None = None) -> Variances:
    """The parts of ``crossed_t``.

    Raises:
        InputError: as ``crossed_t``.
    """
    parts = [_question_variance(weight, own_S_Q) for weight, own_S_Q in split(values_S_Q, strata)]
    floor, chance = sum(part[0] for part in parts), sum(part[1] for part in parts)
    spread = sum(part[0] ** 2 / part[2] for part in parts)
    question_dof = floor**2 / spread if spread > 0 else sum(part[2] for part in parts)
    num_seeds, means_S = len(values_S_Q), seed_means(values_S_Q, strata)
    seed = float(means_S.var(ddof=1)) / num_seeds
    return Variances(seed, max(floor - chance, 0.0), floor, num_seeds - 1, question_dof)


def _question_variance(weight: float, values_S_Q: FloatArray) -> tuple[float, float, int]:
    """v_floor of one group, the part of it that is chance (mean_square(rest) / (S Q)), and its degrees of freedom."""
    graded_S_Q = ~np.isnan(values_S_Q)
    num_seeds_Q = graded_S_Q.sum(axis=0)
    values_S_Q, num_seeds_Q = values_S_Q[:, num_seeds_Q > 0], num_seeds_Q[num_seeds_Q > 0]
    num_seeds, num_questions = values_S_Q.shape
    if num_seeds < 2 or num_questions < 2:
        raise InputError(f"needs at least two seeds and two graded questions, got {num_seeds} x {num_questions}")
    centred_S_Q = values_S_Q - np.nanmean(values_S_Q, axis=1)[:, None]
    effect_Q = np.nanmean(centred_S_Q, axis=0)
    rest_dof = int(num_seeds_Q.sum()) - num_seeds - num_questions + 1
    rest = float(np.nansum((centred_S_Q - effect_Q) ** 2)) / rest_dof if rest_dof > 0 else 0.0
    scale = weight**2 / num_questions
    chance = rest * float((1 / num_seeds_Q).mean())
    return scale * float(effect_Q.var(ddof=1)), scale * chance, num_questions - 1


def graded_matrix(values_S_Q: ArrayLike) -> FloatArray:
    """The values as float64, after the checks that every function of this package needs."""
    array = np.asarray(values_S_Q, dtype=np.float64)
    if array.ndim != 2 or array.size == 0 or np.isinf(array).any():
        raise InputError(f"needs finite or NaN values of shape [seeds, questions], got shape {array.shape}")
    if np.isnan(array).all(axis=1).any():
        raise InputError(f"seed rows without any graded value: {np.flatnonzero(np.isnan(array).all(axis=1)).tolist()}")
    return array


def t_quantile(level: float, dof: float) -> float:
    """Two-sided quantile of Student's t."""
    return t_tail(1 - checked_level(level), dof)


def t_tail(tail: float, dof: float) -> float:
    """The value that Student's t exceeds in size with probability ``tail``."""
    from scipy.special import stdtrit

    return float(-stdtrit(dof, tail / 2))


def strata_words(strata: Strata | None) -> str:
    """For the name of a method."""
    return "" if strata is None else ", within question groups"


def checked_level(level: float) -> float:
    """The level, if it lies between 0 and 1."""
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, e.g. 0.95, got {level}")
    return level
