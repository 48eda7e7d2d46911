"""Data sets of your own: JSON lines, parquet, or anything that the ``datasets`` library reads.

A table is read whole, checked row by row, and named by a SHA-256 of its content, so that a run can
tell whether it goes on with the data it began with.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gdpo_nemo.data.selection import Selection, value_of
from gdpo_nemo.errors import InputError, PrerequisiteError
from gdpo_nemo.templates import as_text
from gdpo_nemo.types import Row

JSON = ".json"
JSON_LINES = (".jsonl", ".ndjson")
PARQUET = (".parquet",)
GZIP = ".gz"
BATCH_ROWS = 4096
ID, GOLD = "id", "gold"


@dataclass(frozen=True)
class TableFile:
    """Where one split lies; either ``path`` or ``hf`` is given.

    Attributes:
        path: a ``.jsonl`` or ``.parquet`` file. Relative: to the configuration file that names it.
        hf: a data set for ``datasets.load_dataset``: ``owner/name`` on the hub, or a local folder.
        split: which part of ``hf``, e.g. ``train`` or ``train[:90%]``.
        subset: the configuration of ``hf``, e.g. ``main``.
        revision: commit, tag or branch of ``hf``.
        sha256: of the content, before rows are left out. A run fills it in and refuses other content from then on.
        where: column -> values; rows with another one are left out. Columns as in ``to_rows``.
        without: column -> regular expressions; rows in whose text one is found are left out.
    """

    path: str | None = None
    hf: str | None = None
    split: str | None = None
    subset: str | None = None
    revision: str | None = None
    sha256: str | None = None
    where: dict[str, list[Any]] = field(default_factory=dict)
    without: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        Selection(self.where, self.without)
        if (self.path is None) == (self.hf is None):
            raise InputError("a data source needs either path (a .jsonl or .parquet file) or hf (owner/name)")
        extra = [name for name in ("split", "subset", "revision") if getattr(self, name) is not None]
        if self.path is not None and extra:
            raise InputError(f"{', '.join(extra)} belong to hf; a path has one split")
        if self.hf is not None and self.split is None:
            raise InputError(f"hf: {self.hf} needs a split, e.g. split: train")

    @property
    def name(self) -> str:
        """Short name for messages and default row ids."""
        return Path(self.path).name if self.path is not None else f"{self.hf}/{self.split}"


@dataclass(frozen=True, eq=False)
class Table:
    """A data set as read.

    Attributes:
        records: column name -> value, per row.
        places: where each record stands, for messages: ``rows.jsonl line 17``.
        sha256: of the file, or of the records as JSON lines when the ``datasets`` library read them.
    """

    records: Sequence[Mapping[str, Any]]
    places: Sequence[str]
    sha256: str


def read_table(source: TableFile) -> Table:
    """Read one split whole.

    Raises:
        PrerequisiteError: the file or a library is missing, or the data set cannot be loaded.
        UnknownNameError: a row lacks a column that ``where`` or ``without`` looks at.
        InputError: a line that is no JSON object (with its number), no rows at all, an unknown kind of
            file, or other content than ``source.sha256`` names.
    """
    selection = Selection(source.where, source.without)
    table = _read_hf(source, selection) if source.hf is not None else _read_file(source, selection)
    if not table.records:
        raise InputError(f"{source.name} has no rows{' that where and without keep' if selection.columns else ''}")
    if source.sha256 not in (None, table.sha256):
        raise InputError(
            f"{source.name} has changed: SHA-256 of its content {table.sha256[:12]}, expected {source.sha256[:12]}. "
            "Bring the old content back, or begin anew (--fresh, or another --out)"
        )
    return table


def table_shape(path: Path) -> tuple[int, list[str]]:
    """Number of rows and names of columns of a file; of parquet without reading the rows.

    Raises:
        PrerequisiteError, InputError: as ``read_table``.
    """
    if path.suffix in PARQUET:
        pyarrow = _library("pyarrow", f"{path.name} is parquet")
        try:
            file = importlib.import_module("pyarrow.parquet").ParquetFile(path)
        except (OSError, pyarrow.ArrowException) as error:
            raise InputError(f"{path} cannot be read as parquet: {error}") from error
        return file.metadata.num_rows, sorted(file.schema_arrow.names)
    records = read_table(TableFile(path=str(path))).records
    return len(records), sorted({column for record in records for column in record})


def to_rows(table: Table, columns: Mapping[str, str]) -> list[Row]:
    """The rows of a table.

    Args:
        table: as read.
        columns: name for us -> column of the table. ``id`` and ``gold`` fill the row; any other adds a field of that
            name. A dotted column such as ``reward_model.ground_truth`` leads into mappings. All columns are fields
            under their own names as well. Without ``id``, rows are named after their place.

    Raises:
        UnknownNameError: a row lacks a column; the message says where.
        InputError: an id twice, or no value where an id or a gold answer is expected.
    """
    rows: list[Row] = []
    seen: dict[str, str] = {}
    for record, place in zip(table.records, table.places, strict=True):
        values = {name: value_of(record, column, place) for name, column in columns.items()}
        for name in (ID, GOLD):
            if name in values and values[name] is None:
                raise InputError(f"{place} has no value in column {columns[name]!r}, which gives the {name}")
        row_id = as_text(values.pop(ID, place))
        if row_id in seen:
            raise InputError(f"{place} has the same id {row_id!r} as {seen[row_id]}; ids must be unique")
        seen[row_id] = place
        gold = as_text(values.pop(GOLD, ""))
        rows.append(Row(row_id, {**record, **values}, gold))
    return rows


def _read_file(source: TableFile, selection: Selection) -> Table:
    path = Path(source.path or "")
    kind = path.with_suffix("").suffix if path.suffix == GZIP else path.suffix
    if kind not in (JSON, *JSON_LINES, *PARQUET):
        raise InputError(
            f"{path} is neither a JSON list ({JSON}) nor JSON lines ({', '.join(JSON_LINES)}) nor parquet "
            f"({', '.join(PARQUET)})"
        )
    try:
        content = path.read_bytes()
    except OSError as error:
        raise PrerequisiteError(f"cannot read the data file {path}: {error.strerror}") from error
    sha256 = hashlib.sha256(content).hexdigest()
    if path.suffix == GZIP:
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError) as error:
            raise InputError(f"{path} cannot be read as gzip: {error}") from error
    word = "line" if kind in JSON_LINES else "row"
    if kind in PARQUET:
        numbered = _parquet(content, source.name, selection)
    else:
        every = _json_lines(content, source.name) if kind in JSON_LINES else _json_list(content, source.name)
        numbered = [
            (number, record) for number, record in every if selection.keeps(record, f"{source.name} {word} {number}")
        ]
    places = [f"{source.name} {word} {number}" for number, _ in numbered]
    return Table([record for _, record in numbered], places, sha256)


Numbered = list[tuple[int, dict[str, Any]]]


def _json_lines(content: bytes, name: str) -> Numbered:
    """The objects of a JSON lines file with their line numbers; empty lines do not count."""
    numbered: Numbered = []
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise InputError(f"{name} line {number} is not valid JSON: {error}") from error
        if not isinstance(record, dict):
            raise InputError(f"{name} line {number} is a {type(record).__name__}; expected an object {{column: value}}")
        numbered.append((number, record))
    return numbered


def _json_list(content: bytes, name: str) -> Numbered:
    try:
        records = json.loads(content)
    except ValueError as error:
        raise InputError(f"{name} is not valid JSON: {error}") from error
    if not isinstance(records, list):
        raise InputError(f"{name} holds a {type(records).__name__}; expected a list of objects {{column: value}}")
    for number, record in enumerate(records, start=1):
        if not isinstance(record, dict):
            raise InputError(f"{name} row {number} is a {type(record).__name__}; expected an object {{column: value}}")
    return list(enumerate(records, start=1))


def _parquet(content: bytes, name: str, selection: Selection) -> Numbered:
    """The rows that are kept, in batches: the others are told by the columns of the selection, and never unpacked."""
    pyarrow = _library("pyarrow", f"{name} is parquet")
    parquet = importlib.import_module("pyarrow.parquet")
    numbered: Numbered = []
    first = 1
    try:
        file = parquet.ParquetFile(pyarrow.BufferReader(content))
        columns = selection.tops(file.schema_arrow.names, name)
        for batch in file.iter_batches(batch_size=BATCH_ROWS):
            looked_at = batch.select(columns).to_pylist() if columns else [{}] * batch.num_rows
            kept = [i for i, row in enumerate(looked_at) if selection.keeps(row, f"{name} row {first + i}")]
            records = batch.take(pyarrow.array(kept, pyarrow.int64())).to_pylist()
            numbered += [(first + i, record) for i, record in zip(kept, records, strict=True)]
            first += batch.num_rows
    except pyarrow.ArrowException as error:
        raise InputError(f"{name} cannot be read as parquet: {error}") from error
    return numbered


def _read_hf(source: TableFile, selection: Selection) -> Table:
    datasets = _library("datasets", f"data source hf: {source.hf}")
    try:
        loaded = datasets.load_dataset(source.hf, source.subset, split=source.split, revision=source.revision)
    except Exception as error:  # the library has no common base: hub, network, schema and name errors alike
        raise PrerequisiteError(
            f"cannot load hf: {source.hf} (subset {source.subset}, split {source.split}, revision {source.revision}): "
            f"{type(error).__name__}: {error}"
        ) from error
    records = [dict(record) for record in loaded]
    places = [f"{source.name} row {number}" for number in range(1, len(records) + 1)]
    kept = [(record, place) for record, place in zip(records, places, strict=True) if selection.keeps(record, place)]
    return Table([record for record, _ in kept], [place for _, place in kept], _digest(records))


def _digest(records: Iterable[Mapping[str, Any]]) -> str:
    digest = hashlib.sha256()
    for record in records:
        digest.update(json.dumps(record, sort_keys=True, default=str).encode() + b"\n")
    return digest.hexdigest()


def _library(name: str, needed_for: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise PrerequisiteError(f"{needed_for}, which needs {name}: pip install 'gdpo-nemo[data]'") from error
