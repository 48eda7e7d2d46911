r"""Units behind a number: which they are, and how many of the base unit of their kind one of them is.

A unit that the gold or the answer leaves out is not missed; two different ones are a difference. Words that are no unit
of measurement (apples, ways, people) say nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

_BASE: Final[dict[str, tuple[str, str]]] = {
    # names: (kind, factor to the kind's base unit)
    "m meter metre": ("length", "1"),
    "km kilometer kilometre": ("length", "1000"),
    "cm centimeter centimetre": ("length", "0.01"),
    "mm millimeter millimetre": ("length", "0.001"),
    "nm nanometer nanometre": ("length", "1e-9"),
    "in inch inche": ("length", "0.0254"),
    "ft foot feet": ("length", "0.3048"),
    "yd yard": ("length", "0.9144"),
    "mi mile": ("length", "1609.344"),
    "s sec second": ("time", "1"),
    "ms millisecond": ("time", "0.001"),
    "min minute": ("time", "60"),
    "h hr hour": ("time", "3600"),
    "day": ("time", "86400"),
    "week": ("time", "604800"),
    "month": ("time", "2629800"),
    "decade": ("time", "315576000"),
    "century centurie": ("time", "3155760000"),
    "am": ("before noon", "1"),
    "pm": ("after noon", "1"),
    "year yr": ("time", "31557600"),
    "g gram": ("mass", "1"),
    "kg kilogram": ("mass", "1000"),
    "mg milligram": ("mass", "0.001"),
    "lb pound": ("mass", "453.59237"),
    "ton": ("mass", "907184.74"),
    "tonne": ("mass", "1000000"),
    "ounce oz": ("mass", "28.349523125"),
    "L l liter litre": ("volume", "1"),
    "mL ml milliliter millilitre": ("volume", "0.001"),
    "gallon": ("volume", "3.785411784"),
    "quart": ("volume", "0.946352946"),
    "pint": ("volume", "0.473176473"),
    "acre": ("area", "4046.8564224"),
    "hectare": ("area", "10000"),
    "dollar usd": ("money", "1"),
    "cent": ("money", "0.01"),
    "degree deg ° arcdegree": ("angle", "1"),
    "'": ("arc minute", "1"),
    "'' arcsecond arcsec": ("arc second", "1"),
    "rad radian": ("radian", "1"),
    "N newton": ("force", "1"),
    "J joule": ("energy", "1"),
    "kJ kilojoule": ("energy", "1000"),
    "kcal": ("energy", "4184"),
    "eV": ("electronvolt", "1"),
    "keV": ("electronvolt", "1e3"),
    "MeV": ("electronvolt", "1e6"),
    "GeV": ("electronvolt", "1e9"),
    "W watt": ("power", "1"),
    "kW kilowatt": ("power", "1e3"),
    "MW megawatt": ("power", "1e6"),
    "Hz hertz": ("frequency", "1"),
    "kHz": ("frequency", "1000"),
    "MHz": ("frequency", "1000000"),
    "GHz": ("frequency", "1000000000"),
    "Pa pascal": ("pressure", "1"),
    "kPa kilopascal": ("pressure", "1e3"),
    "MPa megapascal": ("pressure", "1e6"),
    "K kelvin": ("temperature K", "1"),
    "C °C celsiu": ("temperature C", "1"),
    "F °F fahrenheit": ("temperature F", "1"),
    "mph": ("mile per hour", "1"),
    "mol mole": ("amount", "1"),
    "V volt": ("voltage", "1"),
    "A ampere": ("current", "1"),
    "Å angstrom": ("length", "1e-10"),
}
_UNITS: Final = {name: meaning for names, meaning in _BASE.items() for name in names.split()}
_PREFIX_WORDS: Final = ("square", "cubic", "sq", "cu", "per", "unit", "units")
# Outside \text only longer names are units: in 6m and 5s the letter may be a variable.
_BARE_UNITS: Final = {
    plural
    for name in _UNITS
    if name.isalpha() and len(name) > 1 and name not in ("in", "am", "pm", "MW")
    for plural in (name, f"{name}s")
} | {"inches", *_PREFIX_WORDS}
_WORD = re.compile(r"(per(?![a-z])|/)|(°[CFK]?|'{1,2}|[A-Za-zÅ]+)\.?\s*(?:\^\s*\{?\s*(-?\d+)\s*\}?)?|[*\s·{}()]+")
_TRAILING = re.compile(
    r"(?P<number>.*?[\d)}%.!])\s*"
    r"(?P<unit>(?:°\s*(?:[CFK](?![a-z])|\\text\s*\{\s*[CFK]\s*\})?|'{1,2}|\^\s*\{?\s*(?:\\prime\s*){1,2}\}?"
    r"|(?:[*/]?\s*\\text\s*\{(?:[^{}\d]|\^-?\d)*\}\s*(?:\^\s*(?:\{\s*-?\d+\s*\}|-?\d))?\s*)+"
    r"|(?<![a-zA-Z\\}])(?:[a-zA-Z]{2,}\.?\s*)+(?:\^\s*(?:\{\s*-?\d\s*\}|-?\d))?))",
    re.DOTALL,
)


@dataclass(frozen=True)
class Unit:
    """What a number counts.

    Attributes:
        kind: the powers of base kinds, the same for units that can be converted; None for words that are no unit.
        factor: how many base units one of these is.
    """

    kind: tuple[tuple[str, int], ...] | None
    factor: Fraction = Fraction(1)


def split_unit(text: str) -> tuple[str, Unit | None]:
    """Clean text of a number with a unit behind it -> the number's text and the unit; other text unchanged, None."""
    money = text.startswith(("¤", "-¤"))
    if money:
        text = text.replace("¤", "", 1).strip()
    elif text.endswith("¤"):
        text, money = text[:-1].strip(), True
    found = _TRAILING.fullmatch(text)
    if found is None or re.search(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-z])", text):
        return text, unit("dollar") if money else None
    written = found["unit"]
    if not written.startswith(("\\", "°", "'", "^", "*", "/")) and not _is_bare_unit(written):
        return text, unit("dollar") if money else None
    written = re.sub(r"\^\s*\{?\s*((?:\\prime\s*)+)\}?", lambda primes: "'" * primes[1].count("prime"), written)
    return found["number"].strip(), unit(re.sub(r"\\text\s*\{([^{}]*)\}", r" \1", written))


