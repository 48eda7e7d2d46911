"""Imports inside gdpo_nemo go downwards only; modules stay small; programs can be run by path."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "gdpo_nemo"

# A module may import from lower levels, and from its own part (the same name in this table).
LEVELS = {
    "deadline": 0,
    "differences": 0,
    "errors": 0,
    "types": 0,
    "randomness": 0,
    "templates": 0,
    "terminal": 0,
    "validation": 0,
    "advantages": 1,
    "arguments": 1,
    "composing": 1,
    "conditioning": 1,
    "data": 1,
    "files": 1,
    "losses": 1,
    "preference": 1,
    "prompts": 1,
    "rewards": 1,
    "sandbox": 1,
    "signals": 1,
    "stats": 1,
    "config": 2,
    "method": 2,
    "models": 2,
    "options": 2,
    "provenance": 2,
    "run_dir": 2,
    "run_tree": 2,
    "source": 2,
    "worlds": 2,
    "checkpoints": 3,
    "cluster": 3,
    "evaluation": 3,
    "tracking": 3,
    "health": 4,
    "launch": 4,
    "backends": 5,
    "report": 5,
    "suite": 6,
    "cli": 7,
}
# Neighbours of one level that need each other: most turn blocks of config into what they describe.
SAME_LEVEL = {
    ("backends.nemo_rl", "backends.embedded"),  # a rehearsal starts from a model that the other backend warms up
    ("config", "worlds"),
    ("data", "files"),
    ("evaluation", "checkpoints"),
    ("method", "config"),
    ("method", "options"),
    ("models", "config"),
    ("models", "source"),
    ("models", "worlds"),
    ("preference", "advantages"),  # it reads and checks rewards and groups as they do
    ("options", "config"),
    ("prompts", "data"),
    ("rewards", "data"),  # a reward reads the gold as the data set publishes it
    ("rewards", "sandbox"),  # a program is judged by running it
    ("run_tree", "run_dir"),
    ("signals", "advantages"),
    ("source", "config"),
    ("source", "worlds"),
    ("templates", "errors"),
    ("validation", "errors"),
}
MAX_LINES = 500
MAX_LINES_EMBEDDED = 400
VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "misc"}
PROGRAM_FOLDERS = ("repro", "eval")


def imports(path: Path, package: str) -> Iterator[tuple[int, str]]:
    """Every import of a file at any depth, as (line, dotted name); a from-import names what it takes."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                base = ".".join([*parents[: len(parents) - node.level + 1], *([base] if base else [])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                yield node.lineno, node.args[0].value


def part(dotted: str) -> str:
    """The part of the package that a module belongs to: a name in LEVELS, or backends.<one backend>."""
    names = dotted.split(".")[1:]
    return ".".join(names[:2]) if names[:1] == ["backends"] else "".join(names[:1])


def layering_faults(package: Path) -> list[str]:
    """One line for each import that does not go downwards, and for each module without a level."""
    faults = []
    for path in sorted(package.rglob("*.py")):
        names = [package.name, *path.relative_to(package).with_suffix("").parts]
        if names[-1] == "__init__":
            names.pop()
        where, own = path.relative_to(package.parent), part(".".join(names))
        top = own.split(".")[0]
        if top and top not in LEVELS:
            faults.append(f"{where}: {top!r} has no level; give it one in LEVELS of tests/test_layering.py")
            continue
        parents = names if path.name == "__init__.py" else names[:-1]
        for line, dotted in imports(path, ".".join(parents)):
            if dotted.split(".")[0] == "nemo_rl" and own != "backends.nemo_rl":
                faults.append(f"{where}:{line}: only gdpo_nemo/backends/nemo_rl may import nemo_rl")
            if dotted.split(".")[0] != package.name:
                continue
            target = part(dotted)
            target_top = target.split(".")[0]
            if not target or target_top not in LEVELS:  # an attribute of the package itself, e.g. __version__
                continue
            same_part = top == target_top and (own == target or "backends" in (own, target))
            if same_part or (own, target) in SAME_LEVEL:
                continue
            if not top or LEVELS[target_top] >= LEVELS[top]:
                level = LEVELS[top] if top else "none"
                faults.append(
                    f"{where}:{line}: {own or package.name} (level {level}) may not import {target} "
                    f"(level {LEVELS[target_top]}); imports go downwards only"
                )
    return faults


