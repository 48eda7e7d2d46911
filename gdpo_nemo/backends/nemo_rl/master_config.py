"""Ask NeMo RL's own MasterConfig whether it takes some configurations.

python -m gdpo_nemo.backends.nemo_rl.master_config FILE.yaml [FILE.yaml ...]

Prints one line of JSON: for each file the list of errors (dotted key and message), or which package is missing.
Importing NeMo RL takes torch, Ray and half a minute, so ``ask`` starts one such process for all configurations.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from gdpo_nemo.backends.nemo_rl.host import VARIABLE, Host, locate
from gdpo_nemo.cluster.rules import Opinion, Violation
from gdpo_nemo.errors import PrerequisiteError

NAME = "NeMo RL's MasterConfig"
MODULE = "gdpo_nemo.backends.nemo_rl.master_config"
NEEDED = ("torch", "ray", "datasets", "transformers", "torchdata", "tensordict")
"""What NeMo RL's configuration classes import first; the process itself says what else is missing."""
TIME_LIMIT = 600
"""Seconds: about 30 for the imports and 0.3 for each configuration, the rest for a machine that does other things."""


def ask(configs: Sequence[Mapping[str, Any]]) -> list[Opinion]:
    """What MasterConfig says of each configuration, or why it was not asked.

    Args:
        configs: whole configurations, as ``ClusterRun.whole``.
    """
    found = _host()
    if isinstance(found, str):
        return [Opinion(NAME, unasked=found)] * len(configs)
    answer = _answer(found, configs)
    if isinstance(answer, str):
        return [Opinion(NAME, unasked=answer)] * len(configs)
    who = f"the MasterConfig of {found.description}"
    return [Opinion(who, tuple(map(_violation, errors))) for errors in answer]


def _host() -> Host | str:
    """NeMo RL, or why this Python cannot import it."""
    try:
        found = locate()
    except PrerequisiteError as error:
        return str(error) if os.environ.get(VARIABLE) else f"{VARIABLE} names no checkout"
    missing = [name for name in NEEDED if find_spec(name) is None]
    return f"this Python has no {', '.join(missing)}" if missing else found


def _answer(found: Host, configs: Iterable[Mapping[str, Any]]) -> list[list[dict[str, str]]] | str:
    """Errors of each configuration, or why there is no answer."""
    with tempfile.TemporaryDirectory(prefix="gdpo-plan-") as folder:
        files = []
        for index, config in enumerate(configs):
            files.append(Path(folder, f"{index}.yaml"))
            files[-1].write_text(yaml.safe_dump(dict(config), sort_keys=False), "utf-8")
        try:
            done = subprocess.run(
                [sys.executable, "-m", MODULE, *map(str, files)],
                env=found.environment(),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=TIME_LIMIT,
            )
        except subprocess.TimeoutExpired:
            return f"it did not answer in {TIME_LIMIT} s"
    answer = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {}
    if "errors" not in answer:
        said = str(answer.get("missing") or done.stderr).strip().splitlines()
        return f"importing {found.description} failed: {said[-1] if said else f'exit code {done.returncode}'}"
    errors: list[list[dict[str, str]]] = answer["errors"]
    return errors


def _violation(error: Mapping[str, str]) -> Violation:
    return Violation(error["key"], f"{error['message']} ({NAME})", None, known=False)


def main(paths: Sequence[str]) -> None:
    """Answer for these files; what the imports print goes to standard error."""
    with contextlib.redirect_stdout(sys.stderr):
        try:
            from nemo_rl.algorithms.grpo import MasterConfig
        except ImportError as error:
            answer: dict[str, Any] = {"missing": str(error)}
        else:
            answer = {"errors": [_errors(MasterConfig, path) for path in paths]}
    print(json.dumps(answer), flush=True)


def _errors(master_config: Any, path: str) -> list[dict[str, str]]:
    """What NeMo RL's main would stop at, before it starts anything."""
    from nemo_rl.utils.config import load_config, register_omegaconf_resolvers
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from pydantic import ValidationError

    register_omegaconf_resolvers()
    config: Any = None
    try:
        config = OmegaConf.to_container(load_config(path), resolve=True)
        master_config(**config)
    except OmegaConfBaseException as error:
        return [{"key": str(error.full_key or ""), "message": str(error.msg or error).splitlines()[0]}]
    except ValidationError as error:
        return keyed(error.errors(), config)
    return []


def keyed(errors: Iterable[Mapping[str, Any]], config: Mapping[str, Any]) -> list[dict[str, str]]:
    """Pydantic's errors by the key of the configuration, one for each.

    A union is reported once for each of its branches, and the branch's name stands in the location. A branch for
    another literal value of ``enabled`` describes another kind of section, and is left out if there are others.

    Args:
        errors: as ``ValidationError.errors()``.
        config: what was validated.
    """
    placed = [(*_place(error, config), error) for error in errors]
    ruled_out = {
        branch
        for _, branch, error in placed
        if branch and error["type"] == "literal_error" and error["loc"][-1] == "enabled"
    }
    messages: dict[str, list[str]] = {}
    for key, branch, error in placed:
        others = any(other and other not in ruled_out and other[:-1] == branch[:-1] for _, other, _ in placed)
        if branch not in ruled_out or not others:
            messages.setdefault(key, []).append(_message(error))
    return [{"key": key, "message": " or: ".join(dict.fromkeys(texts))} for key, texts in messages.items()]


def _place(error: Mapping[str, Any], config: Any) -> tuple[str, tuple[Any, ...]]:
    """The dotted key of an error, and its location up to the first name of a union's branch (empty: no union)."""
    key = ""
    branch: tuple[Any, ...] = ()
    location = error["loc"]
    for index, part in enumerate(location):
        last = index == len(location) - 1
        if isinstance(config, Mapping) and (part in config or (last and error["type"] == "missing")):
            key, config = f"{key}.{part}".lstrip("."), config.get(part)
        elif isinstance(config, list) and isinstance(part, int):
            key, config = f"{key}[{part}]", config[part]
        elif not branch:
            branch = tuple(location[: index + 1])
    return key, branch


def _message(error: Mapping[str, Any]) -> str:
    value = error["input"]
    shown = error["type"] != "missing" and not isinstance(value, Mapping | list)
    return f"{error['msg']}, not {value!r}" if shown else str(error["msg"])


if __name__ == "__main__":
    main(sys.argv[1:])
