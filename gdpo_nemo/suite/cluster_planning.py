"""``plan`` for runs on a cluster: one composed YAML file, or a task at the paper's scale (models x arms x seeds)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gdpo_nemo.backends.nemo_rl import master_config
from gdpo_nemo.cluster.cost import GPUS
from gdpo_nemo.cluster.plan import ClusterPlan, plan_cluster
from gdpo_nemo.errors import UnknownNameError, UsageError
from gdpo_nemo.suite.answer import Answer
from gdpo_nemo.suite.cluster_targets import SCALE, Request, Target, compose
from gdpo_nemo.terminal import sentences


def plan(request: Request) -> Answer:
    """Plan every run of a request; the exit code says whether all of them could run.

    Raises:
        GdpoError: a file, key, name or type is wrong.
    """
    if request.gpu not in GPUS:
        raise UnknownNameError("GPU", request.gpu, GPUS)
    targets = compose(request)
    opinions = master_config.ask([target.run.whole for target in targets])
    plans = [plan_cluster(target.run, request.gpu, [said]) for target, said in zip(targets, opinions, strict=True)]
    if request.scale != SCALE:
        return _answer(plans, plans, "", {})
    models = list(dict.fromkeys(target.model for target in targets))
    shown = [
        _shown([one for target, one in zip(targets, plans, strict=True) if target.model == model]) for model in models
    ]
    return _answer(plans, shown, *_matrix(targets, plans, models, request))


def _shown(of_model: Sequence[ClusterPlan]) -> ClusterPlan:
    """The first plan that fails, else the first."""
    return next((one for one in of_model if one.violations), of_model[0])


def _matrix(
    targets: Sequence[Target], plans: Sequence[ClusterPlan], models: Sequence[str], request: Request
) -> tuple[str, dict[str, Any]]:
    seeds = targets[0].seeds
    arms = [arm for arm in dict.fromkeys(target.arm for target in targets) if arm != SCALE]
    hours = len(seeds) * sum((one.data["cost"] or {}).get("total_gpu_hours", 0.0) for one in plans)
    matrix = {
        "task": targets[0].experiment,
        "models": list(models),
        "arms": arms,
        "seeds": list(seeds),
        "gpu_hours": hours,
    }
    closing = (
        f"{len(plans) * len(seeds)} in all: models {', '.join(models)}; arms {', '.join(arms) or 'as above'}; "
        f"seeds {', '.join(map(str, seeds))}. About {hours:,.0f} GPU-hours on {GPUS[request.gpu].name}. "
        "One arm of each model is shown; the others need the same."
    )
    return sentences([closing]), matrix


def _answer(plans: Sequence[ClusterPlan], shown: Sequence[ClusterPlan], closing: str, matrix: dict[str, Any]) -> Answer:
    text = "\n\n".join([*(one.text for one in shown), f"{closing}\nNothing was started.".lstrip()])
    failed = any(one.violations for one in plans)
    return Answer(
        text, matrix | {"plans": [one.data for one in plans]}, exit_code=UsageError.exit_code if failed else 0
    )
