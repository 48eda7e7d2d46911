"""Which options of the ``gdpo:`` block go together: what a method does not have, and what would do nothing."""

from __future__ import annotations

from collections.abc import Iterator

from gdpo_nemo.config import DEFAULT_ALARMS, GdpoConfig
from gdpo_nemo.data.table import GOLD
from gdpo_nemo.errors import ConfigError
from gdpo_nemo.signals.quantile import Quantile
from gdpo_nemo.signals.schedules import Schedule

OF_PREFERENCE = frozenset(
    ("task", "task_options", "method", "rewards", "python_path", "data", "monitor", "veto", "preference")
)  # fmt: skip
"""Keys that mean something under method preference."""


def check_options(config: GdpoConfig) -> None:
    """Do nothing where all options go together.

    Raises:
        ConfigError: the first that does not.
    """
    for problem in _problems(config):
        raise ConfigError(f"gdpo.{problem}")


def _problems(config: GdpoConfig) -> Iterator[str]:
    match config.method:
        case "gdpo":
            if not config.scale_by_std:
                yield "scale_by_std=false belongs to method grpo; GDPO always divides by the group's std"
            if config.kl_in_reward:
                yield (
                    f"kl_in_reward={config.kl_in_reward:g} belongs to method grpo: the released GDPO normalises the "
                    "rewards alone. Set gdpo.kl_in_reward=0; a KL penalty in the loss is embedded.train.loss.kl_coef, "
                    "or NeMo RL's loss_fn.reference_policy_kl_penalty"
                )
            if config.amplification_cap is not None and not config.batch_norm:
                yield "amplification_cap bounds GDPO's batch step, which batch_norm=false leaves out; drop one of them"
        case "grpo":
            if config.kl_in_reward and "kl_in_reward" in config.rewards:
                yield "rewards.kl_in_reward has the name under which gdpo.kl_in_reward is logged; give yours another"
            if not config.batch_norm:
                yield "batch_norm=false belongs to method gdpo; GRPO has no batch step"
            if config.amplification_cap is not None:
                yield "amplification_cap bounds GDPO's batch step; GRPO has none. Leave it out"
            if config.families:
                yield "families belong to method gdpo; GRPO adds all rewards up first, whatever family they are in"
        case "preference":
            yield from _problems_of_preference(config)
    if config.quantile != Quantile() and not any(spec.normalise for spec in config.rewards.values()):
        yield "quantile says how windows move, and no reward has normalise: quantile; give it to one, or drop this"
    on = {*config.monitor.alarms, *(DEFAULT_ALARMS if "default" in config.monitor.alarms else ())}
    for name, action in config.monitor.on_alarm.items():
        if not on & {name, "all"} and name not in ("warn", "checkpoint", "stop"):
            yield (
                f"monitor.on_alarm.{name}={action} says what the alarm {name} does, and it is not on; add it to "
                "gdpo.monitor.alarms, or drop this"
            )
    fields = GdpoConfig.model_fields
    foreign = {"preference"} if config.method != "preference" else fields.keys() - OF_PREFERENCE
    for key in fields:
        if key in foreign and (value := getattr(config, key)) != fields[key].default:
            yield f"{key}={value} means nothing under method {config.method}; leave it out"


def _problems_of_preference(config: GdpoConfig) -> Iterator[str]:
    for name, spec in config.rewards.items():
        if spec.normalise or isinstance(spec.weight, Schedule):
            yield (
                f"rewards.{name}: method preference ranks the values of a reward with a fixed weight; leave normalise "
                "out and give weight a number"
            )
    if config.rewards and all(spec.weight == 0 for spec in config.rewards.values()):
        yield "rewards have weight 0, all of them, so no response is better than another; give one a weight"
    if config.preference.anchors == "gold" and config.data is not None and GOLD not in config.data.columns:
        yield "preference.anchors=gold needs reference answers: name their column with gdpo.data.columns.gold"
