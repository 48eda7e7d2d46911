"""``plan`` for runs on a cluster: one composed YAML file, or a task at the paper's scale (models x arms x seeds)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gdpo_nemo.cluster.cost import GPUS
from gdpo_nemo.cluster.host import SCHEME, find_host
from gdpo_nemo.cluster.plan import ClusterPlan, plan_cluster, violations
from gdpo_nemo.cluster.recipes import ClusterRun, load_cluster_run
from gdpo_nemo.composing import merge_yaml
from gdpo_nemo.errors import UnknownNameError, UsageError
from gdpo_nemo.suite import programs
from gdpo_nemo.suite.answer import Answer
from gdpo_nemo.suite.grid import HUB_ID

SCALE = "paper"
SECTIONS = ("policy", "grpo", "cluster")
# The models of the paper's tables, by task.
PAPER_MODELS = {
    "tool_calling": ("qwen2.5-1.5b-instruct", "qwen2.5-3b-instruct"),
    "math_length": ("deepseek-r1-distill-qwen-1.5b", "deepseek-r1-distill-qwen-7b", "qwen3-4b-instruct"),
    "code_reasoning": ("deepseek-r1-distill-qwen-7b",),
}


@dataclass(frozen=True)
class Request:
    """What is to be planned.

    Attributes:
        target: a task, its script, the config of one arm, or a YAML file with NeMo RL's sections.
        scale, model, cluster, gpu: as on the command line; None where not given.
        arms, seeds: as on the command line; None: those of the experiment.
        overrides: dotted ``key=value``, applied last.
    """

    target: str
    scale: str
    model: str | None
    cluster: str | None
    gpu: str
    arms: Sequence[str] | None
    seeds: Sequence[int] | None
    overrides: tuple[str, ...]


def is_cluster_target(target: str, scale: str) -> bool:
    """Whether a target is about a cluster: the paper's scale, or a YAML file with sections of NeMo RL."""
    path = Path(target)
    if scale == SCALE or path.suffix not in (".yaml", ".yml"):
        return scale == SCALE
    return any(section in merge_yaml([programs.existing(path)], (), _sources()) for section in SECTIONS)


def plan(request: Request) -> Answer:
    """Plan every run of a request; the exit code says whether all of them could run.

    Raises:
        GdpoError: a file, key, name or type is wrong.
    """
    if request.gpu not in GPUS:
        raise UnknownNameError("GPU", request.gpu, GPUS)
    return _plan_task(request) if request.scale == SCALE else _plan_file(request)


def _plan_file(request: Request) -> Answer:
    configs = programs.programs_root() / "configs"
    model_files, overrides = _model(configs, request.model)
    files = [programs.existing(Path(request.target)), *model_files]
    if request.cluster:
        files.append(_named(configs, "cluster", request.cluster))
    planned = [plan_cluster(load_cluster_run(files, [*overrides, *request.overrides]), request.gpu)]
    return _answer(planned, planned, "", {})


def _plan_task(request: Request) -> Answer:
    configs, task, arms, seeds = _task(request)
    models = [request.model] if request.model else PAPER_MODELS.get(task, ())
    if not models:
        raise UsageError(f"the paper has no models for {task}; name one with --model")
    plans: list[ClusterPlan] = []
    shown: list[ClusterPlan] = []
    for model in models:
        cluster = request.cluster or _smallest_cluster(configs, task, arms[0], model, request)
        runs = [_compose(configs, task, arm, model, cluster, request.overrides) for arm in arms]
        of_model = [plan_cluster(run, request.gpu) for run in runs]
        plans += of_model
        shown.append(next((one for one in of_model if one.violations), of_model[0]))
    named = [arm for arm in arms if arm]
    hours = len(seeds) * sum((one.data["cost"] or {}).get("total_gpu_hours", 0.0) for one in plans)
    matrix = {"task": task, "models": list(models), "arms": named, "seeds": list(seeds), "gpu_hours": hours}
    closing = (
        f"{len(plans) * len(seeds)} in all: models {', '.join(models)}; arms {', '.join(named) or 'as above'}; "
        f"seeds {', '.join(map(str, seeds))}. About {hours:,.0f} GPU-hours on {GPUS[request.gpu].name}. "
        "One arm of each model is shown; the others need the same."
    )
    return _answer(plans, shown, closing, matrix)


def _answer(plans: Sequence[ClusterPlan], shown: Sequence[ClusterPlan], closing: str, matrix: dict[str, Any]) -> Answer:
    text = "\n\n".join([*(one.text for one in shown), f"{closing}\nNothing was started.".lstrip()])
    failed = any(one.violations for one in plans)
    return Answer(
        text, matrix | {"plans": [one.data for one in plans]}, exit_code=UsageError.exit_code if failed else 0
    )


def _task(request: Request) -> tuple[Path, str, list[str | None], tuple[int, ...]]:
    """The folder of configs, the task, its arms (None: paper.yaml as it is) and the seeds."""
    root = programs.programs_root()
    alone = root / "configs" / request.target / "paper.yaml"
    if alone.is_file() and not (root / "repro" / f"{request.target}.py").is_file():
        arms: list[str | None] = [*request.arms] if request.arms else [None]
        return root / "configs", request.target, arms, tuple(request.seeds or (0,))
    program = programs.find(request.target)
    experiment = program.experiment
    if not (program.configs / experiment.name / "paper.yaml").is_file():
        raise UsageError(f"{experiment.name} has no paper scale: no {program.configs / experiment.name / 'paper.yaml'}")
    arms = [*experiment.pick_arms(request.arms or program.arms)]
    seeds = request.seeds or experiment.seeds.get(SCALE, (0,))
    return program.configs, experiment.name, arms, tuple(seeds)


def _compose(
    configs: Path, task: str, arm: str | None, model: str, cluster: str, overrides: Sequence[str]
) -> ClusterRun:
    model_files, model_overrides = _model(configs, model)
    files = [configs / task / "paper.yaml", *([configs / task / f"{arm}.yaml"] if arm else []), *model_files]
    return load_cluster_run([*files, _named(configs, "cluster", cluster)], [*model_overrides, *overrides])


def _smallest_cluster(configs: Path, task: str, arm: str | None, model: str, request: Request) -> str:
    """The smallest cluster of ``configs/cluster/`` that nothing speaks against, else the largest."""
    names = sorted(
        (path.stem for path in (configs / "cluster").glob("*.yaml")), key=lambda name: int(name.split("n")[0])
    )
    for name in names:
        if not violations(_compose(configs, task, arm, model, name, request.overrides), request.gpu):
            return name
    return names[-1]


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
        raise UnknownNameError(f"{folder} in {configs / folder} for a cluster", name, known)
    return known[name]


def _sources() -> dict[str, Any]:
    return {SCHEME: find_host().recipe}
