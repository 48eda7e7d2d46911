"""A trusted script in the sandbox: JSON in, JSON out, nothing else."""

from __future__ import annotations

import os
import sys
import venv
from pathlib import Path

import pytest

from gdpo_nemo.errors import InputError
from gdpo_nemo.sandbox.jobs import Limits
from gdpo_nemo.sandbox.script import run_script

ECHO = "import json, sys\nvalue = json.load(sys.stdin)\njson.dump({'got': value, 'prefix': sys.prefix}, sys.stdout)"


def test_json_goes_in_and_comes_out() -> None:
    result = run_script(ECHO, {"é": [1, None]})
    assert (result.status, result.value) == ("ok", {"got": {"é": [1, None]}, "prefix": sys.prefix}), result.stderr


def test_another_environment_and_a_module_beside_it(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o755)
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "scorer.py").write_text("def double(x): return 2 * x")
    script = tmp_path / "run.py"
    script.write_text("import json, sys, scorer\nprint(json.dumps([scorer.double(json.load(sys.stdin)), sys.prefix]))")
    python = tmp_path / "env" / "bin" / "python"
    result = run_script(script, 21, python=str(python), paths=[tmp_path / "lib"])
    assert result.value == [42, str(tmp_path / "env")], result.stderr


@pytest.mark.parametrize(
    ("script", "status", "stderr"),
    [
        ("raise ValueError('no such field')", "error", "ValueError: no such field"),
        ("print('not json')", "error", "not one JSON value"),
        ("import socket\nsocket.socket()", "error", "PermissionError"),
        ("open('/etc/gdpo', 'w')", "error", "gdpo"),
        ("x = bytearray(1 << 30)", "error", "MemoryError"),
        ("while True: pass", "timeout", ""),
    ],
)
def test_what_goes_wrong_is_told(script: str, status: str, stderr: str) -> None:
    result = run_script(script, None, limits=Limits(cpu_s=1.0, memory_mb=256))
    assert (result.status, result.value) == (status, None)
    assert stderr in result.stderr


def test_a_missing_interpreter_is_refused() -> None:
    with pytest.raises(InputError, match="/no/python"):
        run_script("pass", None, python="/no/python")
