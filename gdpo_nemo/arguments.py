"""How command lines are read: help that fits a terminal, and refusals that look like every other error."""

from __future__ import annotations

import argparse
import textwrap
from typing import Any, NoReturn

from gdpo_nemo.errors import UsageError
from gdpo_nemo.terminal import columns


class Parser(argparse.ArgumentParser):
    """Refuses with a ``UsageError`` that names the help, not with all of the usage."""

    def __init__(self, **settings: Any) -> None:
        """Take what ``ArgumentParser`` takes; options are never abbreviated."""
        super().__init__(formatter_class=Help, allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        """Refuse a command line.

        Raises:
            UsageError: always.
        """
        raise UsageError(f"{message}; see {self.prog} --help")


class Help(argparse.RawDescriptionHelpFormatter):
    """Lines of description and epilog as they are written; prose is wrapped, an indented line (a command) is not."""

    def __init__(self, prog: str) -> None:
        """Write for a program of that name."""
        super().__init__(prog, width=columns())

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = (textwrap.wrap(line, width) if line[:1].strip() else [line] for line in text.splitlines())
        return "".join(f"{indent}{part}\n" for line in lines for part in line)


def count(text: str) -> int:
    """The type of an option that counts something.

    Raises:
        argparse.ArgumentTypeError: it is no whole number, or below 1.
    """
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of 1 or more")
    return int(text)


def positive(text: str) -> float:
    """The type of an option that measures something.

    Raises:
        argparse.ArgumentTypeError: it is no number, or not above 0.
    """
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return number
