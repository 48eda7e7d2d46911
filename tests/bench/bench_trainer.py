"""Speed of one GDPO training step against TRL's GRPOTrainer: same base model, prompts, rewards and batch.

    OMP_NUM_THREADS=1 python tests/bench/bench_trainer.py
    OMP_NUM_THREADS=1 python tests/bench/bench_trainer.py --base runs/.../base/HASH/checkpoints/step450

Both train from the same warmed-up tiny model in one process and take turns, a step each, so that a slow moment of
the machine hits both. A step is everything from one optimiser update to the next: prompts, sampling, rewards,
advantages, loss, backward, AdamW. Printed: CPU and wall time, the ratio of each pair of steps (median and quartiles),
and the rewards that both reach. Without TRL, the times of this trainer alone.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.utils import logging

from gdpo_nemo.backends.embedded import base_hash
from gdpo_nemo.backends.embedded.train import new_optimizer, train_step
from gdpo_nemo.backends.embedded.warmup import warm_up
from gdpo_nemo.config import RunConfig, load_yaml, validate
from gdpo_nemo.method import Method
from gdpo_nemo.models import load
from gdpo_nemo.prompts.tool_calling import build_prompt
from gdpo_nemo.randomness import stream
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.types import Rollout, Row

ROOT = Path(__file__).resolve().parents[2]
TRL = "trl==1.16.0"
CLOCKS: dict[str, Callable[[], float]] = {"cpu": time.process_time, "wall": time.perf_counter}

Step = tuple[dict[str, float], dict[str, float]]  # seconds by clock; means of the rewards and of the length


def now() -> dict[str, float]:
    """All clocks."""
    return {name: clock() for name, clock in CLOCKS.items()}


def since(start: dict[str, float]) -> dict[str, float]:
    """Seconds by clock."""
    return {name: clock() - start[name] for name, clock in CLOCKS.items()}


def rows_of(config: RunConfig, step: int) -> list[Row]:
    """The prompts of a training step."""
    rows = config.embedded.data.rows("train", stream(config.seed, "data", step))
    return list(islice(rows, config.embedded.train.prompts_per_step))


def our_steps(config: RunConfig, base: Path) -> Iterator[Step]:
    """Endless training steps of this project."""
    model, tokenizer = load(config.embedded, base)
    spec, method = config.embedded.train, Method(config.gdpo)
    optimizer = new_optimizer(model, spec.lr, spec.weight_decay)
    step = 0
    while True:
        step += 1
        start = now()
        metrics, _ = train_step(model, tokenizer, None, optimizer, config, method, step)
        seconds = since(start)
        yield (
            seconds,
            {name: metrics[f"reward/{name}/mean"] for name in method.names} | {"length": metrics["length/mean"]},
        )


def trl_steps(config: RunConfig, base: Path, steps: int, after: Callable[[Step], None], **settings: Any) -> None:
    """Train with TRL, and call ``after`` between its steps; that time does not count."""
    import datasets
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    datasets.disable_progress_bars()
    spec, method = config.embedded.train, Method(config.gdpo)
    model, tokenizer = load(config.embedded, base)
    tokenizer.padding_side = "left"
    rows = [row for step in range(1, steps + 1) for row in rows_of(config, step)]
    by_id = {row.id: row for row in rows}
    prompts = [[{"role": m.role, "content": m.content} for m in build_prompt(row).messages] for row in rows]
    columns = {"prompt": prompts, "row_id": [row.id for row in rows]}
    seen: dict[str, float] = {}
    scored: list[dict[str, float]] = []

    def reward(name: str) -> Callable[..., list[float]]:
        def values(completions: Any, completion_ids: Any, row_id: list[str], **_: Any) -> list[float]:
            if name == method.names[0]:  # scores once for all rewards
                scored[:] = [
                    method.reward(by_id[i], Rollout(i, 0, completion[0]["content"], len(ids), False)).values
                    for i, completion, ids in zip(row_id, completions, completion_ids, strict=True)
                ]
                ended = sum(ids[-1] == tokenizer.eos_token_id for ids in completion_ids)
                seen["length"] = (sum(map(len, completion_ids)) - ended) / len(row_id)
            values = [score[name] for score in scored]
            seen[name] = sum(values) / len(values)
            return values

        values.__name__ = name
        return values

    class TakeTurns(TrainerCallback):
        start: dict[str, float] | None = None

        def on_step_end(self, *_: Any, **__: Any) -> None:
            if self.start is None:  # the first step carries set-up
                after(({}, dict(seen)))
            else:
                after((since(self.start), dict(seen)))
            self.start = now()

    rollouts = spec.prompts_per_step * spec.rollouts_per_prompt
    arguments = (
        dict(
            per_device_train_batch_size=rollouts,
            gradient_accumulation_steps=1,
            num_generations=spec.rollouts_per_prompt,
            max_completion_length=spec.max_new_tokens,
            temperature=spec.temperature,
            top_k=0,
            multi_objective_aggregation="normalize_then_sum",
            loss_type="dapo",
            epsilon=spec.loss.clip_high,
            beta=0.0,
            learning_rate=spec.lr,
            lr_scheduler_type="constant",
            weight_decay=spec.weight_decay,
            max_grad_norm=spec.grad_clip,
            max_steps=steps,
            shuffle_dataset=False,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            seed=config.seed,
        )
        | settings
    )
    with tempfile.TemporaryDirectory() as folder:
        GRPOTrainer(
            model=model,
            processing_class=tokenizer,
            reward_funcs=[reward(name) for name in method.names],
            args=GRPOConfig(output_dir=folder, **arguments),
            train_dataset=datasets.Dataset.from_dict(columns),
            callbacks=[TakeTurns()],
        ).train()


def warmed_up(config: RunConfig, scratch: Path) -> Path:
    """The base model of the default configuration: one that a run left behind, or made now."""
    name = base_hash(config.embedded)
    for folder in sorted((ROOT / "runs").glob(f"**/base/{name}")):
        run = RunDir(folder)
        if run.result() is not None:
            return run.checkpoints()[-1][1]
    print(
        "no warmed-up model under runs/: making one, about a minute (--base DIR takes one from elsewhere)", flush=True
    )
    run = RunDir.claim(scratch / name, config.model_dump(mode="json"), {})
    warm_up(run, config.model_copy(update={"kind": "warmup"}))
    return run.checkpoints()[-1][1]


def quartiles(values: list[float], unit: float, digits: int) -> str:
    """Quartiles, right-aligned."""
    return "".join(f"{unit * value:9.{digits}f}" for value in statistics.quantiles(values, n=4))


def curve(steps: list[Step], name: str, width: int) -> str:
    """Mean of a value over each ``width`` steps."""
    blocks = [steps[i : i + width] for i in range(0, len(steps), width)]
    return "".join(f"{statistics.mean(step[1][name] for step in block):8.2f}" for block in blocks)


def main() -> None:
    """Print times, paired ratios and reward curves."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", type=Path, metavar="DIR", help="checkpoint of the model to start from")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trl", action="append", default=[], metavar="KEY=VALUE", help="a setting of GRPOConfig")
    args = parser.parse_args()

    logging.disable_progress_bar()
    torch.set_num_threads(1)
    configs = [ROOT / "configs/tool_calling" / name for name in ("gdpo.yaml", "embedded.yaml")]
    config = validate(RunConfig, load_yaml(configs, [f"seed={args.seed}"]))
    spec = config.embedded.train
    has_trl = importlib.util.find_spec("trl") is not None
    ours: list[Step] = []
    theirs: list[Step] = []
    with tempfile.TemporaryDirectory() as scratch:
        base = args.base or warmed_up(config, Path(scratch))
        steps = our_steps(config, base)

        def take_turn(step: Step) -> None:
            theirs.append(step)
            ours.append(next(steps))

        if has_trl:
            settings = dict(item.split("=", 1) for item in args.trl)
            trl_steps(config, base, args.steps, take_turn, **{k: json.loads(v) for k, v in settings.items()})
        else:
            ours.extend(islice(steps, args.steps))
    print(
        f"{spec.prompts_per_step} prompts x {spec.rollouts_per_prompt} rollouts, "
        f"at most {spec.max_new_tokens} new tokens, "
        f"GDPO, 1 thread, torch {torch.__version__}, transformers {transformers.__version__}"
    )
    timed = slice(2, None)  # the first steps carry set-up
    print(f"\n{'ms per step':34s}{'q25':>9s}{'median':>9s}{'q75':>9s}")
    for clock in CLOCKS:
        for name, side in (("gdpo-nemo", ours), (TRL, theirs)):
            if side:
                print(f"{name + ', ' + clock:34s}{quartiles([s[0][clock] for s in side[timed]], 1e3, 1)}")
    for clock in CLOCKS if theirs else ():
        ratios = [t[0][clock] / o[0][clock] for o, t in zip(ours[timed], theirs[timed], strict=True)]
        print(f"{TRL + ' / gdpo-nemo, ' + clock:34s}{quartiles(ratios, 1, 2)}")
    print(f"\n{'mean over 5 steps':34s}" + "".join(f"{f'to {i + 5}':>8s}" for i in range(0, args.steps, 5)))
    for value in ours[0][1]:
        for name, side in (("gdpo-nemo", ours), (TRL, theirs)):
            if side:
                print(f"{name + ', ' + value:34s}{curve(side, value, 5)}")
    if not has_trl:
        print(f"\nTRL is not installed; for the comparison: {sys.executable} -m pip install {TRL}")


if __name__ == "__main__":
    main()
