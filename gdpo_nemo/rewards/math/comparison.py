"""Whether two answers are the same, given whether two expressions are.

Containers are compared here, by type, by number of elements and by order where order counts; the ends go to functions
that say True, False or None (they cannot tell). The caller's process passes those of ``written``; a worker asks the
library as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from gdpo_nemo.rewards.math.answers import read
from gdpo_nemo.rewards.math.exact import number
from gdpo_nemo.rewards.math.notation import key
from gdpo_nemo.rewards.math.shapes import Answer, Choice, Group, Interval, Leaf, Named, Phrase, Prose, Relation

Verdict = bool | None
Ends = Callable[[Leaf, Leaf], Verdict]
Relations = Callable[[Relation, Relation], Verdict]


def compare(gold: Answer, answer: Answer, ends: Ends, relations: Relations) -> Verdict:
    """True or False, or None when ``ends`` or ``relations`` said so where it matters."""
    if isinstance(gold, Prose) or isinstance(answer, Prose):
        return False
    if isinstance(gold, Choice) or isinstance(answer, Choice):
        return _choices(gold, answer, ends, relations)
    if isinstance(gold, Named) or isinstance(answer, Named):
        return _named(gold, answer, ends, relations)
    if isinstance(gold, Phrase) or isinstance(answer, Phrase):
        return _phrases(gold, answer)
    if isinstance(gold, Relation) or isinstance(answer, Relation):
        return _relations(gold, answer, ends, relations)
    if isinstance(gold, Interval) or isinstance(answer, Interval):
        return _intervals(gold, answer, ends, relations)
    if isinstance(gold, Group) or isinstance(answer, Group):
        return _groups(gold, answer, ends, relations)
    return ends(gold, answer)


def _choices(gold: Answer, answer: Answer, ends: Ends, relations: Relations) -> Verdict:
    if isinstance(gold, Choice) and isinstance(answer, Choice):
        if gold.letter != answer.letter:
            return False
        if gold.value is None or answer.value is None:
            return True
        return compare(gold.value, answer.value, ends, relations)
    if isinstance(gold, Choice):
        if isinstance(answer, Leaf | Phrase) and _text(answer).strip("()") == gold.letter.lower():
            return True
        return False if gold.value is None else compare(gold.value, answer, ends, relations)
    assert isinstance(answer, Choice)
    if isinstance(gold, Leaf | Phrase) and _text(gold).strip("()") == answer.letter.lower():
        return True
    return False if answer.value is None else compare(gold, answer.value, ends, relations)


def _text(answer: Leaf | Phrase) -> str:
    return key(answer.text).lower() if isinstance(answer, Leaf) else answer.words


def _named(gold: Answer, answer: Answer, ends: Ends, relations: Relations) -> Verdict:
    if isinstance(gold, Named) and isinstance(answer, Named):
        if not _same_name(gold.name, answer.name):
            return _turned_round(gold, answer, relations)
        return compare(gold.value, answer.value, ends, relations)
    if isinstance(answer, Relation) and isinstance(gold, Named):
        whole = _as_relation(gold)
        return None if whole is None else relations(whole, answer)
    if isinstance(gold, Relation) and isinstance(answer, Named):
        whole = _as_relation(answer)
        return None if whole is None else relations(gold, whole)
    one = gold.value if isinstance(gold, Named) else gold
    other = answer.value if isinstance(answer, Named) else answer
    return compare(one, other, ends, relations)


def _turned_round(gold: Named, answer: Named, relations: Relations) -> Verdict:
    """Whether these are as x = 2y and y = x/2: assignments to different names, each of which the other one mentions."""
    one, other = _as_relation(gold), _as_relation(answer)
    if one is None or other is None or gold.name not in key(other.sides[1]) or answer.name not in key(one.sides[1]):
        return False
    return relations(one, other)


def _same_name(one: str, other: str) -> bool:
    """Equal names; y stands for any f(x), and a name without its subscript or arguments for the full one."""
    if one == other or ("y" in (one, other) and any(name.endswith(")") for name in (one, other))):
        return True
    short, full = sorted((one, other), key=len)
    return len(short) == 1 and full.startswith((f"{short}(", f"{short}_"))


def _as_relation(named: Named) -> Relation | None:
    if not isinstance(named.value, Leaf):
        return None
    return Relation(("=",), (named.name, named.value.text), f"{named.name}={named.value.text}")


def _phrases(gold: Answer, answer: Answer) -> Verdict:
    def words(item: Answer) -> str:
        if isinstance(item, Phrase):
            return item.words.replace(" ", "")
        return "".join(filter(str.isalpha, item.text.lower())) if isinstance(item, Leaf) else ""

    def is_words(item: Answer) -> bool:
        return isinstance(item, Phrase) or (isinstance(item, Leaf) and key(item.text).isalpha())

    return is_words(gold) and is_words(answer) and words(gold) == words(answer) != ""


def _relations(gold: Answer, answer: Answer, ends: Ends, relations: Relations) -> Verdict:
    if isinstance(gold, Relation) and isinstance(answer, Relation):
        return relations(gold, answer)
    if isinstance(gold, Relation) and isinstance(answer, Interval) and answer.variable and "=" not in gold.operators:
        return None
    if isinstance(answer, Relation) and isinstance(gold, Interval) and "=" not in answer.operators:
        return None
    if isinstance(answer, Relation) and isinstance(gold, Leaf) and set(answer.operators) == {"="}:
        return _all(compare(gold, read(side), ends, relations) for side in answer.sides)  # 1 + 1 = 2 for the gold 2
    return False


def _intervals(gold: Answer, answer: Answer, ends: Ends, relations: Relations) -> Verdict:
    one, other = _as_interval(gold), _as_interval(answer)
    if one is None or other is None:
        return False
    if one.variable and other.variable and one.variable != other.variable:
        return False
    if (one.low_closed, one.high_closed) != (other.low_closed, other.high_closed):
        return False
    return _all([compare(one.low, other.low, ends, relations), compare(one.high, other.high, ends, relations)])


def _as_interval(answer: Answer) -> Interval | None:
    if isinstance(answer, Interval):
        return answer
    if isinstance(answer, Group) and len(answer.items) == 1:
        return _as_interval(answer.items[0])
    if isinstance(answer, Group) and answer.kind == "tuple" and len(answer.items) == 2:
        return Interval(answer.items[0], answer.items[1], False, False)
    return None


def _groups(gold: Answer, answer: Answer, ends: Ends, relations: Relations) -> Verdict:
    if not (isinstance(gold, Group) and isinstance(answer, Group)):
        return _one_or_several(gold, answer, ends, relations)
    ordered = _in_order_of_names(gold, answer)
    kinds = {gold.kind, answer.kind}
    if not ordered and len(kinds) > 1 and kinds != {"list", "set"}:
        return False
    if len(gold.items) != len(answer.items) or gold.is_series != answer.is_series:
        return False
    if gold.kind == answer.kind == "ratio":
        return _ratios(gold, answer, ends, relations)
    if ordered:
        pairs = zip(_values(gold.items), _values(answer.items), strict=True)
    elif gold.is_series or gold.kind in ("tuple", "matrix"):
        pairs = zip(gold.items, answer.items, strict=True)
    else:
        return _any_order(gold.items, answer.items, ends, relations)
    return _all(compare(one, other, ends, relations) for one, other in pairs)


def _one_or_several(gold: Answer, answer: Answer, ends: Ends, relations: Relations) -> Verdict:
    """A set or list of one element is that element; a ratio of two numbers is their quotient."""
    for group, other, is_gold in ((gold, answer, True), (answer, gold, False)):
        if not isinstance(group, Group):
            continue
        if len(group.items) == 1 and group.kind in ("set", "union", "list"):
            one = group.items[0]
            return compare(one, other, ends, relations) if is_gold else compare(other, one, ends, relations)
        if group.kind == "ratio" and len(group.items) == 2 and isinstance(other, Leaf) and "/" in _slashed(other):
            terms = [number(item.text) for item in group.items if isinstance(item, Leaf)]
            value = number(other.text)
            if len(terms) == 2 and value and terms[0] and terms[1] and terms[1].value:
                return terms[0].value == value.value * terms[1].value
    return False


def _slashed(leaf: Leaf) -> str:
    return leaf.text.replace(r"\frac", "/")


def _in_order_of_names(gold: Group, answer: Group) -> bool:
    """Whether one side names its elements x, y, ... and the other gives values in that order, without names."""
    for named, other in ((gold, answer), (answer, gold)):
        names = [item.name for item in named.items if isinstance(item, Named)]
        if len(names) != len(named.items) or len(set(names)) != len(names) or len(names) < 2:
            continue
        if any(isinstance(item, Named) for item in other.items):
            continue
        if named is gold or other.kind == "tuple":
            return other.kind in ("tuple", "list")
    return False


def _values(items: Iterable[Answer]) -> list[Answer]:
    return [item.value if isinstance(item, Named) else item for item in items]


def _ratios(gold: Group, answer: Group, ends: Ends, relations: Relations) -> Verdict:
    terms = [
        [number(item.text) if isinstance(item, Leaf) else None for item in group.items] for group in (gold, answer)
    ]
    ones, others = ([term.value for term in side if term is not None and term.value] for side in terms)
    clock = any(isinstance(item, Leaf) and re.fullmatch(r"0\d", item.text) for item in (*gold.items, *answer.items))
    units = any(isinstance(item, Leaf) and item.unit and item.unit.kind for item in (*gold.items, *answer.items))
    if not clock and not units and len(ones) == len(others) == len(gold.items):
        return all(one * others[0] == other * ones[0] for one, other in zip(ones, others, strict=True))
    pairs = zip(gold.items, answer.items, strict=True)
    return _all(compare(one, other, ends, relations) for one, other in pairs)


def _any_order(golds: Sequence[Answer], answers: Sequence[Answer], ends: Ends, relations: Relations) -> Verdict:
    """Each gold element is matched with one of the answer's. Sameness is transitive, so the first match will do."""
    left, open_golds = list(answers), []
    for gold in golds:  # equal text first: most lists are decided here
        if gold in left:
            left.remove(gold)
        else:
            open_golds.append(gold)
    unsure = False
    for gold in open_golds:
        verdicts: list[Verdict] = []
        for answer in left:
            verdicts.append(compare(gold, answer, ends, relations))
            if verdicts[-1]:
                break
        if verdicts and verdicts[-1]:
            left.pop(len(verdicts) - 1)
        elif None in verdicts:
            unsure = True
        else:
            return False
    return None if unsure else True


def _all(verdicts: Iterable[Verdict]) -> Verdict:
    found = []
    for verdict in verdicts:
        if verdict is False:
            return False
        found.append(verdict)
    return None if None in found else True
