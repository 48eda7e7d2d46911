"""The health panel: what the runs logged about their rewards and their optimisation.

Each number is defined in ``gdpo_nemo.advantages.diagnostics``, and is logged in every arm, whatever it trains with.
Alarms are those that the runs raised themselves (``gdpo_nemo.health.following``); the page adds none.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gdpo_nemo.report.page.document import Grid, Health
from gdpo_nemo.report.samples import run_name
from gdpo_nemo.report.training import Training
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.stats.intervals import FloatArray

LATE = 0.1
PER_REWARD = (
    ("reward/{}/frac_dead_groups", "constant groups: {}", "Groups in which all rollouts got the same {}.", True),
    ("advantage/{}/share", "dominance: {}", "Share of the variance of GDPO's sum that {} accounts for.", True),
    (
        "reward/{}/frac_missing",
        "no value: {}",
        "Rollouts without a value of {}: not graded, or it does not apply.",
        True,
    ),
)
OVERALL = (
    ("groups/distinct", "distinct advantage groups", "Different advantages that the groups of a batch have.", False),
    ("advantage/amplification", "amplification", "What GDPO's batch step scales living groups up by.", False),
    ("advantage/frac_conflict", "conflict", "Rollouts that one reward pushes up and another down.", True),
    ("length/mean", "response length", "Mean of the batch, in tokens.", False),
    ("length/max", "longest response", "Of the batch, in tokens.", False),
    ("frac_truncated", "cut off", "Rollouts that reached the length limit.", True),
    ("repeated/ngrams", "repeated 4-grams", "Of a response, those that the response to another prompt has too.", True),
    ("entropy", "entropy", "Of the policy at its own tokens, in nats.", False),
    ("kl", "KL", "From the reference model; 0 where none is held.", False),
    ("clip_fraction", "clipped", "Tokens whose ratio met the clip range.", True),
    ("grad_norm", "gradient norm", "Before it is clipped.", False),
)


@dataclass(frozen=True)
class _Number:
    title: str
    meaning: str
    percent: bool
    read: Callable[[Training], FloatArray | None]


def read_health(trainings: Mapping[tuple[str, int], Training]) -> tuple[Health, ...]:
    """Every known number that some run logged and that is not missing and not 0 throughout."""
    found = []
    for number in _numbers(trainings):
        series: dict[str, list[tuple[FloatArray, FloatArray]]] = {}
        for (arm, _), training in trainings.items():
            values_T = number.read(training)
            if values_T is not None:
                series.setdefault(arm, []).append((training.steps_T, values_T))
        if any(np.nan_to_num(values_T).any() for own in series.values() for _, values_T in own):
            found.append(_over_seeds(number, series))
    return tuple(found)


def _numbers(trainings: Mapping[tuple[str, int], Training]) -> Iterator[_Number]:
    keys = dict.fromkeys(key for training in trainings.values() for key in training.metrics)
    rewards = [key.split("/")[1] for key in keys if key.startswith("reward/") and key.endswith("/mean")]
    for pattern, title, meaning, percent in PER_REWARD:
        for reward in rewards:
            yield _Number(title.format(reward), meaning.format(reward), percent, _metric(pattern.format(reward)))
    yield _Number("groups with a signal", "Groups whose advantages are not all 0.", True, _alive)
    for key, title, meaning, percent in OVERALL:
        yield _Number(title, meaning, percent, _metric(key))


def _metric(key: str) -> Callable[[Training], FloatArray | None]:
    return lambda training: training.metrics.get(key)


def _alive(training: Training) -> FloatArray | None:
    alive, total = training.metrics.get("groups/alive"), training.metrics.get("groups/total")
    if alive is None or total is None:
        return None
    share: FloatArray = np.divide(alive, total, out=np.full(len(total), np.nan), where=total > 0)
    return share


def _over_seeds(number: _Number, series: Mapping[str, list[tuple[FloatArray, FloatArray]]]) -> Health:
    steps, medians, late = {}, {}, {}
    for arm, own in series.items():
        shared = min((steps_T for steps_T, _ in own), key=len)
        table_S_T = np.stack([values_T[: len(shared)] for _, values_T in own])
        num_late = max(1, round(LATE * len(shared)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a step that no seed has a value at is NaN
            medians[arm] = np.nanmedian(table_S_T, axis=0)
            late[arm] = float(np.nanmedian(np.nanmean(table_S_T[:, -num_late:], axis=1)))
        steps[arm] = shared
    return Health(number.title, number.meaning, number.percent, steps, medians, late)


def read_alarms(runs: Iterable[Path]) -> Grid | None:
    """What runs raised while they trained, one line each; None where none raised any."""
    lines = []
    for path in runs:
        for row in RunDir(path).alarms():
            kept = row["last_healthy_checkpoint"] or "none"
            asked = f"{row['action']}, accepted" if row["accepted"] else row["action"]
            lines.append((run_name(path), str(row["step"]), row["rule"], row["text"], asked, kept))
    if not lines:
        return None
    note = "As configured by gdpo.monitor; a checkpoint from before is one that is older than what the alarm rests on."
    return Grid(("run", "step", "alarm", "seen", "action", "checkpoint from before"), tuple(lines), (note,))
