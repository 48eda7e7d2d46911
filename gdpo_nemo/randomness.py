"""Named random streams from one root seed, so that no stage can shift the numbers of another.

``stream(7, "sampling", step)`` depends on its arguments alone: a resumed run draws what an
uninterrupted one would have drawn, without any saved generator state.
"""

from __future__ import annotations

import hashlib

import numpy as np


def stream_seed(root: int, *names: str | int) -> int:
    """A 63-bit seed for the stream of that name under that root."""
    text = "/".join([str(root), *map(str, names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def stream(root: int, *names: str | int) -> np.random.Generator:
    """A NumPy generator for the stream of that name under that root."""
    return np.random.default_rng(stream_seed(root, *names))
