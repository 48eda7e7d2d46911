"""One directory for the runs that a table compares; see ``run_dir`` for each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from gdpo_nemo.files import LockableDir
from gdpo_nemo.run_dir import RunDir


class RunTree(LockableDir):
    """All runs of one experiment at one scale with one model: ``<runs>/<experiment>/<scale>/<model>/``."""

    lock_name = "tree.lock"

    def run(self, arm: str, seed: int) -> RunDir:
        """The directory of one arm with one seed."""
        return RunDir(self.path / arm / f"seed{seed}")

    def base(self, name: str) -> RunDir:
        """The directory of a model that arms start from, by its content hash."""
        return RunDir(self.path / "base" / name)

    @property
    def report_path(self) -> Path:
        """Where tables, figures and verdicts go."""
        return self.path / "report"

    def found(self) -> dict[tuple[str, int], RunDir]:
        """Every claimed run: (arm, seed) -> directory, sorted."""
        numbered = [path for path in self.path.glob("*/seed*") if path.name[4:].isdigit()]
        runs = {(path.parent.name, int(path.name[4:])): RunDir(path) for path in numbered}
        return {key: run for key, run in sorted(runs.items()) if run.exists()}

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """As of a run, for the process that starts runs here; makes the directory where there is none."""
        self.path.mkdir(parents=True, exist_ok=True)
        with super().lock():
            yield
