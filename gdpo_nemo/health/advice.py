"""What the numbers say to do. A line is plain text with the number behind it; no line is an alarm.

unusable    nothing can be learned from a reward, or its values are wrong: exit code 1
act         something is likely to go wrong, and what mends it
note        worth knowing
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from gdpo_nemo.health.measures import Health, RewardHealth
from gdpo_nemo.health.rollouts import Setting

DOMINANT = 0.6
MOSTLY = 0.9
MISSING = 0.2
DUPLICATE = 0.95
OPPOSED = 0.6  # of independent rewards, half
FEW_ORDERED = 30
ALIVE = 0.5

Level = Literal["unusable", "act", "note"]


@dataclass(frozen=True)
class Advice:
    """One line.

    Attributes:
        level: see the module.
        subject: the reward, or rewards, or ``batch``.
        text: what was seen, with its number, and what to do.
    """

    level: Level
    subject: str
    text: str


def advise(health: Health, setting: Setting) -> list[Advice]:
    """All lines, the gravest first."""
    lines: list[Advice] = []
    for reward in health.rewards:
        found = _unusable(reward, health) or list(_weak(reward, health))
        lines += found if reward.weight else [replace(line, level="note") for line in found]
    lines += [*_dominance(health, setting), *_pairs(health, setting), *_batch(health, setting)]
    order = ("unusable", "act", "note")
    return sorted(lines, key=lambda line: order.index(line.level))


def _unusable(reward: RewardHealth, health: Health) -> list[Advice]:
    name, lines = reward.name, []
    if reward.frac_missing == 1:
        text = f"{name} is missing in all {health.num_rollouts} rollouts: mend the function, or take the reward out"
        lines.append(Advice("unusable", name, text))
    if reward.num_outside:
        where = (
            f"its range [{reward.declared[0]:g}, {reward.declared[1]:g}]" if reward.declared else "the finite numbers"
        )
        text = (
            f"{name} is outside {where} in {reward.num_outside} of {health.num_rollouts} rollouts "
            f"(seen: {reward.lowest:g} to {reward.highest:g}): mend it, or declare the range as it is"
        )
        lines.append(Advice("unusable", name, text))
    if reward.frac_constant_groups == 1:
        if reward.lowest == reward.highest:
            seen = f"{name} is {reward.lowest:g} in every rollout"
        else:
            seen = f"{name} differs between prompts and never inside a group"
        if reward.frac_floor > MOSTLY:
            cure = "reward a part of the way, take easier prompts, or warm the model up first"
        elif reward.frac_ceiling > MOSTLY:
            cure = "the model has it already: take the reward out, or harder prompts"
        else:
            cure = "it can teach nothing; let it look at the response"
        lines.append(Advice("unusable", name, f"{seen}: {cure}"))
    return lines


def _weak(reward: RewardHealth, health: Health) -> Iterator[Advice]:
    name = reward.name
    if reward.frac_failed:
        text = (
            f"{name} raised or was late on {_percent(reward.frac_failed)} of the rollouts: those teach nothing at all"
        )
        yield Advice("act", name, f"{text}; mend it, or raise gdpo.rewards.{name}.timeout_s")
    elif reward.frac_missing > MISSING:
        text = f"{name} is missing in {_percent(reward.frac_missing)} of the rollouts; the statistics leave those out"
        yield Advice("note", name, f"{text}. If it should apply to them, mend it")
    if math.isnan(reward.frac_constant_groups):
        yield Advice("act", name, f"no group has two values of {name}, so it has no advantage anywhere")
    elif reward.frac_constant_groups >= MOSTLY:
        alive = (1 - reward.frac_constant_groups) * health.prompts
        text = (
            f"{name} is the same throughout {_percent(reward.frac_constant_groups)} of the groups: about {alive:.1f} "
            f"of {health.prompts} groups in a batch teach it"
        )
        yield Advice("act", name, f"{text}. {_cure(reward)}")


def _cure(reward: RewardHealth) -> str:
    if reward.frac_ceiling > MOSTLY:
        return (
            f"{_percent(reward.frac_ceiling)} of the rollouts have its highest value: harder prompts, or leave it out"
        )
    if reward.frac_floor > MOSTLY:
        return (
            f"{_percent(reward.frac_floor)} of the rollouts have its lowest value: easier prompts, or reward a part of "
            "the way"
        )
    return "More rollouts per prompt, dynamic sampling, or a finer scale"


def _dominance(health: Health, setting: Setting) -> Iterator[Advice]:
    if len(health.rewards) < 2:
        return
    grpo, gdpo = health.method("grpo").shares, health.method("gdpo").shares
    by_name = {reward.name: reward for reward in health.rewards}
    top = max(grpo, key=lambda name: _known(grpo[name]))
    if _known(grpo[top]) >= DOMINANT:
        others = [name for name in grpo if name != top and _power(by_name[name]) > 0]
        ratio = ""
        if others:
            weakest = min(others, key=lambda name: _power(by_name[name]))
            times = _power(by_name[top]) / _power(by_name[weakest])
            ratio = f"{top} has {times:.3g}x the variance of {weakest} inside groups: "
        text = (
            f"{ratio}under GRPO {top} decides {_percent(grpo[top])} of the advantage, under GDPO {_percent(gdpo[top])}"
        )
        if setting.method == "gdpo" and _known(gdpo[top]) < DOMINANT:
            yield Advice("note", top, f"{text}. GDPO, which is configured, removes that")
        elif _known(gdpo[top]) < DOMINANT:
            weight = math.sqrt(min(_power(by_name[name]) for name in others) / _power(by_name[top])) if others else 1.0
            cure = "gdpo.method: gdpo removes that"
            if setting.method == "grpo" and not setting.rescale_by_range and len(setting.ranges) == len(grpo):
                cure += ", gdpo.rescale_by_range: true softens it"
            if setting.method == "grpo":
                cure += ", normalise: quantile brings rewards to one scale"
            weight *= by_name[top].weight
            yield Advice("act", top, f"{text}. {cure}; under GRPO a weight of {weight:.2g} would equal the weakest")
    first = max(gdpo, key=lambda name: _known(gdpo[name]))
    if _known(gdpo[first]) >= DOMINANT:
        dead = [f"{name} in {_percent(one.frac_constant_groups)}" for name, one in by_name.items() if name != first]
        text = f"even under GDPO {first} decides {_percent(gdpo[first])} of the advantage"
        yield Advice("note", first, f"{text}; constant groups: {', '.join(dead)}; weights and conditions count as well")
    for method, shares in (("GRPO", grpo), ("GDPO", gdpo)):
        relevant = setting.method is None or setting.method.upper() == method
        for name, share in shares.items():
            if relevant and _known(share) < -0.01 and by_name[name].weight > 0:
                text = f"under {method} {name} has {_percent(share)} of the advantage: the others outvote it"
                yield Advice(
                    "act", name, f"{text}, and training will lower it. Raise its weight, or condition them on it"
                )


def _power(reward: RewardHealth) -> float:
    power = reward.weight**2 * reward.variance_within
    return 0.0 if math.isnan(power) else power


def _known(share: float) -> float:
    return 0.0 if math.isnan(share) else share


def _pairs(health: Health, setting: Setting) -> Iterator[Advice]:
    for pair in health.pairs:
        both = f"{pair.left}, {pair.right}"
        if pair.num_ordered < FEW_ORDERED or any({pair.left, pair.right} <= {*family} for family in setting.families):
            continue
        if pair.pearson >= DUPLICATE:
            text = f"{pair.left} and {pair.right} say the same inside groups (correlation {pair.pearson:.2f})"
            cure = "Keep one, or halve their weights"
            if setting.method != "grpo":
                cure += f", or make them a family that counts once (gdpo.families: {{name: [{both}]}})"
            yield Advice("act", both, f"{text}: together they count twice. {cure}")
        elif pair.conflict_rate >= OPPOSED:
            text = (
                f"{pair.left} and {pair.right} order {_percent(pair.conflict_rate)} of {pair.num_ordered} pairs of "
                f"rollouts oppositely (correlation {pair.pearson:.2f})"
            )
            cure = "decide which comes first, and condition the other on it (eq. 8: gdpo.rewards.<name>.condition)"
            yield Advice("act", both, f"{text}: {cure}")


def _batch(health: Health, setting: Setting) -> Iterator[Advice]:
    gdpo, grpo = health.method("gdpo"), health.method("grpo")
    chosen = grpo if setting.method == "grpo" else gdpo
    expected, low, high = chosen.expected_alive
    batch = f"{health.prompts} groups"
    if expected < ALIVE * health.prompts:
        text = f"about {expected:.1f} ({low:.0f} to {high:.0f}) of {batch} in a batch have a signal"
        if chosen is gdpo and not math.isnan(gdpo.amplification):
            text += f", which GDPO's batch step scales by {gdpo.amplification:.2f}"
        yield Advice(
            "act", "batch", f"{text}. Dynamic sampling, more rollouts per prompt, or prompts of other difficulty"
        )
    if len(health.rewards) > 1 and gdpo.distinct > grpo.distinct:
        text = f"GDPO tells {gdpo.distinct} of {health.num_groups} groups apart, GRPO {grpo.distinct}"
        yield Advice("note", "batch", text)
    smallest, largest = health.group_sizes
    if not smallest <= health.rollouts <= largest:
        few = "at least" if largest < health.rollouts else "at most"
        text = (
            f"measured on groups of {largest}; with the {health.rollouts} that are configured, {few} as many are alive"
        )
        yield Advice("note", "batch", text)


def _percent(share: float) -> str:
    """A share for people: 93 %, 0.4 %, -5 %."""
    if math.isnan(share):
        return "an unknown share"
    percent = 100 * share
    return f"{percent:.0f} %" if abs(percent) >= 1 or percent == 0 else f"{percent:.1g} %"
