"""Rows in, prompts out; responses in, named rewards out: under the contract of this NeMo RL."""

import json
import math

import checkout
import pytest
import torch

found = checkout.require()

import ray  # noqa: E402
from nemo_rl.data.datasets import load_response_dataset  # noqa: E402
from nemo_rl.data.interfaces import TaskDataSpec  # noqa: E402

from gdpo_nemo.backends.nemo_rl import upstream  # noqa: E402
from gdpo_nemo.backends.nemo_rl.dataset import CUT_TO, process_row  # noqa: E402
from gdpo_nemo.backends.nemo_rl.environment import RewardActor, RewardEnvironment  # noqa: E402
from gdpo_nemo.data.tool_world import ToolWorld  # noqa: E402
from gdpo_nemo.models.tiny import build_tokenizer  # noqa: E402
from gdpo_nemo.randomness import stream  # noqa: E402
from gdpo_nemo.types import Row  # noqa: E402
from gdpo_nemo.worlds import OF_TASK, build_prompt  # noqa: E402

GDPO = {"task": "tool_calling", "task_options": {"mode": "toolrl"}}
DATA = {
    "dataset_name": "gdpo_nemo.backends.nemo_rl.dataset.RowDataset",
    "split": "train",
    "num_rows": 8,
    "processor": "gdpo_rows",
    "gdpo": GDPO,
}


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    build_tokenizer(ToolWorld()).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def tokenizer(tokenizer_folder):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tokenizer_folder)


@pytest.fixture(scope="module")
def entries(plugin):
    return list(load_response_dataset(dict(DATA)).dataset)


def environment(tokenizer_folder, gdpo=GDPO):
    return RewardEnvironment({"gdpo": gdpo, "tokenizer": str(tokenizer_folder), "max_new_tokens": 24})


def rewards_of(made, names=("format", "correct")):
    if upstream.rewards_are_named():
        return torch.stack([made.rewards[f"reward/{name}"] for name in names], dim=1)
    return made.rewards


def test_a_gold_answer_gets_full_marks_and_nonsense_does_not(entries, tokenizer_folder):
    rows = [json.loads(entry["row"]) for entry in entries]
    logs = [[{"role": "user", "content": "?"}, {"role": "assistant", "content": row["gold"]}] for row in rows]
    logs[1][-1]["content"] = "no idea"
    made = environment(tokenizer_folder).step(logs, [{"row": row} for row in rows])
    values = rewards_of(made)
    assert values.shape == (8, 2) and values[0, 0] == 1 and values[1, 0] == 0
    has_call = torch.tensor(["<tool_call>" in row["gold"] for row in rows])
    assert (values[has_call & (torch.arange(8) != 1), 1] == 3).all()
    assert made.terminateds.tolist() == [1.0] * 8 and len(made.observations) == 8


def test_a_reward_that_crashes_is_not_a_score(entries, tokenizer_folder, tmp_path, monkeypatch):
    (tmp_path / "crashing.py").write_text(
        "def score(row, rollout):\n    return 1.0 if 'a' in rollout.response else 1 / 0\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    gdpo = {**GDPO, "rewards": {"format": {}, "mine": {"fn": "crashing:score", "range": [0, 1]}}}
    row = json.loads(entries[0]["row"])
    logs = [[{"role": "assistant", "content": text}] for text in ("a", "b")]
    values = rewards_of(environment(tokenizer_folder, gdpo).step(logs, [{"row": row}] * 2), ("format", "mine"))
    assert values[0].tolist() == [0.0, 1.0]
    assert all(math.isnan(value) for value in values[1].tolist())


def test_samples_that_come_one_by_one_are_scored_at_once(entries, tokenizer_folder, tmp_path, monkeypatch):
    """As NeMo RL's asynchronous rollouts send them; each reward waits here until the other is asked, too."""
    (tmp_path / "meeting.py").write_text(
        "import threading\n\nboth = threading.Barrier(2)\n\n\ndef score(row, rollout):\n"
        "    both.wait(30)\n    return 1.0\n"
    )
    gdpo = {**GDPO, "python_path": str(tmp_path), "rewards": {"format": {}, "mine": {"fn": "meeting:score"}}}
    gdpo["rewards"]["mine"] |= {"range": [0, 1], "timeout_s": 60}
    monkeypatch.setenv("PYTHONPATH", found.environment()["PYTHONPATH"])
    ray.init(address="local", num_cpus=1, include_dashboard=False)
    try:
        actor = RewardActor.remote({"gdpo": gdpo, "tokenizer": str(tokenizer_folder), "max_new_tokens": 24})
        metadata = [{"row": json.loads(entries[0]["row"])}]
        calls = [actor.step.remote([[{"role": "assistant", "content": text}]], metadata) for text in ("a", "b")]
        values = [rewards_of(made, ("format", "mine")) for made in ray.get(calls)]
    finally:
        ray.shutdown()
    assert [value[0, 1].item() for value in values] == [1.0, 1.0]


def test_a_prompt_is_what_the_chat_template_makes_of_the_row(entries, tokenizer):
    made = process_row(entries[0], TaskDataSpec("x"), tokenizer, 512, 3)
    [message] = made["message_log"]
    expected = tokenizer.apply_chat_template(entries[0]["messages"], tokenize=False, add_generation_prompt=True)
    assert message["content"] == expected and tokenizer.decode(message["token_ids"]) == expected
    assert made["length"] == len(message["token_ids"]) and made["loss_multiplier"] == 1.0 and made["idx"] == 3


def test_a_prompt_that_does_not_fit_is_masked_and_its_length_is_true(entries, tokenizer):
    made = process_row(entries[0], TaskDataSpec("x"), tokenizer, 5, 0)
    assert made["loss_multiplier"] == 0.0
    assert made["length"] == len(made["message_log"][0]["token_ids"]) == CUT_TO


@pytest.mark.parametrize("task", OF_TASK)
def test_every_task_has_rows_of_its_own_world(plugin, task):
    entries = list(load_response_dataset(DATA | {"gdpo": {"task": task}}).dataset)
    rows = [Row(**json.loads(entry["row"])) for entry in entries]
    world = OF_TASK[task]
    expected = next(world.rows("train", stream(0, "data", 0)))
    assert rows[0].id == expected.id and rows[0].gold == expected.gold
    assert entries[0]["messages"][-1]["content"] == build_prompt(world, expected).messages[-1].content


def test_rows_are_the_same_each_time_and_differ_by_split(plugin):
    first, second = (list(load_response_dataset(dict(DATA)).dataset) for _ in range(2))
    heldout = list(load_response_dataset(DATA | {"split": "heldout"}).dataset)
    assert first == second and first != heldout
