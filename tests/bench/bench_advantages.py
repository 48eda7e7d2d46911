"""Speed of the advantage functions against two references, as ratios of paired measurements.

    OMP_NUM_THREADS=1 python tests/bench/bench_advantages.py

Each round times every version once, one after the other, and a ratio is taken within the round, so that
a slow moment of the machine hits both sides. Printed: the median ratio over the rounds and its quartiles.

``loop_gdpo`` and ``loop_grpo`` are the formulas written down group by group, as plainly as possible. The unit
tests use them as their oracle. ``reshape_gdpo`` needs equal groups in order, and knows neither weights nor missing
rewards nor cancellation; float64 is the arithmetic of ``gdpo``, float32 is shown for comparison.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import torch

ZERO_VARIANCE = 1e-6
CANCELLATION = {torch.float32: 1e-6, torch.float64: 1e-12}


def loop_sum(
    rewards_B_K: torch.Tensor,
    group_ids_B: torch.Tensor,
    weights: Sequence[float],
    valid_B: torch.Tensor,
    ddof: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum of the normalised rewards, and which rows count in the batch step."""
    num_samples, num_rewards = rewards_B_K.shape
    tolerance = CANCELLATION[rewards_B_K.dtype]
    rewards_B_K = rewards_B_K.double()
    sum_B = torch.zeros(num_samples, dtype=torch.float64)
    scorable_B = valid_B & ~rewards_B_K.isnan().all(dim=1)
    for label in group_ids_B.unique():
        in_group_B = (group_ids_B == label) & valid_B
        terms_B_K = torch.zeros(num_samples, num_rewards, dtype=torch.float64)
        for k in range(num_rewards):
            rows = (in_group_B & ~rewards_B_K[:, k].isnan()).nonzero().squeeze(1)
            r = rewards_B_K[rows, k]
            if len(r) < 2 or r.max() - r.min() <= ZERO_VARIANCE * r.abs().max():
                continue
            terms_B_K[rows, k] = weights[k] * (r - r.mean()) / r.std(correction=ddof)
        group_sum_B = terms_B_K.sum(dim=1)
        group_size_B = terms_B_K.abs().sum(dim=1)
        group_sum_B[group_sum_B.abs() <= tolerance * group_size_B] = 0.0
        if group_sum_B.abs().sum() > tolerance * group_size_B.sum():
            sum_B += group_sum_B
    return sum_B, scorable_B


def loop_gdpo(
    rewards_B_K: torch.Tensor,
    group_ids_B: torch.Tensor,
    *,
    weights: Sequence[float] | None = None,
    valid_B: torch.Tensor | None = None,
    ddof: int = 1,
    eps: float = 1e-6,
    batch_norm: bool = True,
) -> torch.Tensor:
    """GDPO, eq. 4-7, with a Python loop over the groups."""
    if weights is None:
        weights = [1.0] * rewards_B_K.shape[1]
    if valid_B is None:
        valid_B = torch.ones(len(rewards_B_K), dtype=torch.bool)
    sum_B, scorable_B = loop_sum(rewards_B_K, group_ids_B, weights, valid_B, ddof)
    if not batch_norm:
        return sum_B.to(rewards_B_K.dtype)
    advantages_B = torch.zeros_like(sum_B)
    counted = sum_B[scorable_B]
    if len(counted) >= 2 and counted.any():
        advantages_B[scorable_B] = (counted - counted.mean()) / (counted.std(correction=ddof) + eps)
    return advantages_B.to(rewards_B_K.dtype)


def loop_grpo(
    rewards_B_K: torch.Tensor,
    group_ids_B: torch.Tensor,
    *,
    weights: Sequence[float] | None = None,
    valid_B: torch.Tensor | None = None,
    ddof: int = 1,
    scale_by_std: bool = True,
) -> torch.Tensor:
    """GRPO on the weighted sum, eq. 1-2, with a Python loop over the groups."""
    if weights is None:
        weights = [1.0] * rewards_B_K.shape[1]
    if valid_B is None:
        valid_B = torch.ones(len(rewards_B_K), dtype=torch.bool)
    weighted_B_K = rewards_B_K.double() * torch.tensor(weights, dtype=torch.float64)
    scorable_B = valid_B & ~weighted_B_K.isnan().all(dim=1)
    total_B = weighted_B_K.nansum(dim=1)
    size_B = weighted_B_K.abs().nansum(dim=1)
    advantages_B = torch.zeros_like(total_B)
    for label in group_ids_B.unique():
        rows = ((group_ids_B == label) & scorable_B).nonzero().squeeze(1)
        t = total_B[rows]
        if len(t) < 2 or t.max() - t.min() <= ZERO_VARIANCE * size_B[rows].max():
            continue
        advantages_B[rows] = (t - t.mean()) / (t.std(correction=ddof) if scale_by_std else 1.0)
    return advantages_B.to(rewards_B_K.dtype)


