"""``gdpo doctor``: what this machine has and lacks for each thing that can be done here. It changes nothing."""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gdpo_nemo import provenance
from gdpo_nemo.errors import PrerequisiteError
from gdpo_nemo.suite.answer import Answer
from gdpo_nemo.terminal import sentences, table

NEEDS: dict[str, tuple[tuple[str, ...], str]] = {
    "run at embedded scale": (("torch", "transformers", "tokenizers", "safetensors", "tqdm"), "embedded"),
    "report with figures": (("matplotlib",), "report"),
    "grade mathematics": (("math_verify", "sympy"), "math"),
    "evaluate over an endpoint": (("httpx",), "eval"),
    "evaluate with vLLM": (("vllm",), "vllm"),
    "read parquet": (("pyarrow",), "data"),
    "read the Hugging Face hub": (("datasets",), "data"),
    "track in TensorBoard and W&B": (("tensorboard", "wandb"), "track"),
}
"""What for -> the modules it takes, and the extra that brings them."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        name: what for.
        ok: whether it is there.
        text: what was found or, when it is not there, the next move.
    """

    name: str
    ok: bool
    text: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None of its own."""


def answer(options: argparse.Namespace) -> Answer:
    """Look at everything; exit code 3 when the sandbox, which a user cannot install, gives no isolation."""
    from gdpo_nemo.sandbox.probe import probe

    sandbox = probe()
    found = [_machine(), *map(_modules, NEEDS), _gpu(), _nemo_rl(), _rehearsal(), _git()]
    found.append(Finding("run programs of models", sandbox.chosen is not None, sandbox.lines()[-1]))
    lines = table([["ok" if one.ok else "--", one.name, one.text] for one in found])
    layers = sentences(sandbox.lines(), "  ")
    data: dict[str, Any] = {
        "findings": [vars(one) for one in found],
        "sandbox": json.loads(sandbox.to_json()),
    }
    exit_code = 0 if sandbox.chosen else PrerequisiteError.exit_code
    return Answer(f"{lines}\n\nSandbox, each layer tried:\n{layers}", data, exit_code)


def _machine() -> Finding:
    found = provenance.collect([])["machine"]
    text = f"Python {platform.python_version()}, {found['cores']} cores, {found['memory_gib']} GiB, {found['cpu']}"
    return Finding("this machine", True, text)


def _modules(what: str) -> Finding:
    modules, extra = NEEDS[what]
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        return Finding(what, False, f"no {_packages(missing)}: pip install 'gdpo-nemo[{extra}]'")
    return Finding(what, True, _packages(modules))


def _packages(modules: Sequence[str]) -> str:
    return ", ".join(modules).replace("_", "-")


def _gpu() -> Finding:
    found = provenance.gpus()
    text = ", ".join(f"{gpu['name']} {gpu['memory.total']}" for gpu in found)
    return Finding("train at paper scale here", bool(found), text or "no NVIDIA GPU; submit with gdpo launch")


def _nemo_rl() -> Finding:
    from gdpo_nemo.backends.nemo_rl import host

    try:
        return Finding("NeMo RL", True, host.locate().description)
    except PrerequisiteError as error:
        return Finding("NeMo RL", False, str(error))


def _rehearsal() -> Finding:
    from gdpo_nemo.backends.nemo_rl.rehearsal.run import NEEDED, NEEDED_BY, check_packages

    what = "rehearse every task"
    try:
        for task in NEEDED_BY:
            check_packages(task)
    except PrerequisiteError as error:
        return Finding(what, False, str(error))
    return Finding(what, True, ", ".join((*NEEDED, *(name for own in NEEDED_BY.values() for name in own))))


def _git() -> Finding:
    there = shutil.which("git") is not None
    return Finding("name the commit of a run", there, "git" if there else "no git: runs are recorded without a commit")
