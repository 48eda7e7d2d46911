"""One directory per run; the only module that knows what its files are called.

    <runs>/<experiment>/<scale>/<model>/<arm>/seed<N>/
        config.resolved.yaml   what the run is; a directory is refused for any other config
        provenance.json        code, packages, machine, command line
        metrics.jsonl          one row per finished step, a pure function of config and seed
        checkpoints/step<N>/   complete directories only: written aside, then renamed
        eval/                  questions.jsonl, generations.jsonl, scores.jsonl of the final evaluation
        logs/                  output of the process, step times, reports of what a resume dropped
        result.json            written last: a run that has it is finished
        run.lock               held (flock) while a process works here; a crash releases it

A kill at any moment leaves a directory from which the run goes on at its last checkpoint:
rows of ``metrics.jsonl`` past that checkpoint are dropped, since the resumed run writes them again.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from gdpo_nemo.errors import RunDirError

METRICS = "metrics.jsonl"
EVALUATION_FILES = ("questions", "generations", "scores")


class RunDir:
    """A run directory on disk. Cheap to construct; holds no open files."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)

    @classmethod
    def claim(cls, path: Path, config: Mapping[str, Any], provenance: Mapping[str, Any]) -> RunDir:
        """Create the directory for this config, or open it when it already holds the same config.

        Raises:
            RunDirError: the directory was made for another config; the message names the
                keys that differ and the ways out.
        """
        run = cls(path)
        run._config_path.parent.mkdir(parents=True, exist_ok=True)
        if run._config_path.exists():
            differing = list(_differing_keys(run.config(), config))
            if differing:
                listing = "\n".join(f"  {key}: {old!r} there, {new!r} now" for key, old, new in differing[:8])
                raise RunDirError(
                    f"{path} was made with another configuration:\n{listing}\n"
                    "Use another place (--out DIR), start these runs again (--fresh), or go back to that configuration."
                )
            return run
        if any(run.path.iterdir()) and (run.path / METRICS).exists():
            raise RunDirError(f"{path} holds {METRICS} but no configuration; move it away or use --out DIR")
        write_json(run.path / "provenance.json", provenance)
        _write_text(run._config_path, yaml.safe_dump(dict(config), sort_keys=False))
        (run.path / "logs").mkdir(exist_ok=True)
        return run

    @property
    def _config_path(self) -> Path:
        return self.path / "config.resolved.yaml"

    def exists(self) -> bool:
        """Whether the directory has been claimed."""
        return self._config_path.exists()

    def config(self) -> dict[str, Any]:
        """The resolved configuration the directory was made for.

        Raises:
            RunDirError: there is none, or it cannot be read.
        """
        try:
            data = yaml.safe_load(self._config_path.read_text("utf-8"))
        except FileNotFoundError as error:
            raise RunDirError(f"{self.path} is not a run directory: it has no {self._config_path.name}") from error
        except yaml.YAMLError as error:
            raise RunDirError(f"{self._config_path} cannot be read: {error}") from error
        if not isinstance(data, dict):
            raise RunDirError(f"{self._config_path} holds no mapping")
        return data

    def provenance(self) -> dict[str, Any]:
        """What produced the run, or an empty mapping."""
        return read_json(self.path / "provenance.json") or {}

    def result(self) -> dict[str, Any] | None:
        """The final result, or None while the run is unfinished."""
        return read_json(self.path / "result.json")

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write the result; from here on the run is finished."""
        write_json(self.path / "result.json", result)

    def state(self) -> str:
        """``missing``, ``started``, ``running`` or ``finished``."""
        if not self.exists():
            return "missing"
        if self.result() is not None:
            return "finished"
        return "running" if self.is_locked() else "started"

    def clear(self) -> None:
        """Remove the directory.

        Raises:
            RunDirError: a process is working in it.
        """
        if self.is_locked():
            raise RunDirError(f"{self.path} is in use by another process; stop that process first")
        shutil.rmtree(self.path, ignore_errors=False)

    @property
    def log_path(self) -> Path:
        """Where the output of the run's process goes."""
        return self.path / "logs" / "process.log"

    # ---- lock

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the directory for one process; the kernel lets go when the process ends in any way.

        Raises:
            RunDirError: another process holds it.
        """
        with open(self.path / "run.lock", "a+", encoding="utf-8") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                handle.seek(0)
                raise RunDirError(
                    f"{self.path} is in use by process {handle.read().strip() or '?'}; wait for it or stop it"
                ) from error
            handle.truncate(0)
            handle.write(str(os.getpid()))
            handle.flush()
            yield

    def is_locked(self) -> bool:
        """Whether a process works here now."""
        path = self.path / "run.lock"
        if not path.exists():
            return False
        with open(path, encoding="utf-8") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    # ---- metrics

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        """Add one step's row and flush it."""
        append_jsonl(self.path / METRICS, [row])

    def metrics(self) -> list[dict[str, Any]]:
        """All rows; a half-written last line, left by a kill, is ignored."""
        return read_jsonl(self.path / METRICS)

    def last_step(self) -> int:
        """Step of the last metrics row, 0 when there is none."""
        rows = self.metrics()
        return int(rows[-1]["step"]) if rows else 0

    def append_timing(self, row: Mapping[str, Any]) -> None:
        """Add a row of wall times; kept apart so that metrics.jsonl is reproducible to the byte."""
        append_jsonl(self.path / "logs" / "timing.jsonl", [row])

    # ---- checkpoints

    @contextlib.contextmanager
    def new_checkpoint(self, step: int, keep: int = 2) -> Iterator[Path]:
        """A directory to write a checkpoint into; it appears under its name only when complete."""
        folder = self.path / "checkpoints"
        folder.mkdir(exist_ok=True)
        partial = folder / f".partial-step{step}"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        yield partial
        final = folder / f"step{step}"
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)
        for _, old in self.checkpoints()[:-keep]:
            shutil.rmtree(old)

    def checkpoints(self) -> list[tuple[int, Path]]:
        """Complete checkpoints as (step, directory), oldest first."""
        found = [(int(path.name[4:]), path) for path in self.path.glob("checkpoints/step*") if path.name[4:].isdigit()]
        return sorted(found)

    def resume_point(self) -> tuple[int, Path | None]:
        """The step to go on from and its checkpoint; drops everything written after that step."""
        for leftover in self.path.glob("checkpoints/.partial-step*"):
            shutil.rmtree(leftover)
        checkpoints = self.checkpoints()
        step, folder = checkpoints[-1] if checkpoints else (0, None)
        rows = self.metrics()
        kept = [row for row in rows if row["step"] <= step]
        if (self.path / METRICS).exists():
            _write_text(self.path / METRICS, "".join(json.dumps(row) + "\n" for row in kept))
        if len(rows) > len(kept):
            append_jsonl(
                self.path / "logs" / "resumes.jsonl",
                [{"resumed_from_step": step, "dropped_rows": len(rows) - len(kept)}],
            )
        return step, folder

    # ---- evaluation

    def write_evaluation(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write one of questions, generations or scores, whole."""
        assert name in EVALUATION_FILES, name
        path = self.path / "eval" / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        _write_text(path, "".join(json.dumps(row) + "\n" for row in rows))

    def read_evaluation(self, name: str) -> list[dict[str, Any]]:
        """Read one of questions, generations or scores."""
        assert name in EVALUATION_FILES, name
        return read_jsonl(self.path / "eval" / f"{name}.jsonl")


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON mapping, or None when the file is absent."""
    try:
        data: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except json.JSONDecodeError as error:
        raise RunDirError(f"{path} is corrupt: {error}") from error
    return data


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Replace a JSON file in one move."""
    _write_text(path, json.dumps(data, indent=2) + "\n")


def append_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append rows and hand them to the operating system before returning."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as handle:
        handle.write("".join(json.dumps(row) + "\n" for row in rows))


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """All rows of a JSONL file; only the last line may be half-written, and is then left out.

    Raises:
        RunDirError: any other line is corrupt.
    """
    try:
        lines = path.read_text("utf-8", errors="replace").split("\n")
    except FileNotFoundError:
        return []
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError as error:
            if number == len(lines):
                break
            raise RunDirError(f"{path} line {number} is corrupt: {error}") from error
    return rows


def _write_text(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".partial")
    with open(partial, "w", encoding="utf-8") as handle:
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(partial, path)


def _differing_keys(old: Any, new: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}, key=str):
            yield from _differing_keys(old.get(key), new.get(key), f"{prefix}.{key}" if prefix else str(key))
    elif old != new:
        yield prefix, old, new