def reshape_gdpo(
    rewards_B_K: torch.Tensor, group_size: int, dtype: torch.dtype, *, ddof: int = 1, eps: float = 1e-6
) -> torch.Tensor:
    """GDPO for equal groups in order: a view to [P, G, K] and plain reductions."""
    rewards_P_G_K = rewards_B_K.to(dtype).view(-1, group_size, rewards_B_K.shape[1])
    high_P_1_K, low_P_1_K = rewards_P_G_K.amax(dim=1, keepdim=True), rewards_P_G_K.amin(dim=1, keepdim=True)
    alive_P_1_K = high_P_1_K - low_P_1_K > ZERO_VARIANCE * torch.maximum(high_P_1_K, -low_P_1_K)
    centred_P_G_K = rewards_P_G_K - rewards_P_G_K.mean(dim=1, keepdim=True)
    variance_P_1_K = (centred_P_G_K * centred_P_G_K).sum(dim=1, keepdim=True) / (group_size - ddof)
    sum_B = (centred_P_G_K * torch.where(alive_P_1_K, variance_P_1_K.rsqrt(), 0.0)).sum(dim=2).flatten()
    return ((sum_B - sum_B.mean()) / (sum_B.std(correction=ddof) + eps)).to(rewards_B_K.dtype)


def seconds(function: Callable[[], object], repeats: int) -> float:
    """Mean time of one call."""
    start = time.perf_counter()
    for _ in range(repeats):
        function()
    return (time.perf_counter() - start) / repeats


def measure(versions: dict[str, tuple[Callable[[], object], int]], rounds: int) -> dict[str, list[float]]:
    """Time every version once per round; the first round is thrown away."""
    times: dict[str, list[float]] = {name: [] for name in versions}
    for _ in range(rounds + 1):
        for name, (function, repeats) in versions.items():
            times[name].append(seconds(function, repeats))
    return {name: values[1:] for name, values in times.items()}


def main() -> None:
    """Print times and paired ratios for one batch shape."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompts", type=int, default=512)
    parser.add_argument("--rollouts", type=int, default=16)
    parser.add_argument("--rewards", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()

    from gdpo_nemo.advantages import diagnostics, gdpo, grpo

    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    num_samples = args.prompts * args.rollouts
    rewards_B_K = torch.rand(num_samples, args.rewards, generator=generator)
    sorted_ids_B = torch.arange(args.prompts).repeat_interleave(args.rollouts)
    order_B = torch.randperm(num_samples, generator=generator)
    shuffled_B_K, shuffled_ids_B = rewards_B_K[order_B].contiguous(), sorted_ids_B[order_B]
    sparse_ids_B = shuffled_ids_B * 1_000_003 - 7
    names = [f"reward_{k}" for k in range(args.rewards)]

    versions: dict[str, tuple[Callable[[], object], int]] = {
        "gdpo": (lambda: gdpo(rewards_B_K, sorted_ids_B), 20),
        "gdpo, unsorted": (lambda: gdpo(shuffled_B_K, shuffled_ids_B), 20),
        "gdpo, unsorted, sparse labels": (lambda: gdpo(shuffled_B_K, sparse_ids_B), 20),
        "grpo": (lambda: grpo(rewards_B_K, sorted_ids_B), 20),
        "diagnostics": (lambda: diagnostics(rewards_B_K, sorted_ids_B, names=names), 20),
        "reshape float64": (lambda: reshape_gdpo(rewards_B_K, args.rollouts, torch.float64), 20),
        "reshape float32": (lambda: reshape_gdpo(rewards_B_K, args.rollouts, torch.float32), 20),
        "loop": (lambda: loop_gdpo(rewards_B_K, sorted_ids_B), 1),
    }
    times = measure(versions, args.rounds)
    print(
        f"{args.prompts} prompts x {args.rollouts} rollouts x {args.rewards} rewards, float32, "
        f"1 thread, torch {torch.__version__}"
    )
    print(f"\n{'version':32s}{'median ms':>10s}")
    for name, values in times.items():
        print(f"{name:32s}{1e3 * statistics.median(values):10.2f}")
    print(f"\n{'paired ratio':46s}{'q25':>8s}{'median':>8s}{'q75':>8s}")
    fast = ["gdpo", "gdpo, unsorted", "gdpo, unsorted, sparse labels"]
    pairs = [("loop", name) for name in fast] + [
        (name, reference) for name in fast for reference in ("reshape float64", "reshape float32")
    ]
    for top, bottom in pairs:
        ratios = [a / b for a, b in zip(times[top], times[bottom], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(f"{top + ' / ' + bottom:46s}{low:8.2f}{middle:8.2f}{high:8.2f}")


if __name__ == "__main__":
    main()
