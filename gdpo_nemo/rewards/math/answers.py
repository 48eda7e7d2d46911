"""Take clean text apart into what an answer is made of (``gdpo_nemo.rewards.math.shapes``); nothing is computed."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from gdpo_nemo.rewards.math.brackets import MOST_DEPTH, bare, cut_at, encloses, hide, pieces
from gdpo_nemo.rewards.math.notation import key
from gdpo_nemo.rewards.math.shapes import Answer, Choice, Group, Interval, Leaf, Named, Phrase, Prose, Relation
from gdpo_nemo.rewards.math.units import split_unit

_MOST_ITEMS: Final = 200
_MOST_WORDS: Final = 8
_JOINERS = re.compile(r"\\text\s*\{[\s,;]*(and|or|,)[\s,;]*\}|\\(?:lor|vee)(?![a-z])|\\(?:land|wedge)(?![a-z])|[,;]")
_WORDS_JOIN = re.compile(r"(?<=[\s\d)}])(?:and|or)(?=[\s\d(\\])")
_CHOICE = re.compile(
    r"(?:\\text\s*\{\s*\(([A-J])\)\s*\}|\\text\s*\{\s*([A-J])[.):]\s*\}|\(\\text\{([A-J])\}\)|\(([A-J])\)"
    r"|([A-J])[.)](?=\s))\s*:?(.*)",
    re.DOTALL,
)
_STRICT_NAME = re.compile(
    r"(?:[a-zA-Z]|\\(?!text|frac|sqrt|infty|pi)[a-zA-Z]+|\\text\{[^{}]*\})'*(?:_(?:\{[^{}]*\}|[a-zA-Z\d]|\\[a-zA-Z]+))?'*"
    r"\s*(?:\([a-zA-Z\s,\\]*\))?"
)
_LOOSE_NAME = re.compile(r"[a-zA-Z\s\\'|()_{},]+\d?\}?|\\angle.*")
_WORD = re.compile(r"(?<![a-zA-Z\\])[a-zA-Z]{3,}(?![a-zA-Z])")
_BASES: Final = {
    name: str(number)
    for number, name in enumerate(("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"), start=2)
} | {"sixteen": "16"}
_VECTOR = re.compile(r"\\begin\s*\{([bp]?matrix|array)\}(?:\s*\{[clr|\s]*\})?(.*)\\end\s*\{\1\}", re.DOTALL)


def read(text: str) -> Answer:
    """Take clean text apart. Any text will do."""
    return _read(text, 0)


def _read(text: str, depth: int) -> Answer:
    text = bare(text)
    if depth > MOST_DEPTH or not text:
        return Prose()
    text = re.sub(
        r"^(?:\\approx|\\sim(?:eq)?|\\doteq|\\equiv|\\therefore|\\implies|\\Rightarrow|=|:)\s*", "", text
    ).strip()
    text = re.sub(r"^\\text\s*\{[^{}\d]*(?:\bis|\bare|:|=)\s*\}\s*(?=.)", "", text)
    text = re.sub(r"^\\text\s*\{\s*(?:about|around|approximately|roughly|exactly)\s*\}\s*(?=.)", "", text)
    parts, joiners = _split(text)
    choice = None if any(_CHOICE.fullmatch(part) for part in parts[1:]) else _choice(text, depth)
    if choice is not None:
        return choice
    if len(parts) > _MOST_ITEMS:
        return Prose()
    if len(parts) > 1:
        return _several(parts, joiners, depth)
    return _single(parts[0] if parts else text, depth)


def _choice(text: str, depth: int) -> Choice | None:
    found = _CHOICE.fullmatch(text)
    if found:
        letter = next(group for group in found.groups()[:5] if group)
        rest = found[6].strip()
        if (
            rest.startswith(("+", "-", "*", "/", "^", "=", "!"))
            or _JOINERS.match(rest)
            or re.match("(?:and|or) ", rest)
        ):
            return None
        return Choice(letter, _read(rest, depth + 1) if rest else None)
    bare = re.fullmatch(r"\\text\s*\{\s*([A-J])\s*\}", text)
    return Choice(bare[1], None) if bare else None


def _split(text: str) -> tuple[list[str], set[str]]:
    """At the commas, semicolons, "and" and "or" outside brackets. A thousands separator is no comma."""
    if re.fullmatch(r"[+-]?¤?\d{1,3}(?:,\d{3})+(?:\.\d+)?(?:[^,]*)", text):
        return [text], set()
    outside = hide(pieces(text))
    if ";" in outside:
        return [part for part in cut_at(text, outside, ";") if part], {","}
    parts, joiners, start = [], set(), 0
    cuts = [*_JOINERS.finditer(outside), *_WORDS_JOIN.finditer(outside)]
    for cut in sorted(cuts, key=lambda cut: cut.start()):
        if cut.start() < start:  # a word inside the \\text that was just cut out
            continue
        parts.append(text[start : cut.start()])
        word = re.sub(r"\\text|[\s{},\\]", "", cut.group())
        joiners.add({"lor": "or", "vee": "or", "land": "and", "wedge": "and"}.get(word, word) or ",")
        start = cut.end()
    parts.append(text[start:])
    return [part for part in map(str.strip, parts) if part], joiners


def _several(parts: list[str], joiners: set[str], depth: int) -> Answer:
    if any(len(_WORD.findall(re.sub(r"\\text\{[^{}]*\}", "", part))) > 2 for part in parts):
        return Prose()
    items = [_read(part, depth + 1) for part in parts]
    if isinstance(items[0], Named) and not any(isinstance(item, Named) for item in items[1:]):
        items[0] = items[0].value
    modulus = items[-1].modulus if isinstance(items[-1], Leaf) else ""
    if modulus:
        items = [replace(item, modulus=modulus) if isinstance(item, Leaf) else item for item in items]
    if "or" in joiners and any(isinstance(item, Interval) for item in items):
        return Group("union", tuple(_as_set(item) for item in items))
    if "and" in joiners and len(items) == 2 and all(isinstance(item, Interval) and item.variable for item in items):
        met = _meet(*items)
        if met is not None:
            return met
    flat = [inner for item in items for inner in (item.items if _is_list(item) else (item,))]  # type: ignore[union-attr]
    return Group("list", tuple(flat), is_series=any(key(part) == r"\ldots" for part in parts))


def _is_list(item: Answer) -> bool:
    return isinstance(item, Group) and item.kind == "list"


def _as_set(item: Answer) -> Answer:
    if isinstance(item, Named):
        return Group("set", (item.value,))
    return replace(item, variable="") if isinstance(item, Interval) else item


def _meet(one: Answer, other: Answer) -> Interval | None:
    """Two one-sided inequalities of one variable that hold together."""
    assert isinstance(one, Interval) and isinstance(other, Interval)
    for low, high in ((one, other), (other, one)):
        if low.variable == high.variable and _is_infinite(low.high) and _is_infinite(high.low):
            return Interval(low.low, high.high, low.low_closed, high.high_closed, low.variable)
    return None


def _is_infinite(bound: Answer) -> bool:
    return isinstance(bound, Leaf) and bound.text.lstrip("+-") == r"\infty"


def _single(text: str, depth: int) -> Answer:
    text = bare(text)
    levels = pieces(text)
    outside = hide(levels)
    related = _related(text, outside, depth)
    if related is not None:
        return related
    if r"\cup" in outside:
        parts = cut_at(text, outside, r"\\cup(?![a-z])")
        return Group("union", tuple(_as_set(_read(part, depth + 1)) for part in parts))
    if re.search(r"\\(?:pm|mp)(?![a-z])", outside):
        if len(re.findall(r"\\(?:pm|mp)(?![a-z])", text)) > 2:
            return Leaf(text)
        signs = [re.sub(r"\\pm(?![a-z])", one, re.sub(r"\\mp(?![a-z])", other, text)) for one, other in ("+-", "-+")]
        return Group("list", tuple(_read(re.sub(r"^\s*\+", "", sign), depth + 1) for sign in signs))
    enclosed = _enclosed(text, levels, depth)
    if enclosed is not None:
        return enclosed
    if ":" in outside and not re.search(r"(?<![\\a-z])[a-z]{2}", outside):
        return Group("ratio", tuple(_read(part, depth + 1) for part in cut_at(text, outside, ":")))
    return _end(text)


def _related(text: str, outside: str, depth: int) -> Answer | None:
    """An assignment, an inequality, an equation or a membership."""
    member = re.search(r"\\in(?![a-zA-Z])", outside)
    if member and _is_name(text[: member.start()]):
        return _read(text[member.end() :], depth + 1)
    pattern = r"\\(?:le|ge|ne|equiv)(?![a-zA-Z])|[=<>]|\\approx(?![a-z])"
    found = list(re.finditer(pattern, outside))
    if not found:
        return None
    operators = tuple(re.sub(r"\\approx", "=", cut.group()) for cut in found)
    sides = tuple(cut_at(text, outside, pattern))
    if not all(sides):
        return Prose() if not any(sides) else Relation(operators, sides, text)
    if operators == (r"\equiv",) and _is_name(sides[0]):
        return _read(sides[-1], depth + 1)
    if set(operators) == {"="} and (_is_name(sides[0]) or _is_loose(sides[0], sides[-1])):
        return Named(_name(sides[0]), _read(sides[-1], depth + 1))
    if set(operators) == {"="} and _is_name(sides[-1]):
        return Named(_name(sides[-1]), _read(sides[0], depth + 1))
    if operators == (r"\ne",) and _is_name(sides[0]):
        return _all_but(_read(sides[1], depth + 1), _name(sides[0]))
    return _interval(operators, sides, depth) or Relation(operators, sides, text)


def _is_name(text: str) -> bool:
    text = bare(text)
    if text.startswith("(") and text.endswith(")") and "," in text:
        return all(_STRICT_NAME.fullmatch(part.strip()) for part in text[1:-1].split(","))
    return bool(_STRICT_NAME.fullmatch(text))


def _is_loose(name: str, value: str) -> bool:
    """A name of several letters counts where a number follows: in SRAC = LRAC both sides are the answer."""
    return (
        r"\frac" not in name and bool(_LOOSE_NAME.fullmatch(name)) and bool(re.search(r"\d", value)) and len(name) <= 40
    )


def _name(text: str) -> str:
    return key(re.sub(r"\\text\s*\{([^{}]*)\}", r"\1", bare(text))).replace("{", "").replace("}", "")


def _interval(operators: tuple[str, ...], sides: tuple[str, ...], depth: int) -> Interval | None:
    low: Answer = Leaf(r"-\infty")
    high: Answer = Leaf(r"\infty")
    upward, downward = ("<", r"\le"), (">", r"\ge")
    if not (set(operators) <= set(upward) or set(operators) <= set(downward)):
        return None
    if set(operators) <= set(downward):
        swap = {">": "<", r"\ge": r"\le"}
        operators, sides = tuple(swap[operator] for operator in reversed(operators)), sides[::-1]
    closed = [operator == r"\le" for operator in operators]
    if len(sides) == 2 and _is_name(sides[0]):
        return Interval(low, _read(sides[1], depth + 1), False, closed[0], _name(sides[0]))
    if len(sides) == 2 and _is_name(sides[1]):
        return Interval(_read(sides[0], depth + 1), high, closed[0], False, _name(sides[1]))
    if len(sides) == 3 and _is_name(sides[1]):
        bounds = _read(sides[0], depth + 1), _read(sides[2], depth + 1)
        return Interval(*bounds, closed[0], closed[1], _name(sides[1]))
    return None


def _enclosed(text: str, levels: list[tuple[str, int]], depth: int) -> Answer | None:
    """A set, tuple, interval or matrix that is the whole of the text."""
    vector = _VECTOR.fullmatch(text)
    if vector:
        return _matrix(vector[2], depth)
    if key(text) in (r"\emptyset", r"\{\}"):
        return Group("set", ())
    if key(text) in (r"\mathbb{R}", r"\text{allrealnumbers}", r"\text{allreals}"):
        return Interval(Leaf(r"-\infty"), Leaf(r"\infty"), False, False)
    without = re.fullmatch(r"\\mathbb\{R\}\s*(?:\\setminus|\\backslash|-)\s*\\\{([^,;]*)\\\}", text)
    if without:
        return _all_but(_read(without[1], depth + 1))
    if not encloses(text):
        return None
    opening, closing = levels[0][0], levels[-1][0]
    inner = text[len(opening) : -len(closing)].strip()
    outside = hide(pieces(inner))
    if (opening, closing) == (r"\{", r"\}"):
        built = re.search(r"\\mid(?![a-z])|\||:", outside)
        if built and _is_name(re.sub(r"\\in\s*\\mathbb\{R\}", "", inner[: built.start()])):
            return _read(inner[built.end() :], depth + 1)
        items = [_read(part, depth + 1) for part in cut_at(inner, outside, "[,;]")]
        flat = [each for item in items for each in (item.items if _is_list(item) else (item,))]  # type: ignore[union-attr]
        return Group("set", tuple(flat), is_series=r"\ldots" in outside)
    if opening not in ("(", "[") or closing not in (")", "]"):
        return None
    parts = cut_at(inner, outside, "[,;]")
    if len(parts) == 1:
        return _read(inner, depth + 1) if opening + closing == "()" or _VECTOR.fullmatch(inner) else None
    items = [_read(part, depth + 1) for part in parts]
    if len(items) == 2 and opening + closing != "()":
        return Interval(items[0], items[1], opening == "[", closing == "]")
    return Group("tuple", tuple(items))


def _all_but(value: Answer, variable: str = "") -> Group:
    """All real numbers except one."""
    below = Interval(Leaf(r"-\infty"), value, False, False, variable)
    return Group("union", (below, Interval(value, Leaf(r"\infty"), False, False, variable)))


def _matrix(body: str, depth: int) -> Group:
    rows = [row.split("&") for row in body.split("¶") if row.strip()]
    cells = [[_read(cell, depth + 1) for cell in row] for row in rows]
    if len(cells) == 1 or all(len(row) == 1 for row in cells):
        return Group("tuple", tuple(cell for row in cells for cell in row))
    return Group("matrix", tuple(Group("tuple", tuple(row)) for row in cells))


def _end(text: str) -> Answer:
    """A number, an expression or a phrase."""
    words = re.sub(r"\\text\s*\{([^{}]*)\}", r" \1 ", text)
    plain = re.fullmatch(r"[\sa-zA-Z'.,\-/]+", words)
    if plain and (r"\text" in text or len(re.sub(r"[^a-zA-Z]", "", words)) >= 4) and re.search("[a-zA-Z]{2}", words):
        return Phrase(_plain_words(words)) if len(words.split()) <= _MOST_WORDS else Prose()
    congruent = re.fullmatch(
        r"(.*?)\s*(?:\\pmod\s*\{?|\(\s*(?:\\bmod|\\mod|\\text\{\s*mod\s*\}|mod)\s*)([^(){}]+?)[)}]?", text
    )
    if congruent and congruent[1]:
        return Leaf(congruent[1].strip(), modulus=congruent[2].strip())
    text = re.sub(r"\\mod(?![a-z])|\\text\{\s*mod\s*\}", r"\\bmod", text)
    percent = re.fullmatch(r"(.*)%\s*", text)
    if percent:
        return Leaf(percent[1].strip(), percent=True)
    text, unit = split_unit(text)
    based = re.fullmatch(r"([\dA-F]+)_\s*\{?\s*(?:\\text\s*\{)?\s*(\d{1,2}|[a-z]+)\s*\}*", text)
    if based and (based[2].isdigit() or based[2] in _BASES):
        return Leaf(based[1], unit, base=_BASES.get(based[2], based[2]))
    if unit is None and len(_WORD.findall(re.sub(r"\\text\{[^{}]*\}", "", text))) > 2:
        return Prose()
    return Leaf(text, unit)


def _plain_words(words: str) -> str:
    words = re.sub(r"[^a-z\s]", " ", words.lower())
    return " ".join(word for word in words.split() if word not in ("the", "a", "an"))
