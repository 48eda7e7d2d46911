"""From what was asked for to resolved configurations and directories: arms x seeds of one experiment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gdpo_nemo.errors import ConfigError, RunDirError, UnknownNameError, UsageError
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.run_tree import RunTree
from gdpo_nemo.suite.experiment import SMOKE_OVERRIDES, Experiment
from gdpo_nemo.suite.programs import Program
from gdpo_nemo.suite.seeds import ranges, seeds_left_out
from gdpo_nemo.suite.stored import check_comparable, damage, grading, total_steps

if TYPE_CHECKING:
    from gdpo_nemo.config import RunConfig

HUB_ID = re.compile(r"[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*")


@dataclass(frozen=True)
class Selection:
    """The part of an experiment that a command is about.

    Attributes:
        program: the experiment and where its configs lie.
        scale, arms, seeds: as declared or as asked for.
        model: a config of ``configs/model/``, a local directory or a hub id.
        out: folder above all experiments.
        smoke: a few small steps of every stage.
        overrides: dotted ``key=value``, applied last.
        arms_named: whether the arms were asked for; a table has all arms with runs else.
        seeds_named: whether the seeds were asked for; ``status`` shows all with runs else.
    """

    program: Program
    scale: str
    arms: tuple[str, ...]
    seeds: tuple[int, ...]
    model: str
    out: Path
    smoke: bool = False
    overrides: tuple[str, ...] = ()
    arms_named: bool = False
    seeds_named: bool = False

    @property
    def experiment(self) -> Experiment:
        """The experiment."""
        return self.program.experiment

    @property
    def model_name(self) -> str:
        """The model as it stands in paths and tables."""
        return model_slug(self.model)

    @property
    def options(self) -> tuple[str, ...]:
        """The arms and seeds as options, where they are not those that the experiment declares."""
        seeds = ("--seeds", ranges(self.seeds)) if self.seeds != self.experiment.default_seeds(self.scale) else ()
        return (*(("--arms", ",".join(self.arms)) if self.arms_named else ()), *seeds)

    @property
    def tree(self) -> RunTree:
        """Where the runs are."""
        return RunTree(self.out / self.experiment.name / self.scale / self.model_name)

    def pairs(self) -> Iterator[tuple[str, int]]:
        """Selected (arm, seed), one seed of every arm before the next seed."""
        return ((arm, seed) for seed in self.seeds for arm in self.arms)

    def covered(self) -> dict[tuple[str, int], RunDir]:
        """The selected runs and, where arms or seeds were not named, all others on disk; in the order of the table."""
        others = [key for key in self._found() if key[1] in self.seeds or not self.seeds_named]
        return self._ordered({*self.pairs(), *others})

    def compared(self) -> dict[tuple[str, int], RunDir]:
        """The runs of a table: the selected seeds of the selected arms and, unless those were named, of all with runs.

        Selected runs are there whether they were started or not.
        """
        others = [key for key in self._found() if key[1] in self.seeds]
        return self._ordered({*self.pairs(), *others})

    def seeds_left_out(self) -> str:
        """As the function ``seeds_left_out``."""
        return seeds_left_out(self._ordered(self._found()), self.seeds)

    def _found(self) -> list[tuple[str, int]]:
        """Runs on disk, of the selected arms alone where these were named."""
        return [key for key in self.tree.found() if key[0] in self.arms or not self.arms_named]

    def _ordered(self, keys: Iterable[tuple[str, int]]) -> dict[tuple[str, int], RunDir]:
        names = [arm.name for arm in self.experiment.arms]
        ordered = sorted((key for key in keys if key[0] in names), key=lambda key: (names.index(key[0]), key[1]))
        return {(arm, seed): self.tree.run(arm, seed) for arm, seed in ordered}

    def base_is_shared(self, base: RunDir) -> bool:
        """Whether runs outside this selection started from that warm-up."""
        mine = set(self.pairs())
        others = (run for key, run in self.tree.found().items() if key not in mine)
        return any(damage(run) or run.config()["base"] == base.path.name for run in others)


@dataclass(frozen=True)
class Run:
    """One run: what it is and where it lies."""

    name: str
    config: RunConfig
    dir: RunDir

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The configuration as stored in the directory."""
        return self.config.model_dump(mode="json")

    @property
    def total_steps(self) -> int:
        """Steps of the whole run."""
        return total_steps(self.settings)


@dataclass(frozen=True)
class Grid:
    """The resolved runs of a selection and the warm-up that they start from."""

    base: Run
    runs: tuple[Run, ...]

    def damaged(self) -> dict[str, str]:
        """Name -> what cannot be read and what to do, of the runs that are therefore left out."""
        return {run.name: text for run in self.runs if (text := damage(run.dir))}

    def check(self, tree: RunTree, fresh: bool) -> None:
        """Fail where a run would: work under way, a directory made for another configuration, incomparable runs.

        Runs that cannot be read are left out, the warm-up excepted.

        Raises:
            RunDirError: the message names the keys and the ways out.
        """
        if tree.is_locked():
            raise RunDirError(f"runs are under way in {tree.path}; `status` shows them, wait or stop that process")
        mine = {run.dir.path: run for run in self.runs}
        others = [run for run in tree.found().values() if run.path not in mine and not damage(run)]
        if not fresh:
            left_out = self.damaged()
            for run in (self.base, *(run for run in self.runs if run.name not in left_out)):
                run.dir.check_config(run.settings)
        check_comparable({run.dir.path: run.settings for run in self.runs} | {run.path: run.config() for run in others})