def test_imports_go_downwards_only() -> None:
    faults = layering_faults(PACKAGE)
    assert not faults, "\n" + "\n".join(faults)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"types.py": "from gdpo_nemo.config import RunConfig"}, "types (level 0) may not import config (level 2)"),
        ({"stats.py": "def f():\n    import gdpo_nemo.losses"}, "stats.py:2: stats (level 1) may not import losses"),
        ({"data/a.py": "from ..prompts import b"}, "data (level 1) may not import prompts (level 1)"),
        ({"errors.py": "from gdpo_nemo import cli"}, "errors (level 0) may not import cli (level 7)"),
        ({"__init__.py": "from . import types"}, "gdpo_nemo (level none) may not import types (level 0)"),
        ({"cli.py": "import nemo_rl.algorithms"}, "only gdpo_nemo/backends/nemo_rl may import nemo_rl"),
        ({"novel.py": ""}, "'novel' has no level; give it one in LEVELS of tests/test_layering.py"),
        (
            {"backends/embedded/a.py": "from gdpo_nemo.backends.nemo_rl import plugin"},
            "backends.embedded (level 5) may not import backends.nemo_rl (level 5)",
        ),
        (
            {"rewards/a.py": "from importlib import import_module\nimport_module('gdpo_nemo.suite')"},
            "rewards (level 1) may not import suite (level 6)",
        ),
    ],
)
def test_a_fault_is_found(tmp_path: Path, files: dict[str, str], expected: str) -> None:
    (fault,) = layering_faults(_tree(tmp_path, files))
    assert expected in fault


def test_what_is_allowed_is_not_a_fault(tmp_path: Path) -> None:
    files = {
        "data/a.py": "from . import b\nfrom .b import c\nfrom gdpo_nemo.types import Row\nimport torch",
        "config.py": "from gdpo_nemo import __version__\nfrom gdpo_nemo.data.a import x",
        "backends/__init__.py": "def load():\n    from gdpo_nemo.backends.nemo_rl import plugin",
        "backends/nemo_rl/plugin.py": "import nemo_rl",
        "cli.py": "from gdpo_nemo.suite import main",
    }
    assert layering_faults(_tree(tmp_path, files)) == []


def _tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / "gdpo_nemo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return root / "gdpo_nemo"


def _sources() -> list[Path]:
    folders = ("gdpo_nemo", *PROGRAM_FOLDERS, "tests")
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def _num_lines(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())


def test_every_module_is_small() -> None:
    large = {str(path.relative_to(ROOT)): _num_lines(path) for path in _sources() if _num_lines(path) > MAX_LINES}
    assert not large, f"more than {MAX_LINES} lines; split by reason: {large}"


def test_the_embedded_trainer_stays_readable_in_one_sitting() -> None:
    trainer = ("models/sampling.py", "losses.py", "backends/embedded/train.py")
    num_lines = sum(len((PACKAGE / name).read_text("utf-8").splitlines()) for name in trainer)
    assert num_lines <= MAX_LINES_EMBEDDED, f"{num_lines} lines in the embedded trainer, at most {MAX_LINES_EMBEDDED}"


def test_every_module_is_named_for_what_it_does() -> None:
    vague = [
        str(path.relative_to(ROOT))
        for path in _sources()
        if VAGUE_NAMES & {part.removesuffix(".py") for part in path.relative_to(ROOT).parts}
    ]
    assert not vague, f"name these after what they do: {vague}"


@pytest.mark.parametrize("folder", PROGRAM_FOLDERS)
def test_programs_can_be_run_by_path(folder: str) -> None:
    """A script's own folder is first on sys.path: math.py there would replace the standard library's."""
    scripts = list((ROOT / folder).glob("*.py"))
    shadowing = [path.name for path in scripts if path.stem in sys.stdlib_module_names]
    assert not shadowing, f"rename {folder}/{shadowing}: a standard library module has that name"
    assert not (ROOT / folder / "__init__.py").exists(), f"{folder}/ holds programs and is not a package"
