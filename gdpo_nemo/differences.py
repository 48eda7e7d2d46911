"""What differs between two configurations, or other nested mappings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

ABSENT = "(absent)"
"""In place of a value, on the side that lacks the key."""


def differing_keys(old: Any, new: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Dotted keys whose values differ between two nested mappings, with both values."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}, key=str):
            dotted = f"{prefix}.{key}" if prefix else str(key)
            yield from differing_keys(old.get(key, ABSENT), new.get(key, ABSENT), dotted)
    elif old != new and not (old != old and new != new):  # nan is nan, as else_value of a condition may be
        yield prefix, old, new
