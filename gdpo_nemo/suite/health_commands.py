"""``gdpo health``: what the rewards of a configuration, or of recorded rollouts, are like, and what to do about it."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gdpo_nemo.arguments import count
from gdpo_nemo.errors import UsageError
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.suite import programs
from gdpo_nemo.suite.answer import Answer
from gdpo_nemo.suite.grid import Selection, resolve, split_names
from gdpo_nemo.terminal import sentences, table

if TYPE_CHECKING:
    from gdpo_nemo.config import RunConfig
    from gdpo_nemo.health.advice import Advice
    from gdpo_nemo.health.measures import Health
    from gdpo_nemo.health.probing import Cost, Probe
    from gdpo_nemo.health.rollouts import Setting

PROMPTS = 200
UNTRAINED = (
    "no warm-up model yet, so an untrained model answered: `gdpo run {target}` makes one, and these numbers say little"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A target, recorded rollouts, or both."""
    parser.add_argument("target", nargs="?", help="an experiment, the config of one arm, or a run directory")
    add = parser.add_argument
    add("--rollouts", type=Path, nargs="+", metavar="PATH", help="recorded rollouts; sample nothing")
    add("--arm", metavar="NAME", help="of the experiment (default: gdpo, or else its first)")
    add("--model", default="tiny", help="tiny (default), a config of configs/model/, a directory, or owner/name")
    add(
        "--out",
        type=Path,
        default=Path("runs"),
        metavar="DIR",
        help="where the warm-up model is looked for (default: runs)",
    )
    add("--prompts", type=count, default=PROMPTS, metavar="N", help=f"prompts to sample (default: {PROMPTS})")
    add("--rollouts-per-prompt", type=count, metavar="G", help="to sample (default: as configured); of recorded "
        "rollouts: groups of G rows that follow each other")  # fmt: skip
    add("--rewards", metavar="A,B", help="of recorded rollouts: the columns that are rewards")
    add("--prompt-key", metavar="NAME", help="of recorded rollouts: the column that names the prompt")
    add("--weight", action="append", default=[], metavar="NAME=W", help="weight of a reward (default: 1)")
    add("--step", type=count, metavar="N", help="of weights that follow a schedule (default: the last step)")
    add("--range", action="append", default=[], metavar="NAME=LOW,HIGH", help="declared range of a reward")
    add("--batch-prompts", type=count, metavar="P", help="prompts of a training batch (default: as configured)")
    add("--seed", type=int, default=0, help="of prompts and samples (default: 0)")


def answer(options: argparse.Namespace) -> Answer:
    """Look at recorded or sampled rollouts; exit code 1 when a reward is unusable.

    Raises:
        UsageError: neither a target nor rollouts, or an argument of another form.
        GdpoError: what is asked for cannot be read, sampled or scored.
    """
    from gdpo_nemo.health.advice import advise
    from gdpo_nemo.health.measures import measure
    from gdpo_nemo.health.readers import read_rollouts
    from gdpo_nemo.health.rollouts import Setting

    config, checkpoint = _target(options) if options.target else (None, None)
    setting = _overridden(Setting() if config is None else Setting.of(config, options.step), options)
    sampled: Probe | None = None
    if options.rollouts:
        rollouts = read_rollouts(
            options.rollouts,
            rewards=split_names(options.rewards) if options.rewards else None,
            prompt_key=options.prompt_key,
            rollouts_per_prompt=options.rollouts_per_prompt,
        )
        if config is not None and not options.rewards:
            rollouts = rollouts.only(list(setting.weights))
    elif config is not None:
        from gdpo_nemo.health.probing import probe

        group = options.rollouts_per_prompt or config.embedded.train.rollouts_per_prompt
        sampled = probe(config, checkpoint, options.prompts, group, options.seed)
        rollouts = sampled.rollouts
        if checkpoint is None and config.embedded.model.name == "tiny":
            rollouts = replace(rollouts, notes=(*rollouts.notes, UNTRAINED.format(target=options.target)))
    else:
        raise UsageError("give a target to sample from, or --rollouts FILE; see gdpo health --help")
    health = measure(rollouts, setting)
    advice = advise(health, setting)
    unusable = any(line.level == "unusable" for line in advice)
    return Answer(_text(health, advice, setting, sampled), _data(health, advice, sampled), int(unusable))


def _target(options: argparse.Namespace) -> tuple[RunConfig, Path | None]:
    """The configuration and the model to sample from."""
    from gdpo_nemo.config import RunConfig, validate
    from gdpo_nemo.suite.cluster_targets import is_cluster_target

    run = RunDir(Path(options.target))
    if run.exists():
        config = validate(RunConfig, run.config(), origin=f"{options.target}, perhaps written by another version,")
        found = run.checkpoints()
        if not found and config.base is not None:
            found = RunDir(run.path.resolve().parent.parent / "base" / config.base).checkpoints()
        return config, found[-1][1] if found else None
    if is_cluster_target(options.target, "embedded"):
        raise UsageError(
            f"{options.target} is a configuration for a cluster; its model cannot be sampled here. Give its rollouts: "
            "gdpo health --rollouts FILE"
        )
    program = programs.find(options.target)
    names = [arm.name for arm in program.experiment.arms]
    arm = options.arm or (program.arms or (["gdpo"] if "gdpo" in names else names))[0]
    arms = program.experiment.pick_arms([arm])
    selection = Selection(program, "embedded", arms, (0,), options.model, options.out)
    grid = resolve(selection)
    checkpoints = grid.base.dir.checkpoints() if grid.base.dir.result() else []
    return grid.runs[0].config, checkpoints[-1][1] if checkpoints else None


