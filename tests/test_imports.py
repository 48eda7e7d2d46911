"""What an import costs, told by the modules it loads; time itself is never a verdict."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "gdpo_nemo"

# Loaded only by the code that computes, trains, draws or serves; each costs a tenth of a second to several.
HEAVY = {"datasets", "matplotlib", "mlflow", "nemo_rl", "pandas", "pyarrow", "ray", "scipy", "tensorboard"}
HEAVY |= {"tokenizers", "torch", "transformers", "trl", "vllm", "wandb"}

LOADED_BY = """
import json, sys
before = set(sys.modules)
try:
    {statement}
except SystemExit as stop:
    assert not stop.code, stop.code
print()
print(json.dumps(sorted({{name.split(".")[0] for name in set(sys.modules) - before}})))
"""


def loaded_by(statement: str) -> set[str]:
    """Top-level names of the modules that a statement loads in a fresh interpreter."""
    source = LOADED_BY.format(statement=statement)
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_package_loads_nothing_but_itself() -> None:
    assert loaded_by("import gdpo_nemo") - sys.stdlib_module_names == {"gdpo_nemo"}


@pytest.mark.parametrize("module", ["errors", "types", "config", "run_dir"])
def test_the_foundations_load_no_heavy_library(module: str) -> None:
    assert not loaded_by(f"import gdpo_nemo.{module}") & HEAVY


@pytest.mark.parametrize("arguments", [["--help"], ["plan", "--help"]])
def test_help_loads_no_heavy_library(arguments: list[str]) -> None:
    call = f"import gdpo_nemo.cli; sys.argv = {['gdpo', *arguments]!r}; gdpo_nemo.cli.main()"
    loaded = loaded_by(call)
    assert "gdpo_nemo" in loaded
    assert not loaded & (HEAVY | {"numpy"})


def test_every_module_imports_without_a_word() -> None:
    names = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in PACKAGE.rglob("*.py")]
    names = [name.removesuffix(".__init__") for name in names if not name.endswith(".__main__")]
    names = sorted(name for name in names if not name.startswith("gdpo_nemo.backends.nemo_rl"))
    source = "import importlib, sys\nfor name in sys.argv[1:]:\n    importlib.import_module(name)"
    done = subprocess.run([sys.executable, "-c", source, *names], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
