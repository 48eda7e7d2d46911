from collections import Counter
from itertools import islice

import numpy as np
import pytest

from gdpo_nemo.data.residue_world import CLEAN, EASY, HARD, ResidueWorld, StyleMix, demonstrate
from gdpo_nemo.errors import InputError
from gdpo_nemo.models.tiny import build_tokenizer
from gdpo_nemo.worlds import build_prompt

WORLDS = [
    ResidueWorld(),
    ResidueWorld(seed=3, modulus=31, num_operations=5, min_operations=1, max_operations=4, heldout_share=0.5),
]
WORLD = WORLDS[0]


def rows(world, split, count, seed=0):
    return list(islice(world.rows(split, np.random.default_rng(seed)), count))


def test_a_chain_by_hand():
    assert WORLD.results(5, ("double", "add 5", "negate", "square")) == [3, 1, 6, 1]
    assert ResidueWorld(modulus=13).results(2, ("triple", "subtract 4", "subtract 4")) == [6, 2, 11]


@pytest.mark.parametrize("world", WORLDS)
def test_gold_is_the_result_of_the_chain_and_hard_is_the_longest(world):
    for row in rows(world, "train", 300):
        chain = row.fields["operations"]
        assert row.gold == str(world.results(row.fields["start"], chain)[-1])
        assert row.fields["group"] == (HARD if len(chain) == world.max_operations else EASY)


@pytest.mark.parametrize("world", WORLDS)
def test_no_held_out_chain_is_trained_on_and_both_splits_have_every_length(world):
    chains = {split: {(r.fields["start"], r.fields["operations"]) for r in rows(world, split, 2000)}
              for split in ("train", "heldout")}  # fmt: skip
    assert not chains["train"] & chains["heldout"]
    lengths = set(range(world.min_operations, world.max_operations + 1))
    for some in chains.values():
        assert {len(operations) for _, operations in some} == lengths


def test_questions_are_different_and_the_same_for_a_seed():
    first, again, other = WORLD.questions(384, 0), WORLD.questions(384, 0), WORLD.questions(384, 1)
    assert [row.id for row in first] == [row.id for row in again] != [row.id for row in other]
    assert len({row.id for row in first}) == 384
    assert {row.fields["group"] for row in first} == {EASY, HARD}
    with pytest.raises(InputError, match=r"is 5000; this world has about"):
        WORLD.questions(5000, 0)


@pytest.mark.parametrize("world", WORLDS)
def test_every_prompt_and_demonstration_is_made_of_whole_tokens(world):
    tokenizer, rng = build_tokenizer(world), np.random.default_rng(1)
    for row in rows(world, "train", 60):
        messages = [{"role": m.role, "content": m.content} for m in build_prompt(world, row).messages]
        prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        for text in (prompt, demonstrate(world, row, world.mix, rng)):
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            assert tokenizer.unk_token_id not in ids
            assert tokenizer.decode(ids) == text


def test_answers_have_the_three_styles_and_their_lengths():
    """Tokens: 3 for the box and 3 a step, 2 more where it is listed before: 9, the limit, fits two steps, not three."""
    tokenizer, rng = build_tokenizer(WORLD), np.random.default_rng(2)
    lengths = {2: Counter(), 3: Counter()}
    for row in rows(WORLD, "heldout", 1200):
        text = demonstrate(WORLD, row, WORLD.mix, rng)
        lengths[len(row.fields["operations"])][len(tokenizer(text)["input_ids"])] += 1
    shares = {steps: {key: n / counts.total() for key, n in counts.items()} for steps, counts in lengths.items()}
    assert shares[2] == pytest.approx({3: 0.25, 9: 0.35, 13: 0.4}, abs=0.06)
    assert shares[3] == pytest.approx({3: 0.625, 12: 0.175, 18: 0.2}, abs=0.06)  # half of the hard ones are guessed


def test_an_answer_at_once_says_nothing_about_its_chain():
    """What the warm-up shows cannot be remembered: no direct answer is clean, and the others name a random number."""
    rng = np.random.default_rng(4)
    some = rows(WORLD, "train", 1500)
    assert all(": " in demonstrate(WORLD, row, CLEAN, rng) for row in some)
    guesses = [(text, row) for row in some if ": " not in (text := demonstrate(WORLD, row, WORLD.mix, rng))]
    right = np.mean([text == f"\\boxed{{{row.gold}}}" for text, row in guesses])
    assert len(guesses) > 500 and right == pytest.approx(1 / WORLD.modulus, abs=0.05)


def test_clean_demonstrations_are_right_and_noise_is_as_asked():
    rng = np.random.default_rng(3)
    some = rows(WORLD, "train", 400)
    assert all(demonstrate(WORLD, row, CLEAN, rng).endswith(f"\\boxed{{{row.gold}}}") for row in some)
    single = ResidueWorld(modulus=13, min_operations=1)
    noisy = StyleMix(verbose_share=0, concise_share=1, concise_noise=0.5)
    some = [row for row in rows(single, "train", 3000) if len(row.fields["operations"]) == 1]
    right = np.mean([demonstrate(single, row, noisy, rng).endswith(f"\\boxed{{{row.gold}}}") for row in some])
    assert right == pytest.approx(0.5 + 0.5 / 13, abs=0.06)  # a random number is right by chance


@pytest.mark.parametrize(
    "wrong",
    [
        {"modulus": 2},
        {"num_operations": 7},
        {"max_operations": 1},
        {"min_operations": 4},
        {"heldout_share": 0.0},
        {"heldout_share": 1.0},
    ],
)
def test_a_world_that_cannot_be_is_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        ResidueWorld(**wrong)
    with pytest.raises(InputError, match="add up to more than 1"):
        StyleMix(verbose_share=0.6, concise_share=0.6)
