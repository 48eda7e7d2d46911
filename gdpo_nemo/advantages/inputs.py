"""Checked inputs of every advantage function: one ``Batch``, K-major and in float64.

The rewards are transposed to [K, B] because statistics per reward then run over contiguous memory. A missing
entry (NaN, or a row that ``valid_B`` masks) is set to 0 and sent to a spare bin after the bins of the groups:
no statistic of a group ever sees it, and the spare bin holds only zeros, which standardise to exactly 0.

A batch without missing entries, the common one, is recognised and costs one copy from the device; any other
costs two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from gdpo_nemo.advantages.groups import Bins
from gdpo_nemo.advantages.weights import MAX_MAGNITUDE, check_weights
from gdpo_nemo.errors import InputError

_LABEL_DTYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rewards, groups and weights that passed every check.

    Attributes:
        rewards_K_B: float64, 0 where missing.
        entries: the group of each entry; the spare bin where it is missing.
        rows: the group of each row, index [1, B]; the spare bin where the row is not scorable.
        num_valid: rows that the caller did not mask.
        num_scorable: valid rows with at least one reward.
        weights_K_1: float64.
        dtype: of the caller's rewards, and so of the advantages.
    """

    rewards_K_B: torch.Tensor
    entries: Bins
    rows: Bins
    num_valid: int
    num_scorable: int
    weights_K_1: torch.Tensor
    dtype: torch.dtype


def prepare(
    rewards_B_K: torch.Tensor,
    group_ids_B: torch.Tensor,
    weights: Sequence[float] | None,
    valid_B: torch.Tensor | None,
) -> Batch:
    """Check the inputs and bring them into the form of ``Batch``. Gradients stop here: rewards are constants.

    Raises:
        InputError: a wrong type, shape, dtype, device, weight count or value; the message says which.
    """
    _check_tensors(rewards_B_K, group_ids_B, valid_B)
    num_samples, num_rewards = rewards_B_K.shape
    weights_K = torch.tensor(check_weights(weights, num_rewards), dtype=torch.float64, device=rewards_B_K.device)
    rewards_B_K = rewards_B_K.detach()
    bins_B, num_groups, finite = _number_groups(rewards_B_K, group_ids_B.to(torch.int64))
    rewards_K_B = rewards_B_K.t().to(torch.float64, memory_format=torch.contiguous_format).contiguous()
    if finite and valid_B is None:
        num_valid = num_scorable = num_samples
        rows = Bins.of(bins_B[None], num_groups + 1)
        entries = rows.expand(num_rewards)
    else:
        masked_B = torch.zeros_like(bins_B, dtype=torch.bool) if valid_B is None else ~valid_B
        missing_K_B = rewards_K_B.isnan() | masked_B
        empty_B = missing_K_B.all(0)
        rewards_K_B = rewards_K_B.masked_fill(missing_K_B, 0.0)
        num_masked, num_empty = _check_finite_and_count(rewards_K_B, masked_B, empty_B)
        num_valid, num_scorable = num_samples - num_masked, num_samples - num_empty
        rows = Bins.of(bins_B.masked_fill(empty_B, num_groups)[None], num_groups + 1)
        entries = Bins.of(bins_B.expand(num_rewards, -1).masked_fill(missing_K_B, num_groups), num_groups + 1)
    return Batch(rewards_K_B, entries, rows, num_valid, num_scorable, weights_K[:, None], rewards_B_K.dtype)


def check_ddof(ddof: int) -> None:
    """Refuse anything but 0 (divide by n) and 1 (divide by n - 1)."""
    if isinstance(ddof, bool) or ddof not in (0, 1):
        raise InputError(f"ddof is {ddof!r}; expected 1 (unbiased, the paper's) or 0 (biased).")


def _check_tensors(rewards_B_K: torch.Tensor, group_ids_B: torch.Tensor, valid_B: torch.Tensor | None) -> None:
    for what, value in (("rewards_B_K", rewards_B_K), ("group_ids_B", group_ids_B), ("valid_B", valid_B)):
        if not isinstance(value, torch.Tensor) and not (what == "valid_B" and value is None):
            raise InputError(f"{what} is a {type(value).__name__}; expected a torch.Tensor.")
    if rewards_B_K.dim() != 2:
        hint = " Add the reward axis with rewards.unsqueeze(1)." if rewards_B_K.dim() == 1 else ""
        raise InputError(f"rewards_B_K has shape {list(rewards_B_K.shape)}; expected [B, K].{hint}")
    if rewards_B_K.dtype not in (torch.float32, torch.float64):
        raise InputError(f"rewards_B_K is {rewards_B_K.dtype}; expected float32 or float64. Call rewards.float().")
    num_samples, num_rewards = rewards_B_K.shape
    if num_rewards == 0:
        raise InputError("rewards_B_K has no reward columns (K = 0); expected at least one reward.")
    if group_ids_B.dtype not in _LABEL_DTYPES:
        raise InputError(f"group_ids_B is {group_ids_B.dtype}; expected integer labels (int64).")
    if valid_B is not None and valid_B.dtype != torch.bool:
        raise InputError(f"valid_B is {valid_B.dtype}; expected bool. Call valid.bool() if 1 means valid.")
    for what, value in (("group_ids_B", group_ids_B), ("valid_B", valid_B)):
        if value is None:
            continue
        if list(value.shape) != [num_samples]:
            raise InputError(f"{what} has shape {list(value.shape)}; expected [{num_samples}], one per reward row.")
        if value.device != rewards_B_K.device:
            raise InputError(f"{what} is on {value.device} and rewards_B_K on {rewards_B_K.device}; move one of them.")


def _number_groups(rewards_B_K: torch.Tensor, labels_B: torch.Tensor) -> tuple[torch.Tensor, int, bool]:
    """Number the groups from 0, and tell whether every reward is a finite number. One copy from the device.

    Labels within a narrow range, such as 0..P-1, need no sort; some bins are then empty.
    """
    num_samples = labels_B.numel()
    if num_samples == 0:
        return labels_B, 0, True
    finite = rewards_B_K.abs().amax() <= MAX_MAGNITUDE  # False for NaN as well
    first, last, finite_01 = torch.stack([*labels_B.aminmax(), finite]).tolist()
    if last - first < 2 * num_samples:
        return labels_B - first, last - first + 1, bool(finite_01)
    runs, run_of_row_B = torch.unique_consecutive(labels_B, return_inverse=True)  # the rows of a group often adjoin
    groups, group_of_run = torch.unique(runs, return_inverse=True)
    return group_of_run[run_of_row_B], groups.numel(), bool(finite_01)


def _check_finite_and_count(
    rewards_K_B: torch.Tensor, masked_B: torch.Tensor, empty_B: torch.Tensor
) -> tuple[int, int]:
    """Refuse an infinite reward of a valid row (NaN is gone by now); count the masked and the empty rows."""
    too_large_K_B = rewards_K_B.abs() > MAX_MAGNITUDE
    num_too_large, num_masked, num_empty = torch.stack([too_large_K_B.sum(), masked_B.sum(), empty_B.sum()]).tolist()
    if num_too_large:
        reward, row = too_large_K_B.nonzero()[0].tolist()
        raise InputError(
            f"rewards_B_K[{row}, {reward}] is {rewards_K_B[reward, row].item()}; expected a finite value of at most "
            f"{MAX_MAGNITUDE:g} in magnitude, NaN where the reward does not apply, or False for the row in valid_B."
        )
    return num_masked, num_empty
