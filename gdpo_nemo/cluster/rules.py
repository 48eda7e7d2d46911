"""What a rule about a configuration is, and how a broken one reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar


@dataclass(frozen=True)
class Violation:
    """A broken rule.

    Attributes:
        key: the dotted key to change.
        message: what is wrong, with the values, and who refuses it.
        works: a value of ``key`` that keeps the rule; None: leave the key out, or set it to null.
        known: whether ``works`` says so; other programs refuse a value without naming a better one.
    """

    key: str
    message: str
    works: Any
    known: bool = True

    def __str__(self) -> str:
        if not self.known:
            return f"{self.key}: {self.message}"
        works = json.dumps(self.works) if self.works is None or isinstance(self.works, bool | dict) else self.works
        return f"{self.message}. Set {self.key}={works}"


@dataclass(frozen=True)
class Opinion:
    """What another program says of a configuration.

    Attributes:
        who: whose opinion it is, in words.
        violations: what that program refuses.
        unasked: why it was not asked; empty when it was.
    """

    who: str
    violations: tuple[Violation, ...] = ()
    unasked: str = ""


class Keyed(Protocol):
    """What rules are about: values by dotted key."""

    def __getitem__(self, key: str) -> Any:
        """The value of a dotted key, None where nothing is set."""


T = TypeVar("T", bound=Keyed)


@dataclass(frozen=True)
class Rule(Generic[T]):
    """One rule, as data.

    Attributes:
        key: the dotted key to change.
        broken: whether a configuration breaks it.
        message: what is wrong. ``{s.tp}`` and ``{s[policy.precision]}`` are values of the configuration.
        works: a value that keeps the rule, or what computes one.
        source: where NeMo RL or Megatron checks it.
    """

    key: str
    broken: Callable[[T], Any]
    message: str
    works: Any
    source: str = ""


def broken(rules: Iterable[Rule[T]], settings: T) -> list[Violation]:
    """The broken ones among some rules."""
    return [
        Violation(
            rule.key,
            rule.message.format(s=settings) + (f" ({rule.source})" if rule.source else ""),
            rule.works(settings) if callable(rule.works) else rule.works,
        )
        for rule in rules
        if rule.broken(settings)
    ]
