"""Prompts over a limit of tokens: left out and counted, or cut as ToolRL's code does."""

import json

import pytest

from gdpo_nemo.config import EmbeddedConfig, GdpoConfig, ModelConfig, RunConfig, validate
from gdpo_nemo.data.fitting import fit_prompts, token_counter
from gdpo_nemo.errors import InputError, PrerequisiteError
from gdpo_nemo.models.sampling import encode
from gdpo_nemo.source import TableSource, row_source, settle
from gdpo_nemo.types import Message, Prompt, Row

MARKUP = len("<user><assistant>")  # each byte is a token
WORDS = ["four", "sixsix", "ten and it"]


@pytest.fixture
def block(tmp_path):
    """A ``gdpo:`` block over two files of questions; ``block(tokens=..)`` limits their prompts."""
    for name, words in (("train", WORDS), ("heldout", WORDS[1:])):
        lines = [json.dumps({"question": text, "answer": "a"}) + "\n" for text in words]
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))

    def call(**limit):
        files = {split: {"path": str(tmp_path / f"{split}.jsonl")} for split in ("train", "heldout")}
        data = {**files, "columns": {"gold": "answer"}, "prompt": {"user": "{question}"}, "prompt_limit": limit}
        return validate(GdpoConfig, {"task": "tool_calling", "data": data})

    return call


def test_rows_over_the_limit_are_left_out_or_kept_and_counted():
    rows = [Row(str(i), {"size": i}, "") for i in range(5)]
    fitted = fit_prompts(rows, lambda row: row.fields["size"], limit=2)
    assert ([row.id for row in fitted.rows], fitted.too_long) == (["0", "1", "2"], (("3", 3), ("4", 4)))
    assert str(fitted) == "2 of 5 prompts have more than 2 tokens: left out; the longest has 4"
    compat = fit_prompts(rows, lambda row: row.fields["size"], limit=2, compat=True)
    assert (list(compat.rows), compat.too_long) == (rows, fitted.too_long)
    assert str(compat) == "2 of 5 prompts have more than 2 tokens: cut to their last tokens; the longest has 4"
    assert str(fit_prompts(rows, lambda row: 0, limit=2)) == "0 of 5 prompts have more than 2 tokens: left out"


def test_a_prompt_is_as_long_as_the_template_makes_it(chat_tokenizer):
    assert token_counter(chat_tokenizer)(Prompt("r", (Message("user", "four"),))) == 4 + MARKUP
    with pytest.raises(PrerequisiteError, match=r"cannot load the tokenizer '/none'") as error:
        token_counter("/none")
    assert "hub id (gdpo.data.prompt_limit.tokenizer)" in str(error.value)


@pytest.mark.parametrize(("tokens", "kept"), [(10, 3), (9, 2), (6, 2), (5, 1)])
def test_a_table_has_the_rows_that_fit(tokens, kept, block, chat_tokenizer):
    config = block(tokens=tokens + MARKUP)
    if kept == 1:
        with pytest.raises(InputError, match=r"heldout\.jsonl: 2 of 2 prompts .* left out"):
            TableSource(config.data, chat_tokenizer)
        return
    source = TableSource(config.data, chat_tokenizer)
    assert source.num_rows("train") == kept and source.num_rows("heldout") == kept - 1
    assert len(source.fitted["train"].too_long) == 3 - kept
    assert source.pinned.prompt_limit.tokenizer == chat_tokenizer
    assert row_source(config.model_copy(update={"data": source.pinned}), None).num_rows("train") == kept


def test_compat_keeps_all_rows_and_the_end_of_each_prompt(block, chat_tokenizer):
    from transformers import AutoTokenizer

    source = TableSource(block(tokens=22, compat=True).data, chat_tokenizer)
    rows = [next(r for r in source._rows["train"] if r.fields["question"] == text) for text in WORDS]
    prompts = [source.prompt(row) for row in rows]
    tokenizer = AutoTokenizer.from_pretrained(chat_tokenizer)
    texts = [tokenizer.decode(ids) for ids in encode(tokenizer, prompts)]
    assert texts == ["<user>four<assistant>", "user>sixsix<assistant>"[-22:], ">ten and it<assistant>"[-22:]]
    assert [len(text) for text in texts] == [21, 22, 22]


def test_without_a_limit_nothing_is_cut(block, chat_tokenizer):
    config = block(tokens=1000)
    unlimited = TableSource(config.data.model_copy(update={"prompt_limit": None}))
    assert unlimited.fitted == {} and unlimited.prompt(unlimited._rows["train"][0]).keep_last is None
    limited = TableSource(config.data, chat_tokenizer)
    assert limited.prompt(limited._rows["train"][2]) == unlimited.prompt(unlimited._rows["train"][2])


def test_a_run_counts_with_the_tokenizer_of_its_model_and_tiny_has_none(block, chat_tokenizer):
    config = block(tokens=6 + MARKUP)
    run = RunConfig(gdpo=config, embedded=EmbeddedConfig(model=ModelConfig(name=chat_tokenizer)))
    settled = settle(run)
    assert settled.gdpo.data.prompt_limit.tokenizer == chat_tokenizer
    assert row_source(settled.gdpo, settled.embedded.data).num_rows("train") == 2
    with pytest.raises(InputError, match=r"set gdpo\.data\.prompt_limit\.tokenizer"):
        settle(RunConfig(gdpo=config))
