"""Provenance of many runs in two tables: what they share, and what differs among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gdpo_nemo.report.page.document import Grid

MAX_TEXT = 300
MAX_VALUES = 6
NOT_SHOWN = ("code.diff",)  # long; its hash stands beside it


def provenance_grids(records: Mapping[str, Mapping[str, Any]]) -> tuple[tuple[str, Grid], ...]:
    """Run name -> its ``provenance.json``, in the order of the tables; runs without one are left out."""
    flat = {run: dict(_leaves(record)) for run, record in records.items() if record}
    if not flat:
        return ()
    keys = dict.fromkeys(key for record in flat.values() for key in record)
    common, differing = [], []
    for key in keys:
        values: dict[str, list[str]] = {}
        for run, record in flat.items():
            values.setdefault(record.get(key, "(absent)"), []).append(run)
        if len(values) == 1:
            common.append((key, next(iter(values))))
        else:
            differing.append((key, _listing(values, len(flat))))
    grids = [(f"All {len(flat)} runs", Grid(("", "value"), tuple(common)))] if len(flat) > 1 else []
    if len(flat) == 1:
        return ((next(iter(flat)), Grid(("", "value"), tuple(common))),)
    if differing:
        note = "gdpo diff shows two runs side by side."
        grids.append(("What differs", Grid(("", "values"), tuple(differing), (note,))))
    return tuple(grids)


def _listing(values: Mapping[str, list[str]], num_runs: int) -> str:
    if len(values) > MAX_VALUES:
        return f"{len(values)} values in {num_runs} runs, from {min(values)} to {max(values)}"
    return "; ".join(f"{value} ({len(runs)}: {_names(runs)})" for value, runs in values.items())


def _names(runs: list[str]) -> str:
    return ", ".join(runs[:3]) + (" ..." if len(runs) > 3 else "")


def _leaves(record: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dotted keys and values as text; what is empty is left out."""
    if isinstance(record, Mapping):
        for key, value in record.items():
            yield from _leaves(value, f"{prefix}.{key}" if prefix else str(key))
    elif record not in (None, "", []) and prefix not in NOT_SHOWN:
        text = ", ".join(map(str, record)) if isinstance(record, list) else str(record)
        yield prefix, text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]} ..."
