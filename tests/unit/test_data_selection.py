"""Rows that a configuration leaves out: by value, by text, in every kind of file."""

import gzip
import importlib.util
import json

import pytest

from gdpo_nemo.config import GdpoConfig, validate
from gdpo_nemo.data.selection import texts_of
from gdpo_nemo.data.table import BATCH_ROWS, TableFile, read_table
from gdpo_nemo.errors import InputError, UnknownNameError
from gdpo_nemo.source import TableSource

ROWS = [
    {"id": i, "ability": "code" if i % 2 else "math", "about": {"kind": "ab"[i % 3 == 0]}, "chat": [{"content": text}]}
    for i, text in enumerate(["one", "print any", "Print\nANY", "two", "three", "four"])
]
requires_pyarrow = pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed")


def write(path, rows):
    text = "\n".join(map(json.dumps, rows))
    if path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(json.dumps(rows) if path.suffix == ".json" else text)
    return str(path)


@pytest.mark.parametrize("name", ["x.json", "x.jsonl", "x.jsonl.gz", pytest.param("x.parquet", marks=requires_pyarrow)])
@pytest.mark.parametrize(
    ("where", "without", "ids"),
    [
        ({}, {}, [0, 1, 2, 3, 4, 5]),
        ({"ability": ["code"]}, {}, [1, 3, 5]),
        ({"ability": ["code"], "about.kind": ["a"]}, {}, [1, 5]),
        ({}, {"chat": [r"(?i)print\s+any"]}, [0, 3, 4, 5]),
        ({"ability": ["code"]}, {"chat": ["any", "four"]}, [3]),
    ],
)
def test_rows_are_kept_by_value_and_text_and_keep_their_places(name, where, without, ids, tmp_path):
    table = read_table(TableFile(path=write(tmp_path / name, ROWS), where=where, without=without))
    assert [record["id"] for record in table.records] == ids
    word = "line" if "jsonl" in name else "row"
    assert list(table.places) == [f"{name} {word} {i + 1}" for i in ids]
    assert table.records[0] == ROWS[ids[0]]


@requires_pyarrow
def test_places_go_on_over_batches(tmp_path):
    rows = [{"n": i, "last": i in (3, BATCH_ROWS + 1)} for i in range(BATCH_ROWS + 3)]
    table = read_table(TableFile(path=write(tmp_path / "x.parquet", rows), where={"last": [True]}))
    assert list(table.places) == ["x.parquet row 4", f"x.parquet row {BATCH_ROWS + 2}"]


@pytest.mark.parametrize("name", ["x.jsonl", pytest.param("x.parquet", marks=requires_pyarrow)])
def test_what_cannot_be_selected_is_explained(name, tmp_path):
    path = write(tmp_path / name, ROWS)
    with pytest.raises(UnknownNameError, match="Did you mean 'ability'"):
        read_table(TableFile(path=path, where={"abilty": ["code"]}))
    with pytest.raises(UnknownNameError, match=r"about\.knd"):
        read_table(TableFile(path=path, where={"about.knd": ["a"]}))
    with pytest.raises(InputError, match="no rows that where and without keep"):
        read_table(TableFile(path=path, where={"ability": ["art"]}))
    with pytest.raises(InputError, match="no regular expression"):
        TableFile(path=path, without={"chat": ["("]})


def test_a_damaged_archive_is_told(tmp_path):
    (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress(b"{}")[:-4])
    with pytest.raises(InputError, match="cannot be read as gzip"):
        read_table(TableFile(path=str(tmp_path / "x.jsonl.gz")))


def test_one_file_can_hold_both_splits_if_they_are_different_rows(tmp_path):
    path = write(tmp_path / "x.jsonl", ROWS)

    def config(where):
        data = {"train": {"path": path, "where": {"ability": ["code"]}}, "heldout": {"path": path, "where": where}}
        return validate(GdpoConfig, {"data": data | {"columns": {"id": "id"}, "prompt": {"messages": "talk"}}}).data

    assert config({"ability": ["math"]}).heldout.where == {"ability": ["math"]}
    with pytest.raises(InputError, match="must be others"):
        TableSource(config({"ability": ["code"]}))


def test_texts_within_a_value():
    assert list(texts_of({"a": ["x", {"b": "y"}], "c": None, "d": 3})) == ["x", "y"]
