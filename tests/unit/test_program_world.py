import json
from collections import Counter
from itertools import islice

import numpy as np
import pytest
import yaml

from gdpo_nemo.data.program_world import (
    CLEAN,
    EASY,
    FILTERS,
    HARD,
    MAPS,
    NUM_TESTS,
    OPERATIONS,
    REDUCTIONS,
    ProgramMix,
    ProgramWorld,
    Task,
    demonstrate,
)
from gdpo_nemo.errors import InputError
from gdpo_nemo.models.tiny import build_tokenizer
from gdpo_nemo.rewards.code import judge_many
from gdpo_nemo.suite.programs import programs_root
from gdpo_nemo.worlds import build_prompt

WORLD = ProgramWorld()
ROWS = list(islice(WORLD.rows("train", np.random.default_rng(0)), 200))
SETTINGS = yaml.safe_load((programs_root() / "configs" / "code_reasoning" / "embedded.yaml").read_text("utf-8"))
LIMIT = SETTINGS["gdpo"]["task_options"]["length_limit"]
OF_GROUP = {group: [row for row in ROWS if row.fields["group"] == group] for group in (EASY, HARD)}


def place(steps, words):
    return next(i for i, step in enumerate(steps) if step.words == words)


DOUBLED, PLUS_5 = place(OPERATIONS, "doubled"), place(OPERATIONS, "plus 5")
LARGEST = place(REDUCTIONS, "the largest, or 0 if there is none")
BY_HAND = Task(3, (DOUBLED, PLUS_5), place(FILTERS, "those above k"), place(MAPS, "square each"), LARGEST)


def mix(**changes):
    without_noise = {"verbose_share": 0.0, "verbose_noise": 0.0, "compact_noise": 0.0, "guessed": 0.0}
    return ProgramMix(**(without_noise | {"worked": 1.0, "guard_kept": 1.0, "read_kept": 1.0} | changes))


def program(row, behaviour, seed=0):
    text = demonstrate(row, behaviour, np.random.default_rng(seed))
    return text.removeprefix("```python\n").removesuffix("```")


def judged(rows, behaviour):
    return judge_many([(program(row, behaviour, seed), json.loads(row.gold)) for seed, row in enumerate(rows)])


def test_a_task_by_hand():
    assert (BY_HAND.number, BY_HAND.k) == ("3, doubled, plus 5", 4)  # 3, 6, 11 modulo 7
    assert BY_HAND.words == "keep those above k, square each, print the largest, or 0 if there is none"
    assert BY_HAND.answer([3, 6, 9, 4]) == 81 and BY_HAND.answer([1, 4]) == 0
    multiples = Task(2, (), place(FILTERS, "the multiples of k"), 0, place(REDUCTIONS, "how many there are"))
    assert (multiples.number, multiples.answer([3, 6, 8])) == ("2", 2)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda step: step.words)
def test_the_code_of_an_operation_does_what_the_world_says(operation):
    for start in range(7):
        names = {"k": start}
        exec(operation.code, names)
        assert names["k"] == operation.does(start) and 0 <= names["k"] < 7


def test_the_three_ways_to_give_the_number():
    row = next(row for row in OF_GROUP[HARD])
    task = row.fields["task"]
    first, second = (OPERATIONS[i] for i in task.operations)
    worked, half, guess = (
        program(row, mix(**change)).splitlines() for change in ({}, {"worked": 0.0}, {"guessed": 1.0})
    )
    assert worked[:3] == [f"k = {task.start}", first.code, second.code]
    assert half[:2] == [f"k = {first.does(task.start)}", second.code] and half[2:] == worked[3:]
    assert guess[0].startswith("a = ") and len(guess) == len(worked) - 3


@pytest.mark.parametrize("behaviour", [CLEAN, mix(), mix(worked=0.0)], ids=["clean", "worked", "first result named"])
def test_programs_without_noise_pass_their_tests_in_the_sandbox(behaviour):
    kinds = {(row.fields["group"], row.fields["task"].filter, row.fields["task"].reduction): row for row in ROWS}
    judgements = judged(list(kinds.values()), behaviour)
    assert [j.pass_rate for j in judgements] == [1.0] * len(kinds)
    assert not any(j.bug for j in judgements)


