"""Data sets are fetched once and locked: what a run reads today is what it read yesterday, or it is refused.

    <root>/<source>/lock.json     {"origin", "revision", "files": {name: {"sha256", "bytes"}}}
    <root>/<source>/<file>

A revision or hash that nobody has seen is not made up: it is null in the source, filled in by the first download, and
from then on every file must have it. The root is ``--data DIR``, else ``GDPO_DATA``, else ``data`` in the working
folder. With ``--offline`` or ``GDPO_OFFLINE=1`` nothing is asked for over the network.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gdpo_nemo.data.download import Origin, download
from gdpo_nemo.errors import GdpoError, InputError, PrerequisiteError
from gdpo_nemo.files import hold, read_json, write_json

LOCK = "lock.json"
CHUNK = 1 << 20


class DataLockError(GdpoError, ValueError):
    """A file is not the one that was locked."""


@dataclass(frozen=True)
class Source:
    """A data set as published.

    Attributes:
        name: of its folder.
        origin: where it is published.
        files: names, or on the hub patterns such as ``data/*.parquet``.
        licence: as its publisher states it; None: look there.
        revision: commit; None: unknown until the first download.
        sha256: file -> hash, where one is known.
        git_blobs: file -> id of its git blob, where one is known.
    """

    name: str
    origin: Origin
    files: tuple[str, ...]
    licence: str | None = None
    revision: str | None = None
    sha256: Mapping[str, str] = field(default_factory=dict)
    git_blobs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Fingerprint:
    """What names the content of a file."""

    sha256: str
    git_blob: str
    bytes: int


def data_root(given: Path | None = None) -> Path:
    """Where data sets lie."""
    return given or Path(os.environ.get("GDPO_DATA") or "data")


def is_offline(given: bool = False) -> bool:
    """Whether the user forbade the network.

    Raises:
        InputError: ``GDPO_OFFLINE`` is neither 0 nor 1.
    """
    value = os.environ.get("GDPO_OFFLINE", "")
    if value not in ("", "0", "1"):
        raise InputError(f"GDPO_OFFLINE is {value!r}; expected 1 or 0")
    return given or value == "1"


def read_lock(source: Source, root: Path) -> dict[str, Any] | None:
    """The lock of a data set, None before its first download.

    Raises:
        DataLockError: it was made for another origin or revision.
    """
    lock = read_json(root / source.name / LOCK)
    if lock is None:
        return None
    for key, wanted in (("origin", str(source.origin)), ("revision", source.revision)):
        if wanted is not None and lock[key] != wanted:
            raise DataLockError(
                f"{root / source.name / LOCK} is for {key} {lock[key]}, this version wants {wanted}; "
                f"move {root / source.name} away and fetch again"
            )
    return lock


def fetch(source: Source, root: Path, *, offline: bool = False, copy_from: Path | None = None) -> dict[str, Any]:
    """Make every file of a data set be there and be the locked one; returns the lock.

    Args:
        source: what to fetch.
        root: where data sets lie.
        offline: ask nobody; what is missing is an error.
        copy_from: a folder that has the files already, under the names of the source or without their folders.

    Raises:
        PrerequisiteError: a file is missing and cannot be had.
        DataLockError: a file has other content than was locked, or than the source is known for.
    """
    folder = root / source.name
    folder.mkdir(parents=True, exist_ok=True)
    with hold(folder / ".lock"):
        lock = read_lock(source, root)
        if lock is None:
            revision, files = source.revision, source.files
            if copy_from is None:
                _check_online(source, folder, offline)
                revision, files = source.origin.resolve(source.revision, source.files)
            elif any("*" in name for name in files):
                files = _found(copy_from, files)
            lock = {"origin": str(source.origin), "revision": revision, "files": dict.fromkeys(files)}
        for name in lock["files"]:
            lock["files"][name] = _fetch_file(source, lock, name, folder, offline, copy_from)
            write_json(folder / LOCK, lock)
    return lock


def _fetch_file(
    source: Source, lock: Mapping[str, Any], name: str, folder: Path, offline: bool, copy_from: Path | None
) -> dict[str, Any]:
    path = folder / name
    if path.exists():
        return _checked(source, lock, name, path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    if copy_from is not None:
        shutil.copyfile(_local(copy_from, name), partial)
    else:
        _check_online(source, folder, offline)
        download(source.origin.address(name, lock["revision"]), partial)
    entry = _checked(source, lock, name, partial)
    os.replace(partial, path)
    return entry


def verify(source: Source, root: Path) -> dict[str, Any]:
    """Hash every file of a data set against its lock; returns the lock.

    Raises:
        PrerequisiteError: it was not fetched, or a file is gone.
        DataLockError: a file has changed.
    """
    lock = read_lock(source, root)
    if lock is None:
        raise PrerequisiteError(f"{root / source.name} has no {LOCK}; gdpo data fetch gets the data set")
    for name, entry in lock["files"].items():
        path = root / source.name / name
        if entry is None or not path.exists():
            raise PrerequisiteError(f"{path} is missing; gdpo data fetch gets it")
        _checked(source, lock, name, path)
    return lock


def locked_file(source: Source, name: str, root: Path, *, offline: bool = False) -> Path:
    """A file of a data set to read: fetched when it must be, and verified.

    Raises:
        UnknownNameError, PrerequisiteError, DataLockError: as ``fetch``.
    """
    lock = read_lock(source, root)
    if lock is None or not (root / source.name / name).exists():
        lock = fetch(source, root, offline=offline)
    if name not in lock["files"]:
        raise PrerequisiteError(f"{source.origin} has no file {name}; it has {', '.join(lock['files'])}")
    path = root / source.name / name
    _checked(source, lock, name, path)
    return path


def fingerprint(path: Path) -> Fingerprint:
    """SHA-256, id as a git blob (SHA-1 of ``blob <bytes>``, a zero byte and the content), and size of a file."""
    size = path.stat().st_size
    sha256, blob = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    with path.open("rb") as handle:
        while chunk := handle.read(CHUNK):
            sha256.update(chunk)
            blob.update(chunk)
    return Fingerprint(sha256.hexdigest(), blob.hexdigest(), size)


def _checked(source: Source, lock: Mapping[str, Any], name: str, path: Path) -> dict[str, Any]:
    found = fingerprint(path)
    locked = (lock["files"].get(name) or {}).get("sha256")
    for what, is_value, wanted in (
        ("SHA-256", found.sha256, locked),
        ("SHA-256", found.sha256, source.sha256.get(name)),
        ("git blob", found.git_blob, source.git_blobs.get(name)),
    ):
        if wanted is not None and is_value != wanted:
            raise DataLockError(
                f"{path} has {what} {is_value}, expected {wanted}: it is damaged, or it was changed where it is "
                f"published ({source.origin}). Move it away and fetch again; to take other content on purpose, move "
                f"{LOCK} away as well"
            )
    return {"sha256": found.sha256, "bytes": found.bytes}


def _check_online(source: Source, folder: Path, offline: bool) -> None:
    if is_offline(offline):
        raise PrerequisiteError(
            f"{folder} lacks files of {source.origin}, and the network is switched off (--offline, GDPO_OFFLINE); "
            "fetch them elsewhere and give their folder (--from DIR)"
        )


def _local(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / Path(name).name):
        if path.is_file():
            return path
    raise PrerequisiteError(f"{folder} has no file {name}")


def _found(folder: Path, patterns: tuple[str, ...]) -> tuple[str, ...]:
    found: list[str] = []
    for pattern in patterns:
        paths = sorted(folder.glob(pattern)) or sorted(folder.glob(Path(pattern).name))
        if not paths:
            raise PrerequisiteError(f"{folder} has no file {pattern}")
        found += [str(path.relative_to(folder)) for path in paths]
    return tuple(dict.fromkeys(found))
