"""Elements as strings. Text becomes markup in one place, ``escaped``, and nowhere without it."""

from __future__ import annotations

import html
from collections.abc import Iterable

VOID = frozenset({"input", "meta"})


class Markup(str):
    """Markup that may stand in the page as it is."""

    __slots__ = ()


def escaped(text: str) -> Markup:
    """Text as markup; half of a surrogate pair, which no file can hold, becomes U+FFFD."""
    return Markup(html.escape(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")))


def el(tag: str, *children: str, **attributes: str | float | bool | None) -> Markup:
    """An element: text is escaped, markup is not.

    ``class_`` is written ``class``, ``data_arm`` ``data-arm``; True gives a bare attribute, None and False none.
    """
    words = [tag]
    for name, value in attributes.items():
        name = name.rstrip("_").replace("_", "-")
        if value is True:
            words.append(name)
        elif value is not None and value is not False:
            words.append(f'{name}="{escaped(str(value))}"')
    opening = f"<{' '.join(words)}>"
    return Markup(opening if tag in VOID else f"{opening}{joined(children)}</{tag}>")


def joined(parts: Iterable[str]) -> Markup:
    """Parts one after the other; text among them is escaped."""
    return Markup("".join(part if isinstance(part, Markup) else escaped(part) for part in parts))
