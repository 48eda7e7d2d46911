"""What is known of a version of NeMo RL: its example recipes and its configuration keys.

Read from a checkout, or from one of the data files that ship with this package (one per supported commit).
"""

from __future__ import annotations

import json
import os
import posixpath
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gdpo_nemo.cluster.annotations import Key, declared_keys
from gdpo_nemo.composing import Source, read_yaml
from gdpo_nemo.errors import PrerequisiteError, UnknownNameError

FACTS = Path(__file__).parent / "facts"
PINNED = "81aa43d"
EXAMPLES = "examples/configs"
SCHEME = "nemo_rl"


@dataclass(frozen=True)
class Host:
    """One version of NeMo RL.

    Attributes:
        commit: of NeMo RL's repository, or what is known instead.
        origin: in words, where all this was read.
        keys: known configuration keys by dotted path (see ``annotations``).
        recipe: content of a file of the repository, by its path there.
        checkout: the folder, when there is one.
    """

    commit: str
    origin: str
    keys: Mapping[str, Key]
    recipe: Source
    checkout: Path | None = None


def find_host(checkout: Path | None = None) -> Host:
    """The given checkout, else the first one that ``NEMO_RL_PATH`` names, else the packaged facts of the pinned tag.

    Raises:
        PrerequisiteError: the folder is not a checkout of NeMo RL.
    """
    first = os.environ.get("NEMO_RL_PATH", "").split(os.pathsep)[0]
    folder = checkout or (Path(first) if first else None)
    return of_checkout(folder.resolve()) if folder else packaged()


@cache
def of_checkout(folder: Path) -> Host:
    """Read a checkout.

    Raises:
        PrerequisiteError: it is none.
    """
    if not (folder / EXAMPLES).is_dir():
        raise PrerequisiteError(f"{folder} is not a checkout of NeMo RL: it has no {EXAMPLES}; check NEMO_RL_PATH")
    commit = _commit(folder)
    keys = declared_keys(folder)
    keys |= example_keys(_grpo_examples(folder), keys)
    return Host(commit, f"the checkout {folder} ({commit[:7]})", keys, lambda name: read_yaml(folder / name), folder)


@cache
def packaged(commit: str = PINNED) -> Host:
    """The facts file of a supported commit, by the first digits of its name.

    Raises:
        UnknownNameError: no facts of that commit ship with this package.
    """
    names = sorted(path.stem for path in FACTS.glob("*.json"))
    if commit not in names:
        raise UnknownNameError("NeMo RL commit", commit, names)
    facts = json.loads((FACTS / f"{commit}.json").read_text("utf-8"))
    required = set(facts["required"])
    recipes = facts["recipes"]

    def recipe(name: str) -> Mapping[str, Any]:
        if name not in recipes:
            raise UnknownNameError(f"recipe in the packaged facts of NeMo RL {facts['version']}", name, recipes)
        content: Mapping[str, Any] = recipes[name]
        return content

    return Host(
        facts["commit"],
        f"the packaged facts of NeMo RL {facts['version']} ({commit}); no checkout was read",
        {path: Key(text, path in required) for path, text in facts["keys"].items()},
        recipe,
    )


def example_keys(examples: Iterable[Mapping[str, Any]], declared: Mapping[str, Key]) -> dict[str, Key]:
    """Keys that example recipes set and no class declares; their values are not checked."""
    found: dict[str, Key] = {}

    def walk(section: Mapping[str, Any], path: str) -> None:
        for name, value in section.items():
            key = f"{path}.{name}".lstrip(".")
            if key == "defaults" or (name == "_override_" and "." not in path):
                continue
            if key not in declared:
                found[key] = Key("Any")
            if isinstance(value, Mapping) and f"{key}.*" not in declared:
                walk(value, key)
            for item in value if isinstance(value, list) and f"{key}.[]" in declared else ():
                walk(item if isinstance(item, Mapping) else {}, f"{key}.[]")

    for example in examples:
        walk(example, "")
    return found


def _grpo_examples(folder: Path) -> list[Mapping[str, Any]]:
    """The example files that configure GRPO, or build on one that does."""
    names = [str(path.relative_to(folder)) for path in sorted((folder / "examples").rglob("*.yaml"))]
    contents = {name: read_yaml(folder / name) for name in names}

    @cache
    def is_grpo(name: str) -> bool:
        content = contents.get(name, {})
        parents = content.get("defaults") or []
        parents = [parents] if isinstance(parents, str) else parents
        beside = (posixpath.normpath(posixpath.join(posixpath.dirname(name), parent)) for parent in parents)
        return "grpo" in content or any(is_grpo(parent) for parent in beside)

    return [content for name, content in contents.items() if is_grpo(name)]


def _commit(folder: Path) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return "unknown commit"
    return done.stdout.strip() if done.returncode == 0 else "unknown commit"
