"""One directory per run; the only module that knows what its files are called.

    <runs>/<experiment>/<scale>/<model>/<arm>/seed<N>/
        config.resolved.yaml   what the run is; a directory is refused for any other config
        provenance.json        code, packages, machine, command line
        metrics.jsonl          one row per finished step, a pure function of config and seed
        checkpoints/step<N>/   complete directories only: written aside, then renamed
        eval/<benchmark>/      every question, answer and score of an evaluation; heldout at the end of a run
        logs/                  output of the process, step times, alarms, reports of what a resume dropped
        result.json            written last: a run that has it is finished
        run.lock               held (flock) while a process works here; a crash releases it

A kill at any moment leaves a directory from which the run goes on at its last checkpoint:
rows of ``metrics.jsonl`` past that checkpoint are dropped, since the resumed run writes them again.
"""

from __future__ import annotations

import contextlib
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from gdpo_nemo.differences import differing_keys
from gdpo_nemo.errors import NotARunError, RunDirError
from gdpo_nemo.files import (
    LockableDir,
    append_jsonl,
    read_json,
    read_jsonl,
    to_jsonl,
    write_json,
    write_text,
    writing,
)

METRICS = "metrics.jsonl"
WORDS = ("phase",)  # keys of metrics whose values are no numbers
WAYS_OUT = "Use another place (--out DIR), start these runs again (--fresh), or go back to that configuration."