def test_only_some_of_the_tasks_need_the_guard_and_without_it_they_end_in_an_exception():
    guarded = [row for row in ROWS if "or 0" in row.fields["words"]]
    keeps_nothing = {}
    for row in guarded:
        tests, task = json.loads(row.gold), row.fields["task"]
        lines = [[int(x) for x in text.split()] for text in tests["inputs"]]
        assert len(lines) == len(tests["outputs"]) == NUM_TESTS
        assert tests["outputs"] == [f"{task.answer(line)}\n" for line in lines]
        kept = [[x for x in line if FILTERS[task.filter].does(x, task.k)] for line in lines]
        keeps_nothing[row.id] = sum(not line for line in kept)
    some = guarded[:40]
    for row, verdict in zip(some, judged(some, mix(guard_kept=0.0)), strict=True):
        empty = keeps_nothing[row.id]
        assert (verdict.bug, verdict.pass_rate) == (empty > 0, pytest.approx(1 - empty / NUM_TESTS))
    assert 0.15 < np.mean([empty > 0 for empty in keeps_nothing.values()]) < 0.5


def test_a_guessed_number_is_seldom_right():
    verdicts = judged(OF_GROUP[HARD][:60], mix(guessed=1.0))
    assert np.mean([verdict.pass_rate == 1 for verdict in verdicts]) < 0.4
    assert np.mean([verdict.pass_rate for verdict in verdicts]) < 0.6


def test_no_task_is_in_both_splits_and_questions_are_the_same_for_a_seed():
    asked = {
        split: {row.id.split("/", 2)[2] for row in islice(WORLD.rows(split, np.random.default_rng(1)), 2000)}
        for split in ("train", "heldout")
    }
    assert asked["train"] and asked["heldout"] and not asked["train"] & asked["heldout"]
    first, again, other = WORLD.questions(100, 0), WORLD.questions(100, 0), WORLD.questions(100, 1)
    assert [row.id for row in first] == [row.id for row in again] != [row.id for row in other]
    assert len({row.id for row in first}) == 100
    assert len(OF_GROUP[HARD]) / len(ROWS) == pytest.approx(WORLD.hard_share, abs=0.1)


def test_every_prompt_and_program_is_made_of_whole_tokens_and_fits_the_configured_response():
    tokenizer, rng = build_tokenizer(WORLD), np.random.default_rng(2)
    lengths = Counter()
    for row in ROWS:
        messages = [{"role": m.role, "content": m.content} for m in build_prompt(WORLD, row).messages]
        prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        text, clean = demonstrate(row, WORLD.mix, rng), demonstrate(row, CLEAN, rng)
        for whole in (prompt, text, clean):
            ids = tokenizer(whole, add_special_tokens=False)["input_ids"]
            assert tokenizer.unk_token_id not in ids and tokenizer.decode(ids) == whole
        lengths[len(tokenizer(clean)["input_ids"])] += 1
    assert max(lengths) < SETTINGS["embedded"]["train"]["max_new_tokens"]
    assert 0.3 < sum(n for length, n in lengths.items() if length > LIMIT) / lengths.total() < 0.8


def test_under_the_configured_limit_the_short_the_right_and_the_safe_program_differ():
    tokenizer = build_tokenizer(WORLD)
    rows = [row for row in OF_GROUP[HARD] if "or 0" in row.fields["words"]]

    def longest_and_shortest(**changes):
        lengths = [
            len(tokenizer(demonstrate(row, mix(**changes), np.random.default_rng(0)))["input_ids"]) for row in rows
        ]
        return max(lengths), min(lengths)

    assert longest_and_shortest(worked=0.0)[1] > LIMIT  # right and safe: too long
    assert longest_and_shortest(worked=0.0, guard_kept=0.0)[0] <= LIMIT  # right where nothing is empty, and short
    assert longest_and_shortest(guessed=1.0)[0] <= LIMIT  # safe and short, and seldom right


def test_noise_is_as_asked():
    behaviour = ProgramMix(verbose_share=0.3, verbose_noise=0.0, compact_noise=1.0, guard_kept=1.0, read_kept=0.5)
    texts = [(row, program(row, behaviour, seed)) for seed, row in enumerate(ROWS)]
    assert np.mean(["#" in text for _, text in texts]) == pytest.approx(0.3, abs=0.1)
    assert np.mean(["input()" in text for _, text in texts]) == pytest.approx(0.5, abs=0.1)
    right = {style: [] for style in (True, False)}
    for row, text in texts:
        filters = FILTERS[row.fields["task"].filter].code.split("{k}")
        right["#" in text].append(all(part in text for part in filters))
    assert np.mean(right[True]) == 1.0 and 0.2 < np.mean(right[False]) < 0.5


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: ProgramWorld(heldout_share=0.0), "heldout_share"),
        (lambda: ProgramWorld(heldout_share=1.0), "heldout_share"),
        (lambda: ProgramWorld(hard_share=1.5), "hard_share"),
        (lambda: ProgramMix(guard_kept=1.5), "guard_kept"),
    ],
)
def test_a_world_that_cannot_be_is_refused(make, name):
    with pytest.raises(InputError, match=name):
        make()
