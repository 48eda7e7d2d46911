"""The report of 200 runs x 2,000 steps and a million score rows: load, tabulate, render.

    python tests/bench/bench_report.py

Fails above 20 seconds or 2 GB. The runs are made up, and removed afterwards.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from gdpo_nemo.report.builder import build
from gdpo_nemo.report.spec import Claim, Column, ReportSpec

MOST_SECONDS, MOST_GB = 20.0, 2.0
REWARDS = ("format", "correct")
OTHER_METRICS = ("loss", "grad_norm", "kl", "entropy", "length/mean", "length/max", "frac_truncated")


def write(root: Path, arms: int, seeds: int, steps: int, rows: int) -> ReportSpec:
    """Runs as the embedded trainer leaves them, a line of metrics per step and ``rows`` scores in all."""
    num_runs, per_question = arms * seeds, 4
    questions = rows // num_runs // per_question
    header = {
        "schema": 2,
        "benchmark": {"name": "heldout", "revision": None, "hashes": {}},
        "grader": "default",
        "model": {},
        "sampling": {},
        "samples_per_question": per_question,
        "synthetic": True,
    }
    asked = "".join(json.dumps({"row_id": f"q{q:05d}", "messages": [], "gold": ""}) + "\n" for q in range(questions))
    runs = {}
    for arm in range(arms):
        for seed in range(seeds):
            rng = np.random.default_rng([arm, seed])
            path = root / f"arm{arm}" / f"seed{seed}"
            store = path / "eval" / "heldout"
            (store / "scores").mkdir(parents=True)
            keys = [f"reward/{name}/mean" for name in REWARDS] + list(OTHER_METRICS)
            rise = 1 - np.exp(-4 * np.arange(steps) / steps)
            lines = (0.8 * rise[:, None] + 0.03 * rng.standard_normal((steps, len(keys)))).tolist()
            (path / "metrics.jsonl").write_text(
                "".join(
                    json.dumps({"step": t, **dict(zip(keys, values, strict=True))}) + "\n"
                    for t, values in enumerate(lines, 1)
                )
            )
            values = (rng.random((questions * per_question, 2)) < 0.5 + 0.02 * arm / arms).astype(float).tolist()
            (store / "scores" / "default.jsonl").write_text(
                "".join(
                    f'{{"row_id": "q{i // per_question:05d}", "index": {i % per_question}, '
                    f'"values": {{"format": {a}, "correct": {b}}}, "reasons": {{}}}}\n'
                    for i, (a, b) in enumerate(values)
                )
            )
            (store / "questions.jsonl").write_text(asked)
            (store / "evaluation.json").write_text(json.dumps(header))
            (store / "result.json").write_text(json.dumps({"state": "complete"}))
            (path / "config.resolved.yaml").write_text("kind: train\n")
            (path / "provenance.json").write_text('{"synthetic": true}')
            (path / "result.json").write_text('{"steps": 1}')
            runs[f"arm{arm}", seed] = path
    return ReportSpec(
        experiment="bench",
        title="Bench",
        scale="embedded",
        model="tiny",
        runs=runs,
        base=None,
        columns=tuple(Column(name, name, name, share=True) for name in REWARDS),
        claims=tuple(Claim(f"arm{arm}", ">", "arm0", on=name) for arm in range(1, arms) for name in REWARDS),
        deviations=(),
        curves=REWARDS,
        labels={},
        reward_ranges=dict.fromkeys(REWARDS, (0.0, 1.0)),
    )


def main() -> None:
    """Write, time and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--arms", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        spec = write(Path(folder) / "runs", options.arms, options.seeds, options.steps, options.rows)
        before, clock, cpu = (
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            time.perf_counter(),
            time.process_time(),
        )
        build(spec, Path(folder) / "report")
        seconds, busy = time.perf_counter() - clock, time.process_time() - cpu
    peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"{options.arms * options.seeds} runs x {options.steps:,} steps, {options.rows:,} score rows: "
        f"{seconds:.1f} s ({busy:.1f} s of processor), peak {peak_gb:.2f} GB (before the report {before / 1e6:.2f} GB)"
    )
    if busy > MOST_SECONDS or peak_gb > MOST_GB:
        sys.exit(f"more than {MOST_SECONDS:g} s of processor or {MOST_GB:g} GB")


if __name__ == "__main__":
    main()
