from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from gdpo_nemo.data.tool_world import ToolWorld, follow
from gdpo_nemo.errors import InputError
from gdpo_nemo.rewards.tool_calling import score

WORLDS = [
    ToolWorld(seed=0, num_cities=4, num_relations=2, num_tools=2, max_hops=2),
    ToolWorld(seed=1, num_cities=12, num_relations=4, num_tools=3, max_hops=3, small_talk_share=0.3),
    ToolWorld(seed=2, num_cities=16, num_relations=6, num_tools=4, max_hops=4, heldout_share=0.5),
]
every_world = pytest.mark.parametrize("world", WORLDS, ids=lambda world: f"{world.num_cities}cities")


def draw(world, split, count, seed=0):
    return list(islice(world.rows(split, np.random.default_rng(seed)), count))


def facts(world):
    steps = [(relation, city) for relation in world.relations for city in world.cities]
    leads_to = {(relation, city): world.destination_of(city, relation) for relation, city in steps}
    return leads_to, {city: world.transport_of(city) for city in world.cities}


# ---- facts


@every_world
def test_equal_worlds_hold_equal_facts_and_another_seed_holds_others(world):
    assert facts(replace(world)) == facts(world)
    for mine, other in zip(facts(world), facts(replace(world, seed=world.seed + 10)), strict=True):
        assert mine.keys() == other.keys() and mine != other


@every_world
def test_each_relation_is_a_permutation_and_the_tools_share_the_cities(world):
    leads_to, served_by = facts(world)
    for relation in world.relations:
        assert sorted(leads_to[relation, city] for city in world.cities) == sorted(world.cities)
    counts = [list(served_by.values()).count(kind) for kind in set(served_by.values())]
    assert len(counts) == world.num_tools and max(counts) - min(counts) <= 1


def test_a_chain_is_followed_step_by_step():
    world = WORLDS[1]
    first = world.destination_of("Oslo", "twin")
    assert follow(world, "Oslo", ("twin", "rival")) == [first, world.destination_of(first, "rival")]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"num_cities": 1}, "num_cities is 1; it must be 2 to 16"),
        ({"num_cities": 17}, "num_cities is 17"),
        ({"num_relations": 0}, "num_relations is 0; it must be 1 to 6"),
        ({"num_relations": 7}, "num_relations is 7"),
        ({"num_tools": 5}, "num_tools is 5; it must be 1 to 4"),
        ({"max_hops": 0}, "max_hops is 0"),
        ({"small_talk_share": 1.5}, "small_talk_share is 1.5"),
        ({"small_talk_share": -0.1}, "small_talk_share is -0.1"),
        ({"heldout_share": 0}, "heldout_share is 0"),
        ({"heldout_share": 1}, "heldout_share is 1"),
    ],
)
def test_a_world_outside_its_limits_is_refused(wrong, words):
    with pytest.raises(InputError, match=words):
        ToolWorld(**wrong)


def test_a_world_too_small_to_hold_chains_out_says_so():
    world = ToolWorld(num_cities=2, num_relations=1, max_hops=2, small_talk_share=0, heldout_share=0.01)
    with pytest.raises(InputError, match="found no heldout chain"):
        draw(world, "heldout", 1)


# ---- rows


@every_world
@pytest.mark.parametrize("split", ["train", "heldout"])
def test_rows_follow_from_the_generator_alone(world, split):
    rows = draw(world, split, 50)
    assert draw(replace(world), split, 50) == rows
    assert draw(world, split, 50, seed=1) != rows


@every_world
def test_no_training_row_uses_a_held_out_chain(world):
    train, heldout = (
        {(row.fields["start"], *row.fields["path"]) for row in draw(world, split, 1200) if row.fields["path"]}
        for split in ("train", "heldout")
    )
    assert not train & heldout
    assert min(map(len, heldout)) == 3, "one hop is a fact of the world and always trained"
    assert {len(chain) - 1 for chain in train} == set(range(1, world.max_hops + 1))


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_about_that_share_of_chains_is_held_out(share):
    world = ToolWorld(seed=5, num_cities=8, num_relations=4, max_hops=2, small_talk_share=0, heldout_share=share)
    train, heldout = (
        {(row.fields["start"], *row.fields["path"]) for row in draw(world, split, size) if len(row.fields["path"]) > 1}
        for split, size in (("train", 2500), ("heldout", 1000))
    )
    assert len(train) + len(heldout) == 8 * 4 * 4
    assert len(heldout) / 128 == pytest.approx(share, abs=0.1)


