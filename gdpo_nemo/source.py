"""Where rows and their prompts come from: a procedural world, or tables of your own. One protocol for all backends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Protocol

import numpy as np

from gdpo_nemo.config import DataConfig, GdpoConfig, PromptLimit, RunConfig
from gdpo_nemo.data.fitting import Fitted, fit_prompts, token_counter
from gdpo_nemo.data.questions import Split
from gdpo_nemo.data.table import GOLD, Table, TableFile, read_table, to_rows
from gdpo_nemo.errors import InputError, UnknownNameError
from gdpo_nemo.randomness import stream
from gdpo_nemo.types import Prompt, Row
from gdpo_nemo.worlds import World, build_prompt

SPLITS: Final[tuple[Split, ...]] = ("train", "heldout")


class RowSource(Protocol):
    """What a trainer needs to know about data."""

    def rows(self, split: Split, rng: np.random.Generator) -> Iterator[Row]:
        """Endless rows of one split in an order drawn from ``rng``; a table repeats none before all have come."""

    def questions(self, count: int, seed: int) -> list[Row]:
        """``count`` different held-out rows, the same ones for the same seed.

        Raises:
            InputError: there are not that many.
        """

    def prompt(self, row: Row) -> Prompt:
        """What the model is asked."""

    def num_rows(self, split: Split) -> int | None:
        """Rows of one split; None for a world that makes them as it goes."""


def row_source(config: GdpoConfig, world: World, tokenizer: str | None = None) -> RowSource:
    """The tables that ``gdpo.data`` names, or else the world; ``tokenizer`` as ``TableSource`` takes it.

    Raises:
        GdpoError: a table cannot be read, or does not fit columns and prompt; see ``TableSource``.
    """
    if config.data is None:
        return WorldSource(world)
    pinned = config.data.train.sha256 and config.data.heldout.sha256
    return _pinned(config.data.model_dump_json(), tokenizer) if pinned else TableSource(config.data, tokenizer)


def settle(config: RunConfig) -> RunConfig:
    """A run on tables as it will be: their content pinned, and what only the tool world has left out.

    At most all held-out rows are asked. The warm-up shows gold answers, in its clean steps; it is left out without a
    column of them, and for a model that is not ``tiny`` unless ``embedded.warmup.clean_steps`` is set.

    Raises:
        GdpoError: as ``row_source``.
    """
    if config.gdpo.data is None:
        return config
    embedded = config.embedded
    source = TableSource(config.gdpo.data, None if embedded.model.name == "tiny" else embedded.model.name)
    warmup, evaluation = embedded.warmup, embedded.evaluation
    wanted = embedded.model.name == "tiny" or "clean_steps" in warmup.model_fields_set
    clean_steps = warmup.clean_steps if wanted and GOLD in config.gdpo.data.columns else 0
    questions = min(evaluation.questions, source.num_rows("heldout"))
    changed = {
        "warmup": warmup.model_copy(update={"clean_steps": clean_steps, "noisy_steps": 0}),
        "evaluation": evaluation.model_copy(update={"questions": questions}),
    }
    return config.model_copy(
        update={
            "gdpo": config.gdpo.model_copy(update={"data": source.pinned}),
            "embedded": embedded.model_copy(update=changed),
        }
    )


@lru_cache(maxsize=2)
def _pinned(data: str, tokenizer: str | None) -> RowSource:
    """Tables named by their content need no second look at the files."""
    return TableSource(DataConfig.model_validate_json(data), tokenizer)


@dataclass(frozen=True)
class WorldSource:
    """A procedural world under its own prompt."""

    world: World

    def rows(self, split: Split, rng: np.random.Generator) -> Iterator[Row]:
        """See ``RowSource``."""
        return self.world.rows(split, rng)

    def questions(self, count: int, seed: int) -> list[Row]:
        """See ``RowSource``."""
        return self.world.questions(count, seed)

    def prompt(self, row: Row) -> Prompt:
        """See ``RowSource``."""
        return build_prompt(self.world, row)

    def num_rows(self, split: Split) -> int | None:
        """See ``RowSource``."""
        return None


class TableSource:
    """A training and a held-out table under one prompt template.

    Attributes:
        config: the block it was made from.
        fitted: split -> which prompts are too long; empty without ``prompt_limit``.
        pinned: the block with the SHA-256 of both contents.
    """

    def __init__(self, config: DataConfig, tokenizer: str | None = None) -> None:
        """Read both tables, check each row, and apply ``prompt_limit``.

        Args:
            config: the block.
            tokenizer: that counts the tokens of prompts, unless the block names one.

        Raises:
            PrerequisiteError: a file or a library is missing.
            InputError, UnknownNameError: content, columns and prompt do not fit; the message names the line. No prompt
                is short enough, or there is no tokenizer to tell.
        """
        if config.prompt_limit is not None and config.prompt_limit.tokenizer is None:
            limit = config.prompt_limit.model_copy(update={"tokenizer": tokenizer})
            config = config.model_copy(update={"prompt_limit": limit})
        self.config = config
        tables = {"train": read_table(config.train), "heldout": read_table(config.heldout)}
        same_rows = (config.train.where, config.train.without) == (config.heldout.where, config.heldout.without)
        if tables["train"].sha256 == tables["heldout"].sha256 and same_rows:
            raise InputError(
                f"gdpo.data.heldout has the content of gdpo.data.train ({config.train.name}); held-out rows must be "
                "others, or the evaluation says nothing about new questions"
            )
        self._rows: dict[Split, list[Row]] = {split: to_rows(tables[split], config.columns) for split in SPLITS}
        for split in SPLITS:
            self._check_prompts(self._rows[split], tables[split])
        self.fitted = {} if config.prompt_limit is None else self._fit(config.prompt_limit)
        self.pinned = config.model_copy(
            update={split: _pin(getattr(config, split), table) for split, table in tables.items()}
        )

    def rows(self, split: Split, rng: np.random.Generator) -> Iterator[Row]:
        """See ``RowSource``."""
        rows = self._rows[split]
        while True:
            yield from (rows[i] for i in rng.permutation(len(rows)))

    def questions(self, count: int, seed: int) -> list[Row]:
        """See ``RowSource``."""
        rows = self._rows["heldout"]
        if count > len(rows):
            raise InputError(
                f"embedded.evaluation.questions is {count}; {self.config.heldout.name} has {len(rows)} rows"
            )
        return [rows[i] for i in stream(seed, "questions").permutation(len(rows))[:count]]

    def prompt(self, row: Row) -> Prompt:
        """See ``RowSource``."""
        prompt, limit = self.config.prompt.build(row), self.config.prompt_limit
        return replace(prompt, keep_last=limit.tokens) if limit is not None and limit.compat else prompt

    def num_rows(self, split: Split) -> int:
        """See ``RowSource``."""
        return len(self._rows[split])

    def texts(self) -> list[str]:
        """Every piece of text of the training rows: prompts and gold answers."""
        return [
            text
            for row in self._rows["train"]
            for text in (*(message.content for message in self.prompt(row).messages), row.gold)
        ]

    def _fit(self, limit: PromptLimit) -> dict[Split, Fitted]:
        if limit.tokenizer is None:
            raise InputError(
                "gdpo.data.prompt_limit counts tokens, and the tiny model has no tokenizer before its rows are chosen; "
                "set gdpo.data.prompt_limit.tokenizer to a Hugging Face folder or hub id, or leave the limit out"
            )
        count, fitted = token_counter(limit.tokenizer), dict[Split, Fitted]()
        for split in SPLITS:
            found = fitted[split] = fit_prompts(
                self._rows[split],
                lambda row: count(self.config.prompt.build(row)),
                limit=limit.tokens,
                compat=limit.compat,
            )
            if not found.rows:
                raise InputError(f"{getattr(self.config, split).name}: {found} (gdpo.data.prompt_limit.tokens)")
            self._rows[split] = list(found.rows)
        return fitted

    def _check_prompts(self, rows: Sequence[Row], table: Table) -> None:
        for row, place in zip(rows, table.places, strict=True):
            for field in self.config.prompt.fields:
                if field not in row.fields:
                    raise UnknownNameError(f"field of {place} in gdpo.data.prompt", field, row.fields)
            self.prompt(row)


def _pin(source: TableFile, table: Table) -> TableFile:
    return replace(source, sha256=table.sha256)
