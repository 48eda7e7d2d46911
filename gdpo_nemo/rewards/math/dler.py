r"""The grader of the paper's group (DLER), rebuilt from its description, for reproducing their numbers.

The last box after the first ``</think>`` is right when any of three checks accepts it for any gold:

    math-verify on both bare strings: outside a LaTeX environment it reads plain numbers only, so 2^{2023} = 2^{2024}
    string equality after the normalisation of the MATH benchmark (Hendrycks et al. 2021, appendix)
    element-wise SymPy equality after the normalisation of the PRM800K grader (Lightman et al. 2023, appendix)

Its mistakes are part of it: on 124 hand-checked cases it accepts 17 wrong answers and rejects 35 right ones. Runs in a
worker.
"""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = "degree|cm|centimeter|meter|mile|second|minute|hour|day|week|month|year|foot|feet|inch|yard|liter"
_LARGE: Final = {"million": "*10^6", "billion": "*10^9", "trillion": "*10^12"}
_MOST_UNKNOWNS: Final = 2


def accepts(gold: str, answer: str) -> bool:
    """Whether any of the three checks takes the answer for the gold."""
    return _by_library(gold, answer) or _as_in_math(gold) == _as_in_math(answer) or _by_sympy(gold, answer)


def _by_library(gold: str, answer: str) -> bool:
    from math_verify import parse, verify

    try:
        reference, target = (parse(text, parsing_timeout=None) for text in (gold, answer))
        return bool(verify(reference, target, timeout_seconds=None))
    except (ValueError, TypeError, ArithmeticError, AttributeError, NotImplementedError):
        return False


def _as_in_math(text: str) -> str:
    """The normal form of the MATH benchmark: strings of one form are equal answers."""
    whole = re.fullmatch(r"\\text\{(.+?)\}", text.strip())
    text = whole[1].strip() if whole else text.strip()
    for old, new in (
        ("\n", ""), (r"\!", ""), (r"\\", "\\"), ("tfrac", "frac"), ("dfrac", "frac"), (r"\left", ""), (r"\right", ""),
        (r"^{\circ}", ""), (r"^\circ", ""), (r"\$", ""), (r"\%", ""), ("%", ""), (" .", " 0."), ("{.", "{0."),
    ):  # fmt: skip
        text = text.replace(old, new)
    text = text.split(r"\text{ ")[0]
    text = f"0{text}" if text.startswith(".") else text
    name, equals, value = text.partition("=")
    text = value if equals and "=" not in value and len(name) <= 2 else text
    text = re.sub(r"\\sqrt(\w)", r"\\sqrt{\1}", text).replace(" ", "")
    text = re.sub(r"\\frac(\w)(\w)", r"\\frac{\1}{\2}", text)
    text = re.sub(r"\\frac(\w)\{", r"\\frac{\1}{", text)
    text = r"\frac{1}{2}" if text == "0.5" else text
    return re.sub(r"^(-?\d+)/(-?\d+)$", r"\\frac{\1}{\2}", text)


def _by_sympy(gold: str, answer: str) -> bool:
    one, other = _plain(gold), _plain(answer)
    if one == other:
        return bool(one)
    if not other:
        return False
    ones, others = _elements(one), _elements(other)
    if len(ones) > 1 and (one[0], one[-1]) != (other[0], other[-1]):
        return False
    return len(ones) == len(others) and all(map(_same_element, ones, others))


def _plain(text: str) -> str:
    """The normal form of the PRM800K grader: lower case text without LaTeX, spaces, units and braces."""
    whole = re.fullmatch(r"\\text\{(.+?)\}", text.strip())
    text = whole[1] if whole else text
    for old, new in (
        (r"\%", ""), ("%", ""), (r"\$", ""), ("$", ""), (" or ", " , "), (" and ", " , "), (r",\!", ""), (r"\!", ""),
        *_LARGE.items(),
    ):  # fmt: skip
        text = text.replace(old, new)
    text = re.sub(rf"(?:{_UNITS})(?:es|s)? *(?:\^[0-9]+)?", "", text)
    text = re.sub(r"\^ *\{?\\circ\}?", "", text)
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    text = _without_latex(text) if "\\" in text else text
    text = re.sub(r"- *", "-", text)
    text = re.sub(r"([0-9]) +([0-9])", r"\1+\2", text)
    text = text.replace(" ", "").replace("{", "").replace("}", "").lower()
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)
    is_float = re.fullmatch(r"-?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,2})?", text) and len(text) < 300
    return str(int(float(text))) if is_float and float(text).is_integer() else text


def _without_latex(text: str) -> str:
    text = re.sub(r"\\[td]frac", r"\\frac", text)
    text = re.sub(r"\\frac(\w)(\w)", r"\\frac{\1}{\2}", text).replace(r"\frac", r" \frac")
    for _ in range(20):
        replaced = re.sub(r"\\frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}", r"(\1)/(\2)", text)
        replaced = re.sub(r"\\sqrt\s*\{([^{}]*)\}", r"sqrt(\1)", replaced)
        if replaced == text:
            break
        text = replaced
    text = re.sub(r"\\(?:text|mathrm|mathbf)\s*\{([^{}]*)\}", r"\1", text)
    for old, new in (
        (r"\pi", "pi"),
        (r"\infty", "inf"),
        (r"\cdot", "*"),
        (r"\times", "×"),
        (r"\cup", "U"),
        (r"\{", "{"),
    ):
        text = text.replace(old, new)
    return text.replace("\\", "").strip()


def _elements(text: str) -> list[str]:
    bracketed = len(text) > 2 and text[0] in "([" and text[-1] in ")]" and not set(text[1:-1]) & set("()[]")
    return [part.strip() for part in text[1:-1].split(",")] if bracketed else [text]


def _same_element(gold: str, answer: str) -> bool:
    fraction, integer = re.compile(r"-?[0-9]+.?/0*[1-9][0-9]*.?"), re.compile(r"-?\d+")
    if fraction.fullmatch(gold) and fraction.fullmatch(answer):
        return gold == answer
    if bool(integer.fullmatch(gold)) != bool(integer.fullmatch(answer)):
        return False
    return _same_value(gold, answer)


def _same_value(gold: str, answer: str) -> bool:
    import sympy
    from sympy.parsing import sympy_parser

    difference = f"({gold})-({answer})"
    letters = set(re.sub("sqrt|frac", "", difference)) & set("abcdefghijklmnopqrstuvwxyz")
    if len(letters) > _MOST_UNKNOWNS or any(bad in difference for bad in ("^{", "^(", "__", "import", "lambda", ".a")):
        return False
    if re.search(r"\^[0-9]+\^|\^[0-9][0-9]+", difference):
        return False
    if not re.fullmatch(r"[\da-z+\-*/^(),!.]*", difference) or re.search(r"\.[a-z]", difference):
        return False  # parse_expr evaluates what it reads
    rules = (*sympy_parser.standard_transformations, sympy_parser.implicit_multiplication_application)
    try:
        value = sympy_parser.parse_expr(difference.replace("^", "**"), transformations=rules)
        return bool(sympy.simplify(value) == 0)
    except Exception:  # parse_expr runs what it is given: any error of Python may come
        return False