class RunDir(LockableDir):
    """A run directory on disk. Cheap to construct; holds no open files."""

    lock_name = "run.lock"

    @classmethod
    def claim(cls, path: Path, config: Mapping[str, Any], provenance: Mapping[str, Any]) -> RunDir:
        """Create the directory for this config, or open it when it already holds the same config.

        Raises:
            RunDirError: the directory was made for another config; the message names the
                keys that differ and the ways out.
        """
        run = cls(path)
        run.check_config(config)
        if not run.exists():
            (run.path / "logs").mkdir(parents=True, exist_ok=True)
            write_json(run.path / "provenance.json", provenance)
            write_text(run._config_path, yaml.safe_dump(dict(config), sort_keys=False))
        return run

    def check_config(self, config: Mapping[str, Any]) -> None:
        """Do nothing when ``claim`` would accept this config. Writes nothing.

        Raises:
            RunDirError: as ``claim``.
        """
        if self.exists():
            differing = list(differing_keys(self.config(), config))
            if differing:
                listing = "\n".join(f"  {key}: {old!r} there, {new!r} now" for key, old, new in differing[:8])
                raise RunDirError(f"{self.path} was made with another configuration:\n{listing}\n{WAYS_OUT}")
        elif (self.path / METRICS).exists():
            raise RunDirError(f"{self.path} holds {METRICS} but no configuration; move it away or use --out DIR")

    @property
    def _config_path(self) -> Path:
        return self.path / "config.resolved.yaml"

    def exists(self) -> bool:
        """Whether the directory has been claimed."""
        return self._config_path.exists()

    def config(self) -> dict[str, Any]:
        """The resolved configuration the directory was made for.

        Raises:
            NotARunError: there is none.
            RunDirError: it cannot be read.
        """
        try:
            data = yaml.safe_load(self._config_path.read_text("utf-8"))
        except FileNotFoundError as error:
            missing = f"it has no {self._config_path.name}; `gdpo list` shows where runs are"
            raise NotARunError(f"{self.path} is not a run directory: {missing}") from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
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

    def damage(self) -> str | None:
        """Which file of the run cannot be read, why, and what to do; None where all can."""
        files = (self.provenance, self.result, self.checked_metrics, self.halted_by)
        try:
            for read in (self.config, *files) if self.exists() else files:
                read()
        except RunDirError as error:
            return f"{error}. Mend that file, or move {self.path} away and start the run again"
        return None

    def clear(self) -> None:
        """Remove the directory.

        Raises:
            RunDirError: a process is working in it.
        """
        if self.path.exists():
            with self.lock():
                doomed = _put_aside(self.path)
            shutil.rmtree(doomed)

    @property
    def log_path(self) -> Path:
        """Where the output of the run's process goes."""
        return self.path / "logs" / "process.log"

    def log_tail(self, num_lines: int = 12) -> list[str]:
        """The last lines that the run's process wrote."""
        try:
            return self.log_path.read_text("utf-8", errors="replace").splitlines()[-num_lines:]
        except FileNotFoundError:
            return []

    # ---- metrics

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        """Add one step's row and flush it. A value that is not finite, such as the mean of no rows, becomes null."""
        append_jsonl(self.path / METRICS, [row])

    def metrics(self) -> list[dict[str, Any]]:
        """All rows, NaN where the file has null; a half-written last line, left by a kill, is ignored."""
        rows = read_jsonl(self.path / METRICS)
        return [
            {key: math.nan if value is None else value for key, value in row.items()} if None in row.values() else row
            for row in rows
        ]

    def checked_metrics(self) -> list[dict[str, Any]]:
        """The same, each with a higher step than the one before it and with numbers.

        Raises:
            RunDirError: a row is not like that.
        """
        rows, before = self.metrics(), -math.inf
        for number, row in enumerate(rows, start=1):
            odd = [key for key, value in row.items() if not isinstance(value, int | float) and key not in WORDS]
            if odd or "step" not in row:
                fault = f"{odd[0]} is {row[odd[0]]!r}, which is no number" if odd else f"it has no step: {row}"
                raise RunDirError(f"{self.path / METRICS} line {number} is corrupt: {fault}")
            if not row["step"] > before:
                raise RunDirError(
                    f"{self.path / METRICS} line {number} is corrupt: step {row['step']:g} follows step {before:g}, "
                    "expected rising steps"
                )
            before = row["step"]
        return rows

    def last_step(self) -> int:
        """Step of the last metrics row, 0 when there is none.

        Raises:
            RunDirError: as ``checked_metrics``.
        """
        rows = self.checked_metrics()
        return int(rows[-1]["step"]) if rows else 0

    def append_timing(self, row: Mapping[str, Any]) -> None:
        """Add a row of wall times; kept apart so that metrics.jsonl is reproducible to the byte."""
        append_jsonl(self.path / "logs" / "timing.jsonl", [row])

    # ---- alarms

    @property
    def _alarms_path(self) -> Path:
        return self.path / "logs" / "alarms.jsonl"

    def alarms(self) -> list[dict[str, Any]]:
        """What the monitor raised while the run went on, in the order of steps; see ``health.following``."""
        return read_jsonl(self._alarms_path)

    def write_alarms(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Replace them in one move; the file is there from the first alarm on."""
        if rows or self._alarms_path.exists():
            self._alarms_path.parent.mkdir(parents=True, exist_ok=True)
            write_text(self._alarms_path, to_jsonl(rows))

    def halted_by(self) -> dict[str, Any] | None:
        """The alarm that stopped the run, unless somebody has accepted it since.

        Raises:
            RunDirError: a row lacks what an alarm has.
        """
        try:
            return next((row for row in self.alarms() if row["action"] == "stop" and not row["accepted"]), None)
        except KeyError as error:
            raise RunDirError(f"{self._alarms_path} holds a row without {error}") from error

    # ---- checkpoints

    @contextlib.contextmanager
    def new_checkpoint(self, step: int, keep: int = 2, healthy_until: int | None = None) -> Iterator[Path]:
        """A directory to write a checkpoint into; it appears under its name only when complete.

        The newest ``keep`` checkpoints stay; so does the newest of those up to step ``healthy_until``, and the one
        after it, which takes its place when ``healthy_until`` has moved on.
        """
        folder = self.path / "checkpoints"
        folder.mkdir(exist_ok=True)
        partial = folder / f".partial-step{step}"
        shutil.rmtree(partial, ignore_errors=True)
        with writing(partial):
            partial.mkdir()
            yield partial
        final = folder / f"step{step}"
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)
        found = self.checkpoints()
        kept = found[-keep:]
        if healthy_until is not None:
            healthy = sum(step <= healthy_until for step, _ in found)
            kept += found[max(0, healthy - 1) : healthy + 1]
        for old in found:
            if old not in kept:
                shutil.rmtree(_put_aside(old[1]))

    def checkpoints(self) -> list[tuple[int, Path]]:
        """Complete checkpoints as (step, directory), oldest first."""
        found = [(int(path.name[4:]), path) for path in self.path.glob("checkpoints/step*") if path.name[4:].isdigit()]
        return sorted(found)

    def resume_point(self) -> tuple[int, Path | None]:
        """The step to go on from and its checkpoint; drops everything written after that step."""
        for leftover in self.path.glob("checkpoints/.*-step*"):
            shutil.rmtree(leftover)
        checkpoints = self.checkpoints()
        step, folder = checkpoints[-1] if checkpoints else (0, None)
        self.drop_metrics_after(step)
        return step, folder

    def drop_metrics_after(self, step: int) -> None:
        """Drop the rows of steps that are done again, and note in ``logs/resumes.jsonl`` how many they were."""
        rows = self.metrics()
        kept = [row for row in rows if row["step"] <= step]
        if (self.path / METRICS).exists():
            write_text(self.path / METRICS, to_jsonl(kept))
        if len(rows) > len(kept):
            append_jsonl(
                self.path / "logs" / "resumes.jsonl",
                [{"resumed_from_step": step, "dropped_rows": len(rows) - len(kept)}],
            )

    # ---- evaluation

    def evaluation_path(self, benchmark: str) -> Path:
        """Where an evaluation of the run's model lies, see ``evaluation.store``."""
        return self.path / "eval" / benchmark


def _put_aside(folder: Path) -> Path:
    """Rename a folder that is to be removed: a kill while its files go must not leave half of it under its name."""
    doomed = folder.with_name(f".removed-{folder.name}")
    shutil.rmtree(doomed, ignore_errors=True)
    return folder.rename(doomed)
