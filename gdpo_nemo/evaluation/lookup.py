"""A few samples out of a large store, without reading the rest of it as JSON."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from gdpo_nemo.errors import RunDirError

PREFIX = b'{"row_id": '


def find_rows(path: Path, wanted: Collection[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, dict[str, Any]]]:
    """(row_id, index) -> number of its line and the row, of those that a JSONL file of a store has.

    A question's index is 0. Reads until all are found; a last line that a kill cut off does not count.

    Raises:
        RunDirError: a line that may be one of them is corrupt.
    """
    found: dict[tuple[str, int], tuple[int, dict[str, Any]]] = {}
    keys, ids = set(wanted), {json.dumps(row_id).encode() for row_id, _ in wanted}
    if not keys or not path.exists():
        return found
    with open(path, "rb") as handle:
        for number, line in enumerate(handle, start=1):
            if line.startswith(PREFIX):  # as every writer begins one; an id with an escape in it is read in full
                row_id = line[len(PREFIX) : line.find(b'", ', len(PREFIX)) + 1]
                if row_id not in ids and b"\\" not in row_id:
                    continue
            if not line.endswith(b"\n"):
                break
            try:
                row = json.loads(line)
                key = (str(row["row_id"]), int(row.get("index", 0)))
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                raise RunDirError(f"{path} line {number} is corrupt: {error}; mend or remove it") from error
            if key in keys and key not in found:
                found[key] = (number, row)
                if len(found) == len(keys):
                    break
    return found
