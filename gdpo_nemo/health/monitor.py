"""Alarms over the rows of ``metrics.jsonl``, of either backend: does a run still learn, and from what?

A rule looks at the rows up to a step only, so a finished run gives the alarms that a running one would have given.
The constants (in ``rules``) were fixed before any run was looked at; docs/reward-health.md has how often they hold.

    loss, grad_norm  stop        not finite
    lost_reward      checkpoint  no rollout has the reward any more, 5 steps in a row
    no_groups        checkpoint  no group has a signal, 5 steps in a row
    collapse         checkpoint  the level of a reward in use is more than a quarter of its declared range below its
                                 best level before, as ``report.stability``
    hack             checkpoint  a held-out metric has fallen so, while the weighted sum of the rewards in use is at
                                 least where it was at the metric's best
    truncated        checkpoint  more than half of the responses are cut off, and less than a quarter at the start
    kl               checkpoint  more than 0.5 nats from the reference
    gradient         warn        gradient norm at 10 times the start
    gradient_spike   warn        gradient norm more than 8 robust standard deviations above the 20 steps before
    length           warn        response length outside a factor of 2 of the start
    entropy          warn        below a tenth of the start
    few_groups       warn        less than a quarter of the groups have a signal
    dominance        warn        one reward has 95 % of the advantage, 10 steps in a row
    clipped          warn        more than 30 % of the tokens
    repeated         warn        responses to different prompts are less than a quarter as distinct as at the start, by
                                 their n-grams and by their compression (``repetition``)

Where no window is named, it is the mean over 10 steps. A metric that a run does not log raises no alarm.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gdpo_nemo.config import DEFAULT_ALARMS
from gdpo_nemo.errors import UnknownNameError
from gdpo_nemo.health import rules
from gdpo_nemo.health.rules import Series

Level = Literal["warn", "checkpoint", "stop"]
RULES: dict[str, tuple[Level, rules.Rule]] = {
    "loss": ("stop", rules.not_finite("loss")),
    "grad_norm": ("stop", rules.not_finite("grad_norm")),
    "lost_reward": ("checkpoint", rules.lost_reward),
    "no_groups": ("checkpoint", rules.no_groups),
    "collapse": ("checkpoint", rules.collapse),
    "hack": ("checkpoint", rules.hack),
    "truncated": ("checkpoint", rules.truncated),
    "kl": ("checkpoint", rules.above("kl", 0.5)),
    "gradient": ("warn", rules.drift("grad_norm", 0.0, 10.0)),
    "gradient_spike": ("warn", rules.gradient_spike),
    "length": ("warn", rules.drift("length/mean", 0.5, 2.0)),
    "entropy": ("warn", rules.drift("entropy", 0.1, math.inf)),
    "few_groups": ("warn", rules.few_groups),
    "dominance": ("warn", rules.dominance),
    "clipped": ("warn", rules.above("clip_fraction", 0.3)),
    "repeated": ("warn", rules.repeated),
}
DEFAULT = DEFAULT_ALARMS
LOCAL = ("loss", "grad_norm", "lost_reward", "no_groups", "kl", "gradient_spike", "few_groups", "dominance", "clipped")
"""Those that look no farther back than ``rules.BEFORE`` rows; the others compare with the start or with the best."""
CHECKPOINT = re.compile(r"step_?(\d+)")


@dataclass(frozen=True)
class Alarm:
    """The first step at which a rule holds.

    Attributes:
        rule, level: see the module.
        subject: the reward or metric.
        step: at which it was raised.
        since: last step before the rows it rests on: a checkpoint up to here is older than what was seen.
        text: what was seen.
    """

    rule: str
    level: Level
    subject: str
    step: int
    since: int
    text: str


def alarms(series: Series, names: Sequence[str] = DEFAULT) -> list[Alarm]:
    """The alarms of some rules, in the order of steps.

    Raises:
        UnknownNameError: no such rule.
    """
    raised = []
    for name in names:
        if name not in RULES:
            raise UnknownNameError("alarm", name, RULES)
        level, find = RULES[name]
        for subject, row, rests_on, text in find(series):
            since = int(series.steps[max(0, row - rests_on + 1)]) - 1
            raised.append(Alarm(name, level, subject, int(series.steps[row]), since, text))
    return sorted(raised, key=lambda alarm: alarm.step)


def last_healthy(run: Path, since: int) -> Path | None:
    """The newest checkpoint of a run, of either backend, up to a step; None: there is none."""
    numbered = [(CHECKPOINT.fullmatch(path.name), path) for path in run.glob("checkpoints/*")]
    found = [(int(match[1]), path) for match, path in numbered if match and int(match[1]) <= since]
    return max(found)[1] if found else None
