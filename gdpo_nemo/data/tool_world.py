"""A procedurally generated tool-calling world, small enough to learn in a minute.

The user names a city, a chain of relations to follow and a day. Each relation is a fixed
permutation of the cities, learned in the warm-up as world knowledge; each city is served by
one kind of transport. The right call names the tool that serves the final city, that city and
the day, so the call is right only if the chain was followed. A share of rows is small talk
whose gold is a response without a call, as in ToolRL's data.

Everything is text in the think / tool_call / response format of ToolRL (arXiv 2504.13958).
Chains of two or more hops are split into train and held-out by hash; evaluation sees only
chains that no training row and no demonstration used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np

from gdpo_nemo.data.questions import ATTEMPTS, DrawnWorld, Split, check_shares, split_of
from gdpo_nemo.errors import InputError
from gdpo_nemo.types import Row

CITIES = (
    "Oslo", "Lima", "Cairo", "Quito", "Paris", "Tokyo", "Delhi", "Sofia",
    "Turin", "Minsk", "Accra", "Hanoi", "Berne", "Dakar", "Malmo", "Perth",
)  # fmt: skip
RELATIONS = ("twin", "rival", "mirror", "patron", "cousin", "heir")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
TRANSPORTS = ("flight", "train", "ferry", "coach")
SMALL_TALK = ("Hello!", "Thank you.", "Good night.")
SMALL_TALK_REPLY = "You are welcome."


@dataclass(frozen=True)
class BehaviourMix:
    """Shares and noise of demonstrated behaviour.

    Attributes:
        think_share: share of answers that show worked steps; the others call at once.
        step_noise: chance that a worked step names a wrong city (later steps follow from it).
        direct_noise: chance that a direct answer names a wrong city.
        piece_kept: chance that each of the three format pieces (``<think>``, ``</think>``, the
            line break before the call) is kept.
    """

    think_share: float = 0.25
    step_noise: float = 0.65
    direct_noise: float = 0.05
    piece_kept: float = 0.6

    def __post_init__(self) -> None:
        check_shares(self)


@dataclass(frozen=True)
class ToolWorld(DrawnWorld):
    """Size and seed of the world; two equal worlds hold the same facts.

    Attributes:
        kind: names this world in a configuration.
        seed: draws the relations and which transport serves which city.
        num_cities: 2 to 16.
        num_relations: 1 to 6.
        num_tools: kinds of transport, 1 to 4; all are offered in every row, in random order.
        max_hops: longest chain of relations.
        small_talk_share: share of rows that need no tool.
        heldout_share: share of chains of two or more hops kept for evaluation.
        mix: behaviour of the model before reinforcement learning.
    """

    enlarged_by: ClassVar[str] = "embedded.data.num_cities, max_hops or heldout_share"

    kind: Literal["trips"] = "trips"
    seed: int = 0
    num_cities: int = 12
    num_relations: int = 4
    num_tools: int = 3
    max_hops: int = 3
    small_talk_share: float = 0.1
    heldout_share: float = 0.25
    mix: BehaviourMix = BehaviourMix()

    def __post_init__(self) -> None:
        limits = {
            "num_cities": (2, len(CITIES)),
            "num_relations": (1, len(RELATIONS)),
            "num_tools": (1, len(TRANSPORTS)),
        }
        self.check_limits(limits | {"small_talk_share": (0, 1)})
        if self.max_hops < 1:
            raise InputError(f"max_hops is {self.max_hops}; it must be at least 1")

    @property
    def cities(self) -> tuple[str, ...]:
        """The cities of this world."""
        return CITIES[: self.num_cities]

    @property
    def relations(self) -> tuple[str, ...]:
        """The relations of this world."""
        return RELATIONS[: self.num_relations]

    def destination_of(self, city: str, relation: str) -> str:
        """Where a relation leads from a city."""
        return _facts(self)[0][relation, city]

    def transport_of(self, city: str) -> str:
        """The kind of transport that serves a city."""
        return _facts(self)[1][city]

    def row(self, split: Split, rng: np.random.Generator) -> Row:
        """See ``DrawnWorld``."""
        tools = [tool_description(TRANSPORTS[i]) for i in rng.permutation(self.num_tools)]
        if rng.random() < self.small_talk_share:
            text = _pick(SMALL_TALK, rng)
            fields: dict[str, Any] = {"tools": tools, "user": text, "path": (), "day": "", "start": ""}
            return Row(_row_id(split, fields), fields, gold_completion(self, fields))
        day = _pick(DAYS, rng)
        fewest = 2 if split == "heldout" and self.max_hops > 1 else 1
        for _ in range(ATTEMPTS):
            hops = int(rng.integers(fewest, self.max_hops + 1))
            start = _pick(self.cities, rng)
            path = tuple(_pick(self.relations, rng) for _ in range(hops))
            if self._split_of(start, path) in (split, "both"):
                break
        else:
            raise InputError(
                f"found no {split} chain in {self}; raise heldout_share, num_cities, num_relations or max_hops"
            )
        user = f"Start at {start}, follow {', '.join(path)}. Book my trip to the city I reach, for {day}."
        fields = {"tools": tools, "user": user, "start": start, "path": path, "day": day}
        return Row(_row_id(split, fields), fields, gold_completion(self, fields))

    def _split_of(self, start: str, path: tuple[str, ...]) -> str:
        if len(path) == 1:
            return "both" if self.max_hops == 1 else "train"
        return split_of((str(self.seed), start, *path), self.heldout_share)


@lru_cache(maxsize=32)
def _facts(world: ToolWorld) -> tuple[dict[tuple[str, str], str], dict[str, str]]:
    rng = np.random.default_rng(world.seed)
    leads_to: dict[tuple[str, str], str] = {}
    for relation in world.relations:
        for city, other in zip(world.cities, rng.permutation(world.cities), strict=True):
            leads_to[relation, city] = str(other)
    served_by = {city: TRANSPORTS[i % world.num_tools] for i, city in enumerate(rng.permutation(world.cities))}
    return leads_to, {str(city): transport for city, transport in served_by.items()}


def _pick(options: Sequence[str], rng: np.random.Generator) -> str:
    return options[int(rng.integers(len(options)))]


def _row_id(split: Split, fields: Mapping[str, Any]) -> str:
    text = json.dumps([split, fields], sort_keys=True)
    return f"tool_world/{split}/{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def tool_description(transport: str) -> dict[str, Any]:
    """The tool that books one kind of transport, as offered in the prompt."""
    return {
        "name": f"book_{transport}",
        "description": f"Book a {transport} to a city served by {transport}.",
        "parameters": {"to": {"type": "string"}, "day": {"type": "string"}},
    }


def follow(world: ToolWorld, start: str, path: tuple[str, ...]) -> list[str]:
    """The cities reached after each relation of a chain."""
    reached: list[str] = []
    for relation in path:
        reached.append(world.destination_of(reached[-1] if reached else start, relation))
    return reached


def call_text(world: ToolWorld, destination: str, day: str) -> str:
    """The call that books the trip, as one JSON line."""
    return json.dumps(
        {"name": f"book_{world.transport_of(destination)}", "parameters": {"to": destination, "day": day}}
    )


def think_text(path: Sequence[str], reached: Sequence[str]) -> str:
    """The worked steps: each relation with the city it leads to, e.g. ``twin Lima, rival Paris``."""
    return ", ".join(f"{relation} {city}" for relation, city in zip(path, reached, strict=True))


def gold_completion(world: ToolWorld, fields: Mapping[str, Any]) -> str:
    """The reference completion of a row: think, then one call (or, for small talk, a response)."""
    if not fields["path"]:
        return f"<think> no tool is needed </think>\n<response> {SMALL_TALK_REPLY} </response>"
    reached = follow(world, fields["start"], fields["path"])
    call = call_text(world, reached[-1], fields["day"])
    return f"<think> {think_text(fields['path'], reached)} </think>\n<tool_call>\n{call}\n</tool_call>"
