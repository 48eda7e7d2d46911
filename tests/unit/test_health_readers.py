import json
import math

import pytest

from gdpo_nemo.errors import InputError, UnknownNameError, UsageError
from gdpo_nemo.evaluation.store import EvaluationStore
from gdpo_nemo.health.readers import read_rollouts


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_flat_columns_and_a_mapping_give_the_same(tmp_path):
    flat = [{"prompt_id": p, "step": 1, "ok": p == g, "len": 0.5, "text": "x", "score": 3} for p in "ab" for g in "ab"]
    nested = [{"prompt_id": r["prompt_id"], "rewards": {"ok": r["ok"], "len": 0.5}} for r in flat]
    for name, rows in (("flat", flat), ("nested", nested)):
        found = read_rollouts([write(tmp_path / f"{name}.jsonl", rows)])
        assert found.names == ("ok", "len")  # the total beside its parts is no reward
        assert found.rewards_B_K[:, 0].tolist() == [1, 0, 0, 1]
        assert found.group_ids_B.tolist() == [0, 0, 1, 1]


def test_null_and_an_absent_key_are_missing(tmp_path):
    rows = [{"prompt_id": 1, "rewards": {"a": 1, "b": None}}, {"prompt_id": 1, "rewards": {"a": 2}}]
    found = read_rollouts([write(tmp_path / "r.jsonl", rows)])
    assert found.names == ("a", "b") and all(map(math.isnan, found.rewards_B_K[:, 1]))


def test_steps_and_files_are_groups_of_their_own(tmp_path):
    rows = [{"step": s, "prompt": "p", "a": 1.0} for s in (1, 1, 2, 2)]
    first, second = (write(tmp_path / f"{name}.jsonl", rows) for name in ("x", "y"))
    assert read_rollouts([first, second]).group_ids_B.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert read_rollouts([tmp_path]).rewards_B_K.shape == (8, 1)


def test_nemo_rl_logs_lists_of_one_and_the_total_alone(tmp_path):
    def row(prompt, reward, mask=1.0):
        return {"content": [[prompt, "answer"]], "rewards": [reward], "sample_loss_mask": [mask], "idx": 0}

    write(tmp_path / "train_data_step2.jsonl", [row("p", 1.0), row("p", 0.0)])
    write(tmp_path / "train_data_step10.jsonl", [row("p", 2.0), row("q", 3.0, 0.0)])
    found = read_rollouts([tmp_path])
    assert found.names == ("total",) and "sum of the rewards alone" in found.notes[0]
    assert found.rewards_B_K[:, 0].tolist() == [1, 0, 2, 3]  # step 2 before step 10
    assert found.group_ids_B.tolist() == [0, 0, 1, 2]
    assert found.valid_B.tolist() == [True, True, True, False]
    assert read_rollouts([tmp_path], rollouts_per_prompt=2).group_ids_B.tolist() == [0, 0, 1, 1]
    named = [{**row("p", 1.0), "reward/format": [0.5], "reward1": [0.25]}]
    assert read_rollouts([write(tmp_path / "n.jsonl", named)]).names == ("format", "reward1")


def test_a_completions_table_of_trl(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    chat = [{"role": "user", "content": "2+2"}]
    table = {
        "step": [5] * 4,
        "prompt": [chat, chat, [{**chat[0], "content": "3+3"}], [{**chat[0], "content": "3+3"}]],
        "completion": ["4", "5", "6", "7"],
        "accuracy_reward": [1.0, 0.0, 1.0, None],
        "think_format_reward": [0.0, 0.0, 1.0, 1.0],
        "advantage": [0.7, -0.7, 0.0, 0.0],
    }
    parquet.write_table(pyarrow.table(table), tmp_path / "completions_00005.parquet")
    found = read_rollouts([tmp_path])
    assert found.names == ("accuracy_reward", "think_format_reward")
    assert found.group_ids_B.tolist() == [0, 0, 1, 1] and math.isnan(found.rewards_B_K[3, 0])


def test_an_evaluation_store_with_a_reward_that_failed(tmp_path):
    header = {"benchmark": {"name": "b"}, "grader": "g", "model": {}, "sampling": {}, "samples_per_question": 2}
    store = EvaluationStore.create(tmp_path / "eval" / "heldout", header)
    rows = [{"row_id": "q", "index": i, "values": {"a": i}, "reasons": {"a": []}} for i in (0, 1)]
    rows[1] |= {"values": {"a": None}, "reasons": {"a": ["error:ValueError"]}}
    store.append_scores(rows)
    for path in (tmp_path, store.path):  # a run directory, and the store itself
        found = read_rollouts([path])
        assert found.names == ("a",) and found.failed_B_K.tolist() == [[False], [True]]
        assert found.valid_B.tolist() == [True, False]


def test_what_cannot_be_read_says_how(tmp_path):
    path = write(tmp_path / "r.jsonl", [{"q": 1, "a": 0.5, "b": "x"}, {"q": 1, "a": 1.0, "b": "y"}])
    with pytest.raises(UsageError, match="--prompt-key"):
        read_rollouts([path])
    assert read_rollouts([path], prompt_key="q", rewards=["a"]).names == ("a",)
    with pytest.raises(UnknownNameError, match="Did you mean 'q'"):
        read_rollouts([path], prompt_key="qq")
    with pytest.raises(InputError, match="reward 'b' is 'x'"):
        read_rollouts([path], prompt_key="q", rewards=["b"])
    with pytest.raises(UsageError, match="groups of 3 do not divide"):
        read_rollouts([path], rollouts_per_prompt=3)
    with pytest.raises(UsageError, match="no file or directory"):
        read_rollouts([tmp_path / "nowhere"])
