"""What produced a run: code, packages, machine and command line. No secrets and no home directory."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import gdpo_nemo

PACKAGES = ("gdpo-nemo", "torch", "transformers", "tokenizers", "numpy", "scipy")
VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "HF_HUB_OFFLINE",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "PYTHONHASHSEED",
    "SLURM_JOB_ID",
)
LONGEST_DIFF = 50_000
SECRET = re.compile(r"((?:token|secret|password|api_?key)[\w.-]*[= ])\S+", re.IGNORECASE)


def collect(arguments: Sequence[str], files: Mapping[str, Path] | None = None) -> dict[str, Any]:
    """Describe the code, the machine and the command of this process as JSON-able values.

    Args:
        arguments: the command line.
        files: further code that matters, by name: rewards of the user's own.
    """
    package = Path(gdpo_nemo.__file__).resolve().parent
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": tidy(shlex.join(arguments)),
        "code": {"version": gdpo_nemo.__version__, "templates": template_hashes(package), **git_state(package.parent)},
        "own_code": {name: _file(path) for name, path in (files or {}).items()},
        "packages": {name: _version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "machine": {
            "platform": platform.platform(),
            "cpu": cpu_model(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        },
        "environment": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }


def git_state(root: Path) -> dict[str, Any]:
    """Commit and uncommitted changes of the checkout at ``root``; nulls when it is none.

    ``diff`` is the text itself while it is short; ``diff_sha256`` names it in any case, and files
    that git does not know yet are listed under ``untracked``.
    """
    if not (root / ".git").exists():  # an installed package inside somebody else's repository is not that commit
        return {"commit": None, "diff_sha256": None, "diff": None, "untracked": []}
    commit = _git(root, "rev-parse", "HEAD")
    diff = _git(root, "diff", "HEAD") if commit else None
    untracked = _git(root, "ls-files", "--others", "--exclude-standard")
    return {
        "commit": commit.strip() if commit else None,
        "diff_sha256": hashlib.sha256(diff.encode()).hexdigest() if diff else None,
        "diff": tidy(diff) if diff and len(diff) <= LONGEST_DIFF else None,
        "untracked": untracked.splitlines() if untracked else [],
    }


def template_hashes(package: Path) -> dict[str, str]:
    """Prompt template -> first 16 digits of its SHA-256."""
    paths = sorted((package / "prompts" / "templates").glob("*.txt"))
    return {path.stem: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in paths}


def tidy(text: str) -> str:
    """Text without the user's home directory and without values that look like secrets."""
    home = str(Path.home())
    return SECRET.sub(r"\1***", text if home == "/" else text.replace(home, "~"))


def _file(path: Path) -> dict[str, str]:
    return {"path": tidy(str(path)), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def cpu_model() -> str:
    """The processor's name, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _git(root: Path, *arguments: str) -> str | None:
    """What a git command prints, None when git is absent or fails."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, timeout=30, encoding="utf-8", errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
