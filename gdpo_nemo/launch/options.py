"""Options of a target as arguments of a command line: one per field of its dataclass, with the field's own help."""

from __future__ import annotations

import argparse
from dataclasses import MISSING, Field, field, fields
from typing import Any, TypeVar

T = TypeVar("T")


def option(default: Any, text: str, metavar: str = "") -> Any:
    """A field of an options dataclass.

    Args:
        default: a tuple makes it an option that may be given several times.
        text: one line for ``--help``.
        metavar: what stands for the value there.
    """
    return field(default=default, metadata={"help": text, "metavar": metavar})


def add_options(parser: argparse.ArgumentParser, options: type[Any], title: str = "") -> None:
    """Add an argument for each field. Defaults are left to the dataclass, so several targets can share a name."""
    group = parser.add_argument_group(title) if title else parser
    known = parser._option_string_actions
    for one in fields(options):
        name = flag(one)
        if name not in known:
            group.add_argument(name, dest=one.name, default=argparse.SUPPRESS, **_how(one))


def read_options(namespace: argparse.Namespace, options: type[T]) -> T:
    """The dataclass with what was given on the command line."""
    values = vars(namespace)
    given = {one.name: values[one.name] for one in fields(options) if one.name in values}  # type: ignore[arg-type]
    return options(**{name: tuple(value) if isinstance(value, list) else value for name, value in given.items()})


def flag(one: Field[Any]) -> str:
    """``--some-name``, and ``--no-some-name`` for what is on by default."""
    name = one.name.replace("_", "-")
    return f"--no-{name}" if one.default is True else f"--{name}"


def _how(one: Field[Any]) -> dict[str, Any]:
    how: dict[str, Any] = {"help": one.metadata["help"]}
    if isinstance(one.default, bool):
        return how | {"action": "store_false" if one.default else "store_true"}
    if one.metadata.get("metavar"):
        how["metavar"] = one.metadata["metavar"]
    if isinstance(one.default, tuple):
        return how | {"action": "append"}
    assert one.default is not MISSING, one.name
    return how | {"type": type(one.default)}
