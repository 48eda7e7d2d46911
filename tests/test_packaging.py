"""The lock agrees with pyproject.toml, and the wheel runs an experiment far from the checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROGRAMS = "gdpo_nemo/_programs/"


def lock_lines() -> list[str]:
    return [line for line in LOCK.read_text("utf-8").splitlines() if line and not line.lstrip().startswith("#")]


def pins() -> dict[str, Requirement]:
    return {canonicalize_name(requirement.name): requirement for requirement in map(Requirement, lock_lines())}


def direct_requirements() -> list[Requirement]:
    """What the project itself and the extras embedded, report and dev ask for."""
    extras = PYPROJECT["project"]["optional-dependencies"]
    listed = [*PYPROJECT["project"]["dependencies"], *extras["embedded"], *extras["report"], *extras["dev"]]
    return [wanted for wanted in map(Requirement, listed) if canonicalize_name(wanted.name) != "gdpo-nemo"]


def test_the_lock_holds_exact_versions_and_no_address() -> None:
    loose = [line for line in lock_lines() if not re.fullmatch(r"[a-z0-9._-]+==[0-9][0-9a-z.]*( ; .+)?", line)]
    assert not loose, f"not name==version: {loose}; run make lock"
    assert "://" not in LOCK.read_text("utf-8")


def test_the_lock_meets_every_requirement_of_the_project() -> None:
    locked = pins()
    unmet = [
        str(wanted)
        for wanted in direct_requirements()
        if (pin := locked.get(canonicalize_name(wanted.name))) is None
        or not wanted.specifier.contains(str(pin.specifier).removeprefix("=="))
    ]
    assert not unmet, f"{unmet} not in requirements.lock; run make lock"


def test_torch_is_pinned_for_make_and_free_for_a_container() -> None:
    (wanted,) = [requirement for requirement in direct_requirements() if requirement.name == "torch"]
    assert {clause.operator for clause in wanted.specifier} == {">="}
    lock_settings = tomllib.loads((ROOT / ".ci" / "lock.toml").read_text("utf-8"))
    assert lock_settings["constraint-dependencies"] == [str(pins()["torch"])]
    assert [entry["name"] for entry in lock_settings["dependency-metadata"]] == ["torch"]


def test_the_wheel_is_told_of_every_folder_of_programs() -> None:
    shipped = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    present = {folder for folder in ("repro", "configs", "eval") if any((ROOT / folder).glob("**/*.*"))}
    assert shipped == {folder: PROGRAMS + folder for folder in present}


def call(*command: str | Path, cwd: Path) -> str:
    """Run a command without this checkout on its path; its output, also in the failure."""
    dropped = {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV"}  # each run would compile torch's modules anew
    environment = {key: value for key, value in os.environ.items() if key not in dropped}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.mark.slow
def test_the_wheel_holds_all_that_runs_and_nothing_else(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    package = {path for path in (ROOT / "gdpo_nemo").rglob("*") if path.is_file() and path.suffix != ".pyc"}
    programs = {
        path
        for folder in PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    expected = {str(path.relative_to(ROOT)) for path in package}
    expected |= {PROGRAMS + str(path.relative_to(ROOT)) for path in programs}
    assert "gdpo_nemo/py.typed" in expected
    (info,) = {name.split("/")[0] for name in names if ".dist-info/" in name}
    assert {name for name in names if not name.startswith(info)} == expected
    assert f"{info}/licenses/LICENSE" in names


@pytest.mark.slow
def test_the_source_archive_holds_what_the_tests_need(dist: Path) -> None:
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    needed = [
        "Makefile",
        "requirements.lock",
        ".ci/venv",
        ".ci/run",
        ".ci/lock.toml",
        "CITATION.cff",
        "CONTRIBUTING.md",
    ]
    assert {*needed, "tests/test_packaging.py", "repro/tool_calling.py", "LICENSE", "README.md"} <= names


@pytest.mark.slow
def test_an_installed_wheel_runs_an_experiment_anywhere(dist: Path, tmp_path: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    call(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--no-compile"]
    if index := os.environ.get("TORCH_INDEX_URL"):
        call(*install, "--no-deps", "--index-url", index, str(pins()["torch"]), cwd=tmp_path)
    call(*install, "--constraint", LOCK, f"{wheel}[embedded,report]", cwd=tmp_path)

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    where = call(python, "-c", "import gdpo_nemo; print(gdpo_nemo.__file__)", cwd=elsewhere)
    assert Path(where.strip()).is_relative_to(tmp_path / "venv")
    gdpo = tmp_path / "venv" / "bin" / "gdpo"
    output = call(gdpo, "run", "tool_calling", "--smoke", "--out", tmp_path / "runs", cwd=elsewhere)
    tables = list((tmp_path / "runs").rglob("table.csv"))
    assert len(tables) == 1
    for label in ("GRPO", "GRPO w/o std", "GDPO"):
        assert label in output and label in tables[0].read_text("utf-8")
    assert not list(elsewhere.iterdir())
