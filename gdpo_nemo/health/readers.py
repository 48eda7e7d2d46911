"""Recorded rollouts of several frameworks, as ``Rollouts``.

    an evaluation store     a directory with evaluation.json, or a run directory with eval/heldout
    NeMo RL                 train_data_step<N>.jsonl: ``content``, ``rewards`` (the total alone), ``sample_loss_mask``;
                            every field a list of one. Components under ``reward/<name>`` or ``reward<k>`` are used
                            where a version logs them.
    TRL                     completions_<step>.parquet or JSON lines: ``step``, ``prompt``, ``completion``, a column per
                            reward function, ``advantage``
    verl                    <step>.jsonl of rollout_data_dir: ``input``, ``output``, ``score``, a key per component
    anything else           JSON lines or parquet with a prompt id and named rewards, flat or under ``rewards``

Rows belong to one group when file, step and prompt id (or else the prompt) are the same. Two groups of one prompt in
one step then merge: ``rollouts_per_prompt`` cuts the rows into groups that follow each other instead.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from gdpo_nemo.data.table import TableFile, read_table
from gdpo_nemo.errors import InputError, UnknownNameError, UsageError
from gdpo_nemo.evaluation.store import EvaluationStore
from gdpo_nemo.health.rollouts import Rollouts
from gdpo_nemo.rewards.scoring import is_failure

PROMPT_KEYS = ("prompt_id", "group_id", "row_id", "uid", "question_id", "problem_id", "group", "prompt", "input")
MAPPINGS = ("rewards", "values", "reward_components")
TOTALS = {"reward", "score", "total", "total_reward", "reward_total", "seq_reward"}
NO_REWARDS = {
    *PROMPT_KEYS,
    *("step", "epoch", "index", "idx", "id", "rank", "seed", "sample", "rollout", "generation"),
    *("advantage", "advantages", "length", "length_tokens", "num_tokens", "input_lengths", "truncated", "logprob"),
}
COMPONENT = re.compile(r"reward/(.+)|(reward\d+)")
NEMO_RL_TOTAL = "NeMo RL logs the sum of the rewards alone: record named rewards, or read the evaluation store of a run"


def read_rollouts(
    paths: Sequence[Path],
    *,
    rewards: Sequence[str] | None = None,
    prompt_key: str | None = None,
    rollouts_per_prompt: int | None = None,
) -> Rollouts:
    """Read rollouts from files, directories or a mixture.

    Args:
        paths: files, an evaluation store, a run directory, or a directory of files.
        rewards: the columns that are rewards; None: found by the rules of the module.
        prompt_key: the column that names the prompt; None: the first of ``PROMPT_KEYS`` that the rows have.
        rollouts_per_prompt: G rows that follow each other are a group, whatever their prompt.

    Raises:
        UsageError: nothing to read at a path, no column that names the prompt, or rows that G does not divide.
        UnknownNameError: a reward or prompt column that a row lacks.
        InputError, PrerequisiteError, RunDirError: a file cannot be read, or a reward is no number.
    """
    files = [file for path in paths for file in _files(path)]
    values: list[dict[str, float]] = []
    failed: list[set[str]] = []
    masked: list[bool] = []
    groups: dict[Hashable, int] = {}
    group_ids: list[int] = []
    notes: dict[str, None] = {}
    for file in files:
        rows = _rows(file)
        if rollouts_per_prompt is not None and len(rows) % rollouts_per_prompt:
            raise UsageError(f"{file} has {len(rows)} rollouts, which groups of {rollouts_per_prompt} do not divide")
        for number, (place, row) in enumerate(rows):
            if rollouts_per_prompt is not None:
                key: Hashable = (file, number // rollouts_per_prompt)
            else:
                key = (file, _text(row.get("step")), _prompt(row, prompt_key, place))
            group_ids.append(groups.setdefault(key, len(groups)))
            own, total_only = _rewards(row, rewards, place)
            if total_only:
                notes[NEMO_RL_TOTAL] = None
            values.append(own)
            failed.append({name for name, codes in (row.get("reasons") or {}).items() if any(map(is_failure, codes))})
            masked.append(_unwrapped(row.get("sample_loss_mask", 1.0)) == 0)
    names = tuple(dict.fromkeys(name for own in values for name in own))
    if not names:
        raise UsageError(
            f"no rewards found in {files[0]}; expected numbers under 'rewards' or in columns of their own, "
            "or name the columns with --rewards a,b"
        )
    return Rollouts(
        names,
        np.array([[own.get(name, math.nan) for name in names] for own in values]),
        np.array(group_ids, dtype=np.int64),
        _source(paths, files),
        np.array([[name in own for name in names] for own in failed]) if any(failed) else None,
        np.array(masked) if any(masked) else None,
        tuple(notes),
    )


def _files(path: Path) -> list[Path]:
    """What to read at a path: a file, the scores of a store, or the files of a directory."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UsageError(f"no file or directory {path}")
    for folder in (path, path / "eval" / "heldout"):
        store = EvaluationStore(folder)
        if store.exists():
            store = EvaluationStore.open(folder)
            return [store.file(f"scores/{store.graders()[0]}" if store.graders() else "scores/default")]
    found = sorted(path.glob("train_data_step*.jsonl"), key=_number)
    found = found or sorted([*path.glob("*.parquet"), *path.glob("*.jsonl")], key=_number)
    if not found:
        raise UsageError(f"{path} holds neither an evaluation nor .jsonl or .parquet files")
    return found


