"""Experiments are programs, found and loaded by path: ``repro/<name>.py`` beside ``configs/<name>/``.

A configuration anywhere else is an experiment of its own, named after its folder: the file is the arm that runs, and
files beside it that set ``gdpo.method`` are further arms (``--arms all``). It has one column per reward, and no claims.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import gdpo_nemo
from gdpo_nemo.errors import GdpoError, PrerequisiteError, UnknownNameError, UsageError
from gdpo_nemo.report.spec import Column, Exhibit
from gdpo_nemo.suite.experiment import Arm, Experiment


@dataclass(frozen=True)
class Program:
    """An experiment and the script that declares it.

    Attributes:
        experiment: what the script declares.
        script: its path; ``configs/`` lies beside the script's folder. Of a free-standing configuration: its own path.
        arms: the arms that the target named, None when it named the whole experiment.
    """

    experiment: Experiment
    script: Path
    arms: tuple[str, ...] | None = None

    @property
    def is_free(self) -> bool:
        """Whether this is a configuration by itself, without a script."""
        return self.script.suffix != ".py"

    @property
    def configs(self) -> Path:
        """The folder with ``model/`` and, for a script, ``<experiment>/``."""
        return (programs_root() if self.is_free else self.script.parent.parent) / "configs"

    def files(self, arm: str, scale: str) -> list[Path]:
        """What configures an arm at a scale."""
        if self.is_free:
            return [self.script.with_name(f"{arm}{self.script.suffix}")]
        return [self.configs / self.experiment.name / f"{name}.yaml" for name in (arm, scale)]


def programs_root() -> Path:
    """The folder that holds ``repro/`` and ``configs/``: inside an installed wheel, or the checkout.

    Raises:
        PrerequisiteError: neither has them.
    """
    package = Path(gdpo_nemo.__file__).resolve().parent
    for root in (package / "_programs", package.parent):
        if (root / "repro").is_dir() and (root / "configs").is_dir():
            return root
    raise PrerequisiteError(
        f"no repro/ and configs/ in {package / '_programs'} or {package.parent}; reinstall gdpo-nemo"
    )


def all_programs() -> list[Program]:
    """Every experiment that ships with the package, by name."""
    return [load(script) for script in _scripts()]


def find(target: str) -> Program:
    """The experiment that a name, a script path or the path of a config stands for.

    Raises:
        UnknownNameError: nothing answers to the target.
        UsageError: the target is a file of another kind.
    """
    path = Path(target)
    scripts = {script.stem: script for script in _scripts()}
    if path.suffix in (".yaml", ".yml"):
        return _of_config(path, scripts)
    if path.suffix == ".py":
        return load(existing(path))
    if target not in scripts:
        raise unknown_target(target)
    return load(scripts[target])


def exhibits() -> dict[str, tuple[Program, Exhibit]]:
    """The paper's tables and figures by name, each with the experiment that declares it."""
    return {exhibit.name: (program, exhibit) for program in all_programs() for exhibit in program.experiment.exhibits}


def targets() -> list[str]:
    """The names of all experiments, tables and figures."""
    return [*(script.stem for script in _scripts()), *exhibits()]


def unknown_target(target: str, also: Iterable[str] = ()) -> GdpoError:
    """The error about a target that names no experiment, the same for every command.

    Args:
        target: what was given.
        also: further names that the command takes.
    """
    known = exhibits()
    if target in known:
        return UsageError(
            f"{target} is one of the paper's tables and figures, for report, check, power and explain; here name its "
            f"experiment: {known[target][0].experiment.name}"
        )
    if Path(target).is_dir():
        return UsageError(
            f"{target} is a folder; name an experiment ({', '.join(script.stem for script in _scripts())}), and the "
            "folder of all runs with --out"
        )
    if os.sep in target:
        return UsageError(f"there is no {target}; `gdpo list` shows the experiments and where their runs are")
    return UnknownNameError("experiment, table or figure", target, [*targets(), *also])


def load(script: Path) -> Program:
    """Execute a script under a private module name and take its ``EXPERIMENT``.

    Raises:
        UsageError: it declares none.
    """
    name = f"_gdpo_program_{script.stem}"
    spec = importlib.util.spec_from_file_location(name, script)
    assert spec is not None and spec.loader is not None, script
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses of the script look their module up here
    spec.loader.exec_module(module)
    experiment = getattr(module, "EXPERIMENT", None)
    if not isinstance(experiment, Experiment):
        raise UsageError(f"{script} declares no EXPERIMENT = Experiment(...); see {programs_root() / 'repro'}")
    return Program(experiment, script.resolve())


def _scripts() -> list[Path]:
    return sorted((programs_root() / "repro").glob("*.py"))


def existing(path: Path) -> Path:
    """The file as seen from here or, for a path such as ``configs/tool_calling/gdpo.yaml``, from the programs.

    Raises:
        UsageError: neither has it.
    """
    for candidate in (path, programs_root() / path):
        if candidate.is_file():
            return candidate.resolve()
    raise UsageError(f"no file {path}, neither from here nor in {programs_root()}")


def _of_config(path: Path, scripts: dict[str, Path]) -> Program:
    config = existing(path)
    experiment = config.parent.name
    if experiment not in scripts:
        if config.is_relative_to((programs_root() / "configs").resolve()):
            raise UnknownNameError("experiment", experiment, scripts)
        return Program(_free_standing(config), config, (config.stem,))
    program = load(scripts[experiment])
    expected = program.configs / experiment / config.name
    if config != expected.resolve():
        raise UsageError(f"{path} is not a config of experiment {experiment}; those lie in {expected.parent}")
    return Program(program.experiment, program.script, (program.experiment.arm(config.stem).name,))


def _free_standing(config: Path) -> Experiment:
    from gdpo_nemo.config import GdpoConfig, load_yaml, validate
    from gdpo_nemo.method import reward_ranges

    block = validate(GdpoConfig, load_yaml([config]).get("gdpo") or {}, origin=f"gdpo of {config}")
    rewards = [name for name in reward_ranges(block) if not block.rewards or name in block.rewards]
    arms = [path.stem for path in sorted(config.parent.glob(f"*{config.suffix}")) if path == config or _is_arm(path)]
    return Experiment(
        name=config.parent.name,
        title=f"{config.parent.name}: {', '.join(rewards)}",
        arms=[Arm(name, name, default=name == config.stem) for name in arms],
        seeds={"embedded": (0,)},
        columns=[Column(name, name, reward=name, unit="", digits=3) for name in rewards],
        curves=rewards,
    )


def _is_arm(path: Path) -> bool:
    """Whether a file sets ``gdpo.method`` itself, as those of arms do and those they build on need not."""
    import yaml

    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):
        return False
    block = content.get("gdpo") if isinstance(content, dict) else None
    return isinstance(block, dict) and "method" in block
