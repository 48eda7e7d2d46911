"""Rows of any source as a NeMo RL data set, and the processor that turns one into a prompt."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from typing import Any

from datasets import Dataset
from nemo_rl.data.datasets.raw_dataset import RawDataset
from nemo_rl.data.interfaces import DatumSpec, TaskDataSpec

from gdpo_nemo.config import GdpoConfig, validate
from gdpo_nemo.data.questions import Split
from gdpo_nemo.randomness import stream
from gdpo_nemo.source import TableSource, row_source
from gdpo_nemo.types import Prompt, Row
from gdpo_nemo.worlds import world_of

PROCESSOR = "gdpo_rows"
PLAIN = (str, int, float, list, tuple, dict, type(None))
CUT_TO = 4  # tokens that stay of a prompt that does not fit; its rollouts are masked


class RowDataset(RawDataset):
    """Named in ``data.train.dataset_name`` and ``data.validation.dataset_name`` by its dotted path.

    Each entry holds the chat messages and, as JSON, the row that the reward needs.
    """

    def __init__(
        self, split: Split, gdpo: Mapping[str, Any], num_rows: int | None = None, seed: int = 0,
        tokenizer: str | None = None, **_: Any,
    ) -> None:  # fmt: skip
        """Read rows.

        Args:
            split: ``train`` or ``heldout``.
            gdpo: the ``gdpo:`` block; ``gdpo.data`` names the tables, without it the task's world makes rows.
            num_rows: how many; all of a table unless given, 1,024 of a world.
            seed: of the order of a table, or of the draw from a world.
            tokenizer: the policy's, which counts the tokens of prompts for ``gdpo.data.prompt_limit``.
        """
        config = validate(GdpoConfig, gdpo, "gdpo")
        source = row_source(config, world_of(config.task), tokenizer)
        if isinstance(source, TableSource) and split in source.fitted:
            print(f"{split}: {source.fitted[split]} (gdpo.data.prompt_limit)", flush=True)
        rows = islice(source.rows(split, stream(seed, "data", 0)), num_rows or source.num_rows(split) or 1024)
        self.task_name = f"gdpo_{split}"
        self.dataset = Dataset.from_list([self._entry(row, source.prompt(row)) for row in rows])
        self.val_dataset = None

    def _entry(self, row: Row, prompt: Prompt) -> dict[str, Any]:
        messages = [{"role": message.role, "content": message.content} for message in prompt.messages]
        row_json = json.dumps({"id": row.id, "fields": _plain(row.fields), "gold": row.gold})
        return {
            "messages": messages, "row": row_json, "keep_last": prompt.keep_last or 0, "task_name": self.task_name
        }  # fmt: skip


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What JSON can hold of a row's fields: all of a table's. A world keeps objects there that its prompt reads."""
    return {name: value for name, value in fields.items() if isinstance(value, PLAIN)}


def process_row(
    datum_dict: dict[str, Any],
    task_data_spec: TaskDataSpec,
    tokenizer: Any,
    max_seq_length: int | None,
    idx: int,
) -> DatumSpec:
    """One entry of ``RowDataset`` as the prompt of a rollout; registered as ``gdpo_rows``.

    A prompt of ``max_seq_length`` tokens or more is cut and masked, with a ``length`` that is true of what is left:
    NeMo RL's own processors keep the old one and so take the response for a part of the prompt.
    """
    prompt = tokenizer.apply_chat_template(datum_dict["messages"], tokenize=False, add_generation_prompt=True)
    token_ids = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)["input_ids"][0]
    token_ids = token_ids[-datum_dict["keep_last"] :]
    fits = max_seq_length is None or len(token_ids) < max_seq_length
    if not fits:
        token_ids = token_ids[:CUT_TO]
    return {
        "message_log": [{"role": "user", "content": prompt, "token_ids": token_ids}],
        "length": len(token_ids),
        "extra_env_info": {"row": json.loads(datum_dict["row"])},
        "loss_multiplier": 1.0 if fits else 0.0,
        "idx": idx,
        "task_name": datum_dict["task_name"],
    }
