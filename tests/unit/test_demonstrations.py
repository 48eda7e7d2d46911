import json
import re
from itertools import islice

import numpy as np
import pytest

from gdpo_nemo.data.demonstrations import CLEAN, BehaviourMix, demonstrate
from gdpo_nemo.data.tool_world import ToolWorld
from gdpo_nemo.rewards.tool_calling import score

WORLD = ToolWorld(seed=3, num_cities=8, num_relations=3, num_tools=3, max_hops=3, small_talk_share=0.2)
ROWS = list(islice(WORLD.rows("train", np.random.default_rng(0)), 300))
CHAINS = [row for row in ROWS if row.fields["path"]]
THINKING = BehaviourMix(think_share=1, step_noise=0, direct_noise=0, piece_kept=1)
DIRECT = BehaviourMix(think_share=0, step_noise=0, direct_noise=0, piece_kept=1)


def shown(rows, mix, seed=0):
    """Each row with one demonstration of it."""
    rng = np.random.default_rng(seed)
    return [(row, demonstrate(WORLD, row, mix, rng)) for row in rows]


def toolrl(row, text):
    return dict(score(text, row.gold, mode="toolrl").values)


def called(text):
    """Tool, city and day of the call."""
    call = json.loads(re.search(r"<tool_call>\n(.*)\n</tool_call>", text)[1])
    return call["name"], call["parameters"]["to"], call["parameters"]["day"]


def test_a_demonstration_follows_from_the_generator_alone():
    mix = BehaviourMix(think_share=0.5, step_noise=0.5, direct_noise=0.5, piece_kept=0.5)
    assert shown(ROWS, mix) == shown(ROWS, mix) != shown(ROWS, mix, seed=1)


def test_thinking_without_noise_is_the_gold():
    for row, text in shown(ROWS, THINKING):
        assert text == row.gold


def test_a_direct_answer_is_the_gold_without_its_thought():
    for row, text in shown(ROWS, DIRECT):
        assert f"<think> {row.gold.split('<think> ')[1].split(' </think>')[0]} </think>\n{text}" == row.gold
        assert toolrl(row, text) == toolrl(row, row.gold) | {"format": 0}


def test_the_clean_mix_shows_both_and_is_always_right():
    pairs = shown(ROWS, CLEAN)
    assert all(toolrl(row, text)["correct"] == toolrl(row, row.gold)["correct"] for row, text in pairs)
    assert {toolrl(row, text)["format"] for row, text in pairs} == {0, 1}


@pytest.mark.parametrize("share", [0.2, 0.7])
def test_that_share_thinks(share):
    mix = BehaviourMix(think_share=share, step_noise=0.5, direct_noise=0.5, piece_kept=1)
    thinking = sum("<think>" in text for _, text in shown(ROWS * 5, mix))
    assert thinking / (5 * len(ROWS)) == pytest.approx(share, abs=0.05)


def test_step_noise_changes_cities_of_the_thought_and_the_call_follows_the_last():
    mix = BehaviourMix(think_share=1, step_noise=0.6, direct_noise=0, piece_kept=1)
    num_steps = num_followed = 0
    for row, text in shown(CHAINS, mix):
        thought = text.split("<think> ")[1].split(" </think>")[0]
        steps = [step.split(" ") for step in thought.split(", ")]
        assert [relation for relation, _ in steps] == list(row.fields["path"])
        reached = [city for _, city in steps]
        assert called(text) == (f"book_{WORLD.transport_of(reached[-1])}", reached[-1], row.fields["day"])
        assert toolrl(row, text)["format"] == 1
        departures = [row.fields["start"], *reached[:-1]]
        hops = zip(departures, row.fields["path"], strict=True)
        right = [WORLD.destination_of(here, relation) for here, relation in hops]
        num_steps += len(steps)
        num_followed += sum(city == expected for city, expected in zip(reached, right, strict=True))
    assert num_followed / num_steps == pytest.approx(0.4 + 0.6 / 8, abs=0.06), "a wrong city may be the right one"


def test_direct_noise_changes_the_city_of_direct_answers_only():
    noise = BehaviourMix(think_share=0, step_noise=0, direct_noise=0.6, piece_kept=1)
    pairs = shown(CHAINS, noise)
    wrong = [called(text)[1] != called(row.gold)[1] for row, text in pairs]
    assert np.mean(wrong) == pytest.approx(0.6 * 7 / 8, abs=0.08)
    for row, text in pairs:
        name, city, day = called(text)
        assert (name, day) == (f"book_{WORLD.transport_of(city)}", row.fields["day"])
    thinking = BehaviourMix(think_share=1, step_noise=0, direct_noise=1, piece_kept=1)
    assert all(text == row.gold for row, text in shown(ROWS, thinking))


def test_step_noise_leaves_direct_answers_alone():
    mix = BehaviourMix(think_share=0, step_noise=1, direct_noise=0, piece_kept=0)
    assert [text for _, text in shown(ROWS, mix)] == [text for _, text in shown(ROWS, DIRECT)]


def test_without_its_pieces_the_format_is_lost_and_the_correctness_stays():
    for row, text in shown(ROWS, BehaviourMix(think_share=1, step_noise=0, direct_noise=0, piece_kept=0)):
        assert "<think>" not in text and "</think>" not in text
        assert toolrl(row, text) == toolrl(row, row.gold) | {"format": 0}


def test_each_piece_is_lost_on_its_own():
    mix = BehaviourMix(think_share=1, step_noise=0, direct_noise=0, piece_kept=0.6)
    kept = {"<think> ": [], " </think>": [], "\n<": []}
    for row, text in shown(CHAINS, mix):
        answer = text.index("<tool_call>")
        present = {
            "<think> ": text.startswith("<think> "),
            " </think>": " </think>" in text,
            "\n<": text[answer - 1] == "\n",
        }
        assert toolrl(row, text)["format"] == all(present.values())
        for piece, there in present.items():
            kept[piece].append(there)
    for there in kept.values():
        assert np.mean(there) == pytest.approx(0.6, abs=0.09)
    assert len(set(zip(*kept.values(), strict=True))) == 8, "all combinations occur"


def test_small_talk_has_no_city_to_get_wrong():
    small_talk = [row for row in ROWS if not row.fields["path"]]
    noisy = BehaviourMix(think_share=1, step_noise=1, direct_noise=1, piece_kept=1)
    assert small_talk and all(text == row.gold for row, text in shown(small_talk, noisy))