def _is_bare_unit(written: str) -> bool:
    words = re.findall(r"[a-zA-Z]+", written)
    return all(word in _BARE_UNITS for word in words)


@lru_cache(maxsize=4096)
def unit(written: str) -> Unit:
    """The unit that some text names."""
    powers: dict[str, int] = {}
    factor, sign, prefix, position = Fraction(1), 1, 1, 0
    while position < len(written):
        found = _WORD.match(written, position)
        if found is None:
            return Unit(None)
        position = found.end()
        over, word, exponent = found.groups()
        if over:
            sign = -1
            continue
        if not word:
            continue
        if word.lower() in ("square", "sq", "cubic", "cu"):
            prefix = 3 if word.lower().startswith("cu") else 2
            continue
        if word.lower() in ("unit", "units", "of", "the"):
            prefix = 1
            continue
        meaning = _UNITS.get(word) or _UNITS.get(word.lower().rstrip("s")) or _UNITS.get(word.lower())
        if meaning is None:
            return Unit(None)
        power = sign * prefix * int(exponent or 1)
        if abs(power) > 12:
            return Unit(None)
        powers[meaning[0]] = powers.get(meaning[0], 0) + power
        factor *= Fraction(meaning[1]) ** power
        prefix = 1
    kind = tuple(sorted((name, power) for name, power in powers.items() if power))
    return Unit(kind or None, factor)