def _overridden(setting: Setting, options: argparse.Namespace) -> Setting:
    weights = {name: float(value) for name, value in map(_pair, options.weight)}
    ranges = {}
    for name, value in map(_pair, options.range):
        low, comma, high = value.partition(",")
        if not comma:
            raise UsageError(f"--range {name}={value} is not of the form name=low,high")
        ranges[name] = (float(low), float(high))
    return replace(
        setting,
        weights={**setting.weights, **weights},
        ranges={**setting.ranges, **ranges},
        prompts=options.batch_prompts or setting.prompts,
    )


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    numbers = value.split(",")
    if not (name and equals and all(_is_number(number) for number in numbers)):
        raise UsageError(f"{text!r} is not of the form name=number; see gdpo health --help")
    return name, value


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


# ---- for people


def _text(health: Health, advice: Sequence[Advice], setting: Setting, sampled: Probe | None) -> str:
    parts = [_head(health), f"Rewards\n{table(_reward_rows(health))}", f"Who decides\n{table(_method_rows(health))}"]
    if health.pairs:
        parts.append(f"Pairs, inside groups\n{table(_pair_rows(health))}")
    if sampled:
        parts.append(f"Cost (sampling took {sampled.sample_s:.1f} s)\n{table(_cost_rows(sampled.costs))}")
    marks = {"unusable": "!!", "act": "!", "note": ""}
    lines = [[marks[line.level], line.text] for line in advice] or [["", "nothing stands out"]]
    return "\n\n".join([*parts, f"Advice\n{table(lines)}"])


def _head(health: Health) -> str:
    small, large = health.group_sizes
    size = f"{small}" if small == large else f"{small} to {large}"
    left_out = health.num_rollouts - health.num_valid
    lines = [f"{health.source}: {health.num_rollouts} rollouts in {health.num_groups} groups of {size}"]
    if left_out:
        lines.append(f"  {left_out} rollouts are masked or a reward failed on them: they are in no advantage")
    return "\n".join([*lines, sentences(health.notes, "  ")]).rstrip()


def _reward_rows(health: Health) -> list[list[str]]:
    head = ["", "weight", "range", "seen", "mean", "variance", "in groups", "5/50/95 %", "missing", "constant", "ceiling", "floor"]  # noqa: E501  # fmt: skip
    rows = [head]
    for one in health.rewards:
        rows.append([
            one.name, f"{one.weight:g}", f"{one.declared[0]:g}..{one.declared[1]:g}" if one.declared else "-",
            f"{_number(one.lowest)}..{_number(one.highest)}", _number(one.mean), _number(one.variance),
            _number(one.variance_within), "/".join(_number(one.quantiles[i]) for i in (0, 2, 4)),
            *(_percent(share) for share in (
                one.frac_missing, one.frac_constant_groups, one.frac_ceiling, one.frac_floor,
            )),
        ])  # fmt: skip
    return rows


def _method_rows(health: Health) -> list[list[str]]:
    from gdpo_nemo.health.deciding import LABELS

    names = [one.name for one in health.rewards]
    rows = [["share of the advantage", *names, "distinct", "alive", f"alive of {health.prompts}", "scaled up"]]
    for one in health.methods:
        expected, low, high = one.expected_alive
        alive = [f"{one.distinct}", f"{one.alive}/{health.num_groups}", f"{expected:.1f} ({low:.0f}-{high:.0f})"]
        scaled = _number(one.amplification) if one.method == "gdpo" else "-"
        rows.append([LABELS[one.method], *(_percent(one.shares[name]) for name in names), *alive, scaled])
    return rows


def _pair_rows(health: Health) -> list[list[str]]:
    rows = [["", "Pearson", "Spearman", "conflict", "ordered pairs"]]
    for one in health.pairs:
        numbers = [_number(one.pearson), _number(one.spearman), _percent(one.conflict_rate), f"{one.num_ordered}"]
        rows.append([f"{one.left}, {one.right}", *numbers])
    return rows


def _cost_rows(costs: Sequence[Cost]) -> list[list[str]]:
    rows = [["", "calls", "rollouts a call", "p50", "p99", "total", "failed"]]
    for one in costs:
        times = [f"{1000 * one.p50_s:.3g} ms", f"{1000 * one.p99_s:.3g} ms", f"{one.total_s:.3g} s"]
        rows.append([one.name, f"{one.calls}", f"{one.per_call:.3g}", *times, _percent(one.frac_failed)])
    return rows


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3g}"


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.0f} %"


# ---- for scripts


def _data(health: Health, advice: Sequence[Advice], sampled: Probe | None) -> dict[str, Any]:
    data = asdict(health) | {"advice": [asdict(line) for line in advice]}
    if sampled:
        data |= {"costs": [asdict(cost) for cost in sampled.costs], "sample_s": sampled.sample_s}
    cleaned: dict[str, Any] = _strict(data)
    return cleaned


def _strict(value: Any) -> Any:
    """The same with null where JSON has no word."""
    if isinstance(value, Mapping):
        return {key: _strict(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
