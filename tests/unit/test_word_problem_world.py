from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from gdpo_nemo.data.word_problem_world import (
    BY_WORDS,
    CLEAN,
    EVENTS,
    THREE,
    TWO,
    ProblemMix,
    WordProblemWorld,
    demonstrate,
)
from gdpo_nemo.errors import InputError
from gdpo_nemo.models.tiny import build_tokenizer
from gdpo_nemo.rewards.gsm8k import Gsm8kReward, score
from gdpo_nemo.types import Row
from gdpo_nemo.worlds import build_prompt

WORLD = WordProblemWorld()
ROWS = list(islice(WORLD.rows("train", np.random.default_rng(0)), 400))
MORE, DOUBLE, HALF = EVENTS[2], EVENTS[8], EVENTS[10]
ANNA = Row(
    "r", {"name": "Anna", "things": "apples", "start": 7, "events": (MORE.words, DOUBLE.words), "group": TWO}, "22"
)


def rewards(row, mix, rng):
    found = score(demonstrate(WORLD, row, mix, rng), row.gold, mode="released")
    return [found[name] for name in Gsm8kReward.names]


def test_a_problem_by_hand():
    system, user = build_prompt(WORLD, ANNA).messages
    assert (system.role, user.role) == ("system", "user") and "<answer>" in system.content
    assert user.content == "Anna has 7 apples. Then 4 more come. Then they double. How many apples are there now?"
    rng = np.random.default_rng(0)
    thought = demonstrate(WORLD, ANNA, replace(CLEAN, think_share=1.0, plain_share=0.0), rng)
    assert thought == "<think>7 + 4 = 11, 11 * 2 = 22</think>\n<answer>22</answer>"
    plain = demonstrate(WORLD, ANNA, replace(CLEAN, think_share=0.0, plain_share=1.0), rng)
    assert plain == "7 + 4 = 11, 11 * 2 = 22\n<answer>22</answer>"
    assert [WORLD.after(event, 7) for event in (MORE, DOUBLE, HALF)] == [11, 14, None]
    assert WORLD.after(DOUBLE, 13) is None and WORLD.after(EVENTS[7], 5) is None


def test_rows_have_two_or_three_events_whose_numbers_stay_in_the_world():
    for row in ROWS:
        number = row.fields["start"]
        for event in map(BY_WORDS.__getitem__, row.fields["events"]):
            number = WORLD.after(event, number)
            assert 1 <= number <= WORLD.largest
        assert row.gold == str(number)
        assert row.fields["group"] == {2: TWO, 3: THREE}[len(row.fields["events"])]
    assert {row.fields["group"] for row in ROWS} == {TWO, THREE}


def test_no_problem_is_in_both_splits_whoever_has_whatever():
    problems = {
        split: {
            (row.fields["start"], row.fields["events"])
            for row in islice(WORLD.rows(split, np.random.default_rng(1)), 3000)
        }
        for split in ("train", "heldout")
    }
    assert not problems["train"] & problems["heldout"]
    assert len(problems["train"]) > 2000  # of some 12,000: what training sees, it seldom sees again
    first, again, other = WORLD.questions(100, 0), WORLD.questions(100, 0), WORLD.questions(100, 1)
    assert [row.id for row in first] == [row.id for row in again] != [row.id for row in other]
    assert len({row.id for row in first}) == 100 and all(row.id.startswith("word_problems/heldout/") for row in first)


def test_every_prompt_and_answer_is_made_of_whole_tokens():
    tokenizer, rng = build_tokenizer(WORLD), np.random.default_rng(2)
    for row in ROWS:
        messages = [{"role": m.role, "content": m.content} for m in build_prompt(WORLD, row).messages]
        prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        for text in (prompt, demonstrate(WORLD, row, WORLD.mix, rng), demonstrate(WORLD, row, CLEAN, rng)):
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            assert tokenizer.unk_token_id not in ids and tokenizer.decode(ids) == text
            assert len(ids) < 24  # configs/gsm8k/embedded.yaml leaves room for the end token


def test_clean_answers_are_right_integers_and_noise_is_as_asked():
    rng = np.random.default_rng(3)
    assert all(rewards(row, CLEAN, rng)[1:] == [1.0, 1.0] for row in ROWS)

    def means(**changes):
        base = replace(CLEAN, think_share=1.0, plain_share=0.0)
        return np.mean([rewards(row, replace(base, **changes), rng) for row in ROWS], axis=0)

    assert means() == pytest.approx([1, 1, 1])
    assert means(bare_kept=0.7) == pytest.approx([1, 0.7, 0.7], abs=0.08)
    assert means(piece_kept=0.9)[0] == pytest.approx(0.9**5, abs=0.08)
    assert means(think_noise=1.0)[1] == pytest.approx(1 / WORLD.largest, abs=0.04)
    plain = {"think_share": 0.0, "plain_share": 1.0}
    assert means(**plain) == pytest.approx([0, 1, 1])
    assert means(**plain, think_noise=1.0)[1] == 1 and means(**plain, plain_noise=1.0)[1] < 0.2


def test_demonstrated_guesses_say_nothing_about_the_problem():
    rng = np.random.default_rng(4)
    guesses = [demonstrate(WORLD, ANNA, replace(CLEAN, think_share=0.0, plain_share=0.0), rng) for _ in range(400)]
    right = np.mean([guess == "<answer>22</answer>" for guess in guesses])
    assert right == pytest.approx(1 / WORLD.largest, abs=0.04)
    assert len(set(guesses)) == WORLD.largest


def test_a_world_that_cannot_be_is_refused():
    with pytest.raises(InputError, match=r"heldout_share is 1\.0"):
        WordProblemWorld(heldout_share=1.0)
    with pytest.raises(InputError, match="largest is 100"):
        WordProblemWorld(largest=100)
    with pytest.raises(InputError, match=r"piece_kept is 1\.5"):
        ProblemMix(piece_kept=1.5)
    with pytest.raises(InputError, match="more than 1"):
        ProblemMix(think_share=0.6, plain_share=0.6)
    with pytest.raises(InputError, match="found no train problem"):
        next(WordProblemWorld(heldout_share=0.999).rows("train", np.random.default_rng(0)))
