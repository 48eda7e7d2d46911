"""The leaderboard's aggregates on numbers worked by hand."""

import pytest

from gdpo_nemo.errors import InputError, UnknownNameError
from gdpo_nemo.evaluation.bfcl.aggregates import AGGREGATES, CORRECT_FORMAT, aggregate
from gdpo_nemo.evaluation.bfcl.releases import MULTI_TURN, RELEASES, V3, V4

NON_LIVE_V3 = {  # simple = (60 + 30 + 0) / 3 = 30; (30 + 80 + 70 + 60 + 10) / 5 = 50
    "simple": 60, "java": 30, "javascript": 0,
    "multiple": 80, "parallel": 70, "parallel_multiple": 60, "irrelevance": 10,
}  # fmt: skip
LIVE_V3 = {  # (258 * 50 + 1053 * 40 + 16 * 25 + 24 * 50 + 882 * 10 + 18 * 100) / 2251 = 67240 / 2251
    "live_simple": 50, "live_multiple": 40, "live_parallel": 25, "live_parallel_multiple": 50, "live_irrelevance": 10,
    "live_relevance": 100,
}  # fmt: skip
TURNS = dict(zip(MULTI_TURN, (8, 4, 2, 6), strict=True))  # 5


def test_version_3_by_hand():
    means = NON_LIVE_V3 | LIVE_V3 | TURNS
    values = {name: aggregate(weights, means) for name, weights in AGGREGATES["v3"].items()}
    assert values["non_live"] == pytest.approx(50)
    assert values["live"] == pytest.approx(67240 / 2251)
    assert values["multi_turn"] == pytest.approx(5)
    assert values["avg"] == pytest.approx((50 + 67240 / 2251 + 5) / 3)


def test_the_average_of_the_paper_is_the_plain_mean_of_three():
    same = dict.fromkeys(V3.categories, 0.0)
    same |= {name: 50.63 for name in same if name.startswith("live_")}
    same |= dict.fromkeys(MULTI_TURN, 2.04)
    same |= dict.fromkeys(NON_LIVE_V3, 37.87)
    assert round(aggregate(AGGREGATES["v3"]["avg"], same), 2) == 30.18


def test_version_4_by_hand():
    means = {
        "simple_python": 60, "simple_java": 30, "simple_javascript": 0, "multiple": 80, "parallel": 70,
        "parallel_multiple": 60, "irrelevance": 10, "live_irrelevance": 30, "live_relevance": 100, "live_simple": 50,
        "live_multiple": 40, "live_parallel": 25, "live_parallel_multiple": 50, "web_search_base": 20,
        "web_search_no_snippet": 10, "memory_kv": 3, "memory_vector": 6, "memory_rec_sum": 9, **TURNS,
    }  # fmt: skip
    live = (258 * 50 + 1053 * 40 + 16 * 25 + 24 * 50) / (258 + 1053 + 16 + 24)
    by_hand = {"non_live": 60, "live": live, "irrelevance": 20, "multi_turn": 5, "agentic": (15 + 6) / 2}
    by_hand["overall"] = 6 + 0.1 * live + 2 + 0.3 * 5 + 0.4 * 10.5
    values = {name: aggregate(weights, means) for name, weights in AGGREGATES["v4"].items()}
    assert values == {name: pytest.approx(value) for name, value in by_hand.items()}


@pytest.mark.parametrize("version", RELEASES)
def test_weights_add_up_to_one_and_name_categories(version):
    release = RELEASES[version]
    for weights in (*AGGREGATES[version].values(), CORRECT_FORMAT[version]):
        assert sum(weights.values()) == pytest.approx(1)
        assert set(weights) <= {*release.categories, *release.absent}


def test_a_category_that_was_not_run_is_not_a_zero():
    means = NON_LIVE_V3 | LIVE_V3
    assert aggregate(AGGREGATES["v3"]["live"], means) is not None
    assert aggregate(AGGREGATES["v3"]["avg"], means) is None
    offline = dict.fromkeys(V4.categories, 100.0)
    assert {name for name, w in AGGREGATES["v4"].items() if aggregate(w, offline) is None} == {"agentic", "overall"}


def test_correct_format_is_over_all_entries_of_single_turns():
    weights = CORRECT_FORMAT["v3"]
    assert set(weights) == set(NON_LIVE_V3) | set(LIVE_V3)
    assert weights["live_multiple"] == pytest.approx(1053 / 3641)


def test_categories_by_collection():
    assert V3.chosen(["multi_turn", "java"]) == ("java", *MULTI_TURN)
    assert V3.chosen(None) == tuple(V3.categories)
    assert set(V3.chosen(["live", "non_live"])) == set(V3.chosen(["single_turn"]))
    with pytest.raises(UnknownNameError, match="Did you mean 'simple_python'"):
        V4.chosen(["simple_pythn"])
    with pytest.raises(InputError, match="memory_kv needs"):
        V4.chosen(["memory_kv"])
