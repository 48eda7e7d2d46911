"""Repeated templates, by hand and on texts that do or do not share one."""

import random

import pytest

from gdpo_nemo.health.repetition import MOST_CHARACTERS, repetition

RNG = random.Random(0)
WORDS = [f"word{i}" for i in range(2000)]


def said(seed, length=60):
    return " ".join(random.Random(seed).choices(WORDS, k=length))


def test_the_share_of_4_grams_is_counted_over_pairs():
    """abcd, bcde of the first; bcde, cdef of the second; one of its own in the third: 2 of the 10 in ordered pairs."""
    texts = ["a b c d e", "b c d e f", "u v w x"]
    assert repetition(texts)["repeated/ngrams"] == pytest.approx(2 / (2 * 5))


@pytest.mark.parametrize("text", ["", "yes", "ja , sicher", said(0)])
def test_one_answer_to_all_is_repeated_throughout(text):
    found = repetition([text] * 16)
    assert found["repeated/ngrams"] == 1
    assert 0.85 < found["repeated/compression"] <= 1


def test_different_answers_are_not_repeated():
    found = repetition([said(seed) for seed in range(16)])
    assert found["repeated/ngrams"] < 0.001 and found["repeated/compression"] < 0.4


def test_a_template_with_other_words_in_it_is_found_by_both():
    frame = said(99, 40)
    framed = repetition([f"{frame} {said(seed, 10)}" for seed in range(16)])
    free = repetition([said(seed, 50) for seed in range(16)])
    assert framed["repeated/ngrams"] > 0.6 > 0.1 > free["repeated/ngrams"]
    assert framed["repeated/compression"] > free["repeated/compression"] + 0.3


def test_the_texts_are_bounded_together():
    """What follows the limit does not count, so long responses cost no more than that."""
    texts = [said(seed, 200) for seed in range(64)]
    most = MOST_CHARACTERS // 64
    assert repetition([text[:most] for text in texts]) == repetition(texts)


def test_one_prompt_has_nobody_to_repeat():
    assert repetition([]) == repetition(["a b c d"]) == {}
