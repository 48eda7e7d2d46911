"""One small real experiment, run once per session and looked at by many tests."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def environment():
    """Ours, with this checkout importable from any folder, on one thread."""
    return os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="session")
def python(environment):
    """Run Python in a process of its own: ``python(*arguments, cwd=folder)``."""

    def call(*arguments, cwd):
        command = [sys.executable, *map(str, arguments)]
        return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)

    return call


@pytest.fixture(scope="session")
def gdpo(python):
    """Run the command line as a user does: ``gdpo("plan", "tool_calling", cwd=folder)``."""
    return lambda *arguments, cwd: python("-m", "gdpo_nemo.cli", *arguments, cwd=cwd)


@pytest.fixture(scope="session")
def smoke(gdpo, tmp_path_factory):
    """A finished smoke run of two arms with one seed, to read only: its folder, and what it printed.

    Test processes that work side by side share one.
    """
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "smoke"
    folder.mkdir(exist_ok=True)
    output = folder / "output.json"
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not output.exists():
            line = ("run", "tool_calling", "--smoke", "--arms", "grpo,gdpo", "--seeds", "0", "--out", "runs")
            done = gdpo(*line, cwd=folder)
            output.write_text(json.dumps([done.returncode, done.stdout, done.stderr]))
    code, stdout, stderr = json.loads(output.read_text())
    assert code == 0, stderr
    return folder, stdout, stderr


@pytest.fixture
def finished(smoke, tmp_path):
    """A folder of the test's own that holds the finished smoke run."""
    shutil.copytree(smoke[0] / "runs", tmp_path / "runs")
    return tmp_path
