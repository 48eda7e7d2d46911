"""Tables of one's own: what is read, what is refused and where, and the rows and prompts that come of it."""

import hashlib
import importlib.util
import itertools
import json
import sys

import numpy as np
import pytest

from gdpo_nemo.config import GdpoConfig, RunConfig, validate
from gdpo_nemo.data.table import TableFile, read_table, to_rows
from gdpo_nemo.data.tool_world import ToolWorld
from gdpo_nemo.errors import ConfigError, InputError, PrerequisiteError, UnknownNameError
from gdpo_nemo.prompts.template import PromptTemplate
from gdpo_nemo.prompts.tool_calling import build_prompt
from gdpo_nemo.source import TableSource, WorldSource, row_source, settle
from gdpo_nemo.types import Message, Row

TRAIN = [
    {"uid": f"t{i}", "question": f"What is {i} + {i}?", "answer": {"value": i + i}, "tags": ["a"]} for i in range(7)
]
HELDOUT = [{"uid": f"h{i}", "question": f"What is {i} + 1?", "answer": {"value": i + 1}, "tags": []} for i in range(4)]
COLUMNS = {"id": "uid", "gold": "answer.value"}
PROMPT = {"system": "Count.", "user": "Question: {question}"}
requires_pyarrow = pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed")


def write_jsonl(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return path


def write_parquet(path, records):
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), path)
    return path


@pytest.fixture
def config(tmp_path):
    """A ``gdpo:`` block over two small files, changed by keyword: ``config(columns={...})``."""
    train, heldout = (write_jsonl(tmp_path / f"{n}.jsonl", r) for n, r in (("train", TRAIN), ("heldout", HELDOUT)))

    def call(**changed):
        data = {"train": {"path": str(train)}, "heldout": {"path": str(heldout)}, "columns": COLUMNS, "prompt": PROMPT}
        return validate(GdpoConfig, {"task": "tool_calling", "data": data | changed})

    return call


# ---- reading


@pytest.mark.parametrize("kind", ["jsonl", pytest.param("parquet", marks=requires_pyarrow)])
def test_a_file_gives_its_records_with_their_places_and_its_hash(kind, tmp_path):
    path = {"jsonl": write_jsonl, "parquet": write_parquet}[kind](tmp_path / f"rows.{kind}", TRAIN)
    table = read_table(TableFile(path=str(path)))
    assert list(table.records) == TRAIN
    assert table.places[1] == {"jsonl": "rows.jsonl line 2", "parquet": "rows.parquet row 2"}[kind]
    assert table.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_empty_lines_do_not_count_and_keep_the_numbering(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n\n  \n{"a": "\u2028"}', "utf-8")
    table = read_table(TableFile(path=str(path)))
    assert table.places == ["rows.jsonl line 1", "rows.jsonl line 4"]
    assert table.records[1] == {"a": "\u2028"}, "a separator that is no line end in JSON lines"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"a": 1}\n{"a": \n', "rows.jsonl line 2 is not valid JSON"),
        ('{"a": 1}\n[1]\n', "rows.jsonl line 2 is a list; expected an object"),
        (b'{"a": 1}\n{"a": "\xff"}\n', "rows.jsonl line 2 is not valid JSON"),
        ("", "rows.jsonl has no rows"),
        ("\n\n", "rows.jsonl has no rows"),
    ],
)
def test_a_file_that_cannot_be_read_is_explained_with_the_line(content, words, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=words):
        read_table(TableFile(path=str(path)))


def test_a_file_that_is_not_there_or_of_another_kind_is_explained(tmp_path):
    with pytest.raises(PrerequisiteError, match=r"cannot read the data file .*rows.jsonl: No such file"):
        read_table(TableFile(path=str(tmp_path / "rows.jsonl")))
    with pytest.raises(InputError, match=r"rows.csv is neither a JSON list .* nor JSON lines .* nor parquet"):
        read_table(TableFile(path=str(tmp_path / "rows.csv")))


