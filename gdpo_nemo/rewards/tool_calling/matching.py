"""How well predicted calls match the reference calls: the correctness formula.

    R = 6 * S / S_max - 3        S = J(names) + sum of m over matched pairs        S_max = 1 + sum_j (1 + n_j)

with n_j the number of parameters of reference call j, m = J(keys) + number of equal
values for a pair of calls of one name, and J the Jaccard index of two multisets
(intersection over union, by counts; 1 when both are empty). Appendix C of arXiv
2601.05242 maximises S over matchings and takes names as a set; here names are a multiset,
because a set makes duplicated calls free. The released code picks pairs greedily and
compares values with Python's ``==`` (see ``released.py``).

There is no mean, no standard deviation and no epsilon in this reward.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gdpo_nemo.rewards.tool_calling.calls import Call

LOWEST, HIGHEST = -3.0, 3.0
"""Range of the correctness reward."""


def correctness(gold: Sequence[Call], predicted: Sequence[Call], num_malformed: int) -> tuple[float, tuple[str, ...]]:
    """Score predicted calls against at least one reference call.

    Args:
        gold: the reference calls.
        predicted: the well-formed predicted calls, in any order.
        num_malformed: lines that are no call; each counts as a call of a name that the reference lacks.

    Returns:
        A value in [-3, 3], 3 exactly when the calls match one to one and no line is malformed;
        and the codes of what differs.
    """
    gold_by_name, predicted_by_name = _by_name(gold), _by_name(predicted)
    num_shared = 0
    weights: list[float] = []
    reasons: set[str] = set()
    for name, wanted in gold_by_name.items():
        made = predicted_by_name.get(name, [])
        num_shared += min(len(wanted), len(made))
        if len(made) < len(wanted):
            reasons.add("missing_call")
        pair_weights = [[pair_weight(want, make) for make in made] for want in wanted]
        for i, j in best_pairs(pair_weights):
            weights.append(pair_weights[i][j])
            reasons.update(_differences(wanted[i], made[j]))
    num_predicted = len(predicted) + num_malformed
    if len(predicted) > num_shared:
        reasons.add("extra_call")
    names = num_shared / (len(gold) + num_predicted - num_shared)
    highest_sum = 1.0 + sum(1 + len(call.parameters) for call in gold)
    value = (HIGHEST - LOWEST) * math.fsum([names, *weights]) / highest_sum + LOWEST
    return min(HIGHEST, max(LOWEST, value)), tuple(sorted(reasons))


def pair_weight(gold: Mapping[str, Any], predicted: Mapping[str, Any]) -> float:
    """The m of one pair: Jaccard index of the keys plus the number of reference parameters with an equal value."""
    shared = [key for key in gold if key in predicted]
    union = len(gold) + len(predicted) - len(shared)
    num_equal = sum(values_match(gold[key], predicted[key]) for key in shared)
    return (len(shared) / union if union else 1.0) + num_equal


def best_pairs(weights: list[list[float]]) -> list[tuple[int, int]]:
    """The one-to-one assignment of rows to columns with the largest sum of weights."""
    if not weights or not weights[0]:
        return []
    if len(weights) == 1:
        return [(0, max(range(len(weights[0])), key=weights[0].__getitem__))]
    if len(weights[0]) == 1:
        return [(max(range(len(weights)), key=lambda row: weights[row][0]), 0)]
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(weights, maximize=True)
    return list(zip(rows.tolist(), columns.tolist(), strict=True))


def values_match(gold: Any, predicted: Any) -> bool:
    """Whether two JSON values are equal, types included.

    A boolean never equals a number, a string never equals a number, strings are compared
    code point by code point. An integer may stand for a reference that is a float of the
    same value (5 for 5.0), as typed callers accept; a float never stands for an integer.
    """
    if isinstance(gold, dict):
        return (
            isinstance(predicted, dict)
            and gold.keys() == predicted.keys()
            and all(values_match(value, predicted[key]) for key, value in gold.items())
        )
    if isinstance(gold, list):
        return isinstance(predicted, list) and len(gold) == len(predicted) and all(map(values_match, gold, predicted))
    if type(gold) is float and type(predicted) is int:
        return gold == predicted
    return type(gold) is type(predicted) and bool(gold == predicted)


def _by_name(calls: Sequence[Call]) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for call in calls:
        groups.setdefault(call.name, []).append(call.parameters)
    return groups


def _differences(gold: Mapping[str, Any], predicted: Mapping[str, Any]) -> set[str]:
    codes = set()
    if predicted.keys() - gold.keys():
        codes.add("extra_argument")
    if gold.keys() - predicted.keys():
        codes.add("missing_argument")
    if any(not values_match(gold[key], predicted[key]) for key in gold.keys() & predicted.keys()):
        codes.add("wrong_value")
    return codes
