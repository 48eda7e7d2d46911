"""Blocks of a configuration: what every one refuses, and which key of the user's is wrong."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, ClassVar, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, Tag, ValidationError, field_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from gdpo_nemo.errors import ConfigError

TAG = "choice:"
"""What marks, in the location of a validation error, the choice between several types of one value."""


class Strict(BaseModel):
    """Base of every block: frozen; an unknown key is an error, and so is true or false in the place of a number.

    Attributes:
        stands_under: the key of a configuration that the block is found under, wherever it is validated by itself.
    """

    stands_under: ClassVar[str] = ""
    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="wrap")
    @classmethod
    def _check_truth_values(cls, given: Any, handler: Callable[[Any], Any]) -> Any:
        taken = handler(given)
        problem = PydanticCustomError("truth_value", "Input should be a number, not a truth value")
        errors = [InitErrorDetails(type=problem, loc=loc, input=value) for loc, value in _read_as_numbers(given, taken)]
        if errors:
            raise ValidationError.from_exception_data(cls.__name__, errors)
        return taken


def _read_as_numbers(given: Any, taken: Any, *loc: str | int) -> Iterator[tuple[tuple[str | int, ...], bool]]:
    """Where a truth value was read as 1 or 0, and that value."""
    if isinstance(given, bool):
        if not isinstance(taken, bool):
            yield loc, given
    elif isinstance(given, Mapping):
        for key, value in given.items():
            inner = taken.get(key, value) if isinstance(taken, Mapping) else getattr(taken, str(key), value)
            yield from _read_as_numbers(value, inner, *loc, str(key))
    elif isinstance(given, Sequence) and isinstance(taken, Sequence) and not isinstance(given, str):
        for i, pair in enumerate(zip(given, taken, strict=False)):
            yield from _read_as_numbers(*pair, *loc, i)


ConfigT = TypeVar("ConfigT", bound=BaseModel)


def validate(model: type[ConfigT], data: Mapping[str, Any], origin: str = "configuration") -> ConfigT:
    """Turn a mapping into a typed block, or say which key is wrong and what was meant.

    Raises:
        ConfigError: an unknown key (with the nearest known one), a wrong type or a value out of range.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        lines = [_explain(model, item) for item in error.errors()]
        raise ConfigError(f"{origin} is wrong:\n" + "\n".join(f"  {line}" for line in lines)) from error


def _explain(model: type[BaseModel], item: Any) -> str:
    tagged = [str(part) for part in item["loc"]]
    above = getattr(model, "stands_under", "")
    location = [*([above] if above else []), *(part for part in tagged if not part.startswith(TAG))]
    key = ".".join(location)
    if item["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        siblings = _keys_at(model, tagged[:-1])
        near = difflib.get_close_matches(location[-1], siblings, n=1)
        parent = ".".join(location[:-1])
        hint = f" Did you mean {'.'.join([*location[:-1], near[0]])!r}?" if near else ""
        return f"unknown key {key!r}.{hint} Known under {parent or 'the top level'!r}: {', '.join(siblings)}."
    return f"{key}: {item['msg']} (got {item['input']!r})" if tagged else str(item["msg"])


def _keys_at(model: Any, location: Sequence[str]) -> list[str]:
    for part in location:
        if part.startswith(TAG):  # which of several worlds, or of several schedules
            model = next(_bare(one) for one in model.__args__ if any(part == mark.tag for mark in _marks(one)))
            continue
        fields = _fields(model)
        if part not in fields:
            continue  # a key of a mapping such as rewards.<name>: its value type was entered already
        model = fields[part]
        for argument in getattr(model, "__args__", ()):
            if _fields(argument):
                model = argument
    return list(_fields(model))


def _marks(annotated: Any) -> list[Tag]:
    return [mark for mark in getattr(annotated, "__metadata__", ()) if isinstance(mark, Tag)]


def _bare(annotated: Any) -> Any:
    return getattr(annotated, "__origin__", annotated)


def _fields(model: Any) -> dict[str, Any]:
    if isinstance(model, type) and issubclass(model, BaseModel):
        return {name: field.annotation for name, field in model.model_fields.items()}
    return get_type_hints(model) if is_dataclass(model) else {}
