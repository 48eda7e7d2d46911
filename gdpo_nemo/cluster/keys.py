"""Unknown keys and wrong types in NeMo RL's sections. NeMo RL itself accepts any unknown key silently."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from gdpo_nemo.cluster.annotations import MAPPING, Key
from gdpo_nemo.errors import ConfigError

_TYPES = {"int": int, "float": float, "bool": bool, "str": str, "None": None, MAPPING: dict, "list": list}
SHOWN = 40
DATASETS = ("data.train", "data.validation", "data.default")


def check_keys(nemo: Mapping[str, Any], known: Mapping[str, Key], origin: str) -> None:
    """Every key is known, every value has the declared type, and nothing required is missing.

    Args:
        nemo: NeMo RL's sections, resolved.
        known: keys by dotted path (``Host.keys``).
        origin: in words, where these come from.

    Raises:
        ConfigError: one line for each fault, with the nearest known key.
    """
    if _has_own_dataset(nemo.get("data") or {}):
        known = {**known, **{f"{section}.*": Key("Any") for section in DATASETS}}
    faults = list(_faults(nemo, "", "", known))
    if faults:
        listing = "\n".join(f"  {fault}" for fault in faults)
        raise ConfigError(f"NeMo RL's part of the configuration is wrong (known keys from {origin}):\n{listing}")


def _has_own_dataset(data: Mapping[str, Any]) -> bool:
    """Whether a dataset is a class by its dotted path, which takes the arguments it wants: ``cls(**data_config)``."""
    blocks = (data.get(section.rpartition(".")[2]) for section in DATASETS)
    return any(isinstance(block, Mapping) and "." in str(block.get("dataset_name")) for block in blocks)


def _faults(section: Mapping[str, Any], path: str, pattern: str, known: Mapping[str, Key]) -> Iterator[str]:
    below = _children(known).get(pattern, ())
    for name, value in section.items():
        key = f"{path}.{name}".lstrip(".")
        if name in below or "*" in below:
            yield from _value_faults(value, key, f"{pattern}.{name if name in below else '*'}".lstrip("."), known)
        else:
            near = difflib.get_close_matches(str(name), below if path else (*below, "gdpo"), n=1)
            hint = f" Did you mean {f'{path}.{near[0]}'.lstrip('.')!r}?" if near else ""
            if near or path:
                listing = "" if near or len(below) > SHOWN else f" Known there: {', '.join(sorted(below))}."
                yield f"unknown key {key!r}.{hint}{listing}"
            else:
                yield f"cannot set {key!r} here; configuration keys start with one of gdpo, {', '.join(sorted(below))}"
    for name in below:
        if name not in section and known[f"{pattern}.{name}".lstrip(".")].required:
            yield f"{f'{path}.{name}'.lstrip('.')!r} is missing; NeMo RL has no default for it"


def _value_faults(value: Any, key: str, pattern: str, known: Mapping[str, Key]) -> Iterator[str]:
    if fault := _type_fault(value, known[pattern].type):
        yield f"{key} is {value!r}, expected {known[pattern].type}: {fault}"
        return
    if isinstance(value, Mapping) and pattern in _children(known):
        yield from _faults(value, key, pattern, known)
    if isinstance(value, list) and f"{pattern}.[]" in known:
        for index, item in enumerate(value):
            yield from _value_faults(item, f"{key}[{index}]", f"{pattern}.[]", known)


def _children(known: Mapping[str, Key]) -> Mapping[str, tuple[str, ...]]:
    """Known names by the section that they stand in."""
    return _children_of(tuple(known))


@cache
def _children_of(paths: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    sections: dict[str, list[str]] = {}
    for path in paths:
        section, _, name = path.rpartition(".")
        if name != "[]":
            sections.setdefault(section, []).append(name)
    return {section: tuple(names) for section, names in sections.items()}


def _type_fault(value: Any, text: str) -> str:
    if "Any" in text.split(" | "):
        return ""
    try:
        _adapter(text).validate_python(value)
    except ValidationError as error:
        return str(error.errors()[0]["msg"])
    return ""


@cache
def _adapter(text: str) -> TypeAdapter[Any]:
    union: Any = None
    for index, part in enumerate(text.split(" | ")):
        choices = part.startswith("Literal[")
        one = Literal[ast.literal_eval(f"({part[len('Literal[') : -1]},)")] if choices else _TYPES[part]
        union = one if index == 0 else union | one
    return TypeAdapter(union)
