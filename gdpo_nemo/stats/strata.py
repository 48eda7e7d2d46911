"""Fixed groups of questions with weights: a mean of group means, such as BFCL's.

The value of one seed is sum_g w_g m_g with m_g the mean over the graded questions of group g. The groups are fixed and
the questions inside them random, so that variances add up within groups,

    v = sum_g w_g^2 v_g / Q_g

and the degrees of freedom of such a sum are Satterthwaite's (1946, Biometrics Bulletin 2, 110-114):
(sum_g a_g)^2 / sum_g (a_g^2 / (Q_g - 1)) with a_g = w_g^2 v_g / Q_g.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gdpo_nemo.errors import InputError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Strata:
    """Which group each question belongs to, and what the groups weigh.

    Attributes:
        group_Q: index of each question's group.
        weights_G: weights of the groups, positive, adding up to 1.
        names_G: for messages.
    """

    group_Q: NDArray[np.intp]
    weights_G: FloatArray
    names_G: tuple[str, ...]

    @classmethod
    def of(cls, groups: Sequence[str | None], weights: Mapping[str, float]) -> Strata:
        """The strata of questions whose groups are all among the weighted ones.

        Raises:
            InputError: a question of another group, a group without a question, or weights that are no weights.
        """
        names = tuple(weights)
        weights_G = np.array([weights[name] for name in names], dtype=np.float64)
        if len(names) == 0 or (weights_G <= 0).any() or abs(weights_G.sum() - 1) > 1e-6:
            raise InputError(f"weights of strata must be positive and add up to 1, got {dict(weights)}")
        index = {name: g for g, name in enumerate(names)}
        odd = sorted({str(group) for group in groups if group not in index})
        absent = sorted(set(names) - set(map(str, groups)))
        if odd or absent:
            raise InputError(f"strata: questions of groups without a weight: {odd}; groups without questions: {absent}")
        return cls(np.array([index[str(group)] for group in groups], dtype=np.intp), weights_G, names)


def split(values_S_Q: FloatArray, strata: Strata | None, *, every_row: bool = True) -> list[tuple[float, FloatArray]]:
    """(weight, values_S_Q of the group) for every group; all questions with weight 1 without strata.

    Args:
        values_S_Q: a row per seed, or per sample of one seed.
        strata: the groups.
        every_row: whether each row must have a graded value in each group.

    Raises:
        InputError: unequal numbers of questions, or a row without any graded value in some group.
    """
    if strata is None:
        return [(1.0, values_S_Q)]
    if values_S_Q.shape[1] != len(strata.group_Q):
        raise InputError(f"{values_S_Q.shape[1]} questions, and strata of {len(strata.group_Q)}")
    parts = []
    for g, (weight, name) in enumerate(zip(strata.weights_G, strata.names_G, strict=True)):
        own_S_Q = values_S_Q[:, strata.group_Q == g]
        if every_row and np.isnan(own_S_Q).all(axis=1).any():
            raise InputError(f"a seed without any graded value in group {name!r}")
        parts.append((float(weight), own_S_Q))
    return parts


def seed_means(values_S_Q: FloatArray, strata: Strata | None) -> FloatArray:
    """means_S: each seed's mean over its graded questions, or the weighted sum of the groups' means."""
    means = [weight * np.nanmean(own_S_Q, axis=1) for weight, own_S_Q in split(values_S_Q, strata)]
    total: FloatArray = np.sum(means, axis=0)
    return total


def effective_size(values_S_Q: FloatArray, strata: Strata | None) -> float:
    """Graded values, or Kish's 1 / sum_g(w_g^2 / n_g) of them: how many values of equal weight say as much."""
    return 1 / sum(
        weight**2 / float((~np.isnan(own_S_Q)).sum()) for weight, own_S_Q in split(values_S_Q, strata, every_row=False)
    )
