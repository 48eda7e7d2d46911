"""What run directories of the embedded backend hold: warm-ups, length, damage, and whether they can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gdpo_nemo.differences import differing_keys
from gdpo_nemo.errors import RunDirError
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.run_tree import RunTree


def bases(runs: Iterable[RunDir]) -> list[RunDir]:
    """The warm-ups that the claimed ones among some runs start from, those left out that cannot be read."""
    claimed = (run for run in runs if run.exists() and not damage(run))
    paths = dict.fromkeys(RunTree(run.path.parent.parent).base(run.config()["base"]).path for run in claimed)
    return [RunDir(path) for path in paths]


def damage(run: RunDir) -> str | None:
    """``RunDir.damage``, and what the configuration of a run at this scale lacks."""
    text = run.damage()
    if text is None and run.exists():
        try:
            config = run.config()
            total_steps(config), _shared(config)
        except (KeyError, TypeError, ValueError) as error:
            text = (
                f"{run.path}: its configuration is not whole ({type(error).__name__}: {error}). Move the folder away "
                "and start the run again"
            )
    return text


def total_steps(settings: Mapping[str, Any]) -> int:
    """Steps of the run that a stored configuration describes."""
    embedded = settings["embedded"]
    if settings["kind"] == "warmup":
        return int(embedded["warmup"]["clean_steps"] + embedded["warmup"]["noisy_steps"])
    return int(embedded["train"]["steps"])


def check_comparable(settings: Mapping[Path, Mapping[str, Any]]) -> None:
    """Runs may stand in one table when seeds of an arm differ in the seed only, and arms in the method only.

    Raises:
        RunDirError: two runs differ in more; the message names the keys.
    """
    first_of: dict[str, Path] = {}
    for path, config in settings.items():
        for group, view in (("all arms", _shared), (path.parent.name, _without_seed)):
            first = first_of.setdefault(group, path)
            differing = list(differing_keys(view(settings[first]), view(config)))
            if differing:
                listing = "\n".join(f"  {key}: {old!r} and {new!r}" for key, old, new in differing[:8])
                raise RunDirError(
                    f"{first} and {path} differ in more than their arm and seed, so one table cannot compare them:\n"
                    f"{listing}\nRun one of them again with the settings of the other (--fresh), or use another --out."
                )


def _without_seed(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key != "seed"}


def _shared(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "embedded": config["embedded"],
        "base": config["base"],
        "gdpo": grading(config["gdpo"]),
    }


def grading(gdpo: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the rows and their raw rewards, the same in all arms; the rest of the block is the method."""
    own = {
        name: {key: value for key, value in spec.items() if key not in ("weight", "condition", "normalise")}
        for name, spec in gdpo["rewards"].items()
        if spec.get("fn") or spec.get("judge")
    }
    return {key: gdpo[key] for key in ("task", "task_options", "python_path", "data") if key in gdpo} | {"rewards": own}