@requires_pyarrow
def test_broken_parquet_is_explained(tmp_path):
    (tmp_path / "rows.parquet").write_bytes(b"PAR1 or not")
    with pytest.raises(InputError, match=r"rows.parquet cannot be read as parquet"):
        read_table(TableFile(path=str(tmp_path / "rows.parquet")))


@pytest.mark.parametrize(("library", "source"), [("pyarrow", {"path": "rows.parquet"}), ("datasets", {"hf": "a/b"})])
def test_a_missing_library_is_named_with_the_command(library, source, tmp_path, monkeypatch):
    (tmp_path / "rows.parquet").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(PrerequisiteError, match=rf"needs {library}: pip install 'gdpo-nemo\[data\]'"):
        read_table(TableFile(**source, split="train" if library == "datasets" else None))


def test_a_data_set_of_the_datasets_library_is_read_by_split(tmp_path, monkeypatch):
    pytest.importorskip("datasets", reason="the datasets library is not installed")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    write_jsonl(tmp_path / "train.jsonl", TRAIN)
    write_jsonl(tmp_path / "test.jsonl", HELDOUT)
    table = read_table(TableFile(hf=str(tmp_path), split="test"))
    assert [record["uid"] for record in table.records] == ["h0", "h1", "h2", "h3"]
    assert table.places[0].endswith("/test row 1")
    part = read_table(TableFile(hf=str(tmp_path), split="train[:3]"))
    assert len(part.records) == 3 and part.sha256 != table.sha256
    assert read_table(TableFile(hf=str(tmp_path), split="train[:3]")).sha256 == part.sha256
    with pytest.raises(PrerequisiteError, match=r"cannot load hf: .* split validation"):
        read_table(TableFile(hf=str(tmp_path), split="validation"))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({}, "needs either path"),
        ({"path": "a.jsonl", "hf": "a/b"}, "needs either path"),
        ({"path": "a.jsonl", "split": "train", "revision": "x"}, "split, revision belong to hf"),
        ({"hf": "a/b"}, "needs a split"),
    ],
)
def test_a_source_that_is_not_clear_is_refused(source, words):
    with pytest.raises(InputError, match=words):
        TableFile(**source)


# ---- rows


def rows_of(tmp_path, records, columns):
    return to_rows(read_table(TableFile(path=str(write_jsonl(tmp_path / "rows.jsonl", records)))), columns)


def test_columns_give_id_gold_and_fields_and_all_others_stay(tmp_path):
    row = rows_of(tmp_path, TRAIN, COLUMNS | {"sum": "answer.value", "problem": "question"})[3]
    assert row == Row("t3", TRAIN[3] | {"sum": 6, "problem": "What is 3 + 3?"}, "6")


def test_without_an_id_rows_are_named_after_their_place_and_without_a_gold_it_is_empty(tmp_path):
    rows = rows_of(tmp_path, TRAIN, {})
    assert (rows[0].id, rows[0].gold) == ("rows.jsonl line 1", "")


@pytest.mark.parametrize(
    ("value", "gold"), [("4", "4"), (4, "4"), (2.5, "2.5"), (True, "true"), (["ä"], '["ä"]'), ({"a": 1}, '{"a": 1}')]
)
def test_a_gold_answer_that_is_no_string_becomes_json(value, gold, tmp_path):
    assert rows_of(tmp_path, [{"answer": value}], {"gold": "answer"})[0].gold == gold


def test_a_column_whose_name_has_a_dot_is_taken_as_it_is(tmp_path):
    assert rows_of(tmp_path, [{"a.b": "x", "a": {"b": "y"}}], {"gold": "a.b"})[0].gold == "x"


