"""Parts of tensors from several processes put together, and compared element by element."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

RTOL = 1e-5
"""Of float32: sums in another order differ by about sqrt(terms) roundings of 6e-8, some 1e-6 after four layers."""


class Shard(NamedTuple):
    """What one tensor-parallel rank holds; ``dim`` None: all of it. ``stride`` 2: SwiGLU's gate and up halves."""

    value: Tensor
    dim: int | None
    stride: int


def cut(full: Tensor, dim: int, stride: int, size: int) -> list[Tensor]:
    """The parts of all ``size`` ranks, as megatron-core's ``_initialize_affine_weight_cpu`` deals them out."""
    pieces = full.chunk(size * stride, dim)
    return [torch.cat(pieces[rank::size], dim) for rank in range(size)]


def gather(shards: Sequence[Shard]) -> list[Tensor]:
    """The whole tensor; of a replicated one every rank's copy, because they may differ where they must not."""
    dim, stride = shards[0].dim, shards[0].stride
    if dim is None:
        return [shard.value for shard in shards]
    parts = [shard.value.chunk(stride, dim) for shard in shards]
    return [torch.cat([part[i] for i in range(stride) for part in parts], dim)]


def gather_ranks(ranks: Sequence[Mapping[str, Shard]]) -> dict[str, list[Tensor]]:
    """Gradients by name from the ranks of one tensor-parallel group; all hold the same names."""
    names = set(ranks[0]).union(*ranks)
    assert all(set(rank) == names for rank in ranks), [sorted(names - set(rank)) for rank in ranks]
    return {name: gather([rank[name] for rank in ranks]) for name in ranks[0]}


def collect_stages(stages: Sequence[Mapping[str, Shard]]) -> dict[str, list[Tensor]]:
    """Gradients by name from the stages of a pipeline; each copy of a parameter that two stages hold."""
    found: dict[str, list[Tensor]] = {}
    for stage in stages:
        for name, shard in stage.items():
            found.setdefault(name, []).append(shard.value)
    return found


def differences(expected: Mapping[str, Tensor], found: Mapping[str, Sequence[Tensor]], rtol: float = RTOL) -> list[str]:
    """One line for each tensor with an element off by more than ``rtol`` of it plus ``rtol`` of the largest.

    The second term is there because a small element of a gradient is a difference of large ones.
    """
    faults = [f"{name}: missing" for name in expected if name not in found]
    faults += [f"{name}: not expected" for name in found if name not in expected]
    for name in (name for name in expected if name in found):
        want = expected[name]
        for copy in found[name]:
            if copy.shape != want.shape:
                faults.append(f"{name}: shape {tuple(copy.shape)} instead of {tuple(want.shape)}")
                continue
            excess = (copy - want).abs() / (want.abs() + want.abs().max()).clamp(min=torch.finfo(want.dtype).tiny)
            if not bool((excess <= rtol).all()):
                faults.append(f"{name}: off by {excess.max():.1e} of its size, at most {rtol:.0e} is rounding")
    return faults
