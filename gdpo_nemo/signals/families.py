"""Rewards that belong together, added up first and then normalised as one.

    f = sum_k w_k r_k           over the members that apply to the row; NaN where none does
    A_f = (f - mean_g f) / std_g f, and its term in eq. 6-7 of arXiv 2601.05242 is w_f A_f

Inside a family this is GRPO's total (eq. 1), so its members' scales and weights matter to each other; between families
it is GDPO. Rewards that say nearly the same count once and not as often as there are of them; a family of one reward
with a weight above 0 is that reward. What others offer is either all rewards apart (GDPO) or all in one sum (GRPO).

Rounding: a group whose f differs by no more than 1e-6 * max sum_k |w_k r_k| has no variance, as in
``gdpo_nemo.advantages.grpo``; members that cancel (r_2 = 1 - r_1) leave no noise to be scaled up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gdpo_nemo.errors import InputError, UnknownNameError
from gdpo_nemo.signals.schedules import Weight, weight_at

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Family:
    """A family.

    Attributes:
        rewards: the names of its members.
        weight: of the family beside other families and rewards; those of the members count inside it.
    """

    rewards: tuple[str, ...]
    weight: Weight = 1.0


def check_families(families: Mapping[str, Family], names: Sequence[str]) -> None:
    """Refuse families that cannot be formed from rewards of these names.

    Raises:
        UnknownNameError: a member that is no reward in use.
        InputError: an empty family, or a reward in two families or twice in one.
    """
    owner: dict[str, str] = {}
    for name, family in families.items():
        if not family.rewards:
            raise InputError(f"gdpo.families.{name} has no rewards; name them, or take it out")
        for member in family.rewards:
            if member not in names:
                raise UnknownNameError(f"reward in gdpo.families.{name}", member, names)
            if member in owner:
                raise InputError(
                    f"reward {member!r} is in gdpo.families.{owner[member]} and again in gdpo.families.{name}; "
                    "once is all"
                )
            owner[member] = name


def column_names(names: Sequence[str], families: Mapping[str, Family]) -> tuple[str, ...]:
    """Rewards of no family in their order, then the families."""
    members = {member for family in families.values() for member in family.rewards}
    return (*(name for name in names if name not in members), *families)


def add_up(
    rewards_B_K: Tensor,
    group_ids_B: Tensor,
    names: Sequence[str],
    weights: Sequence[float],
    families: Mapping[str, Family],
    *,
    valid_B: Tensor | None = None,
    step: int | None = None,
) -> tuple[Tensor, tuple[float, ...]]:
    """Columns and weights with each family in place of its members, in the order of ``column_names``.

    Args:
        rewards_B_K: float32 or float64 [B, K]. NaN: this reward does not apply to this sample.
        group_ids_B: int64 [B], one label per prompt group.
        names: K names.
        weights: K weights in force; a member's counts inside its family.
        families: as ``check_families`` lets pass.
        valid_B: bool [B]; a row with False decides nothing about rounding.
        step: of the families' weights.

    Returns:
        [B, J] of the dtype of ``rewards_B_K``, and J weights.

    Raises:
        InputError: a family's weight follows a schedule, and there is no step.
    """
    import torch

    position = {name: k for k, name in enumerate(names)}
    alone = [position[name] for name in column_names(names, families) if name in position]
    columns, all_weights = [rewards_B_K[:, alone]], [weights[k] for k in alone]
    for family in families.values():
        members = [position[name] for name in family.rewards]
        terms_B_M = rewards_B_K[:, members].double()
        terms_B_M = terms_B_M * terms_B_M.new_tensor([weights[k] for k in members])
        missing_B = terms_B_M.isnan().all(1)
        left_out_B = missing_B if valid_B is None else missing_B | ~valid_B
        total_B = _settled(terms_B_M.nansum(1), terms_B_M.abs().nansum(1), group_ids_B, left_out_B)
        columns.append(total_B.masked_fill(missing_B, torch.nan)[:, None].to(rewards_B_K))
        all_weights.append(weight_at(family.weight, step))
    return torch.cat(columns, dim=1), tuple(all_weights)


def _settled(total_B: Tensor, magnitude_B: Tensor, group_ids_B: Tensor, left_out_B: Tensor) -> Tensor:
    """The same with one value throughout each group that differs by rounding only."""
    from gdpo_nemo.advantages.groups import ZERO_VARIANCE, Bins

    groups, group_of_row_B = group_ids_B.unique(return_inverse=True)
    bins = Bins.of(group_of_row_B.masked_fill(left_out_B, len(groups))[None], len(groups) + 1)
    low_1_P = bins.lowest(total_B[None])
    spread_1_P, largest_1_P = bins.highest(total_B[None]) - low_1_P, bins.highest(magnitude_B[None])
    same_1_P = spread_1_P <= ZERO_VARIANCE * largest_1_P
    return total_B.where(~bins.spread(same_1_P)[0], bins.spread(low_1_P)[0])
