"""What runs logged while they trained, read once: per run one array for each key of ``metrics.jsonl``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gdpo_nemo.errors import UnknownNameError
from gdpo_nemo.report.samples import SYNTHETIC, run_name
from gdpo_nemo.report.spec import is_metric
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.stats.intervals import FloatArray


@dataclass(frozen=True, eq=False)
class Training:
    """The finished steps of one run.

    Attributes:
        run: name of the run, its last two folders.
        steps_T: the steps, rising.
        metrics: key -> values_T, NaN where a row has no value.
        synthetic: whether the run's provenance says that it was made up.
    """

    run: str
    steps_T: FloatArray
    metrics: Mapping[str, FloatArray]
    synthetic: bool = False

    def of(self, name: str) -> FloatArray:
        """The mean of a reward over the batch of each step, or the metric of that key, see ``spec.is_metric``.

        Raises:
            UnknownNameError: the run logged no such reward or metric.
        """
        key = name if is_metric(name) else f"reward/{name}/mean"
        if key in self.metrics:
            return self.metrics[key]
        rewards = sorted({one.split("/")[1] for one in self.metrics if one.startswith("reward/")})
        known, kind = (sorted(self.metrics), "metric") if is_metric(name) else (rewards, "reward")
        raise UnknownNameError(f"{kind} in the metrics of {self.run}", name, known)


def read_training(runs: Mapping[tuple[str, int], Path]) -> dict[tuple[str, int], Training]:
    """(arm, seed) -> what the run has logged so far; a run without a finished step is left out.

    Raises:
        RunDirError: the metrics of a run are damaged.
    """
    return {key: training for key, path in runs.items() if (training := _read(path)) is not None}


def _read(path: Path) -> Training | None:
    run = RunDir(path)
    rows = run.checked_metrics()
    if not rows:
        return None
    keys = list(dict.fromkeys(key for row in rows for key in row))
    if all(list(row) == keys for row in rows):  # as usual, quick
        columns = np.array([list(row.values()) for row in rows], dtype=np.float64).T
    else:
        columns = np.array([[row.get(key, np.nan) for row in rows] for key in keys], dtype=np.float64)
    steps_T = columns[keys.index("step")]
    metrics = {key: column for key, column in zip(keys, columns, strict=True) if key != "step"}
    return Training(run_name(path), steps_T, metrics, bool(run.provenance().get(SYNTHETIC)))
