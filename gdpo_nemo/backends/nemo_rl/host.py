"""The NeMo RL that a run uses: the checkout that ``NEMO_RL_PATH`` names, or the installed one of a container.

PyPI holds only a placeholder of that name, so NeMo RL is never a dependency. Its own processes (Ray actors in
environments of their own) find it, and this package, through ``PYTHONPATH``.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import gdpo_nemo
from gdpo_nemo.errors import PrerequisiteError

VARIABLE = "NEMO_RL_PATH"
MAIN = Path("examples", "run_grpo.py")
TYPED_DICT_SHIM = Path(__file__).parent / "python311"
"""Holds a sitecustomize.py: below Python 3.12 pydantic refuses typing.TypedDict, which NeMo RL's MasterConfig uses."""


@dataclass(frozen=True)
class Host:
    """One NeMo RL on this machine.

    Attributes:
        root: folder that holds ``nemo_rl/`` and ``examples/``.
        commit: full hash, empty when the folder is no git checkout.
    """

    root: Path
    commit: str = ""

    @property
    def description(self) -> str:
        """Path and commit, for logs."""
        return f"NeMo RL at {self.root} ({self.commit[:7] or 'commit unknown'})"

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """Environment variables for a process in which ``nemo_rl`` and this package can be imported."""
        environment = dict(os.environ if base is None else base)
        paths = [str(self.root), str(Path(gdpo_nemo.__file__).resolve().parents[1])]
        if sys.version_info < (3, 12):
            paths.append(str(TYPED_DICT_SHIM))
        known = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path and path not in paths]
        environment["PYTHONPATH"] = os.pathsep.join([*paths, *known])
        environment[VARIABLE] = str(self.root)
        return environment


def locate() -> Host:
    """The NeMo RL of ``NEMO_RL_PATH`` (the first, if several are given), else the installed one.

    Raises:
        PrerequisiteError: there is none, or the path holds something else.
    """
    named = os.environ.get(VARIABLE, "").split(os.pathsep)[0]
    if named:
        return _host(Path(named).expanduser().resolve(), f"{VARIABLE}={named}")
    spec = importlib.util.find_spec("nemo_rl")
    if spec is None or spec.origin is None:  # any folder of that name is a namespace package
        raise PrerequisiteError(
            "NeMo RL was not found. Run inside its container, or name a checkout: "
            f"git clone https://github.com/NVIDIA-NeMo/RL && export {VARIABLE}=$PWD/RL"
        )
    return _host(Path(spec.origin).resolve().parents[1], "the installed nemo_rl")


def _host(root: Path, origin: str) -> Host:
    for needed in (Path("nemo_rl", "__init__.py"), MAIN):
        if not (root / needed).is_file():
            raise PrerequisiteError(f"{origin} is not a NeMo RL checkout: it has no {needed}")
    git = subprocess.run(
        ["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=False, timeout=30
    )
    return Host(root, git.stdout.strip() if git.returncode == 0 else "")