def _number(path: Path) -> tuple[int, str]:
    digits = re.findall(r"\d+", path.stem)
    return int(digits[-1]) if digits else 0, path.name


def _rows(file: Path) -> list[tuple[str, Mapping[str, Any]]]:
    table = read_table(TableFile(path=str(file)))
    return list(zip(table.places, table.records, strict=True))


def _prompt(row: Mapping[str, Any], key: str | None, place: str) -> Hashable:
    if key is not None:
        if key not in row:
            raise UnknownNameError(f"column of {place}", key, row)
        return _text(row[key])
    for name in PROMPT_KEYS:
        if row.get(name) is not None:
            return _text(row[name])
    if "content" in row:  # NeMo RL: the texts of the conversation, the prompt first
        content = _unwrapped(row["content"])
        return _text(content[0] if isinstance(content, list) and content else content)
    raise UsageError(
        f"{place} names no prompt: expected one of {', '.join(PROMPT_KEYS)}; name the column with --prompt-key, or "
        "give --rollouts-per-prompt where groups follow each other"
    )


def _rewards(row: Mapping[str, Any], wanted: Sequence[str] | None, place: str) -> tuple[dict[str, float], bool]:
    """Named rewards of a row, and whether they are but a total that NeMo RL logged."""
    given: Mapping[str, Any] = row
    for key in MAPPINGS:
        if isinstance(row.get(key), Mapping):
            given = row[key]
    if wanted is not None:
        for name in wanted:
            if name not in given and given is row:
                raise UnknownNameError(f"column of {place}", name, row)
        return {name: _value(given.get(name), name, place) for name in wanted}, False
    if given is not row:
        return {name: _value(value, name, place) for name, value in given.items()}, False
    components = dict(_components(row))
    if components:
        return {name: _value(value, name, place) for name, value in components.items()}, False
    if "content" in row and "rewards" in row:
        return {"total": _value(row["rewards"], "rewards", place)}, True
    numbers = {key: value for key, value in row.items() if key not in NO_REWARDS and _is_number(value)}
    named = {key: value for key, value in numbers.items() if key not in TOTALS} or numbers
    return {name: _value(value, name, place) for name, value in named.items()}, False


def _components(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        match = COMPONENT.fullmatch(key)
        if match and (_is_number(_unwrapped(value)) or value is None):
            yield match[1] or match[2], value


def _value(value: Any, name: str, place: str) -> float:
    value = _unwrapped(value)
    if value is None:
        return math.nan
    if not isinstance(value, Real):
        raise InputError(f"{place}: reward {name!r} is {value!r:.60}; expected a number or null")
    return float(value)


def _unwrapped(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _is_number(value: Any) -> bool:
    return isinstance(value, Real)


def _text(value: Any) -> Hashable:
    return value if isinstance(value, str | int | None) else json.dumps(value, sort_keys=True, default=str)


def _source(paths: Sequence[Path], files: Sequence[Path]) -> str:
    return str(paths[0]) if len(files) == 1 or len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
