"""Text templates that users write: ``{name}`` stands for a value, ``{{`` and ``}}`` for braces.

A name is a plain name: no attributes and no indexing, so a template reads nothing but the values it is given.
Strings are put in as they are, whatever braces they hold; lists and mappings become JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from string import Formatter
from typing import Any

from gdpo_nemo.errors import InputError, UnknownNameError


def placeholders(template: str) -> tuple[str, ...]:
    """The names that a template asks for, in order, each once.

    Raises:
        InputError: a brace without its partner, or something other than a name between braces.
    """
    try:
        found = [name for _, name, _, _ in Formatter().parse(template) if name is not None]
    except ValueError as error:
        raise InputError(f"template {template!r}: {error}. Write {{{{ and }}}} for braces that are text") from error
    for name in found:
        if not name.isidentifier():
            raise InputError(
                f"template {template!r} has {{{name}}}; expected a name between braces. "
                "Write {{ and }} for braces that are text"
            )
    return tuple(dict.fromkeys(found))


def fill(template: str, values: Mapping[str, Any]) -> str:
    """The template with its values.

    Raises:
        InputError: as ``placeholders``, or a format such as ``{price:.2f}`` that does not suit the value.
        UnknownNameError: a placeholder without a value.
    """
    names = placeholders(template)
    for name in names:
        if name not in values:
            raise UnknownNameError("placeholder", name, values)
    given = {name: values[name] if isinstance(values[name], int | float) else as_text(values[name]) for name in names}
    try:
        return template.format_map(given)
    except ValueError as error:
        raise InputError(f"template {template!r}: {error}") from error


def as_text(value: Any) -> str:
    """A string as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
