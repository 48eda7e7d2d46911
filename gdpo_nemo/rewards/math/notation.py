r"""One spelling for what LaTeX and plain text write in many ways: spaces, fractions, Unicode, functions, separators.

``clean`` leaves LaTeX that the rest of the grader reads, with four marks of its own: ``*`` for a product, ``°`` for
degrees, ``¶`` for a line break and ``¤`` for a currency sign (a bare ``$`` is mathematics, not money).
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_CHARACTERS: Final = str.maketrans(
    {
        "−": "-", "–": "-", "—": "-", "‐": "-", "﹣": "-", "×": "*", "·": "*", "⋅": "*", "∗": "*", "÷": "/",
        "π": r"\pi ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "⩽": r"\le ", "⩾": r"\ge ", "≠": r"\ne ",
        "≈": r"\approx ", "≡": r"\equiv ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ",
        "±": r"\pm ", "…": r"\ldots ", "ℝ": r"\mathbb{R}", "√": r"\sqrt ", "∛": r"\sqrt[3] ", "′": "'",
        "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "θ": r"\theta ", "λ": r"\lambda ", "φ": r"\phi ",
        "½": r"\frac{1}{2}", "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}",
        "，": ",", "、": ",", "；": ";", "（": "(", "）": ")", "：": ":", "。": ".", "º": "°",
        "€": "¤", "£": "¤", "⟨": "(", "⟩": ")",
    }
)  # fmt: skip
_SUPERSCRIPTS: Final = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_FUNCTIONS = "arcsin|arccos|arctan|sinh|cosh|tanh|sin|cos|tan|cot|sec|csc|ln|log|exp|pi|theta|alpha|beta|gamma"

_RULES: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\\\(?:\[[^\[\]]*\])?", "¶"),
        (r"\\(?:displaystyle|textstyle|left|right|limits|[bB]igg?[lrm]?|middle)(?![a-zA-Z])\.?", ""),
        (r"\\(?:phantom|vphantom|hphantom|label|tag)\*?\{[^{}]*\}", ""),
        (r"(?<=\d)(?:\\[,;:! ]|~|\{,\}|\{\\,\}|,\\!\s*|\{,\}\\!|,\\,)(?=\d{3}(?!\d))", ""),
        (r"(?<=\d),\\!\s?(?=\d{3}(?!\d))", ""),
        (r"\{,\}", ","),
        (r"\\!", ""),
        (r"\\[,;:> ]|~|\\(?:quad|qquad|thinspace|enspace|hspace\{[^{}]*\})(?![a-zA-Z])|[\u00a0\u2009\u202f]", " "),
        (r"\\(?:mathrm|mathbf|mathit|mathsf|textbf|textit|textrm|textsf|texttt|textnormal|mbox|hbox|operatorname\*?"
         r"|boldsymbol|bm|emph|bold|mathnormal|rm)\s*\{", r"\\text{"),
        (r"\\text\s*\{\s*([+-]?[\d.,]+|[eid])\s*\}", r"\1"),
        (r"\\text\s*\{\s*\}", " "),
        (r"\\\$|\\text\{\s*\\?\$\s*\}|\\textdollar|\\pounds|\\euro(?![a-z])", "¤"),
        (r"\$", ""),
        (r"\\%|\\text\{\s*\\?%\s*\}|\\text\{\s*percent\s*\}|(?<=\d)\s*percent\b", "%"),
        (r"\\[dtc]frac(?![a-z])", r"\\frac"),
        (r"\\[dt]binom(?![a-z])", r"\\binom"),
        (r"\\(?:cdot|times|ast)(?![a-zA-Z])", "*"),
        (r"\*\*", "^"),
        (r"\\div(?![a-zA-Z])", "/"),
        (r"\\(?:leqslant|leq|leqq)(?![a-zA-Z])|<=", r"\\le "),
        (r"\\(?:geqslant|geq|geqq)(?![a-zA-Z])|>=", r"\\ge "),
        (r"\\lt(?![a-zA-Z])", "<"),
        (r"\\gt(?![a-zA-Z])", ">"),
        (r"\\neq(?![a-zA-Z])", r"\\ne "),
        (r"\s*\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-z])|\{°\})|\\degree(?![a-z])|\\textdegree", "°"),
        (r"\\(?:cdots|dots|dotsc|dotsb|hdots)(?![a-zA-Z])|\.\.\.", r"\\ldots "),
        (r"\\(?:lbrace)(?![a-zA-Z])", r"\\{"),
        (r"\\(?:rbrace)(?![a-zA-Z])", r"\\}"),
        (r"\\(?:lbrack)(?![a-zA-Z])", "["),
        (r"\\(?:rbrack)(?![a-zA-Z])", "]"),
        (r"\\(?:langle|lparen)(?![a-zA-Z])", "("),
        (r"\\(?:rangle|rparen)(?![a-zA-Z])", ")"),
        (r"\\(?:vert|lvert|rvert)(?![a-zA-Z])", "|"),
        (r"\\var(phi|epsilon|theta|rho)(?![a-zA-Z])", r"\\\1"),
        (r"\\(?:varnothing|O)(?![a-zA-Z])", r"\\emptyset"),
        (r"\\text\{\s*R\s*\}|\\R(?![a-zA-Z])", r"\\mathbb{R}"),
        (r"\\arc(?:tg|ctg)", r"\\arctan"),
        (r"\bnp\.|\bmath\.", ""),
        (rf"(?<![a-zA-Z\\])({_FUNCTIONS})(?![a-zA-Z])", r"\\\1 "),
        (r"(?<![a-zA-Z\\])sqrt(?![a-zA-Z])", r"\\sqrt"),
        (r"(?<![a-zA-Z\\])(?:infinity|oo)(?![a-zA-Z])", r"\\infty "),
        (r"(\d\.?)[eE]([+-]?\d{1,4})(?![\d.a-zA-Z^])", r"\1*10^{\2}"),
        (r"(?<![\w.,/^\\}])(\d+)\s+(\d+)\s*/\s*(\d+)(?![\w.])", r"\1\\frac{\2}{\3}"),
        (r"([\^_])\s*\{\s*([+-]?[a-zA-Z\d])\s*\}", r"\1{\2}"),
        (r"\\frac\s*(\d)\s*(\d)", r"\\frac{\1}{\2}"),
        (r"\\frac\s*([a-zA-Z\d])\s*\{", r"\\frac{\1}{"),
        (r"\\frac\s*([a-zA-Z\d])\s*([a-zA-Z\d])", r"\\frac{\1}{\2}"),
        (r"\\binom\s*(\d)\s*(\d)", r"\\binom{\1}{\2}"),
        (r"\\sqrt\s*(\[[^\[\]]*\])?\s*(\d+(?:\.\d+)?|[a-zA-Z]|\\(?:pi|theta|alpha|beta)(?![a-z]))", r"\\sqrt\1{\2}"),
        (r"\\sqrt\s*(\[[^\[\]]*\])?\s*\(([^()]*)\)", r"\\sqrt\1{\2}"),
        (r"\s+", " "),
    )
)  # fmt: skip
_SPACED = re.compile(r"[+-]?\d{1,3}(?: \d{3})+")
_ONE_ARGUMENT = re.compile(r"\\frac\s*(\{[^{}]*\})\s*([a-zA-Z\d])")


def clean(text: str) -> str:
    """The text in one spelling. Any text will do; the result of already clean text is the same."""
    if not text.isascii():
        text = re.sub(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+", lambda run: f"^{{{run.group().translate(_SUPERSCRIPTS)}}}", text)
        text = unicodedata.normalize("NFKC", text.translate(_CHARACTERS)).translate(_CHARACTERS)
    if _SPACED.fullmatch(text):
        return text.replace(" ", "")
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    text = _ONE_ARGUMENT.sub(r"\\frac\1{\2}", text)
    return text.strip().rstrip(".,;¶ ").strip()


def key(text: str) -> str:
    """Clean text without the spaces and braces that change nothing: equal keys are equal answers."""
    text = re.sub(r"(?<=[\d.])\s+(?=[\d.])", "`", text)
    text = re.sub(r"(\\[a-zA-Z]+)\s+(?=[a-zA-Z])", r"\1`", text)
    text = re.sub(r"([\^_])\{([a-zA-Z\d])\}", r"\1\2", text)
    return re.sub(r"\s+", "", text)
