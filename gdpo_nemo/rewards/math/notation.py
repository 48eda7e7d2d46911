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

_RENAMED: Final[dict[str, str]] = {
    name: replacement
    for names, replacement in (
        ("displaystyle textstyle scriptstyle limits middle big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr", ""),
        ("underline uline bf rm it", ""),
        ("quad qquad thinspace enspace", " "),
        ("mathrm mathbf mathit mathsf textbf textit textrm textsf texttt textnormal mbox hbox operatorname boldsymbol"
         " bm emph bold mathnormal", r"\text"),
        ("textdollar pounds euro", "¤"),
        ("dfrac tfrac cfrac", r"\frac"),
        ("dbinom tbinom", r"\binom"),
        ("cdot times ast", "*"),
        ("div", "/"),
        ("leqslant leq leqq", r"\le "),
        ("geqslant geq geqq", r"\ge "),
        ("neq", r"\ne "),
        ("lt", "<"),
        ("gt", ">"),
        ("degree textdegree", "°"),
        ("cdots dots dotsc dotsb hdots", r"\ldots "),
        ("lbrace", r"\{"),
        ("rbrace", r"\}"),
        ("lbrack", "["),
        ("rbrack", "]"),
        ("langle lparen", "("),
        ("rangle rparen", ")"),
        ("vert lvert rvert", "|"),
        ("varphi", r"\phi"),
        ("varepsilon", r"\epsilon"),
        ("vartheta", r"\theta"),
        ("varnothing", r"\emptyset"),
        ("R", r"\mathbb{R}"),
        ("arctg", r"\arctan"),
    )
    for name in names.split()
}  # fmt: skip
"""Commands by other names."""

_RULES: Final[tuple[tuple[str, re.Pattern[str], str], ...]] = tuple(
    (needed, re.compile(pattern), replacement)
    for needed, pattern, replacement in (
        ("\\", r"\\(?:left|right)(?![a-zA-Z])\s*\.?", ""),
        ("\\", r"\\(?:phantom|vphantom|hphantom|label|tag|hspace)\*?\{[^{}]*\}", ""),
        ("\\", r"(?<=\d)(?:\\[,;:! ]|,\\[!,]\s?)(?=\d{3}(?!\d))", ""),
        ("color", r"\\(?:text)?color\s*\{[^{}]*\}", ""),
        ("]", r"(^|\\(?:cup|cap|in)(?![a-zA-Z])|=)\s*\](?=.)", r"\1("),  # ]a,b[ is the open interval
        ("[", r"(?<=.)\[\s*(?=$|\\cup|\\cap)", ")"),
        ("~", r"~", " "),
        ("{", r"(?<=\d)(?:\{,\}|\{\\,\})(?:\\!)?(?=\d{3}(?!\d))", ""),
        ("{", r"\{,\}", ","),
        ("\\", r"\\!", ""),
        ("\\", r"\\[,;:> ]", " "),
        (r"\text", r"\\text\s*\{\s*([+-]?[\d.,]+|[eid])\s*\}", r"\1"),
        (r"\text", r"\\text\s*\{\s*\}", " "),
        (r"\text", r"(?:\s*\^\s*\{?\s*|(?<=\d))\\text\s*\{\s*(?:st|nd|rd|th)\s*\}\s*\}?", ""),
        ("thousand", r"(?<=\d)\s*(?:\\text\s*\{\s*)?\bthousand\b\s*\}?", r"*10^{3}"),
        ("illion", r"(?<=\d)\s*(?:\\text\s*\{\s*)?\bmillion\b\s*\}?", r"*10^{6}"),
        ("illion", r"(?<=\d)\s*(?:\\text\s*\{\s*)?\bbillion\b\s*\}?", r"*10^{9}"),
        ("trillion", r"(?<=\d)\s*(?:\\text\s*\{\s*)?\btrillion\b\s*\}?", r"*10^{12}"),
        ("hundred", r"(?<=\d)\s*(?:\\text\s*\{\s*)?\bhundred\b\s*\}?", r"*10^{2}"),
        ("dozen", r"(?<=\d)\s*(?:\\text\s*\{\s*)?\bdozen\b\s*\}?", r"*12"),
        ("squared", r"(?<=\d)\s*(?:\\text\s*\{\s*)?\bsquared\b\s*\}?", r"^{2}"),
        ("cubed", r"(?<=\d)\s*(?:\\text\s*\{\s*)?\bcubed\b\s*\}?", r"^{3}"),
        ("$", r"\\\$|\\text\{\s*\\?\$\s*\}", "¤"),
        ("$", r"\$", ""),
        ("%", r"\\%|\\text\{\s*\\?%\s*\}", "%"),
        ("percent", r"\\text\{\s*percent\s*\}|(?<=\d)\s*percent\b", "%"),
        ("**", r"\*\*", "^"),
        ("<=", r"<=", r"\\le "),
        (">=", r">=", r"\\ge "),
        (r"\circ", r"\s*\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-z]))", "°"),
        ("°", r"\s*\^\s*(?:\{\s*°\s*\}|°)", "°"),
        ("...", r"\.\.\.", r"\\ldots "),
        (r"\text", r"\\text\{\s*R\s*\}", r"\\mathbb{R}"),
        (".", r"\b(?:np|math)\.", ""),
        ("", rf"(?<![a-zA-Z\\])({_FUNCTIONS})(?![a-zA-Z])", r"\\\1 "),
        ("sqrt", r"(?<![a-zA-Z\\])sqrt(?![a-zA-Z])", r"\\sqrt"),
        ("", r"(?<![a-zA-Z\\])(?:infinity|oo)(?![a-zA-Z])", r"\\infty "),
        (r"\text", r"\\text\s*\{\s*([+-]?\s*\\infty)\s*\}", r"\1 "),
        ("", r"(\d\.?)[eE]([+-]?\d{1,4})(?![\d.a-zA-Z^])", r"\1*10^{\2}"),
        ("/", r"(?<![\w.,/^\\}])(\d+)\s+(\d+)\s*/\s*(\d+)(?![\w.])", r"\1\\frac{\2}{\3}"),
        ("{", r"([\^_])\s*\{\s*([+-]?[a-zA-Z\d])\s*\}", r"\1{\2}"),
        (r"\frac", r"\\frac\s*([a-zA-Z\d])\s*\{", r"\\frac{\1}{"),
        (r"\frac", r"\\frac\s*([a-zA-Z\d])\s*([a-zA-Z\d])", r"\\frac{\1}{\2}"),
        (r"\frac", r"\\frac\s*(\{[^{}]*\})\s*([a-zA-Z\d])", r"\\frac\1{\2}"),
        (r"\choose", r"\{([^{}\\]+)\\choose(?![a-zA-Z])([^{}\\]+)\}", r"\\binom{\1}{\2}"),
        (r"\binom", r"\\binom\s*(\d)\s*(\d)", r"\\binom{\1}{\2}"),
        (r"\sqrt", r"\\sqrt\s*(\[[^\[\]]*\])?\s*(\d+(?:\.\d+)?|[a-zA-Z]|\\(?:pi|theta|alpha|beta)(?![a-z]))",
         r"\\sqrt\1{\2}"),
        (r"\sqrt", r"\\sqrt\s*(\[[^\[\]]*\])?\s*\(([^()]*)\)", r"\\sqrt\1{\2}"),
        ("", r"\s+", " "),
    )
)  # fmt: skip
"""What has to be in a text, for a pattern to be tried on it; the pattern; what takes its place. In this order."""

