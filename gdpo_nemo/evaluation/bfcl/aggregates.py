"""The leaderboard's aggregates as weights of categories. No other place has these formulas.

Version 3 (``eval_runner_helper.py`` of bfcl-eval 2025.8.6.2):

    simple      = mean(simple, java, javascript)
    non_live    = mean(simple, multiple, parallel, parallel_multiple, irrelevance)
    live        = mean over all entries of the six live categories, which is: weighted by their numbers of entries
    multi_turn  = mean of the four multi-turn categories
    avg         = mean(live, multi_turn, non_live): "Average" in tables 1 and 2 of arXiv 2601.05242, as
                  (50.63 + 2.04 + 37.87) / 3 = 30.18 shows; the leaderboard's "Overall"

Version 4 (2026.3.23): relevance enters nothing, irrelevance is a term of its own.

    simple      = mean(simple_python, simple_java, simple_javascript)
    non_live    = mean(simple, multiple, parallel, parallel_multiple)
    live        = mean over all entries of live_simple, live_multiple, live_parallel, live_parallel_multiple
    irrelevance = mean(irrelevance, live_irrelevance)
    multi_turn  = as above
    agentic     = mean(mean(web_search_base, web_search_no_snippet), mean(memory_kv, memory_vector, memory_rec_sum))
    overall     = 0.1 non_live + 0.1 live + 0.1 irrelevance + 0.3 multi_turn + 0.4 agentic

The official programs count a category that was not run as 0. Here its aggregates are not run.
Until April 2025 (gorilla #943) non_live of version 3 also averaged four executable categories.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gdpo_nemo.evaluation.bfcl.releases import MULTI_TURN, V3, V4, Release, is_multi_turn

Weights = Mapping[str, float]


def by_entries(entries: Mapping[str, int]) -> dict[str, float]:
    """Weights that make the mean over all entries."""
    total = sum(entries.values())
    return {name: count / total for name, count in entries.items()}


def mean_of(*parts: str | Weights) -> dict[str, float]:
    """Weights of the plain mean of categories and of other means."""
    return mixed(*((1 / len(parts), part) for part in parts))


def mixed(*parts: tuple[float, str | Weights]) -> dict[str, float]:
    """Weights of a weighted sum of categories and of other means."""
    weights: dict[str, float] = {}
    for share, part in parts:
        for name, weight in ({part: 1.0} if isinstance(part, str) else part).items():
            weights[name] = weights.get(name, 0.0) + share * weight
    return weights


def _live(release: Release, *without: str) -> dict[str, float]:
    counts = {k: n for k, n in release.categories.items() if k.startswith("live_") and k not in without}
    return by_entries(counts)


def _single_turn(release: Release) -> dict[str, float]:
    return by_entries({name: count for name, count in release.categories.items() if not is_multi_turn(name)})


def _v3() -> dict[str, Weights]:
    simple = mean_of("simple", "java", "javascript")
    parts = {
        "live": _live(V3),
        "multi_turn": mean_of(*MULTI_TURN),
        "non_live": mean_of(simple, "multiple", "parallel", "parallel_multiple", "irrelevance"),
    }
    return {**parts, "avg": mean_of(*parts.values())}


def _v4() -> dict[str, Weights]:
    simple = mean_of("simple_python", "simple_java", "simple_javascript")
    live = _live(V4, "live_irrelevance", "live_relevance")
    non_live = mean_of(simple, "multiple", "parallel", "parallel_multiple")
    irrelevance, multi_turn = mean_of("irrelevance", "live_irrelevance"), mean_of(*MULTI_TURN)
    agentic = mean_of(
        mean_of("web_search_base", "web_search_no_snippet"), mean_of("memory_kv", "memory_vector", "memory_rec_sum")
    )
    overall = mixed((0.1, non_live), (0.1, live), (0.1, irrelevance), (0.3, multi_turn), (0.4, agentic))
    return {
        "live": live,
        "multi_turn": multi_turn,
        "non_live": non_live,
        "irrelevance": irrelevance,
        "agentic": agentic,
        "overall": overall,
    }


AGGREGATES: Final[Mapping[str, Mapping[str, Weights]]] = {"v3": _v3(), "v4": _v4()}
"""Version -> name -> category -> its weight; each adds up to 1."""

CORRECT_FORMAT: Final[Mapping[str, Weights]] = {"v3": _single_turn(V3), "v4": _single_turn(V4)}
"""Version -> weights of Correct Format: the mean over all entries of single turns."""


def aggregate(weights: Weights, means: Mapping[str, float]) -> float | None:
    """The weighted sum of the categories' means; None, not run, where one of them is absent."""
    if any(name not in means for name in weights):
        return None
    return sum(weight * means[name] for name, weight in weights.items())