@pytest.mark.parametrize(
    ("records", "columns", "error", "words"),
    [
        (TRAIN, {"gold": "anwser"}, UnknownNameError, "column of rows.jsonl line 1 'anwser'. Did you mean 'answer'?"),
        (TRAIN, {"gold": "answer.vale"}, UnknownNameError, "'answer.vale'"),
        ([*TRAIN, {"uid": "x"}], {"q": "question"}, UnknownNameError, "column of rows.jsonl line 8 'question'"),
        ([{"a": 1}, {"a": 1}], {"id": "a"}, InputError, "rows.jsonl line 2 has the same id '1' as rows.jsonl line 1"),
        (
            [{"a": None}],
            {"gold": "a"},
            InputError,
            "rows.jsonl line 1 has no value in column 'a', which gives the gold",
        ),
    ],
)
def test_a_row_that_does_not_fit_is_named(records, columns, error, words, tmp_path):
    with pytest.raises(error) as caught:
        rows_of(tmp_path, records, columns)
    assert words in str(caught.value)


# ---- prompts


def test_templates_become_system_and_user_messages():
    prompt = PromptTemplate(system="About {topic}.", user="{a} {{x}} {n:.1f} {items}").build(
        Row("r", {"topic": "{a}", "a": "1", "n": 2, "items": ["é"]}, "")
    )
    assert prompt.row_id == "r"
    assert prompt.messages == (Message("system", "About {a}."), Message("user", '1 {x} 2.0 ["é"]'))


def test_a_field_with_chat_messages_is_the_prompt():
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "u", "name": "x"}]
    assert PromptTemplate(messages="chat").build(Row("r", {"chat": chat}, "")).messages == (
        Message("system", "s"),
        Message("user", "u"),
    )


@pytest.mark.parametrize("chat", [[], "text", [{"role": "user"}], ["text"], None])
def test_a_field_that_holds_no_chat_is_refused(chat):
    with pytest.raises(InputError, match=r"row 'r': field 'chat' .*expected a list|row 'r': field 'chat' holds"):
        PromptTemplate(messages="chat").build(Row("r", {"chat": chat}, ""))


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ({}, "needs user"),
        ({"user": "x", "messages": "y"}, "needs user"),
        ({"messages": "y", "system": "x"}, "messages alone"),
        ({"user": "{"}, "Write {{ and }}"),
        ({"user": "{a.b}"}, "has {a.b}; expected a name"),
        ({"user": "{a[0]}"}, "expected a name"),
        ({"user": "{}"}, "expected a name"),
        ({"system": "{0}", "user": "x"}, "expected a name"),
    ],
)
def test_a_template_that_cannot_be_filled_is_refused(template, words):
    with pytest.raises(InputError) as error:
        PromptTemplate(**template)
    assert words in str(error.value)


# ---- as a source of rows


def test_tables_and_the_world_are_sources_of_rows(config):
    table, world = row_source(config(), ToolWorld()), row_source(GdpoConfig(task="tool_calling"), ToolWorld())
    assert isinstance(table, TableSource) and isinstance(world, WorldSource)
    assert (table.num_rows("train"), table.num_rows("heldout"), world.num_rows("train")) == (7, 4, None)
    (row,) = itertools.islice(world.rows("train", np.random.default_rng(3)), 1)
    assert row == next(ToolWorld().rows("train", np.random.default_rng(3)))
    assert world.prompt(row) == build_prompt(row)
    assert world.questions(3, 1) == ToolWorld().questions(3, 1)
    row = table.questions(4, 0)[0]
    assert table.prompt(row).messages[1].content == f"Question: {row.fields['question']}"


def test_no_row_comes_again_before_all_have_come(config):
    source = row_source(config(), ToolWorld())
    drawn = [row.id for row in itertools.islice(source.rows("train", np.random.default_rng(0)), 21)]
    rounds = [drawn[i : i + 7] for i in (0, 7, 14)]
    assert all(sorted(ids) == [f"t{i}" for i in range(7)] for ids in rounds)
    assert rounds[0] != rounds[1]
    assert drawn == [row.id for row in itertools.islice(source.rows("train", np.random.default_rng(0)), 21)]