_WORDS = re.compile(r"\\text\s*\{([^{}]*[a-zA-Z]\s*,\s*[a-zA-Z][^{}]*)\}")
_BETWEEN_NUMBERS = re.compile(r"(?<=[\d.])\s+(?=[\d.])")
_AFTER_COMMAND = re.compile(r"(\\[a-zA-Z]+)\s+(?=[a-zA-Z])")
_ONE_SIGN = re.compile(r"([\^_])\{([a-zA-Z\d])\}")
_BREAK = re.compile(r"\\\\(?:\[[^\[\]]*\])?")
_COMMAND = re.compile(r"\\([a-zA-Z]+)\*?")
_SPACED = re.compile(r"[+-]?\d{1,3}(?: \d{3})+")


def clean(text: str) -> str:
    """The text in one spelling. Any text will do."""
    if not text.isascii():
        text = re.sub(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+", lambda run: f"^{{{run.group().translate(_SUPERSCRIPTS)}}}", text)
        text = unicodedata.normalize("NFKC", text.translate(_CHARACTERS)).translate(_CHARACTERS)
    if _SPACED.fullmatch(text):
        return text.replace(" ", "")
    if "\\" in text:
        text = _COMMAND.sub(lambda found: _RENAMED.get(found[1], found[0]), _BREAK.sub("¶", text))
        text = _WORDS.sub(lambda found: ",".join(rf"\text{{{part}}}" for part in found[1].split(",")), text)
    for needed, pattern, replacement in _RULES:
        if needed in text:
            text = pattern.sub(replacement, text)
    return text.strip().rstrip(".,;¶ ").strip()


def key(text: str) -> str:
    """Clean text without the spaces and braces that change nothing: equal keys are equal answers."""
    if " " in text:
        text = _BETWEEN_NUMBERS.sub("`", text)
        text = _AFTER_COMMAND.sub(r"\1`", text)
        text = text.replace(" ", "")
    return _ONE_SIGN.sub(r"\1\2", text) if "{" in text else text
