"""What ``gdpo explain`` prints about a cell: plain words, the user's turn of a prompt whole."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gdpo_nemo.evaluation.matrix import not_applicable
from gdpo_nemo.report.loading import SMOKE
from gdpo_nemo.report.samples import STATE_WORDS
from gdpo_nemo.report.spec import Column
from gdpo_nemo.terminal import listing, sentences

LONGEST_TEXT, LONGEST_SYSTEM, LONGEST_TURN = 400, 160, 4000


def to_text(data: Mapping[str, Any], column: Column) -> str:
    """The data of ``explain`` as lines: the cell, its claims, its runs, what these share, and some samples."""
    pairs = [
        ("value", data["note"] if data["value"] is None else f"{data['value']:.{column.digits + 1}f} {column.unit}")
    ]
    if data["interval"]:
        low, high, method = data["interval"]
        pairs.append(("interval", f"[{low:.{column.digits + 1}f}, {high:.{column.digits + 1}f}], {method}"))
    if data["paper"] is not None:
        pairs.append(("paper", f"{data['paper']:g}, verdict {str(data['verdict']).replace('_', ' ')}"))
    if data["band"]:
        pairs.append(("band", f"[{data['band'][0]:.{column.digits + 1}f}, {data['band'][1]:.{column.digits + 1}f}]"))
    n = data["n"]
    unknown = f"{n['ungraded']} ungraded" + (f", {one} do not apply" if (one := n["does_not_apply"]) else "")
    pairs += [
        ("n", f"{n['seeds']} seeds x {n['questions']} questions, {n['samples']} samples, {unknown}"),
        ("computed as", data["computed_as"]),
    ]
    blocks = [data["key"] + (" SYNTHETIC, not a result" if data["synthetic"] else "")]
    blocks += [f"{SMOKE}: {data['title']}" if data["smoke"] else data["title"], listing(pairs)]
    blocks.append(sentences([*(f"claim {line}" for line in data["claims"]), *data["notes"]]))
    told = [_about(run) for run in data["runs"]]
    shared = {
        name: text for name, text in (told[0] if told else {}).items() if all(one.get(name) == text for one in told)
    }
    for run, own in zip(data["runs"], told, strict=True):
        blocks.append(f"\nrun {run['path']}: {STATE_WORDS.get(run['state'], run['state'])}")
        blocks.append(listing([pair for pair in own.items() if pair[0] not in shared]))
    if shared:
        blocks += ["\nthis run" if len(told) == 1 else f"\neach of these {len(told)} runs", listing([*shared.items()])]
    for sample in data["samples"]:
        blocks.append(
            f"\nsample {sample['index']} of {sample['row_id']}" + (f" ({g})" if (g := sample["group"]) else "")
        )
        pairs = [
            (message["role"], _short(message["content"], LONGEST_TURN if message["role"] == "user" else LONGEST_SYSTEM))
            for message in sample["messages"]
        ]
        pairs += [("gold", _short(sample["gold"])), ("response", _short(sample["response"]))]
        pairs += [("values", _words(_graded(sample))), ("reasons", _words(sample["reasons"]))]
        pairs += [("response at", sample["response_at"] or ""), ("score at", sample["score_at"] or "")]
        blocks.append(listing(pairs))
    return "\n".join(filter(None, blocks))


def _about(run: Mapping[str, Any]) -> dict[str, str]:
    """What stands under a run; its files from its own folder."""
    files = ("config", "provenance", "evaluation")
    told = {name: str(Path(run[name]).relative_to(run["path"])) for name in files if run.get(name)}
    named = ("benchmark", "grader", "sampling", "samples_per_question")
    return told | {name.replace("_", " "): text for name in named if (text := _words(run.get(name)))}


def _words(value: object) -> str:
    """A value without the signs of Python, as ``format 1, correct 0.5``; what is empty is left out."""
    if isinstance(value, Mapping):
        kept = {str(key): words for key, one in value.items() if (words := _words(one))}
        return ", ".join(words if key == "name" else f"{key} {words}" for key, words in kept.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_words, value))
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _graded(sample: Mapping[str, Any]) -> dict[str, float | str]:
    return {
        name: value if value is not None else "does not apply" if not_applicable(sample, name) else "ungraded"
        for name, value in (sample["values"] or {}).items()
    }


def _short(value: object, longest: int = LONGEST_TEXT) -> str:
    text = repr(value) if isinstance(value, str) else _words(value)
    return text if len(text) <= longest else f"{text[:longest]}... ({len(text)} characters)"
