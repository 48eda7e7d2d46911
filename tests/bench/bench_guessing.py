"""Whether guessing pays: how often direct, concise and verbose answers are right, on training and on held-out chains.

    python tests/bench/bench_guessing.py runs/math_length/embedded/tiny/gdpo/seed0 [more run directories]

Takes the last checkpoint of each run of the arithmetic world. Direct answers that are right on training chains more
often than on held-out ones were remembered, and then training rewards what the evaluation does not.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from itertools import islice
from pathlib import Path
from typing import get_args

import torch

from gdpo_nemo.config import RunConfig
from gdpo_nemo.data.residue_world import ResidueWorld
from gdpo_nemo.data.tool_world import Split
from gdpo_nemo.method import Method
from gdpo_nemo.models import load
from gdpo_nemo.models.sampling import sample
from gdpo_nemo.randomness import stream, stream_seed
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.worlds import build_prompt

SEED = 12345
STYLES = ("direct", "partly", "concise", "verbose")


def style(response: str, num_operations: int) -> str:
    """Direct answers state no step, partly worked ones not all; verbose ones name the operations before the steps."""
    stated = response.count(": ")
    if stated < num_operations:
        return "partly" if stated else "direct"
    return "concise" if ": " in response.split(",")[0] else "verbose"


def rates(run: RunDir, split: Split, count: int) -> dict[tuple[str, int, str], tuple[int, int]]:
    """(split, operations, style) -> answers, and right ones among them."""
    config = RunConfig.model_validate(run.config())
    world = config.embedded.data
    assert isinstance(world, ResidueWorld)
    model, tokenizer = load(config.embedded, run.checkpoints()[-1][1], config.gdpo)
    rows = list(islice(world.rows(split, stream(SEED, "guessing", split)), count))
    samples = sample(
        model, tokenizer, [build_prompt(world, row) for row in rows], seed=stream_seed(SEED, "guessing answers", split),
        rollouts_per_prompt=1, max_new_tokens=config.embedded.train.max_new_tokens, temperature=1.0,
    )  # fmt: skip
    vectors = Method(config.gdpo).score(rows, samples.rollouts)
    found: dict[tuple[str, int, str], list[float]] = defaultdict(list)
    for row, rollout, vector in zip(rows, samples.rollouts, vectors, strict=True):
        num_operations = len(row.fields["operations"])
        found[split, num_operations, style(rollout.response, num_operations)].append(vector["correct"])
    return {key: (len(values), int(sum(values))) for key, values in sorted(found.items())}


def main() -> None:
    """Print one line per split and number of operations."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, help="run directories")
    parser.add_argument("--count", type=int, default=1024, help="chains per split, drawn with replacement")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for path in options.runs:
        print(path)
        for split in get_args(Split):
            found = rates(RunDir(path), split, options.count)
            for num_operations in sorted({key[1] for key in found}):
                of_style = {name: found.get((split, num_operations, name), (0, 0)) for name in STYLES}
                cells = [
                    f"{name} {right}/{n}" + (f" = {100 * right / n:.0f} %" if n else "")
                    for name, (n, right) in of_style.items()
                ]
                print(f"  {split:8} {num_operations} operations:  {',  '.join(cells)}")


if __name__ == "__main__":
    main()
