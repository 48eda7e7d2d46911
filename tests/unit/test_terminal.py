import os
import pty
import sys
from contextlib import contextmanager

import pytest

from gdpo_nemo.terminal import NARROWEST, WIDTH, columns, commands_to_copy, complaint, listing, sentences, table


def test_what_fits_is_aligned_and_not_changed():
    assert table([["a", "bb"], ["ccc", "d"]]) == "  a    bb\n  ccc  d"
    assert listing([("one", "1"), ("none", ""), ("three", "3")], indent="") == "one    1\nthree  3"
    assert table([]) == ""


def test_a_command_to_copy_is_one_line_and_is_explained_where_there_is_room():
    long = "gdpo report tool_calling --out " + "x" * WIDTH
    text = commands_to_copy({"a page": "gdpo report tool_calling --html", "far away": long})
    assert text == f"  gdpo report tool_calling --html  # a page\n  {long}"
    assert commands_to_copy({}) == ""


def test_a_wide_table_goes_on_below_where_that_takes_the_fewest_lines():
    words = " ".join(["word"] * 30)
    text = table([["name", "about", "n"], ["a b", words, "3 x 5"], ["c d", "short", "3 x 5"]], indent="")
    lines = text.splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert [line[:3].strip() for line in lines] == ["nam", "a b", "", "c d"]
    assert lines[1].endswith("3 x 5") and lines[2].startswith(" " * 6 + "word")
    assert text.split().count("word") == 30


def test_an_interval_stays_on_one_line():
    cells = [f"4{i}.5 [41.0, 59.0] (3 of them ungraded)" for i in range(4)]
    lines = table([["arm", *cells]], indent="").splitlines()
    assert max(map(len, lines)) <= WIDTH and len(lines) > 1
    assert sum(line.count("[41.0, 59.0]") for line in lines) == 4


def test_a_path_is_never_broken():
    path = "/".join(["folder"] * 20)
    assert table([["at", path], ["", "x"]]).splitlines()[0].endswith(path)
    listed = listing([("answer at", f"{path} or so"), ("n", "3")], indent="")
    assert listed == f"answer at  {path}\n           or so\nn          3"
    assert path in sentences([f"written to {path} just now"])


@pytest.mark.parametrize("indent", ["", "  "])
def test_sentences_go_on_below_themselves(indent):
    lines = sentences(["a " * 80, "b"], indent).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert [line.startswith(f"{indent}  ") for line in lines] == [False, True, False]


@contextmanager
def terminal(wide):
    outer, inner = pty.openpty()
    with pytest.MonkeyPatch.context() as patch, os.fdopen(inner, "w") as end:
        patch.setenv("COLUMNS", str(wide))
        patch.setattr(sys, "stdout", end)
        patch.setattr(sys, "stderr", end)
        yield
    os.close(outer)


COMMAND = "git clone https://github.com/NVIDIA-NeMo/RL"
LONG = f"{'long ' * 14}name a checkout: {COMMAND} && go\n  {'key ' * 40}"


def test_in_a_terminal_an_error_goes_on_below_itself_and_keeps_its_commands_whole():
    with terminal(100):
        lines = complaint(LONG).splitlines()
        assert complaint("short") == "error: short"
    assert lines[0].startswith("error: long") and max(map(len, lines)) <= WIDTH and COMMAND in lines[1]
    assert [line.startswith("  ") for line in lines] == [False, True, True, True] and lines[3].startswith("    key")


def test_elsewhere_a_line_of_an_error_is_one_line(capsys):
    assert complaint(LONG) == f"error: {LONG}"


@pytest.mark.parametrize(("wide", "used"), [(80, 80), (200, WIDTH), (20, NARROWEST)])
def test_a_narrow_terminal_has_shorter_lines(wide, used):
    with terminal(wide):
        found, text = columns(), sentences(["word " * 60])
    assert found == used and max(map(len, text.splitlines())) <= used


def test_a_pipe_does_not_depend_on_the_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert columns() == WIDTH
