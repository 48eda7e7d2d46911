"""The published data sets of each task, and what ``gdpo data`` does with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from gdpo_nemo.data import eurus, gsm8k
from gdpo_nemo.data.download import GITHUB, HUB, Origin
from gdpo_nemo.data.locks import Source, data_root, fetch, is_offline, verify
from gdpo_nemo.data.table import table_shape
from gdpo_nemo.errors import UnknownNameError

RLLA = Source(
    "rlla_4k",
    Origin(GITHUB, "qiancheng0/ToolRL"),
    ("dataset/rlla_4k/train.parquet", "dataset/rlla_4k/test.parquet"),
    revision="8cee13ec0ca72f0461da372a93a6fd8140dbb840",
    git_blobs={
        "dataset/rlla_4k/train.parquet": "0ddc730c556e4d26449dbdb55a1b28be824a8bfe",
        "dataset/rlla_4k/test.parquet": "ccdac1cc0112fb54dd68cbc88d9abfe28ce3d749",
    },
)
DEEPSCALER = Source("deepscaler_preview", Origin(HUB, "agentica-org/DeepScaleR-Preview-Dataset"), ("*.json",))
MATH_BENCHMARKS = Source(
    "math_benchmarks",
    Origin(GITHUB, "agentica-project/deepscaler"),
    tuple(f"deepscaler/data/test/{name}.json" for name in ("aime", "amc", "math", "minerva", "olympiad_bench")),
    licence="MIT",
)
AIME25 = Source("aime25", Origin(HUB, "math-ai/aime25"), ("test.jsonl",))
EURUS = Source("eurus_2_rl", Origin(HUB, "PRIME-RL/Eurus-2-RL-Data"), ("train.parquet",), licence="MIT")
EURUS_VALIDATION = Source("eurus_2_rl_validation", EURUS.origin, ("validation.parquet",), licence="MIT")
GSM8K = Source(
    "gsm8k",
    Origin(HUB, "openai/gsm8k"),
    ("main/train-00000-of-00001.parquet", "main/test-00000-of-00001.parquet"),
    licence="MIT",
)

SOURCES: dict[str, tuple[Source, ...]] = {
    "tool_calling": (RLLA,),
    "math_length": (DEEPSCALER, MATH_BENCHMARKS),
    "code_reasoning": (EURUS, EURUS_VALIDATION),
    "gsm8k": (GSM8K,),
    "aime25": (AIME25,),
}
"""Task -> its data sets, and what no table of the paper needs under its own name."""

Statement = tuple[str, dict[str, Any]]


def sources_of(task: str) -> tuple[Source, ...]:
    """The data sets of a task.

    Raises:
        UnknownNameError: it has none.
    """
    if task not in SOURCES:
        raise UnknownNameError("task with published data", task, SOURCES)
    return SOURCES[task]


def commands_for(paths: Iterable[Path]) -> list[str]:
    """The ``gdpo data fetch`` that bring these files to where they are named; none for files that nobody publishes."""
    found: dict[str, None] = {}
    for path in paths:
        for task, sources in SOURCES.items():
            for source in sources:
                for folder in path.parents:
                    inside = path.relative_to(folder).as_posix()
                    if folder.name == source.name and any(fnmatch(inside, name) for name in source.files):
                        here = folder.parent.resolve() == data_root().resolve()
                        found[f"gdpo data fetch {task}" + ("" if here else f" --data {folder.parent}")] = None
    return list(found)


def fetch_data(
    task: str, root: Path | None = None, *, offline: bool = False, copy_from: Path | None = None
) -> Statement:
    """``gdpo data fetch``: text for a person, and the same as data.

    Raises:
        UnknownNameError, PrerequisiteError, DataLockError: as ``locks.fetch``.
    """
    folder, forbidden = data_root(root), is_offline(offline)
    return _statement(
        "fetched", folder, task, lambda source: fetch(source, folder, offline=forbidden, copy_from=copy_from)
    )


def verify_data(task: str, root: Path | None = None) -> Statement:
    """``gdpo data verify``.

    Raises:
        UnknownNameError, PrerequisiteError, DataLockError: as ``locks.verify``.
    """
    folder = data_root(root)
    return _statement("verified", folder, task, lambda source: verify(source, folder))


def data_stats(task: str, root: Path | None = None, tokenizer: str | None = None) -> Statement:
    """``gdpo data stats``: rows and columns of every file, after it was verified.

    Of ToolRL also its references and, with a tokenizer, its long prompts; of Eurus-2-RL-Data its coding rows by source.

    Raises:
        UnknownNameError, PrerequisiteError, DataLockError: as ``locks.verify``. The tokenizer cannot be loaded.
    """
    folder = data_root(root)
    lines, data = list[str](), dict[str, Any]()
    for source in sources_of(task):
        data[source.name] = {}
        for name in verify(source, folder)["files"]:
            num_rows, columns = table_shape(folder / source.name / name)
            data[source.name][name] = {"rows": num_rows, "columns": columns}
            lines.append(f"{source.name}/{name}: {num_rows:,} rows; {', '.join(columns)}")
            if source is RLLA:
                from gdpo_nemo.data.rlla import described, read_rlla, statistics

                counts = statistics(read_rlla(folder / source.name / name), tokenizer)
                data[source.name][name] |= counts
                lines += [f"  {line}" for line in described(counts)]
            if source in (EURUS, EURUS_VALIDATION):
                code = eurus.statistics(eurus.read_code(folder / source.name / name))
                data[source.name][name]["code"] = code
                lines += [f"  {line}" for line in eurus.described(code)]
            if source is GSM8K:
                golds = gsm8k.statistics(gsm8k.read_gsm8k(folder / source.name / name))
                data[source.name][name] |= golds
                lines += [f"  {line}" for line in gsm8k.described(golds)]
    return "\n".join(lines), data


def _statement(done: str, root: Path, task: str, act: Callable[[Source], dict[str, Any]]) -> Statement:
    lines, data = list[str](), dict[str, Any]()
    for source in sources_of(task):
        lock = act(source)
        data[source.name] = lock | {"path": str(root / source.name), "licence": source.licence}
        licence = source.licence or "licence: see there"
        lines.append(f"{root / source.name}: {done} {source.origin} at {lock['revision'] or 'no revision'}, {licence}")
        lines += [f"  {name}  {entry['bytes']:,} bytes  {entry['sha256']}" for name, entry in lock["files"].items()]
    return "\n".join(lines), data
