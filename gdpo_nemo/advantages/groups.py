"""Statistics within groups, without a loop over groups or samples.

    standardise:  a = (v - mean_g) / std_g        per reward k and group g, over the entries that g has for k
                  std_g = sqrt(sum (v - mean_g)^2 / (n_g - ddof)), no epsilon

Conventions, and where others differ (TRL f2cd577, verl 1dda039, NeMo RL v0.7.0):

- Zero variance is max - min <= 1e-6 * max|v| within the group; its entries are exactly 0. TRL (eps 1e-4) and
  verl (eps 1e-6) divide by std + eps instead, which changes rewards of a small scale and keeps rounding noise;
  NeMo RL adds eps 1e-6 where std > 0, so values that differ by one rounding step count as a signal.
- A group with fewer than two entries is 0. verl hands back the raw reward for a group of one.
- Sums are centred and in float64, and values are shifted by the group's minimum before the first sum, so that
  an offset costs no digits. NeMo RL takes sqrt(E[v^2] - E[v]^2) in float32.
- Groups are labels: any integers, in any order, of any size. TRL needs equal groups in order; NeMo RL
  compares prompt tokens, which merges equal prompts.
- Missing entries are in no statistic. In NeMo RL and verl one NaN spreads to its group and on to the batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

ZERO_VARIANCE = 1e-6
"""A group whose range is at most this share of its largest magnitude has no variance."""
SMALLEST_RANGE = 1e-150
"""Nor has one with a smaller range than this, whose square would leave float64 (float32 rewards cannot have one)."""


@dataclass(frozen=True, slots=True)
class Bins:
    """The group of every entry, per reward.

    Attributes:
        index_K_B: int64 in 0..num_bins-1. The last bin takes the missing entries.
        count_K_P: float64, entries in each bin; [1, P] when all rewards have the same. Bins may be empty.
    """

    index_K_B: torch.Tensor
    count_K_P: torch.Tensor

    @property
    def present_K_B(self) -> torch.Tensor:
        """True for the entries that are not missing."""
        return self.index_K_B < self.count_K_P.shape[1] - 1

    @classmethod
    def of(cls, index_K_B: torch.Tensor, num_bins: int) -> Bins:
        """Count the entries of each bin."""
        ones_K_B = torch.ones((), dtype=torch.float64, device=index_K_B.device).expand_as(index_K_B)
        count_K_P = ones_K_B.new_zeros(index_K_B.shape[0], num_bins).scatter_add_(1, index_K_B, ones_K_B)
        return cls(index_K_B, count_K_P)

    def expand(self, num_rewards: int) -> Bins:
        """The same bins for every reward, without a copy."""
        return Bins(self.index_K_B.expand(num_rewards, -1), self.count_K_P)

    def total(self, values_K_B: torch.Tensor) -> torch.Tensor:
        """Sum of the values in each bin, [K, P]; 0 for an empty bin."""
        return self._filled(values_K_B, 0.0).scatter_add_(1, self.index_K_B, values_K_B)

    def lowest(self, values_K_B: torch.Tensor) -> torch.Tensor:
        """Smallest value in each bin, [K, P]; inf for an empty bin."""
        return self._filled(values_K_B, torch.inf).scatter_reduce_(1, self.index_K_B, values_K_B, "amin")

    def highest(self, values_K_B: torch.Tensor) -> torch.Tensor:
        """Largest value in each bin, [K, P]; -inf for an empty bin."""
        return self._filled(values_K_B, -torch.inf).scatter_reduce_(1, self.index_K_B, values_K_B, "amax")

    def spread(self, values_K_P: torch.Tensor) -> torch.Tensor:
        """The value of its bin for every entry, [K, B]."""
        return values_K_P.gather(1, self.index_K_B)

    def _filled(self, values_K_B: torch.Tensor, value: float) -> torch.Tensor:
        return values_K_B.new_full((values_K_B.shape[0], self.count_K_P.shape[1]), value)


def standardise(
    values_K_B: torch.Tensor,
    bins: Bins,
    *,
    ddof: int,
    scale_by_std: bool = True,
    magnitude_K_B: torch.Tensor | None = None,
) -> torch.Tensor:
    """Centre each entry on its group, and divide it by the group's standard deviation.

    Args:
        values_K_B: float64, finite.
        bins: the group of each entry.
        ddof: 0 or 1.
        scale_by_std: False leaves the centred values.
        magnitude_K_B: what the range of a group is compared with, |values| unless given.

    Returns:
        [K, B], exactly 0 in groups without variance.
    """
    low_K_P, high_K_P = bins.lowest(values_K_B), bins.highest(values_K_B)
    magnitude_K_P = torch.maximum(-low_K_P, high_K_P) if magnitude_K_B is None else bins.highest(magnitude_K_B)
    threshold_K_P = magnitude_K_P.mul_(ZERO_VARIANCE).clamp_(min=SMALLEST_RANGE)
    dead_K_P = high_K_P.sub_(low_K_P) <= threshold_K_P

    centred_K_B = values_K_B - bins.spread(low_K_P)
    centred_K_B -= bins.spread(bins.total(centred_K_B) / bins.count_K_P)
    if scale_by_std:
        factor_K_P = (bins.total(centred_K_B * centred_K_B) / (bins.count_K_P - ddof)).rsqrt_()
    else:
        factor_K_P = torch.ones_like(low_K_P)
    centred_K_B *= bins.spread(factor_K_P.masked_fill_(dead_K_P, 0.0))
    return centred_K_B
