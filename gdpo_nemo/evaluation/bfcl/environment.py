"""The environment of a release: an interpreter with bfcl-eval and what its checkers import, and nothing that we import.

bfcl-eval pins a numpy and a web of client libraries, so that it shares no environment with anything else, and its two
releases none with each other.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from gdpo_nemo.errors import PrerequisiteError
from gdpo_nemo.evaluation.bfcl.releases import REQUIREMENTS, Release

NEWEST_PYTHON = (3, 12)  # tree-sitter 0.21 has no wheels for later ones


def folder_of(release: Release) -> Path:
    """Where the environment lies unless told otherwise: in ``build/`` of the current folder."""
    return Path("build") / f"bfcl-{release.version}"


def commands(release: Release, folder: Path, python: str = sys.executable) -> list[list[str]]:
    """The commands that build the environment."""
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps"]
    return [[python, "-m", "venv", "--clear", str(folder)], [*pip, release.requirement, *REQUIREMENTS]]


def set_up(release: Release, folder: Path, python: str = sys.executable) -> None:
    """Build the environment and check what was installed.

    Raises:
        PrerequisiteError: a command failed, or the package's files are not those of the release.
    """
    for command in commands(release, folder, python):
        print(" ".join(command), file=sys.stderr, flush=True)
        if subprocess.run(command, check=False).returncode:
            hint = (
                "; tree-sitter 0.21 needs Python 3.11 or 3.12: --python" if sys.version_info[:2] > NEWEST_PYTHON else ""
            )
            raise PrerequisiteError(f"{' '.join(command)} failed{hint}")
    find(release, folder)


def find(release: Release, folder: Path) -> Path:
    """The interpreter of the environment.

    Raises:
        PrerequisiteError: there is none, or its bfcl-eval is not the release; the message has the remedy.
    """
    mend = f"gdpo eval bfcl setup --version {release.version}"
    interpreter = folder / "bin" / "python"
    packages = sorted(folder.glob("lib/python3*/site-packages/bfcl_eval"))
    if not interpreter.exists() or not packages:
        raise PrerequisiteError(f"no environment with {release.requirement} in {folder}: {mend}")
    found = content_hashes(packages[0])
    differing = [what for what, digest in release.hashes.items() if found[what] != digest]
    if differing:
        raise PrerequisiteError(
            f"{packages[0]} is not {release.requirement} as published: its {' and '.join(differing)} differ "
            f"(SHA-256 {', '.join(found[what][:12] for what in differing)}): {mend}"
        )
    return interpreter.absolute()


def content_hashes(package: Path) -> dict[str, str]:
    """SHA-256 of all of a package's ``code`` (.py) and ``data`` (.json): of lines of path and SHA-256, sorted."""
    hashes = {}
    for what, suffix in (("code", ".py"), ("data", ".json")):
        lines = [
            f"{path.relative_to(package).as_posix()} {hashlib.sha256(path.read_bytes()).hexdigest()}\n"
            for path in sorted(package.rglob(f"*{suffix}"))
        ]
        hashes[what] = hashlib.sha256("".join(lines).encode()).hexdigest()
    return hashes
