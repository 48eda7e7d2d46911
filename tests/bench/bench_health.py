"""``gdpo health`` on 1,600 recorded rollouts with four rewards: read, measure, advise.

    python tests/bench/bench_health.py

Fails above 2 seconds of the processor, the import of torch left out: it alone can take as long.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from gdpo_nemo.suite.command_line import execute

MOST_SECONDS = 2.0
VARIANCES = {"format": 0.08, "correct": 0.5, "safety": 3.2, "brevity": 0.15}


def main() -> int:
    """Write the file, look at it, and compare the time with the limit."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rollouts.jsonl"
        values = rng.normal(size=(1600, 4)) * np.sqrt(list(VARIANCES.values()))
        rows = (
            {"prompt_id": f"p{i // 8}", "rewards": dict(zip(VARIANCES, row, strict=True))}
            for i, row in enumerate(values.tolist())
        )
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        started = time.process_time()
        code = execute(["health", "--rollouts", str(path)])
        seconds = time.process_time() - started
    print(f"\n1,600 rollouts, 4 rewards: {seconds:.2f} s of the processor (at most {MOST_SECONDS:g})")
    return 1 if code or seconds > MOST_SECONDS else 0


if __name__ == "__main__":
    sys.exit(main())
