"""Which rows of a table are used, said by their columns: no code, so that a configuration holds all of it.

    where:   {ability: [code]}            rows whose value is one of these
    without: {prompt: ["print any"]}      of those, rows in whose text none of these regular expressions is found

A column may lead into mappings (``reward_model.style``). The text of a list or mapping is every text within it, so
that the messages of a chat can be searched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gdpo_nemo.errors import InputError, UnknownNameError


class Selection:
    """The rule of one table.

    Attributes:
        columns: what it looks at.
    """

    def __init__(self, where: Mapping[str, Sequence[Any]], without: Mapping[str, Sequence[str]]) -> None:
        """Check the rule.

        Raises:
            InputError: an expression that is none.
        """
        self.where = where
        try:
            self.without = {column: [re.compile(text) for text in texts] for column, texts in without.items()}
        except re.error as error:
            raise InputError(f"without: {error.pattern!r} is no regular expression: {error}") from error
        self.columns = tuple(dict.fromkeys([*where, *without]))

    def tops(self, known: Sequence[str], name: str) -> list[str]:
        """The columns of a file, of those known, that must be read to decide.

        Raises:
            UnknownNameError: the file has no such column.
        """
        tops = [column if column in known else column.split(".")[0] for column in self.columns]
        for top in tops:
            if top not in known:
                raise UnknownNameError(f"column of {name}", top, known)
        return list(dict.fromkeys(tops))

    def keeps(self, record: Mapping[str, Any], place: str) -> bool:
        """Whether a row is used.

        Raises:
            UnknownNameError: it lacks a column; the message says where.
        """
        return all(value_of(record, column, place) in values for column, values in self.where.items()) and not any(
            pattern.search(text)
            for column, patterns in self.without.items()
            for text in texts_of(value_of(record, column, place))
            for pattern in patterns
        )


def value_of(record: Mapping[str, Any], column: str, place: str) -> Any:
    """The value of a column, or of what a dotted name leads to.

    Raises:
        UnknownNameError: there is none; the message says where.
    """
    if column in record:
        return record[column]
    value: Any = record
    for part in column.split("."):
        if not isinstance(value, Mapping) or part not in value:
            known = value if isinstance(value, Mapping) else record
            raise UnknownNameError(f"column of {place}", column, known)
        value = value[part]
    return value


def texts_of(value: Any) -> Iterator[str]:
    """Every text within a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from texts_of(item)
    elif isinstance(value, Sequence):
        for item in value:
            yield from texts_of(item)
