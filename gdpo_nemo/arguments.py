"""How command lines are read and end: help that fits a terminal, errors that all look alike, exit codes."""

from __future__ import annotations

import argparse
import sys
import textwrap
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from gdpo_nemo.errors import GdpoError, UsageError, refusal
from gdpo_nemo.terminal import columns, complaint

EXIT_INTERRUPTED = 130


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


def exit_code(command: Callable[[], int], words: Sequence[str], way_on: str = "") -> int:
    """Carry out a command line; an error becomes a message and an exit code.

    Args:
        command: does it and gives its exit code.
        words: of the command line; ``--debug`` among them adds the traceback.
        way_on: what to do after an interruption, or when the system has refused something.
    """
    ending = f"; {way_on}" if way_on else ""
    try:
        return command()
    except KeyboardInterrupt:
        print(f"interrupted{ending}", file=sys.stderr)
        return EXIT_INTERRUPTED
    except (GdpoError, OSError) as error:  # OSError: a place that is not ours, a file where a folder should be
        if "--debug" in words:
            traceback.print_exc()
        if isinstance(error, GdpoError):
            print(complaint(error), file=sys.stderr)
            return error.exit_code
        print(complaint(f"{refusal(error)}{ending}"), file=sys.stderr)
        return GdpoError.exit_code


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
