"""What `make` says on a machine that lacks something: one line, with the way out, and no half-made .venv."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ("sh", "cat", "dirname", "flock", "grep", "rm", "uname")


class Machine:
    """A copy of the set-up files, and a PATH that holds only what is put there."""

    def __init__(self, folder: Path) -> None:
        self.project, self.bin = folder / "project", folder / "bin"
        (self.project / ".ci").mkdir(parents=True)
        self.bin.mkdir()
        for name in (".ci/venv", "requirements.lock", "pyproject.toml"):
            shutil.copy(ROOT / name, self.project / name)
        for tool in TOOLS:
            if found := shutil.which(tool):
                (self.bin / tool).symlink_to(found)
        self.program("id", "echo 1000")

    def program(self, name: str, body: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{body}\n", "utf-8")
        (self.bin / name).chmod(0o755)

    def python(self, name: str, version: str, has_venv: bool = True) -> None:
        """An interpreter as far as the set-up asks: its version, and whether it has venv."""
        answers = (
            f"*version_info*) echo {version} ;; *ensurepip*) exit {int(not has_venv)} ;; *) echo {version} {name} ;;"
        )
        self.program(name, f'case "$2" in {answers} esac')

    def apt(self, *known: str) -> None:
        """A Debian-like machine whose apt knows only these packages."""
        self.program("apt-get", "exit 1")
        self.program("apt-cache", f'case "$2" in {"|".join(known)}) ;; *) exit 100 ;; esac')

    def setup(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": str(self.bin), "HOME": str(self.project)} | environment
        command = [str(self.bin / "sh"), ".ci/venv", *arguments]
        return subprocess.run(command, cwd=self.project, env=environment, capture_output=True, text=True, check=False)

    def refusal(self, **environment: str) -> str:
        """The one line that a set-up without success ends in."""
        done = self.setup(**environment)
        (line,) = done.stderr.splitlines()
        assert done.returncode == 3
        assert not (self.project / ".venv" / ".complete").exists()
        return line.removeprefix("error: ")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_python_out_of_range_is_named_with_the_one_to_install(machine: Machine) -> None:
    machine.python("python3", "3.10")
    machine.python("python3.13", "3.14")  # whatever its name says
    machine.apt("python3.12-venv")
    assert machine.refusal() == (
        "Python 3.11, 3.12 or 3.13 is needed (python3 is 3.10, python3.13 is 3.14); "
        "sudo apt-get install -y python3.12 python3.12-venv, or name one: make PYTHON=/path/to/python3.12"
    )


def test_without_apt_the_way_out_is_general(machine: Machine) -> None:
    assert machine.refusal() == (
        "Python 3.11, 3.12 or 3.13 is needed (python3 does not run); "
        "install one, or name one: make PYTHON=/path/to/python3.12"
    )


def test_a_missing_venv_module_is_named_with_its_package(machine: Machine) -> None:
    machine.python("python3", "3.11", has_venv=False)
    machine.apt("python3.11-venv")
    expected = "Python 3.11 lacks its venv module; sudo apt-get install -y python3.11-venv, then run make again"
    assert machine.refusal() == expected


def test_root_is_told_no_sudo(machine: Machine) -> None:
    machine.python("python3", "3.11", has_venv=False)
    machine.apt("python3.11-venv")
    machine.program("id", "echo 0")
    assert "; apt-get install" in machine.refusal()


@pytest.mark.parametrize(("version", "said"), [("3.8", "{} is 3.8"), (None, "{} does not run")])
def test_an_interpreter_asked_for_by_name_is_not_replaced(machine: Machine, version: str | None, said: str) -> None:
    machine.python("python3", "3.12")
    if version:
        machine.python("mine", version)
    assert f"({said.format('mine')})" in machine.refusal(PYTHON="mine")


def test_the_first_interpreter_that_works_is_taken(machine: Machine) -> None:
    machine.program("python3", "echo 'python3: command not found' >&2; exit 127")  # a shim without a version
    machine.python("python3.13", "3.13", has_venv=False)
    machine.python("python3.12", "3.12")
    assert machine.setup("python").stdout.strip() == str(machine.bin / "python3.12")


def test_an_environment_counts_when_complete_and_made_here(machine: Machine) -> None:
    venv = machine.project / ".venv"
    (venv / "bin").mkdir(parents=True)
    machine.python("python3", "3.12")
    assert machine.setup("check").returncode != 0
    (venv / ".complete").write_text(f"{machine.project}\n", "utf-8")
    assert machine.setup("check").returncode != 0, "its interpreter is gone"
    (venv / "bin" / "python").symlink_to(machine.bin / "python3")
    assert machine.setup("check").returncode == 0
    machine.python("other", "3.13")
    assert machine.setup("check", PYTHON="other").returncode != 0, "another interpreter was asked for"
    (venv / ".complete").write_text("/elsewhere\n", "utf-8")
    assert machine.setup("check").returncode != 0, "the checkout was moved"


@pytest.mark.slow
def test_without_a_network_it_stops_at_once_and_says_so(machine: Machine) -> None:
    offline = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_CONFIG_FILE": os.devnull}
    line = machine.refusal(PYTHON=getattr(sys, "_base_executable", sys.executable), **offline)
    assert line.startswith("pip cannot reach a package index (its words: .venv/pip.log); ")
    assert "iniconfig" in (machine.project / ".venv" / "pip.log").read_text("utf-8")
