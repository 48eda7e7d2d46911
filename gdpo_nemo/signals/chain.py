"""The signals of a run in their order, around the method in the middle.

    conditioned rewards -> quantiles -> weights of the step -> families -> GDPO or GRPO -> cap -> clip -> veto

Without any of them both ends hand back what they are given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gdpo_nemo.signals.amplification import capped
from gdpo_nemo.signals.clipping import clipped
from gdpo_nemo.signals.families import Family, add_up, check_families, column_names
from gdpo_nemo.signals.quantile import Quantiles
from gdpo_nemo.signals.schedules import Schedule, weight_at, weights_at
from gdpo_nemo.signals.veto import Veto, vetoed

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Signals:
    """What a configuration asks for.

    Attributes:
        names: K rewards.
        weights: of each, a number or a schedule.
        widths: what each weight is divided by where rewards are added up as they are.
        families: name -> family.
        quantiles: the windows of the rewards that are mapped; None without any.
        cap, clip, veto: of the advantage; None: unbounded.

    Raises:
        UnknownNameError, InputError: families or a veto that do not fit ``names``, as their modules say.
    """

    names: tuple[str, ...]
    weights: tuple[float | Schedule, ...]
    widths: tuple[float, ...]
    families: Mapping[str, Family] = field(default_factory=dict)
    quantiles: Quantiles | None = None
    cap: float | None = None
    clip: float | None = None
    veto: Veto | None = None

    def __post_init__(self) -> None:
        check_families(self.families, self.names)
        if self.veto is not None:
            self.veto.check(self.names)

    @property
    def columns(self) -> tuple[str, ...]:
        """What the method sees: rewards of no family, then the families."""
        return column_names(self.names, self.families)

    @property
    def reshape(self) -> bool:
        """Whether the method sees other columns than the conditioned rewards."""
        return bool(self.families) or self.quantiles is not None

    @property
    def follows_the_run(self) -> bool:
        """Whether the same batch gives other advantages at another step."""
        weights = (*self.weights, *(family.weight for family in self.families.values()))
        return self.quantiles is not None or any(isinstance(weight, Schedule) for weight in weights)

    def scheduled(self, step: int | None) -> dict[str, float]:
        """``reward/<name>/weight`` of every reward and family whose weight follows a schedule.

        Raises:
            InputError: there is one, and no step.
        """
        named = {**dict(zip(self.names, self.weights, strict=True)), **{n: f.weight for n, f in self.families.items()}}
        return {
            f"reward/{name}/weight": weight_at(weight, step)
            for name, weight in named.items()
            if isinstance(weight, Schedule)
        }

    def logged_weights(self, step: int | None) -> tuple[float, ...]:
        """The weight of each of ``columns`` as configured, before ``widths``.

        Raises:
            InputError: a weight follows a schedule, and there is no step.
        """
        weights = dict(zip(self.names, self.weights, strict=True))
        weights.update((name, family.weight) for name, family in self.families.items())
        return weights_at([weights[name] for name in self.columns], step)

    def before(
        self,
        rewards_B_K: Tensor,
        group_ids_B: Tensor,
        valid_B: Tensor | None,
        step: int | None,
        *,
        keep: bool = True,
    ) -> tuple[Tensor, tuple[float, ...]]:
        """Rewards [B, J] and J weights for the method, in the order of ``columns``.

        Args:
            rewards_B_K: conditioned rewards.
            group_ids_B: int64 [B].
            valid_B: bool [B].
            step: counted from 1.
            keep: whether the batch enters the windows of quantiles; False for rows that are only looked at.

        Raises:
            InputError: a weight follows a schedule, and there is no step.
        """
        weights = weights_at(self.weights, step)
        weights = tuple(weight / width for weight, width in zip(weights, self.widths, strict=True))
        if self.quantiles is not None:
            rewards_B_K = self.quantiles.map(rewards_B_K, group_ids_B, self.names, valid_B=valid_B, keep=keep)
        if self.families:
            rewards_B_K, weights = add_up(
                rewards_B_K, group_ids_B, self.names, weights, self.families, valid_B=valid_B, step=step
            )
        return rewards_B_K, weights

    def after(self, advantages_B: Tensor, rewards_B_K: Tensor, amplification: float) -> tuple[Tensor, dict[str, float]]:
        """Advantages [B] within their bounds, and what was cut.

        Args:
            advantages_B: of the method.
            rewards_B_K: raw rewards, before conditions.
            amplification: of the batch step.
        """
        cut: dict[str, float] = {}
        if self.cap is not None:
            advantages_B, cut["advantage/cap_factor"] = capped(advantages_B, amplification, self.cap)
        if self.clip is not None:
            advantages_B, num_clipped = clipped(advantages_B, self.clip)
            cut["advantage/num_clipped"] = float(num_clipped)
        if self.veto is not None:
            advantages_B, num_vetoed = vetoed(advantages_B, rewards_B_K, self.names, self.veto)
            cut["advantage/num_vetoed"] = float(num_vetoed)
        return advantages_B, cut

    def save(self, folder: Path) -> None:
        """Write what was gathered over the run into a checkpoint's folder."""
        if self.quantiles is not None:
            self.quantiles.save(folder)

    def restore(self, folder: Path | None) -> None:
        """Go on with what ``save`` wrote; None: the run begins.

        Raises:
            RunDirError: the folder does not have it.
        """
        if self.quantiles is not None:
            self.quantiles.restore(folder)
