"""Rows whose prompts are too long, through NeMo RL's loader of data sets and into token ids."""

import json

import checkout
import pytest

checkout.require()

from nemo_rl.data.datasets import load_response_dataset  # noqa: E402
from nemo_rl.data.interfaces import TaskDataSpec  # noqa: E402

from gdpo_nemo.backends.nemo_rl.dataset import process_row  # noqa: E402
from gdpo_nemo.data.tool_world import ToolWorld  # noqa: E402
from gdpo_nemo.models.tiny import build_tokenizer  # noqa: E402

WORD = "plan "


@pytest.fixture
def made(tmp_path, plugin, capsys):
    """Entries of rows of 1 to 6 words with a limit, what was printed, the tokenizer, and a prompt's length."""
    from transformers import AutoTokenizer

    for name, sizes in (("train", range(1, 7)), ("heldout", range(1, 3))):
        lines = [json.dumps({"chat": [{"role": "user", "content": WORD * n}], "gold": "g"}) + "\n" for n in sizes]
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    build_tokenizer(ToolWorld()).save_pretrained(tmp_path / "tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "tokenizer")

    def length(num_words):
        chat = [{"role": "user", "content": WORD * num_words}]
        text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        return len(tokenizer(text, add_special_tokens=False)["input_ids"])

    def load(num_words, **limit):
        files = {split: {"path": str(tmp_path / f"{split}.jsonl")} for split in ("train", "heldout")}
        limit |= {"tokens": length(num_words)}
        data = {**files, "columns": {"gold": "gold"}, "prompt": {"messages": "chat"}, "prompt_limit": limit}
        config = {
            "dataset_name": "gdpo_nemo.backends.nemo_rl.dataset.RowDataset", "split": "train",
            "processor": "gdpo_rows", "tokenizer": str(tmp_path / "tokenizer"),
            "gdpo": {"task": "tool_calling", "data": data},
        }  # fmt: skip
        return list(load_response_dataset(config).dataset), capsys.readouterr().out

    return load, tokenizer, length


def test_long_prompts_are_left_out_and_counted(made):
    load, _, length = made
    assert length(6) > length(4) > length(2)
    entries, printed = load(4)
    assert sorted(len(entry["messages"][0]["content"]) // len(WORD) for entry in entries) == [1, 2, 3, 4]
    assert f"train: 2 of 6 prompts have more than {length(4)} tokens: left out" in printed


def test_compat_keeps_them_and_cuts_their_front(made):
    load, tokenizer, length = made
    entries, printed = load(4, compat=True)
    assert len(entries) == 6 and "2 of 6" in printed and "cut to their last tokens" in printed
    for entry in entries:
        datum = process_row(entry, TaskDataSpec("x"), tokenizer, length(4) + 1, 0)
        [message] = datum["message_log"]
        whole = tokenizer(message["content"], add_special_tokens=False)["input_ids"]
        assert message["token_ids"].tolist() == whole[-length(4) :]
        assert datum["length"] == len(message["token_ids"]) and datum["loss_multiplier"] == 1.0
