"""Brackets of clean text: what stands inside and outside them."""

from __future__ import annotations

import re
from typing import Final

MOST_DEPTH: Final = 12
_OPENING: Final = ("(", "[", "{", r"\{", r"\begin", r"\lfloor", r"\lceil")
_CLOSING: Final = (")", "]", "}", r"\}", r"\end", r"\rfloor", r"\rceil")
_PIECE = re.compile(r"\\text\s*\{[^{}]*\}|\\[a-zA-Z]+|\\.|.", re.DOTALL)


def pieces(text: str) -> list[tuple[str, int]]:
    """The signs of the text, each with the depth of brackets around it (an opening bracket's own is outside)."""
    result, depth = [], 0
    for piece in _PIECE.findall(text):
        if piece in _CLOSING:
            depth -= 1
        result.append((piece, depth))
        if piece in _OPENING:
            depth += 1
    return result


def is_balanced(text: str, strict: bool = False) -> bool:
    """Whether every bracket closes; ``strict``: with its own kind, so that a half-open interval is not balanced."""
    expected: list[str] = []
    for piece, _ in pieces(text):
        if piece in _OPENING:
            expected.append(_CLOSING[_OPENING.index(piece)])
        elif piece in _CLOSING:
            if not expected:
                return False
            other = expected.pop()
            if piece != other and (strict or {piece, other} != {")", "]"}):
                return False
    return not expected


def bare(text: str) -> str:
    """Without spaces and braces around the whole."""
    text = text.strip().rstrip(".,;").strip()
    for _ in range(MOST_DEPTH):
        if not (text.startswith("{") and text.endswith("}") and encloses(text)):
            break
        text = text[1:-1].strip()
    return text


def encloses(text: str) -> bool:
    """Whether the first bracket closes with the last."""
    levels = pieces(text)
    return len(levels) > 1 and all(depth > 0 for _, depth in levels[1:-1]) and levels[-1][1] == 0


def hide(levels: list[tuple[str, int]]) -> str:
    """The text with everything inside brackets blanked, every sign in its place."""
    return "".join(piece if depth == 0 else "\0" * len(piece) for piece, depth in levels)


def cut_at(text: str, outside: str, separator: str) -> list[str]:
    """Parts of the text between the separators outside brackets."""
    parts, start = [], 0
    for cut in re.finditer(separator, outside):
        parts.append(text[start : cut.start()].strip())
        start = cut.end()
    return [*parts, text[start:].strip()]