def resolve(selection: Selection) -> Grid:
    """Every configuration of a selection, validated.

    Raises:
        ConfigError, UsageError, UnknownNameError: a file, key, value or name is wrong.
    """
    from gdpo_nemo.backends.embedded import base_hash
    from gdpo_nemo.config import GdpoConfig, RunConfig, TrainConfig, content_hash, validate
    from gdpo_nemo.method import Method
    from gdpo_nemo.source import row_source, settle

    arms: dict[str, RunConfig] = {}
    bases: dict[str, RunConfig] = {}
    for arm in selection.arms:
        config = settle(validate(RunConfig, _merged(selection, arm), origin=f"the configuration of {arm}"))
        Method(config.gdpo)
        evaluation = config.embedded.evaluation
        row_source(config.gdpo, config.embedded.data).questions(evaluation.questions, evaluation.seed)
        base = RunConfig(
            kind="warmup",
            seed=config.embedded.warmup.seed,
            gdpo=validate(GdpoConfig, grading(config.gdpo.model_dump(mode="json"))),
            embedded=config.embedded.model_copy(
                update={"train": TrainConfig(max_new_tokens=config.embedded.train.max_new_tokens)}
            ),
        )
        name = content_hash(base_hash(config.embedded), base.model_dump(mode="json"))
        bases[name] = base
        arms[arm] = config.model_copy(update={"base": name})
    if len(bases) > 1:
        raise ConfigError(
            f"the arms {', '.join(arms)} would start from {len(bases)} different models; embedded.model, .data, "
            ".warmup and .evaluation must be the same in all arms, and so must gdpo.data and the rewards of your own"
        )
    [(base_name, base)] = bases.items()
    runs = tuple(
        Run(f"{arm} seed{seed}", arms[arm].model_copy(update={"seed": seed}), selection.tree.run(arm, seed))
        for arm, seed in selection.pairs()
    )
    return Grid(Run("warm-up", base, selection.tree.base(base_name)), runs)


def declared(selection: Selection, arm: str) -> dict[str, Any]:
    """What the experiment configures for an arm, as a run's directory stores it; kind, seed and base aside.

    Raises:
        GdpoError: a file, key, value or name is wrong.
    """
    from gdpo_nemo.config import RunConfig, validate
    from gdpo_nemo.source import settle

    config = settle(validate(RunConfig, _merged(selection, arm), origin=f"the configuration of {arm}"))
    settings = config.model_dump(mode="json")
    return {block: settings[block] for block in ("gdpo", "embedded")}


def _merged(selection: Selection, arm: str) -> dict[str, Any]:
    from gdpo_nemo.config import load_yaml

    files = selection.program.files(arm, selection.scale)
    model_file, model_name = _find_model(selection.model, selection.program.configs)
    smoke = SMOKE_OVERRIDES[selection.scale] if selection.smoke else ()
    data = load_yaml([*files, *model_file], [*smoke, *selection.overrides])
    for key in data:
        if key not in ("gdpo", "embedded"):
            raise UsageError(f"cannot set {key!r} here; configuration keys start with gdpo. or embedded.")
    if named := load_yaml(files).get("embedded", {}).get("model", {}).get("name"):
        raise UsageError(f"{files[0]} sets embedded.model.name; name the model with --model {named} instead")
    if model_name:
        data.setdefault("embedded", {}).setdefault("model", {})["name"] = model_name
    return data


def _find_model(model: str, configs: Path) -> tuple[list[Path], str | None]:
    """The config file of a model, or what goes into ``embedded.model.name``."""
    known = {path.stem: path for path in (configs / "model").glob("*.yaml")}
    if model in known:
        return [known[model]], None
    if Path(model).is_dir():
        return [], str(Path(model).resolve())
    if HUB_ID.fullmatch(model):
        return [], model
    raise UsageError(
        f"{UnknownNameError('model', model, sorted(known))} Or a local directory, or owner/name on the hub."
    )


def model_slug(model: str) -> str:
    """A model's name as one safe path component.

    Raises:
        UsageError: nothing is left of it.
    """
    name = Path(model).resolve().name if Path(model).is_dir() else model
    slug = re.sub(r"[^A-Za-z0-9._-]+", "--", name).strip(".-")
    if not slug:
        raise UsageError(f"cannot name a directory after model {model!r}")
    return slug


def split_names(text: str) -> Sequence[str]:
    """The names of a comma-separated list."""
    return [name.strip() for name in text.split(",") if name.strip()]