def test_questions_are_held_out_rows_by_seed(config):
    source = row_source(config(), ToolWorld())
    some = [row.id for row in source.questions(3, 0)]
    assert len(set(some)) == 3 and set(some) < {"h0", "h1", "h2", "h3"}
    assert some == [row.id for row in source.questions(3, 0)]
    assert some != [row.id for row in source.questions(3, 1)]
    with pytest.raises(InputError, match=r"questions is 5; heldout.jsonl has 4 rows"):
        source.questions(5, 0)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"prompt": {"user": "{qestion}"}}, "unknown field of train.jsonl line 1 in gdpo.data.prompt 'qestion'."),
        ({"prompt": {"messages": "tags"}}, "row 't0': field 'tags' holds 'a'"),
        ({"columns": COLUMNS | {"gold": "anwser"}}, "Did you mean 'answer'?"),
    ],
)
def test_what_does_not_fit_is_noticed_before_anything_is_computed(changed, words, config):
    with pytest.raises(InputError) as error:
        row_source(config(**changed), ToolWorld())
    assert words in str(error.value)


def test_the_held_out_rows_may_not_be_the_training_rows(config, tmp_path):
    same = write_jsonl(tmp_path / "copy.jsonl", TRAIN)
    with pytest.raises(InputError, match=r"gdpo.data.heldout has the content of gdpo.data.train"):
        row_source(config(heldout={"path": str(same)}), ToolWorld())


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"trian": {}}, "unknown key 'gdpo.data.trian'. Did you mean 'gdpo.data.train'?"),
        ({"train": {"file": "a.jsonl"}}, "unknown key 'gdpo.data.train.file'"),
        ({"prompt": {"usr": "x"}}, "'gdpo.data.prompt.user'?"),
        ({"train": {"hf": "a/b"}}, "needs a split"),
    ],
)
def test_a_wrong_block_is_explained(changed, words, config):
    with pytest.raises(ConfigError) as error:
        config(**changed)
    assert words in str(error.value)


# ---- as part of a run


def test_a_run_pins_its_content_and_leaves_out_what_only_the_tool_world_has(config, tmp_path):
    settled = settle(RunConfig(gdpo=config()))
    data, embedded = settled.gdpo.data, settled.embedded
    assert data.train.sha256 == hashlib.sha256((tmp_path / "train.jsonl").read_bytes()).hexdigest()
    assert data.heldout.sha256 != data.train.sha256
    assert (embedded.evaluation.questions, embedded.warmup.noisy_steps, embedded.warmup.clean_steps) == (4, 0, 300)
    assert settle(settled) == settled
    assert settle(RunConfig(gdpo=config(columns={"id": "uid"}))).embedded.warmup.clean_steps == 0, "no gold answers"


@pytest.mark.parametrize(("warmup", "steps"), [({}, 0), ({"clean_steps": 20}, 20)])
def test_a_model_that_can_speak_is_warmed_up_only_on_request(warmup, steps, config):
    embedded = {"model": {"name": "smollm2"}, "warmup": warmup}
    assert settle(RunConfig(gdpo=config(), embedded=embedded)).embedded.warmup.clean_steps == steps


def test_a_run_on_the_tool_world_stays_as_it_is():
    config = RunConfig(gdpo=GdpoConfig(task="tool_calling"))
    assert settle(config) is config


def test_changed_content_is_refused(config, tmp_path):
    settled = settle(RunConfig(gdpo=config()))
    write_jsonl(tmp_path / "train.jsonl", TRAIN[:-1])
    with pytest.raises(InputError, match=r"train.jsonl has changed: SHA-256 of its content \w{12}, expected \w{12}"):
        row_source(settled.gdpo, ToolWorld())


def test_a_json_list_is_a_table_and_anything_else_in_it_is_explained(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text('[{"problem": "1+1", "answer": 2.0}, {"problem": "1+2", "answer": 3.0}]')
    table = read_table(TableFile(path=str(path)))
    assert [record["answer"] for record in table.records] == [2.0, 3.0]
    assert table.places[1].endswith("row 2") and table.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    for text, words in (('{"a": 1}', "holds a dict"), ("[1]", "row 1 is a int"), ("[", "not valid JSON")):
        path.write_text(text)
        with pytest.raises(InputError, match=words):
            read_table(TableFile(path=str(path)))
