"""How programs of the small coding world are written, and how often they are right: from the answers that runs keep.

    python tests/bench/bench_program_styles.py runs/code_reasoning/embedded/tiny/*/seed* [more run directories]

Runs of one folder, an arm's seeds, are put together. Nothing is sampled or run again.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from itertools import groupby
from pathlib import Path

import numpy as np

from gdpo_nemo.data.program_world import ASSIGN, GUARD, HARD, OPERATIONS
from gdpo_nemo.evaluation.heldout import NAME
from gdpo_nemo.evaluation.store import EvaluationStore
from gdpo_nemo.run_dir import RunDir

WAYS = ("named", "first result named", "worked out", "otherwise")
REWARDS = ("pass_rate", "no_bug", "length")


def way(response: str) -> str:
    """How a program for a task with two operations gives k."""
    lines = sum(response.count(f"{step.code}\n") for step in OPERATIONS)
    if (ASSIGN in response) != (lines > 0) or lines > 2:
        return "otherwise"
    return WAYS[lines]


def main() -> None:
    """Print one block per folder of runs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, help="run directories")
    for folder, runs in groupby(parser.parse_args().runs, key=lambda path: path.parent):
        found: dict[str, list[list[float]]] = defaultdict(list)
        for run in runs:
            store = EvaluationStore.open(RunDir(run).evaluation_path(NAME))
            hard = {question["row_id"] for question in store.questions() if question["group"] == HARD}
            for generation, score in zip(store.generations(), store.scores(), strict=True):
                row_id, text = generation["row_id"], generation["response"]
                values = [score["values"][name] for name in REWARDS]
                values.append(float(values[0] == 1))
                found["all"].append(values)
                found["with comments" if "#" in text else "without comments"].append(values)
                if "or 0 if there is none" in row_id:
                    found["guard" if "".join(GUARD) in text else "guard is missing"].append(values)
                if row_id in hard:
                    found[f"two operations, {way(text)}"].append(values)
        print(folder)
        for name, rows in sorted(found.items()):
            passed, no_bug, within, solved = 100 * np.array(rows).mean(0)
            print(
                f"  {name:36} n {len(rows):5}  tests passed {passed:5.1f} %  all passed {solved:5.1f} %  "
                f"without error {no_bug:5.1f} %  within limit {within:5.1f} %"
            )


if __name__ == "__main__":
    main()
