"""The command that ``gdpo rehearse`` starts: NeMo RL's own main with two names replaced.

python -m gdpo_nemo.backends.nemo_rl.rehearsal --config rehearsal.yaml
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import runpy
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from gdpo_nemo.backends.nemo_rl import host, plugin, record
from gdpo_nemo.files import append_jsonl

RAY_ADDRESS, RAY_FOLDER = "RAY_ADDRESS", "RAY_TMPDIR"
PR_SET_PDEATHSIG = 1
RECORD = "GDPO_REHEARSAL_RECORD"
"""Names the file that gets every number that NeMo RL logs, whatever its trackers are."""


def replace_workers() -> None:
    """Put the CPU policy and generation engine where NeMo RL would start GPU workers."""
    from nemo_rl.algorithms import grpo
    from nemo_rl.distributed import ray_actor_environment_registry, virtual_cluster

    from gdpo_nemo.backends.nemo_rl.rehearsal.generation import CpuGeneration
    from gdpo_nemo.backends.nemo_rl.rehearsal.policy import CpuPolicy

    grpo.Policy, grpo.VllmGeneration = CpuPolicy, CpuGeneration
    registry = ray_actor_environment_registry.ACTOR_ENVIRONMENT_REGISTRY
    for actor in ("ReplayBuffer", "AsyncTrajectoryCollector"):
        registry[f"nemo_rl.algorithms.async_utils.{actor}"] = virtual_cluster.PY_EXECUTABLES.SYSTEM
    virtual_cluster.RayVirtualCluster.get_master_address_and_port = lambda self: ("127.0.0.1", 0)


def own_ray() -> None:
    """Let NeMo RL start a cluster of its own: it would join any that runs on this machine, another rehearsal's too."""
    import ray
    from nemo_rl.distributed import virtual_cluster

    original = virtual_cluster.init_ray

    @functools.wraps(original)
    def init_ray(*positional: Any, **named: Any) -> None:
        os.environ[RAY_ADDRESS] = "local"
        original(*positional, **named)
        os.environ[RAY_ADDRESS] = ray.get_runtime_context().gcs_address  # NeMo RL's memory log looks for the one

    virtual_cluster.init_ray = init_ray


def record_metrics(path: Path) -> None:
    """Append what NeMo RL logs, as one row of prefix, step and numbers per call."""
    record.on_log(
        lambda prefix, step, numbers: append_jsonl(path, [{"prefix": prefix, "step": step, "metrics": numbers}])
    )


def end_with_parent() -> None:
    """End, with Ray's processes and their folder, also when ``gdpo rehearse`` was killed and could not see to it."""
    if os.environ.get(RAY_FOLDER):
        atexit.register(shutil.rmtree, os.environ[RAY_FOLDER], ignore_errors=True)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def main() -> None:
    """Run NeMo RL's main."""
    end_with_parent()
    found = host.locate()
    print(found.description, flush=True)
    plugin.register()
    replace_workers()
    own_ray()
    if os.environ.get(RECORD):
        record_metrics(Path(os.environ[RECORD]))
    runpy.run_path(str(found.root / host.MAIN), run_name="__main__")


if __name__ == "__main__":
    main()
