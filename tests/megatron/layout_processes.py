"""Start the processes of a layout, wait for them with a time limit, and load what they saved."""

import os
import time
import traceback
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import torch

INSTALL = "pip install --no-deps megatron-core==0.16.1"
TIME_LIMIT = 600
"""Seconds for a layout: some 20 for imports, 2 for the steps, the rest for a machine that does other things too."""


class Layout(NamedTuple):
    """How many parts each layer is cut into, and how many stages the layers are dealt to."""

    tensor_parallel: int
    pipeline_parallel: int

    @property
    def num_processes(self) -> int:
        return self.tensor_parallel * self.pipeline_parallel

    def __str__(self) -> str:
        return f"TP={self.tensor_parallel} PP={self.pipeline_parallel}"


def missing() -> str | None:
    """Why layouts cannot run here, or None."""
    try:
        version("megatron-core")
    except PackageNotFoundError:
        return f"megatron-core is not installed ({INSTALL}, or make test-megatron)"
    return None


def results(layout: Layout, folder: Path) -> list[dict[str, Any]]:
    """What the processes of this layout computed, by rank. None of them is left when this returns or raises."""
    deadline = time.monotonic() + TIME_LIMIT
    context = torch.multiprocessing.start_processes(
        work, (layout, folder), nprocs=layout.num_processes, join=False, start_method="spawn"
    )
    try:
        while not context.join(timeout=max(deadline - time.monotonic(), 0)):
            if time.monotonic() >= deadline:
                raise TimeoutError(f"the processes of {layout} did not end in {TIME_LIMIT} s")
    finally:
        for process in context.processes:
            process.kill()
            process.join()
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(layout.num_processes)]


def work(rank: int, layout: Layout, folder: Path) -> None:
    """Life of one process. An error from megatron-core says which of its lines stops this layout."""
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", "GLOO_SOCKET_IFNAME": "lo"}
    torch.set_num_threads(1)
    try:
        from parallel_worker import run  # only here: it imports megatron-core and changes torch

        run(rank, layout, folder)
    except Exception as error:
        line = upstream_line(error)
        if line is None:
            raise
        message = f"megatron-core {version('megatron-core')} stops {layout} on the CPU at {line}: {error!r}"
        raise RuntimeError(message) from error


def upstream_line(error: BaseException) -> str | None:
    """The line of megatron-core that an error came through last, as ``megatron/core/file.py:12 in function``."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        _, found, inside = frame.filename.replace("\\", "/").rpartition("/megatron/core/")
        if found:
            return f"megatron/core/{inside}:{frame.lineno} in {frame.name}"
    return None
