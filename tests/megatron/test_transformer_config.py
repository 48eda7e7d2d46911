"""``gdpo plan`` asks megatron-core's own TransformerConfig, and the planner's rules agree with it."""

from functools import cache
from pathlib import Path

import pytest

from gdpo_nemo.cluster.constraints import host_violations
from gdpo_nemo.cluster.megatron_core import opinion
from gdpo_nemo.cluster.plan import plan_cluster
from gdpo_nemo.cluster.recipes import load_cluster_run
from gdpo_nemo.cluster.settings import MEGATRON, Settings

pytestmark = pytest.mark.megatron

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
MODELS = [
    path.stem
    for path in sorted((CONFIGS / "model").glob("*.yaml"))
    if "embedded:" not in path.read_text() and not path.stem.endswith("-dtensor")
]
PARALLEL = f"{MEGATRON}.tensor_model_parallel_size"
STAGES = f"{MEGATRON}.pipeline_model_parallel_size"


@cache
def run_of(model, *overrides):
    files = ["tool_calling/paper.yaml", "tool_calling/gdpo.yaml", f"model/{model}.yaml", "cluster/8n8g.yaml"]
    return load_cluster_run([CONFIGS / name for name in files], list(overrides))


@pytest.mark.parametrize("model", MODELS)
def test_megatron_core_takes_every_model(model):
    said = opinion(Settings(run_of(model).nemo))
    assert said.violations == () and said.unasked == "" and "megatron-core 0." in said.who


@pytest.mark.parametrize(
    ("key", "words", "overrides"),
    [
        (PARALLEL, "num_attention_heads (28) must be a multiple of", (f"{PARALLEL}=8",)),
        (STAGES, "num_layers should be divisible by", (f"{STAGES}=8",)),
        (
            f"{MEGATRON}.sequence_parallel",
            "Cannot use sequence parallelism without tensor parallelism",
            (f"{PARALLEL}=1", f"{MEGATRON}.sequence_parallel=true"),
        ),
        (
            MEGATRON,
            "number of layers at middle stage: 22 must be divisible",
            (f"{STAGES}=4", f"{MEGATRON}.num_layers_in_first_pipeline_stage=6"),
        ),
    ],
)
def test_what_megatron_core_refuses_the_planner_refuses_too_with_a_value_that_works(key, words, overrides):
    run = run_of("qwen2.5-7b-instruct", *overrides)
    (theirs,) = opinion(Settings(run.nemo)).violations
    assert theirs.key == key and words in theirs.message
    ours = [violation for violation in host_violations(run.nemo) if violation.key.startswith(key)]
    assert ours and list(plan_cluster(run).violations) == host_violations(run.nemo)  # said once


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 5, 6, 7, 8])
@pytest.mark.parametrize("first", [None, 0, 1, 4, 7, 10, 28])
def test_layers_divide_into_stages_for_the_planner_as_for_megatron_core(stages, first):
    first_key = f"{MEGATRON}.num_layers_in_first_pipeline_stage"
    run = run_of("qwen2.5-7b-instruct", f"{STAGES}={stages}", f"{first_key}={'null' if first is None else first}")
    ours = [violation for violation in host_violations(run.nemo) if violation.key in (STAGES, first_key)]
    assert bool(opinion(Settings(run.nemo)).violations) == bool(ours)


@pytest.mark.parametrize(
    ("key", "words", "overrides"),
    [
        (
            f"{MEGATRON}.recompute_modules",
            "Invalid choices for recompute_modules: {'attention'}",
            (
                f"{MEGATRON}.activation_checkpointing=true",
                f"{MEGATRON}.recompute_granularity=selective",
                f"{MEGATRON}.recompute_modules=[attention]",
            ),
        ),
        (f"{MEGATRON}.attention_backend", "'flashy', expected one of", (f"{MEGATRON}.attention_backend=flashy",)),
        (f"{MEGATRON}.pipeline_dtype", "'bf16', expected one of", (f"{MEGATRON}.pipeline_dtype=bf16",)),
    ],
)
def test_what_only_megatron_core_knows_makes_the_plan_fail(key, words, overrides):
    plan = plan_cluster(run_of("qwen2.5-7b-instruct", *overrides))
    (violation,) = plan.violations
    assert violation.key == key and words in violation.message
    assert f"{key}: " in plan.text and "Set " not in plan.text.split("This run would fail:")[1]