def test_which_chains_are_held_out_depends_on_the_seed():
    first, second = (
        {(row.fields["start"], *row.fields["path"]) for row in draw(replace(WORLDS[1], seed=seed), "heldout", 500)}
        for seed in (0, 1)
    )
    assert first - second and second - first


def test_with_single_hops_only_both_splits_ask_the_same_chains():
    world = ToolWorld(num_cities=2, num_relations=1, max_hops=1, small_talk_share=0)
    train, heldout = ({row.fields["user"] for row in draw(world, split, 200)} for split in ("train", "heldout"))
    assert train == heldout and len(train) == 2 * 5


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_small_talk_has_its_share(share):
    rows = draw(replace(WORLDS[0], small_talk_share=share), "train", 2000)
    assert sum(not row.fields["path"] for row in rows) / 2000 == pytest.approx(share, abs=0.04 if 0 < share < 1 else 0)


@every_world
def test_all_tools_are_offered_in_every_order(world):
    orders = {tuple(tool["name"] for tool in row.fields["tools"]) for row in draw(world, "train", 500)}
    assert {frozenset(order) for order in orders} == {frozenset(f"book_{kind}" for kind in facts(world)[1].values())}
    assert len(orders) == [1, 2, 6, 24][world.num_tools - 1]


@every_world
def test_an_id_names_the_content(world):
    rows = [row for split in ("train", "heldout") for row in draw(world, split, 500)]
    content = {row.id: (row.fields, row.gold) for row in rows}
    assert all(content[row.id] == (row.fields, row.gold) for row in rows)
    whole = {(row.id.split("/")[1], str(row.fields)) for row in rows}
    assert len(content) == len(whole)


@every_world
def test_the_gold_gets_full_marks(world):
    for row in [row for split in ("train", "heldout") for row in draw(world, split, 150)]:
        assert dict(score(row.gold, row.gold).values) == {"format": 1, "correct": 3}
        released = dict(score(row.gold, row.gold, mode="toolrl").values)
        assert released == {"format": 1, "correct": 3 if row.fields["path"] else 0}, "released: no call, no marks"


@every_world
def test_the_gold_is_right_by_the_facts(world):
    leads_to, served_by = facts(world)
    for row in draw(world, "heldout", 300):
        city = row.fields["start"]
        for relation in row.fields["path"]:
            city = leads_to[relation, city]
        if row.fields["path"]:
            parameters = f'{{"to": "{city}", "day": "{row.fields["day"]}"}}'
            call = f'{{"name": "book_{served_by[city]}", "parameters": {parameters}}}'
            assert row.gold.endswith(f"</think>\n<tool_call>\n{call}\n</tool_call>")
        else:
            assert "<tool_call>" not in row.gold and "<response>" in row.gold


# ---- questions


@every_world
def test_questions_are_different_held_out_rows_that_follow_from_the_seed(world):
    rows = world.questions(40, seed=4)
    assert len({row.id for row in rows}) == 40
    assert all(row.id.startswith("tool_world/heldout/") for row in rows)
    assert world.questions(40, seed=4) == rows != world.questions(40, seed=5)
    assert world.questions(20, seed=4) == rows[:20], "asking for more adds to the same ones"


def test_all_questions_of_a_small_world_can_be_asked_and_no_more():
    world = ToolWorld(num_cities=2, num_relations=1, num_tools=1, max_hops=1, small_talk_share=0)
    assert len({row.fields["user"] for row in world.questions(2 * 5, seed=0)}) == 10
    with pytest.raises(InputError, match="questions is 11; this world has about 10 held-out rows"):
        world.questions(11, seed=0)
