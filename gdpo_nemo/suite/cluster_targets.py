"""From what was asked for to composed cluster runs: one YAML file, or a task's arms on a model and a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gdpo_nemo.cluster.host import SCHEME, find_host
from gdpo_nemo.cluster.plan import violations
from gdpo_nemo.cluster.recipes import ClusterRun, load_cluster_run
from gdpo_nemo.composing import merge_yaml
from gdpo_nemo.errors import UnknownNameError, UsageError
from gdpo_nemo.run_tree import RunTree
from gdpo_nemo.suite import programs
from gdpo_nemo.suite.grid import HUB_ID, model_slug

SCALE, PAPER_FILE = "paper", "paper.yaml"
ONE_NODE = "1n8g"
SECTIONS = ("policy", "grpo", "cluster")
# The models of the paper's tables, by task.
PAPER_MODELS = {
    "tool_calling": ("qwen2.5-1.5b-instruct", "qwen2.5-3b-instruct"),
    "math_length": ("deepseek-r1-distill-qwen-1.5b", "deepseek-r1-distill-qwen-7b", "qwen3-4b-instruct"),
    "code_reasoning": ("deepseek-r1-distill-qwen-7b",),
    "gsm8k": ("qwen2.5-1.5b-instruct",),
}


@dataclass(frozen=True)
class Request:
    """What a command line asks for.

    Attributes:
        target: a task, its script, the config of one arm, or a YAML file with NeMo RL's sections.
        scale, model, cluster, gpu: as on the command line; None where not given.
        arms, seeds: as on the command line; None: those of the experiment.
        overrides: dotted ``key=value``, applied last.
    """

    target: str
    scale: str = "embedded"
    model: str | None = None
    cluster: str | None = None
    gpu: str = "h100"
    arms: Sequence[str] | None = None
    seeds: Sequence[int] | None = None
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class Target:
    """One composed run, without a seed.

    Attributes:
        experiment, arm, model: names, as in paths.
        run: the configuration.
        seeds: to run it with.
    """

    experiment: str
    arm: str
    model: str
    run: ClusterRun
    seeds: tuple[int, ...]

    def tree(self, out: Path) -> RunTree:
        """Where its runs lie under the folder of all runs."""
        return RunTree(out / self.experiment / SCALE / self.model)


def is_cluster_target(target: str, scale: str) -> bool:
    """Whether a target is about a cluster: the paper's scale, or a YAML file with sections of NeMo RL."""
    path = Path(target)
    if scale == SCALE or path.suffix not in (".yaml", ".yml"):
        return scale == SCALE
    return any(section in merge_yaml([programs.existing(path)], (), _sources()) for section in SECTIONS)


def compose(request: Request) -> list[Target]:
    """Every run of a request, models outermost, arms inside.

    Raises:
        GdpoError: a file, key, name or type is wrong.
    """
    path = Path(request.target)
    if path.suffix in (".yaml", ".yml") and not _is_arm(programs.existing(path)):
        return [_of_file(programs.existing(path), request)]
    task = _Task.of(request)
    models = [request.model] if request.model else list(PAPER_MODELS.get(task.name, ()))
    if not models:
        raise UsageError(f"the paper has no models for {task.name}; name one with --model")
    return [target for model in models for target in task.targets(model, request)]


def _is_arm(path: Path) -> bool:
    """Whether a file is the ``gdpo:`` block of a task that has a paper scale."""
    return path.name != PAPER_FILE and (path.parent / PAPER_FILE).is_file()


def _of_file(path: Path, request: Request) -> Target:
    """A file with NeMo RL's sections as it is; one without them on top of what every cluster run sets."""
    configs = programs.programs_root() / "configs"
    model_files, overrides = _model(configs, request.model)
    files = [path, *model_files]
    if not is_cluster_target(str(path), ""):
        files = [configs / "nemo_rl" / "base.yaml", *files, _named(configs, "cluster", request.cluster or ONE_NODE)]
    elif request.cluster:
        files.append(_named(configs, "cluster", request.cluster))
    run = load_cluster_run(files, [*overrides, *request.overrides])
    model = model_slug(request.model or str(run.nemo["policy"]["model_name"]))
    return Target(path.parent.name, path.stem, model, run, tuple(request.seeds or (0,)))


@dataclass(frozen=True)
class _Task:
    """A task with a paper scale: its configs, name, arms (None: paper.yaml as it is) and seeds."""

    configs: Path
    name: str
    arms: tuple[str | None, ...]
    seeds: tuple[int, ...]

    @classmethod
    def of(cls, request: Request) -> _Task:
        root = programs.programs_root()
        alone = root / "configs" / request.target / PAPER_FILE
        if alone.is_file() and not (root / "repro" / f"{request.target}.py").is_file():
            return cls(root / "configs", request.target, tuple(request.arms or [None]), tuple(request.seeds or (0,)))
        program = programs.find(request.target)
        experiment = program.experiment
        if not (program.configs / experiment.name / PAPER_FILE).is_file():
            raise UsageError(
                f"{experiment.name} has no paper scale: no {program.configs / experiment.name / 'paper.yaml'}"
            )
        arms = experiment.pick_arms(request.arms or program.arms, SCALE)
        return cls(program.configs, experiment.name, arms, tuple(request.seeds or experiment.seeds.get(SCALE, (0,))))

    @cached_property
    def clusters(self) -> list[str]:
        """Names of the files in ``configs/cluster/``, the smallest first."""
        names = (path.stem for path in (self.configs / "cluster").glob("*.yaml"))
        return sorted(names, key=lambda name: int(name.split("n")[0]))

    def targets(self, model: str, request: Request) -> list[Target]:
        """One for each arm, on the cluster asked for or else the smallest that nothing speaks against."""
        cluster = request.cluster or self._smallest(model, request)
        return [
            Target(
                self.name,
                arm or SCALE,
                model_slug(model),
                self._compose(arm, model, cluster, request.overrides),
                self.seeds,
            )
            for arm in self.arms
        ]

    def _smallest(self, model: str, request: Request) -> str:
        for name in self.clusters:
            if not violations(self._compose(self.arms[0], model, name, request.overrides), request.gpu):
                return name
        return self.clusters[-1]

    def _compose(self, arm: str | None, model: str, cluster: str, overrides: Sequence[str]) -> ClusterRun:
        folder = self.configs / self.name
        model_files, model_overrides = _model(self.configs, model)
        files = [folder / PAPER_FILE, *([folder / f"{arm}.yaml"] if arm else []), *model_files]
        return load_cluster_run([*files, _named(self.configs, "cluster", cluster)], [*model_overrides, *overrides])


def _model(configs: Path, model: str | None) -> tuple[list[Path], list[str]]:
    """The config file of a model, or an override with its name."""
    if model is None:
        return [], []
    if Path(model).is_dir():
        return [], [f"policy.model_name={Path(model).resolve()}"]
    if HUB_ID.fullmatch(model):
        return [], [f"policy.model_name={model}"]
    return [_named(configs, "model", model)], []


def _named(configs: Path, folder: str, name: str) -> Path:
    known = {path.stem: path for path in sorted((configs / folder).glob("*.yaml"))}
    if folder == "model":
        known = {stem: path for stem, path in known.items() if "embedded:" not in path.read_text("utf-8")}
    if name not in known:
        raise UnknownNameError(f"{folder} in configs/{folder}/ for a cluster", name, known)
    return known[name]


def _sources() -> dict[str, Any]:
    return {SCHEME: find_host().recipe}
