"""The two releases of bfcl-eval that are supported, and what proves that an installed one is whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gdpo_nemo.errors import InputError, UnknownNameError

REQUIREMENTS: Final = (
    "filelock==3.20.0",
    "mpmath==1.3.0",
    "tenacity==9.2.1",
    "tqdm==4.70.1",
    "tree-sitter==0.21.3",
    "tree-sitter-java==0.21.0",
    "tree-sitter-javascript==0.21.4",
    "typing-extensions==4.16.0",
)
"""What the checkers import. The other hundred and forty packages serve models, which we do not need."""


@dataclass(frozen=True)
class Release:
    """One release of bfcl-eval.

    Attributes:
        version: of the leaderboard, ``v3`` or ``v4``.
        package: the distribution's version.
        categories: that can be run here -> number of entries.
        absent: categories of the leaderboard that need the web or an index of memories -> number of entries.
        hashes: ``data`` and ``code`` of the installed package, see ``environment.content_hashes``.
    """

    version: str
    package: str
    categories: Mapping[str, int]
    absent: Mapping[str, int]
    hashes: Mapping[str, str]

    @property
    def requirement(self) -> str:
        """For pip."""
        return f"bfcl-eval=={self.package}"

    def chosen(self, names: list[str] | None) -> tuple[str, ...]:
        """The categories of a list of names, in the release's order; all without one.

        Args:
            names: of categories, or ``single_turn``, ``live``, ``non_live``, ``multi_turn``, ``all``.

        Raises:
            UnknownNameError: no such category.
            InputError: one that cannot be run here.
        """
        if not names:
            return tuple(self.categories)
        collections = {
            "all": list(self.categories),
            "live": [name for name in self.categories if name.startswith("live_")],
            "multi_turn": [name for name in self.categories if is_multi_turn(name)],
            "single_turn": [name for name in self.categories if not is_multi_turn(name)],
        }
        collections["non_live"] = [name for name in collections["single_turn"] if not name.startswith("live_")]
        wanted: set[str] = set()
        for name in names:
            if name in self.absent:
                raise InputError(f"{name} needs the web or an index of memories, and is not run here (docs/bfcl.md)")
            if name not in collections and name not in self.categories:
                raise UnknownNameError(f"category of BFCL {self.version}", name, [*self.categories, *collections])
            wanted.update(collections.get(name, [name]))
        return tuple(name for name in self.categories if name in wanted)


def is_multi_turn(category: str) -> bool:
    """Whether the user comes back, and tools answer."""
    return category.startswith("multi_turn")


def is_irrelevance(category: str) -> bool:
    """Whether no tool fits."""
    return category.endswith("irrelevance")


SINGLE_TURN: Final = {
    "multiple": 200,
    "parallel": 200,
    "parallel_multiple": 200,
    "irrelevance": 240,
    "live_simple": 258,
    "live_multiple": 1053,
    "live_parallel": 16,
    "live_parallel_multiple": 24,
}
"""Categories of one turn that have as many questions in both releases."""
MULTI_TURN: Final = {
    "multi_turn_base": 200,
    "multi_turn_miss_func": 200,
    "multi_turn_miss_param": 200,
    "multi_turn_long_context": 200,
}
V3 = Release(
    "v3",
    "2025.8.6.2",
    {
        "simple": 400,
        "java": 100,
        "javascript": 50,
        **SINGLE_TURN,
        "live_irrelevance": 882,
        "live_relevance": 18,
        **MULTI_TURN,
    },
    {},
    {
        "data": "ca00aa6b53a9652ed7a8f006f734c754efc64a2a8f28c36e8aa32d393743fade",
        "code": "200f7aa04ba39f7f03e6664f5c81ecafe5e657cc1e758cb57c9950e2aca1ca2c",
    },
)
V4 = Release(
    "v4",
    "2026.3.23",
    {
        "simple_python": 400,
        "simple_java": 100,
        "simple_javascript": 50,
        **SINGLE_TURN,
        "live_irrelevance": 884,
        "live_relevance": 16,
        **MULTI_TURN,
    },
    {
        "web_search_base": 100,
        "web_search_no_snippet": 100,
        "memory_kv": 155,
        "memory_vector": 155,
        "memory_rec_sum": 155,
    },
    {
        "data": "c3d4bb9b60b6dbadef75fe9713a5f9ac6e2019afa0b1a9f87d2b70fbf9e36cac",
        "code": "7abe74dabfa81afe31df5b17a1811d231d4e7ee4b9eb38c29970acf0210ec7d7",
    },
)
RELEASES: Final[dict[str, Release]] = {"v3": V3, "v4": V4}
