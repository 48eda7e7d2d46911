"""Learning-rate sensitivity over folders of runs that differ in the learning rate alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gdpo_nemo.differences import differing_keys
from gdpo_nemo.errors import PrerequisiteError, RunDirError, UsageError
from gdpo_nemo.files import csv_text
from gdpo_nemo.report.spec import is_metric
from gdpo_nemo.suite.grid import Selection

KEY = "embedded.train.lr"


@dataclass(frozen=True)
class LearningRates:
    """Final levels over learning rates: reward -> learning rate -> arm -> mean over seeds."""

    levels: Mapping[str, Mapping[float, Mapping[str, float]]]

    def lines(self, labels: Mapping[str, str]) -> list[str]:
        """One sentence per reward and arm."""
        from gdpo_nemo.report.stability import learning_rate_sensitivity

        return [
            f"{reward}, {labels.get(arm, arm)}: highest less lowest final level {gap:.3f} over {count} learning rates, "
            f"highest at {best:g}"
            for reward, levels in self.levels.items()
            for arm, (gap, best, count) in learning_rate_sensitivity(levels).items()
        ]

    def to_csv(self) -> str:
        """One row per reward, learning rate and arm."""
        return csv_text(
            ["reward", "learning_rate", "arm", "final_level"],
            [
                [reward, repr(rate), arm, repr(level)]
                for reward, levels in self.levels.items()
                for rate, by_arm in sorted(levels.items())
                for arm, level in by_arm.items()
            ],
        )


def read_learning_rates(selection: Selection, roots: Sequence[Path]) -> LearningRates:
    """The runs of a selection and those of the same experiment and model under other folders.

    Raises:
        PrerequisiteError: a folder has no such runs.
        RunDirError: runs differ in more than the learning rate and the seed.
        UsageError: two folders have the same learning rate.
    """
    from gdpo_nemo.report.stability import final_level
    from gdpo_nemo.report.training import read_training

    rewards = [name for name in selection.experiment.curves if not is_metric(name)]
    levels: dict[str, dict[float, dict[str, float]]] = {reward: {} for reward in rewards}
    first: dict[str, tuple[Path, Any]] = {}
    for root in (selection.out, *roots):
        own = replace(selection, out=root)
        runs = {key: run for key, run in own.compared().items() if run.exists()}
        if not runs:
            raise PrerequisiteError(f"no runs in {own.tree.path}; --learning-rates takes folders such as --out does")
        rates = set()
        for (arm, _), run in runs.items():
            config = run.config()
            rates.add(float(config["embedded"]["train"]["lr"]))
            _check(first.setdefault(arm, (run.path, config)), (run.path, config))
        if len(rates) > 1 or rates & set(levels[rewards[0]] if rewards else ()):
            found = ", ".join(f"{rate:g}" for rate in sorted(rates))
            raise UsageError(f"{own.tree.path} has learning rate {found}; each folder has one of its own")
        [rate] = rates
        trainings = read_training({key: run.path for key, run in runs.items()})
        for reward in rewards:
            of_arm: dict[str, list[float]] = {}
            for (arm, _), training in trainings.items():
                of_arm.setdefault(arm, []).append(final_level(training.of(reward)))
            levels[reward][rate] = {arm: float(np.nanmean(values)) for arm, values in of_arm.items()}
    return LearningRates(levels)


def _check(first: tuple[Path, Any], other: tuple[Path, Any]) -> None:
    odd = [key for key, _, _ in differing_keys(first[1], other[1]) if key not in (KEY, "seed")]
    if odd:
        raise RunDirError(f"{first[0]} and {other[0]} differ in more than {KEY}: {', '.join(odd[:8])}")
