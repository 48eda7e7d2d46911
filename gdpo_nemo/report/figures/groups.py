"""Distinct advantage groups, exactly: how many different advantages a method can give a group. Figure 3.

A group is G rollouts with K binary rewards each, the order of the rollouts left out: C(2^K + G - 1, G) groups are
possible. Two of them are the same to a method when their advantages are, as multisets, equal to ``DECIMALS`` decimals.
GDPO's batch step is left out, since one positive factor merges nothing.

Every possible group is counted once. The points of the paper's figure (arXiv 2601.05242) agree with that for up to 8
rollouts and lie below it at 16 (about 50 and 175, where the exact counts for two rewards are 121 and 497): the same
definition counted over some 500 to 1,000 random groups comes nearest to them. With unequal weights the methods
hardly differ, which the third panel shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, islice, product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gdpo_nemo.errors import InputError
from gdpo_nemo.files import csv_text
from gdpo_nemo.report.figures import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from gdpo_nemo.stats.intervals import FloatArray

DECIMALS = 6
GROUPS_AT_ONCE = 20_000
MAX_GROUPS = 1_000_000
METHODS = {"grpo": "GRPO", "grpo_no_std": "GRPO w/o std", "gdpo": "GDPO"}
ROLLOUTS = range(2, 17)
REWARDS = range(2, 7)
ROLLOUTS_OF_REWARDS = 4
PANELS = {
    "rollouts": ("2 rewards, equal weights", "rollouts per group"),
    "rewards": (f"{ROLLOUTS_OF_REWARDS} rollouts, equal weights", "rewards"),
    "unequal": ("2 rewards, weights 1 and 0.5", "rollouts per group"),
}
NOTE = (
    "Exact: every possible group of binary rewards is counted once. The points of the paper's figure lie below these "
    "at 16 rollouts\nand fit a count over 500 to 1,000 random groups. The gap between the methods needs equal weights."
)


@dataclass(frozen=True)
class Count:
    """Distinct advantage groups in one setting.

    Attributes:
        panel: key of ``PANELS``.
        rollouts: G.
        weights: one per reward.
        possible: groups there are.
        distinct: method -> how many of them it tells apart.
    """

    panel: str
    rollouts: int
    weights: tuple[float, ...]
    possible: int
    distinct: dict[str, int]


def count_groups(rollouts: int, weights: Sequence[float], panel: str = "rollouts") -> Count:
    """Count by enumeration.

    Raises:
        InputError: more than ``MAX_GROUPS`` groups are possible.
    """
    from gdpo_nemo.advantages import gdpo, grpo

    kinds = 2 ** len(weights)
    possible = math.comb(kinds + rollouts - 1, rollouts)
    if possible > MAX_GROUPS:
        raise InputError(f"{rollouts} rollouts of {len(weights)} rewards make {possible} groups; at most {MAX_GROUPS}")
    methods: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "grpo": lambda rewards, ids: grpo(rewards, ids, weights=weights),
        "grpo_no_std": lambda rewards, ids: grpo(rewards, ids, weights=weights, scale_by_std=False),
        "gdpo": lambda rewards, ids: gdpo(rewards, ids, weights=weights, batch_norm=False),
    }
    seen: dict[str, set[bytes]] = {method: set() for method in methods}
    for rewards_P_G_K in _groups(rollouts, weights):
        for method, advantages in methods.items():
            seen[method].update(_fingerprints(rewards_P_G_K, advantages))
    return Count(panel, rollouts, tuple(weights), possible, {method: len(found) for method, found in seen.items()})


def all_counts() -> list[Count]:
    """Every point of the figure; takes a few seconds."""
    return [
        *(count_groups(rollouts, (1.0, 1.0)) for rollouts in ROLLOUTS),
        *(count_groups(ROLLOUTS_OF_REWARDS, (1.0,) * rewards, "rewards") for rewards in REWARDS),
        *(count_groups(rollouts, (1.0, 0.5), "unequal") for rollouts in ROLLOUTS),
    ]


def in_words(counts: Sequence[Count]) -> str:
    """What the figure shows, and its first two panels at their right ends."""
    ends = [[one for one in counts if one.panel == panel][-1] for panel in ("rollouts", "rewards")]
    parts = [
        f"{one.rollouts} rollouts with {len(one.weights)} rewards: "
        + ", ".join(f"{label} {one.distinct[method]}" for method, label in METHODS.items())
        for one in ends
    ]
    return f"How many different sets of advantages a group can get; more tell more apart. {'; '.join(parts)}."


def to_csv(counts: Sequence[Count]) -> str:
    """One row per setting and method."""
    rows = []
    for count in counts:
        weights = " ".join(f"{weight:g}" for weight in count.weights)
        setting = [count.panel, count.rollouts, len(count.weights), weights, count.possible]
        rows += [[*setting, method, distinct] for method, distinct in count.distinct.items()]
    return csv_text(["panel", "rollouts", "rewards", "weights", "possible", "method", "distinct"], rows)


def write_groups(counts: Sequence[Count], stem: Path) -> None:
    """Write ``<stem>.csv``, ``.png`` and ``.pdf``.

    Raises:
        PrerequisiteError: matplotlib is not installed; the CSV has been written.
    """
    style.write_figure(lambda: draw_groups(counts), to_csv(counts), stem)


def draw_groups(counts: Sequence[Count]) -> Figure:
    """The figure itself, one panel per setting that has counts."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import MaxNLocator

    shown = [panel for panel in PANELS if any(count.panel == panel for count in counts)]
    palette = style.colours(list(METHODS))
    figure = Figure(figsize=(4.2 * len(shown), 4.0), layout=ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.08))
    for axes, panel in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        own = [count for count in counts if count.panel == panel]
        heading, axis = PANELS[panel]
        along = [len(count.weights) if panel == "rewards" else count.rollouts for count in own]
        for marker, (method, label) in zip(style.MARKERS, METHODS.items(), strict=False):
            distinct = [count.distinct[method] for count in own]
            axes.plot(along, distinct, color=palette[method], marker=marker, markersize=4.5, label=label)
        axes.set_title(heading, fontsize=11)
        axes.set_xlabel(axis)
        axes.set_ylabel("distinct advantage groups")
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
        style.plain(axes)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    figure.supxlabel(NOTE, fontsize=8, color="0.35")
    return figure


