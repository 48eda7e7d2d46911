"""Prompts that are longer than a run allows: left out and counted, or kept and cut as ToolRL's released code does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gdpo_nemo.errors import PrerequisiteError
from gdpo_nemo.types import Prompt, Row


@dataclass(frozen=True)
class Fitted:
    """Rows whose prompts fit a limit.

    Attributes:
        rows: those that are kept.
        too_long: id and tokens of each prompt over the limit: left out, or with ``compat`` kept and to be cut.
        limit: in tokens.
        compat: whether they are kept.
    """

    rows: tuple[Row, ...]
    too_long: tuple[tuple[str, int], ...]
    limit: int
    compat: bool

    def __str__(self) -> str:
        """The counts for a person."""
        whole = len(self.rows) + (0 if self.compat else len(self.too_long))
        done = "cut to their last tokens" if self.compat else "left out"
        longest = f"; the longest has {max(tokens for _, tokens in self.too_long):,}" if self.too_long else ""
        return f"{len(self.too_long):,} of {whole:,} prompts have more than {self.limit:,} tokens: {done}{longest}"


def fit_prompts(rows: Sequence[Row], num_tokens: Callable[[Row], int], *, limit: int, compat: bool = False) -> Fitted:
    """Leave out rows whose prompt is longer than the limit.

    ToolRL's released code keeps them and cuts the front of the prompt away (``truncation="left"``), so that the model
    sees tools without the instructions above them.

    Args:
        rows: of one split.
        num_tokens: length of a row's prompt, chat markup included.
        limit: in tokens.
        compat: keep such rows, as the released code does; whoever makes token ids keeps the last ``limit`` of them.
    """
    lengths = [num_tokens(row) for row in rows]
    kept = tuple(row for row, length in zip(rows, lengths, strict=True) if compat or length <= limit)
    too_long = tuple((row.id, length) for row, length in zip(rows, lengths, strict=True) if length > limit)
    return Fitted(kept, too_long, limit, compat)


def token_counter(tokenizer: str) -> Callable[[Prompt], int]:
    """Length of prompts under the chat template of a tokenizer, with the markup that opens the answer.

    Raises:
        PrerequisiteError: transformers is missing, or the tokenizer cannot be loaded or has no chat template.
    """
    try:
        from transformers import AutoTokenizer

        loaded = AutoTokenizer.from_pretrained(tokenizer)
    except (ImportError, OSError, ValueError) as error:
        raise PrerequisiteError(
            f"cannot load the tokenizer {tokenizer!r} that counts the tokens of prompts: {error}\n"
            "Give a local Hugging Face directory or a hub id (gdpo.data.prompt_limit.tokenizer)."
        ) from error
    if loaded.chat_template is None:
        raise PrerequisiteError(f"the tokenizer {tokenizer!r} has no chat template, so prompts have no length")

    def count(prompt: Prompt) -> int:
        chat = [{"role": message.role, "content": message.content} for message in prompt.messages]
        text = loaded.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        return len(loaded(text, add_special_tokens=False)["input_ids"])

    return count
