"""Whether guessing pays: how often answers of each style are right, on training and on held-out chains.

    python tests/bench/bench_guessing.py runs/math_length/embedded/tiny/gdpo/seed0 [more run directories]

Takes the last checkpoint of each run of the arithmetic or the tool world, a warm-up's too (`base` in the tree). Direct
answers that are right on training chains more often than on held-out ones were remembered, and then training rewards
what the evaluation does not.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from itertools import islice
from pathlib import Path
from typing import get_args

import torch

from gdpo_nemo.config import RunConfig
from gdpo_nemo.data.questions import Split
from gdpo_nemo.data.residue_world import ResidueWorld
from gdpo_nemo.data.tool_world import ToolWorld
from gdpo_nemo.method import Method
from gdpo_nemo.models import load
from gdpo_nemo.models.sampling import sample
from gdpo_nemo.randomness import stream, stream_seed
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.types import Row
from gdpo_nemo.worlds import build_prompt

SEED = 12345


def steps(world: ResidueWorld | ToolWorld, row: Row) -> int:
    """Operations of a chain, or relations that a question goes through."""
    return len(row.fields["operations" if isinstance(world, ResidueWorld) else "path"])


def style(world: ResidueWorld | ToolWorld, row: Row, response: str) -> str:
    """Direct answers state no step, partly worked ones not all; verbose ones name the operations before the steps."""
    if isinstance(world, ToolWorld):
        thought = response.split("<tool_call>")[0]
        return "thinking" if any(relation in thought for relation in world.relations) else "direct"
    stated = response.count(": ")
    if stated < steps(world, row):
        return "partly" if stated else "direct"
    return "concise" if ": " in response.split(",")[0] else "verbose"


def rates(run: RunDir, split: Split, count: int) -> dict[int, dict[str, tuple[int, int]]]:
    """Steps -> style -> answers, and right ones among them. Tool questions without a chain are left out."""
    config = RunConfig.model_validate(run.config())
    world, method = config.embedded.data, Method(config.gdpo)
    assert isinstance(world, ResidueWorld | ToolWorld)
    model, tokenizer = load(config.embedded, run.checkpoints()[-1][1], config.gdpo)
    rows = list(islice(world.rows(split, stream(SEED, "guessing", split)), count))
    samples = sample(
        model, tokenizer, [build_prompt(world, row) for row in rows], seed=stream_seed(SEED, "guessing answers", split),
        rollouts_per_prompt=1, max_new_tokens=config.embedded.train.max_new_tokens, temperature=1.0,
    )  # fmt: skip
    vectors = method.score(rows, samples.rollouts)
    found: dict[int, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for row, rollout, vector in zip(rows, samples.rollouts, vectors, strict=True):
        if number := steps(world, row):
            is_right = vector["correct"] == method.ranges["correct"][1]
            found[number][style(world, row, rollout.response)].append(is_right)
    return {
        number: {name: (len(values), sum(values)) for name, values in sorted(styles.items())}
        for number, styles in sorted(found.items())
    }


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
            for number, styles in rates(RunDir(path), split, options.count).items():
                cells = [f"{name} {right}/{n} = {100 * right / n:.0f} %" for name, (n, right) in styles.items()]
                print(f"  {split:8} {number} steps:  {',  '.join(cells)}")


if __name__ == "__main__":
    main()