def _groups(rollouts: int, weights: Sequence[float]) -> Iterator[FloatArray]:
    """Every possible group at least once, up to orders that no method sees, some at a time: rewards_P_G_K.

    Either every multiset of G rollouts, or, with equal weights, where the order of the rewards does not matter, every
    multiset of K rewards over ordered rollouts: whichever are fewer.
    """
    rewards = len(weights)
    of_rewards = math.comb(2**rollouts + rewards - 1, rewards) < math.comb(2**rewards + rollouts - 1, rollouts)
    by_reward = len(set(weights)) == 1 and of_rewards
    drawn, length = (rewards, rollouts) if by_reward else (rollouts, rewards)
    kinds = np.array(list(product((0.0, 1.0), repeat=length)))
    choices = combinations_with_replacement(range(len(kinds)), drawn)
    while chosen := list(islice(choices, GROUPS_AT_ONCE)):
        groups = kinds[np.array(chosen)]
        yield groups.transpose(0, 2, 1) if by_reward else groups


def _fingerprints(rewards_P_G_K: FloatArray, advantages: Callable[[Tensor, Tensor], Tensor]) -> set[bytes]:
    """The advantages of each group, sorted and rounded, as bytes."""
    import torch

    num_groups, rollouts, rewards = rewards_P_G_K.shape
    ids_B = torch.arange(num_groups).repeat_interleave(rollouts)
    advantages_B = advantages(torch.from_numpy(rewards_P_G_K.reshape(-1, rewards)), ids_B)
    rounded_P_G = np.round(np.sort(advantages_B.numpy().reshape(num_groups, rollouts), axis=1), DECIMALS) + 0.0
    return {group.tobytes() for group in rounded_P_G}
