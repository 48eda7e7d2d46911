"""Seeds as a command line names them, and those that it leaves out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gdpo_nemo.errors import UsageError


def seeds_left_out(found: Iterable[tuple[str, int]], seeds: Sequence[int]) -> str:
    """One sentence about runs, (arm, seed), of other seeds, and the option that takes them in; or empty."""
    arms: dict[str, list[int]] = {}
    for arm, seed in found:
        if seed not in seeds:
            arms.setdefault(arm, []).append(seed)
    if not arms:
        return ""
    parts = [f"seed{'s' * (len(own) > 1)} {ranges(own)} of {arm}" for arm, own in arms.items()]
    wanted = ranges([*seeds, *(seed for own in arms.values() for seed in own)])
    one = sum(map(len, arms.values())) == 1
    return f"{', '.join(parts)} {'is' if one else 'are'} left out; --seeds {wanted} takes {'it' if one else 'them'} in"


def parse_seeds(text: str) -> tuple[int, ...]:
    """``0-2``, ``0,1,5`` or a mixture of both.

    Raises:
        UsageError: anything else, or a seed named twice.
    """
    seeds: list[int] = []
    for part in text.split(","):
        bounds = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if not bounds:
            raise UsageError(f"seeds {text!r} are not of the form 0-2 or 0,1,5")
        low, high = int(bounds[1]), int(bounds[2] or bounds[1])
        seeds += range(low, high + 1)
    if not seeds or len(set(seeds)) < len(seeds):
        raise UsageError(f"seeds {text!r} name {'none' if not seeds else 'one seed twice'}")
    return tuple(seeds)


def ranges(seeds: Iterable[int]) -> str:
    """What ``parse_seeds`` reads as these seeds: ``0-2,7``."""
    parts: list[list[int]] = []
    for seed in sorted(set(seeds)):
        if parts and seed == parts[-1][-1] + 1:
            parts[-1].append(seed)
        else:
            parts.append([seed])
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else f"{part[0]}" for part in parts)
