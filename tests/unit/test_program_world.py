import json
from collections import Counter
from itertools import islice

import numpy as np
import pytest

from gdpo_nemo.data.program_world import (
    CLEAN,
    FILTERS,
    GUARDED,
    MAPS,
    NUM_TESTS,
    PLAIN,
    ProgramMix,
    ProgramWorld,
    Task,
    demonstrate,
)
from gdpo_nemo.errors import InputError
from gdpo_nemo.models.tiny import build_tokenizer
from gdpo_nemo.rewards.code import judge_many
from gdpo_nemo.worlds import build_prompt

WORLD = ProgramWorld()
ROWS = list(islice(WORLD.rows("train", np.random.default_rng(0)), 200))
ABOVE = next(i for i, step in enumerate(FILTERS) if step.words.startswith("those above"))
SQUARE = next(i for i, step in enumerate(MAPS) if step.words == "square each")


def program(row, mix, seed=0):
    text = demonstrate(row, mix, np.random.default_rng(seed))
    return text.removeprefix("```python\n").removesuffix("```")


def test_a_task_by_hand():
    largest = Task((ABOVE, "5"), (SQUARE, ""), 2)
    assert largest.words == "keep those above 5, square each, print the largest, or 0 if there is none"
    assert largest.answer([3, 6, 9, 2]) == 81 and largest.answer([1, 2]) == 0
    assert Task((ABOVE, "5"), (0, ""), 1).answer([3, 6, 9]) == 2


def test_the_clean_program_of_every_kind_of_task_passes_its_tests_in_the_sandbox():
    kinds = {
        (row.fields["task"].filter[0], row.fields["task"].map[0], row.fields["task"].reduction): row for row in ROWS
    }
    some = list(kinds.values())[:24]
    judgements = judge_many([(program(row, CLEAN), json.loads(row.gold)) for row in some])
    assert [j.pass_rate for j in judgements] == [1.0] * len(some)
    assert not any(j.bug for j in judgements)


def test_the_last_test_keeps_nothing_and_finds_the_missing_guard():
    for row in ROWS:
        tests, task = json.loads(row.gold), row.fields["task"]
        assert len(tests["inputs"]) == len(tests["outputs"]) == NUM_TESTS
        assert tests["outputs"][-1] == "0\n"
        assert tests["outputs"] == [f"{task.answer([int(x) for x in text.split()])}\n" for text in tests["inputs"]]
    unguarded = ProgramMix(verbose_share=0, compact_noise=0, guard_kept=0, read_kept=1)
    pair = [next(row for row in ROWS if row.fields["group"] == group) for group in (GUARDED, PLAIN)]
    with_guard, without = judge_many([(program(row, unguarded), json.loads(row.gold)) for row in pair])
    assert (with_guard.bug, with_guard.pass_rate) == (True, pytest.approx(2 / 3))
    assert (without.bug, without.pass_rate) == (False, 1.0)


def test_no_task_is_in_both_splits_and_questions_are_the_same_for_a_seed():
    words = {
        split: {row.fields["words"] for row in islice(WORLD.rows(split, np.random.default_rng(1)), 4000)}
        for split in ("train", "heldout")
    }
    assert words["train"] and words["heldout"] and not words["train"] & words["heldout"]
    first, again, other = WORLD.questions(100, 0), WORLD.questions(100, 0), WORLD.questions(100, 1)
    assert [row.id for row in first] == [row.id for row in again] != [row.id for row in other]
    assert len({row.id for row in first}) == 100
    with pytest.raises(InputError, match="is 5000; this world has"):
        WORLD.questions(5000, 0)


def test_every_prompt_and_program_is_made_of_whole_tokens_and_the_limit_divides_the_styles():
    tokenizer, rng = build_tokenizer(WORLD), np.random.default_rng(2)
    lengths = {"verbose": Counter(), "compact": Counter()}
    for row in ROWS:
        messages = [{"role": m.role, "content": m.content} for m in build_prompt(WORLD, row).messages]
        prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        text, clean = demonstrate(row, WORLD.mix, rng), demonstrate(row, CLEAN, rng)
        for whole in (prompt, text, clean):
            ids = tokenizer(whole, add_special_tokens=False)["input_ids"]
            assert tokenizer.unk_token_id not in ids and tokenizer.decode(ids) == whole
        lengths["verbose" if "#" in clean else "compact"][len(tokenizer(clean)["input_ids"])] += 1
    assert max(lengths["compact"]) <= 12  # configs/code_reasoning/embedded.yaml
    assert sum(n for length, n in lengths["verbose"].items() if length > 12) > 0.8 * lengths["verbose"].total()


def test_noise_is_as_asked():
    mix = ProgramMix(verbose_share=0.3, verbose_noise=0.0, compact_noise=1.0, guard_kept=1.0, read_kept=0.5)
    texts = [(row, program(row, mix, seed)) for seed, row in enumerate(ROWS)]
    assert np.mean(["#" in text for _, text in texts]) == pytest.approx(0.3, abs=0.1)
    assert np.mean(["input()" in text for _, text in texts]) == pytest.approx(0.5, abs=0.1)
    right = {style: [] for style in (True, False)}
    for row, text in texts:
        digit = row.fields["task"].filter[1]
        line = FILTERS[row.fields["task"].filter[0]].code.format(k=digit)
        right["#" in text].append(line in text)
    assert np.mean(right[True]) == 1.0 and np.mean(right[False]) < 0.2


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_world_that_cannot_be_is_refused(share):
    with pytest.raises(InputError, match="heldout_share"):
        ProgramWorld(heldout_share=share)
    with pytest.raises(InputError, match="guard_kept"):
        ProgramMix(guard_kept=1.5)
