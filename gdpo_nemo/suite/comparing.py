"""``gdpo diff``: what differs between two runs, in what they are, what produced them and what came out."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gdpo_nemo.differences import differing_keys
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.suite.answer import Answer
from gdpo_nemo.terminal import table

LONGEST_VALUE = 48
PARTS = {"config": "configuration", "provenance": "what produced it", "result": "result"}
ALWAYS = {("provenance", key) for key in ("command", "created", "seed")}
"""What differs between nearly all runs stands last."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Two run directories."""
    parser.add_argument("left", type=Path, metavar="RUN_A", help="a run directory, e.g. .../grpo/seed0")
    parser.add_argument("right", type=Path, metavar="RUN_B", help="another one")


def answer(options: argparse.Namespace) -> Answer:
    """Compare two runs.

    Raises:
        NotARunError: a path is not a run directory.
    """
    return diff(options.left, options.right)


def diff(left: Path, right: Path) -> Answer:
    """Every dotted key with two values, by part: configuration, provenance, result.

    Raises:
        NotARunError: a path is not a run directory.
    """
    sides = [_parts(path) for path in (left, right)]
    data: dict[str, Any] = {"left": str(left), "right": str(right)}
    lines = [f"A: {left}", f"B: {right}"]
    for part, title in PARTS.items():
        found = sorted(differing_keys(sides[0][part], sides[1][part]), key=lambda one: (part, one[0]) in ALWAYS)
        data[part] = {key: {"left": a, "right": b} for key, a, b in found}
        number = "1 key differs" if len(found) == 1 else f"{len(found)} keys differ"
        lines.append(f"\n{title}: {number if found else 'the same'}")
        if found:
            lines.append(table([["", "A", "B"], *([key, _short(a), _short(b)] for key, a, b in found)]))
    return Answer("\n".join(lines), data)


def _parts(path: Path) -> Mapping[str, Any]:
    run = RunDir(path)
    return {"config": run.config(), "provenance": run.provenance(), "result": run.result() or {}}


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 3]}..."
