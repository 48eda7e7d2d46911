import json
import math
from types import MappingProxyType

import pytest

from gdpo_nemo.evaluation.heldout import evaluate
from gdpo_nemo.evaluation.store import EvaluationStore
from gdpo_nemo.method import Method
from gdpo_nemo.models.sampling import sample
from gdpo_nemo.prompts.tool_calling import build_prompt
from gdpo_nemo.rewards import REWARDS
from gdpo_nemo.types import NOT_APPLICABLE, RewardVector, Rollout, Row

FILES = ("questions", "generations", "scores")


@pytest.fixture
def evaluated(warm, configure, claim, tmp_path):
    """Evaluate the warmed-up model: the rows of the three files, and the summary."""

    def call(*overrides):
        config = configure(*overrides)
        run = claim(tmp_path / f"run{len(list(tmp_path.iterdir()))}", config)
        summary = evaluate(*warm, run, config, Method(config.gdpo))
        store = EvaluationStore.open(run.evaluation_path("heldout"))
        assert store.state() == "complete"
        return {name: getattr(store, name)() for name in FILES}, summary

    return call


@pytest.mark.parametrize(("questions", "samples"), [(8, 1), (5, 60)])
def test_every_sample_of_every_question_is_kept_in_order(questions, samples, evaluated):
    """300 samples are more than the model draws at once."""
    files, summary = evaluated(
        f"embedded.evaluation.questions={questions}", f"embedded.evaluation.samples_per_question={samples}"
    )
    ids = [row["row_id"] for row in files["questions"]]
    assert len(set(ids)) == questions
    expected = [(row_id, index) for row_id in ids for index in range(samples)]
    for name in ("generations", "scores"):
        assert [(row["row_id"], row["index"]) for row in files[name]] == expected
    assert (summary["questions"], summary["samples_per_question"]) == (questions, samples)


def test_each_score_is_that_of_its_response_to_its_question(evaluated, configure):
    """In more than one batch."""
    files, summary = evaluated("embedded.evaluation.questions=40", "embedded.evaluation.samples_per_question=9")
    reward = Method(configure().gdpo).reward
    golds = {question["row_id"]: question["gold"] for question in files["questions"]}
    for generation, score in zip(files["generations"], files["scores"], strict=True):
        row = Row(generation["row_id"], {}, golds[generation["row_id"]])
        vector = reward(row, Rollout(row.id, generation["index"], generation["response"], 0))
        assert score["values"] == dict(vector.values)
        assert score["reasons"] == {name: list(codes) for name, codes in vector.reasons.items()}
    for name in ("format", "correct"):
        values = [score["values"][name] for score in files["scores"]]
        assert len(set(values)) > 1
        assert summary[f"reward/{name}/mean"] == pytest.approx(sum(values) / 360)
    assert summary["ungraded"] == 0


def test_the_questions_are_held_out_and_as_the_model_reads_them(evaluated, configure, warm):
    files, _ = evaluated("embedded.evaluation.temperature=0")
    config, (model, tokenizer) = configure(), warm
    rows = config.embedded.data.questions(8, 0)
    assert [question["row_id"] for question in files["questions"]] == [row.id for row in rows]
    assert all(row.id.startswith("tool_world/heldout/") for row in rows)
    for question, row, generation in zip(files["questions"], rows, files["generations"], strict=True):
        prompt = build_prompt(row)
        assert question["messages"] == [{"role": m.role, "content": m.content} for m in prompt.messages]
        assert question["gold"] == row.gold
        alone = sample(
            model, tokenizer, [prompt], rollouts_per_prompt=1, max_new_tokens=20, temperature=0, seed=99
        ).rollouts[0]
        made = tuple(generation[key] for key in ("response", "length_tokens", "truncated"))
        assert made == (alone.response, alone.length_tokens, alone.truncated)


def test_the_questions_follow_from_the_evaluation_seed_and_the_samples_from_both(evaluated):
    first, again, other_run, other_questions = (
        evaluated(*seeds)[0] for seeds in [(), (), ("seed=1",), ("embedded.evaluation.seed=1",)]
    )
    assert first == again
    assert other_run["questions"] == first["questions"] != other_questions["questions"]
    assert other_run["generations"] != first["generations"]


def test_the_length_limit_of_training_holds(evaluated):
    files, _ = evaluated("embedded.train.max_new_tokens=3", "embedded.evaluation.questions=20")
    assert max(row["length_tokens"] for row in files["generations"]) == 3
    assert {row["truncated"] for row in files["generations"] if row["length_tokens"] == 3} == {True}


class Patchy:
    """Stands in for a task whose grader gives up on some responses and has no verdict at all in one reward."""

    names = ("even", "never")
    ranges = MappingProxyType({"even": (0.0, 1.0), "never": (0.0, 1.0)})

    def __init__(self, mode):
        pass

    def __call__(self, row, rollout):
        ungraded = "Monday" in rollout.response
        value = math.nan if ungraded else float(len(rollout.response) % 2)
        return RewardVector({"even": value, "never": math.nan}, {"even": ("gave_up",) * ungraded})


def test_what_could_not_be_graded_is_null_and_counted(evaluated, monkeypatch):
    monkeypatch.setitem(REWARDS, "patchy", f"{__name__}:Patchy")
    files, summary = evaluated("gdpo.task=patchy", "embedded.evaluation.questions=40")
    given_up = ["Monday" in row["response"] for row in files["generations"]]
    assert 0 < sum(given_up) < 40
    values = [score["values"] for score in files["scores"]]
    assert [value["even"] is None for value in values] == given_up
    assert [score["reasons"]["even"] == ["gave_up"] for score in files["scores"]] == given_up
    graded = [value["even"] for value in values if value["even"] is not None]
    assert summary["reward/even/mean"] == pytest.approx(sum(graded) / len(graded))
    assert summary["reward/never/mean"] is None
    assert summary["ungraded"] == 40, "a sample counts once, and each lacks at least one reward"
    json.dumps([files, summary], allow_nan=False)


class Selective(Patchy):
    """Its second reward does not apply to any response."""

    def __call__(self, row, rollout):
        vector = super().__call__(row, rollout)
        return RewardVector(vector.values, {**vector.reasons, "never": (NOT_APPLICABLE,)})


def test_a_reward_that_does_not_apply_leaves_no_sample_ungraded(evaluated, monkeypatch):
    monkeypatch.setitem(REWARDS, "selective", f"{__name__}:Selective")
    files, summary = evaluated("gdpo.task=selective", "embedded.evaluation.questions=40")
    given_up = sum("Monday" in row["response"] for row in files["generations"])
    assert 0 < given_up == summary["ungraded"] < 40
    assert summary["reward/never/mean"] is None
