"""Every cluster configuration that ships composes and plans, and says what the paper and the official recipes say."""

import json
import math
from functools import cache
from itertools import product
from pathlib import Path

import pytest
import yaml

from gdpo_nemo.cluster.host import packaged
from gdpo_nemo.cluster.plan import plan_cluster, violations
from gdpo_nemo.cluster.recipes import load_cluster_run, load_recipe
from gdpo_nemo.cluster.settings import Settings
from gdpo_nemo.config import load_yaml
from gdpo_nemo.prompts.tool_calling import template

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
TASKS = sorted(path.parent.name for path in CONFIGS.glob("*/paper.yaml"))
EMBEDDED = ("smollm2", "tiny")
MODELS = sorted(path.stem for path in (CONFIGS / "model").glob("*.yaml") if path.stem not in EMBEDDED)
CLUSTERS = sorted(path.stem for path in (CONFIGS / "cluster").glob("*.yaml"))
COMBINATIONS = [*product(TASKS, MODELS, ["4n8g"]), *product(["tool_calling"], MODELS, ["1n8g", "8n8g"])]
RECIPES = "examples/configs"


@cache
def run_of(task, model, cluster, arm=None, overrides=()):
    files = [CONFIGS / task / "paper.yaml", *([CONFIGS / task / f"{arm}.yaml"] if arm else [])]
    return load_cluster_run(
        [*files, CONFIGS / "model" / f"{model}.yaml", CONFIGS / "cluster" / f"{cluster}.yaml"], list(overrides)
    )


def arm_of(task):
    return "gdpo" if (CONFIGS / task / "gdpo.yaml").is_file() else None


def test_all_tasks_models_and_clusters_are_here():
    assert TASKS == ["code_reasoning", "gsm8k", "math_length", "tool_calling"]
    assert CLUSTERS == ["1n8g", "4n8g", "8n8g"] and len(MODELS) == 13


@pytest.mark.parametrize(("task", "model", "cluster"), COMBINATIONS)
def test_every_combination_plans_and_needs_one_change_at_most(task, model, cluster):
    run = run_of(task, model, cluster, arm_of(task))
    plan = plan_cluster(run)
    assert json.loads(json.dumps(plan.data))["model"] == run.nemo["policy"]["model_name"]
    assert run.nemo["policy"]["model_name"] in plan.text
    assert ("This run would fail" in plan.text) == bool(plan.violations)
    if plan.violations:
        (violation,) = plan.violations
        works = json.dumps(violation.works)
        mended = run_of(task, model, cluster, arm_of(task), (f"{violation.key}={works}",))
        assert violation.message not in [again.message for again in violations(mended)]


@pytest.mark.parametrize("model", MODELS)
def test_every_model_has_a_cluster_that_suffices_for_tool_calling(model):
    needs = {"qwen3-32b": "4n8g", "llama-3.3-70b-instruct": "8n8g"}.get(model, "1n8g")
    assert violations(run_of("tool_calling", model, needs, "gdpo")) == []


@pytest.mark.parametrize("arm", [path.stem for path in sorted((CONFIGS / "tool_calling").glob("g*.yaml"))])
def test_every_arm_of_tool_calling_runs_on_a_cluster(arm):
    run = run_of("tool_calling", "qwen2.5-1.5b-instruct", "1n8g", arm)
    assert violations(run) == []
    assert run.nemo["grpo"]["adv_estimator"]["name"] == f"{run.gdpo.method}_nemo"


# ---- the paper's settings: its batch sizes count prompts, NeMo RL's count rollouts

PAPER = {
    "tool_calling": {"batch": 512, "mini_batch": 128, "rollouts": 4, "prompt": 2048, "response": 1024, "steps": 100},
    "math_length": {"batch": 512, "mini_batch": 64, "rollouts": 16, "prompt": 1024, "response": 8000, "steps": 500},
    "code_reasoning": {"batch": 512, "mini_batch": 64, "rollouts": 16, "prompt": 1024, "response": 8000, "steps": 400},
    "gsm8k": {"batch": 32, "mini_batch": 32, "rollouts": 16, "prompt": 512, "response": 1024, "steps": 233},
}
RATES = {"gsm8k": (5e-6, 0.0, "cosine")}  # the highest, the last, and the way from one to the other


@pytest.mark.parametrize("task", TASKS)
def test_the_paper_scale_has_the_papers_settings(task):
    paper = PAPER[task]
    run = run_of(task, "qwen2.5-1.5b-instruct", "1n8g", arm_of(task))
    s = Settings(run.nemo)
    assert (s.prompts, s.rollouts, s["grpo.max_num_steps"]) == (paper["batch"], paper["rollouts"], paper["steps"])
    assert s.gbs == paper["mini_batch"] * paper["rollouts"]
    assert s.optimiser_steps == {"tool_calling": 4, "gsm8k": 1}.get(task, 8) == paper["batch"] // paper["mini_batch"]
    assert s.samples == s.optimiser_steps * s.gbs
    longest = run.gdpo.data and run.gdpo.data.prompt_limit and run.gdpo.data.prompt_limit.tokens
    assert longest in (None, paper["prompt"]) and (longest is not None) == (task == "tool_calling")
    below = s["data.max_input_seq_length"]  # prompts of that many tokens are masked
    assert (below - bool(longest), s.max_new_tokens) == (paper["prompt"], paper["response"])
    assert s.seq == paper["prompt"] + paper["response"]
    optimizer, scheduler = s["policy.megatron_cfg.optimizer"], s["policy.megatron_cfg.scheduler"]
    rates = (optimizer["lr"], optimizer["min_lr"], scheduler["lr_decay_style"])
    assert rates == RATES.get(task, (1e-6, 1e-6, "constant"))
    assert s["policy.generation.temperature"] == 1 and s["loss_fn.token_level_loss"]


@pytest.mark.parametrize("task", ["math_length", "code_reasoning"])
def test_appendix_e(task):
    run = run_of(task, "qwen2.5-1.5b-instruct", "1n8g")
    loss = run.nemo["loss_fn"]
    assert (loss["ratio_clip_min"], loss["ratio_clip_max"]) == (0.2, 0.28)
    assert (loss["reference_policy_kl_penalty"], loss["reference_policy_kl_type"]) == (0.0005, "k2")
    assert run.nemo["grpo"]["use_dynamic_sampling"] and run.gdpo.dynamic_sampling == "sum"


def test_gsm8k_is_one_epoch_of_the_authors_settings():
    run = run_of("gsm8k", "qwen2.5-1.5b-instruct", "1n8g", "gdpo")
    s = Settings(run.nemo)
    num_rows, per_device, processes, accumulation = 7473, 16, 8, 4
    assert per_device * processes * accumulation == s.gbs == s.samples == s.prompts * s.rollouts
    assert s["grpo.max_num_steps"] == num_rows // s.prompts and s["grpo.max_num_epochs"] == 1
    loss = run.nemo["loss_fn"]
    assert (loss["ratio_clip_min"], loss["ratio_clip_max"]) == (0.2, 0.2)
    assert (loss["reference_policy_kl_penalty"], loss["reference_policy_kl_type"]) == (0.04, "k3")
    weights = {name: reward.weight for name, reward in run.gdpo.rewards.items()}
    assert weights == {"format": 1.0, "correct": 1.0, "integer": 1.0}
    assert run.gdpo.task_options == {"mode": "released"} and not run.nemo["grpo"]["use_dynamic_sampling"]
    assert run.gdpo.data.prompt.system == template("gsm8k")


def test_the_rate_of_gsm8k_is_the_same_with_both_trainers():
    """TRL's: up to the peak over the warm-up, then half a cosine to 0 in the last step."""
    import torch

    s = Settings(run_of("gsm8k", "qwen2.5-1.5b-instruct-dtensor", "1n8g", "gdpo").nemo)
    steps, peak = s["grpo.max_num_steps"], s["policy.megatron_cfg.optimizer.lr"]
    megatron = s["policy.megatron_cfg.scheduler"]
    warmup = megatron["lr_warmup_iters"]
    assert warmup == math.ceil(0.1 * steps) and megatron["lr_decay_iters"] == steps
    assert megatron["lr_warmup_init"] == 0
    optimizer = torch.optim.AdamW([torch.zeros(1, requires_grad=True)], lr=s["policy.optimizer.kwargs.lr"])
    *parts, last = s["policy.scheduler"]
    made = [getattr(torch.optim.lr_scheduler, one["name"].split(".")[-1])(optimizer, **one["kwargs"]) for one in parts]
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, made, last["milestones"])
    for step in range(steps):
        done = (step - warmup) / (steps - warmup)
        wanted = peak * (step / warmup if step < warmup else 0.5 * (1 + math.cos(math.pi * done)))
        assert optimizer.param_groups[0]["lr"] == pytest.approx(wanted, rel=1e-4, abs=1e-12)
        optimizer.step()
        scheduler.step()


def test_one_arm_of_tool_calling_pays_a_kl_penalty():
    run = run_of("tool_calling", "qwen2.5-1.5b-instruct", "1n8g", "grpo")
    assert run.nemo["loss_fn"]["reference_policy_kl_penalty"] == run.gdpo.kl_in_reward == 0
    assert not run.nemo["grpo"]["use_dynamic_sampling"]
    released = run_of("tool_calling", "qwen2.5-1.5b-instruct", "1n8g", "grpo_kl_in_reward")
    loss = released.nemo["loss_fn"]
    assert loss["reference_policy_kl_penalty"] == released.gdpo.kl_in_reward == 0.001 and loss["use_kl_in_reward"]
    plan = plan_cluster(released)
    assert not plan.violations and "0.001 (k1 in the reward)" in plan.text


# ---- layouts

MIRRORED = {
    "qwen2.5-7b-instruct": f"{RECIPES}/recipes/llm/grpo-qwen2.5-7b-instruct-4n8g-megatron.yaml",
    "llama-3.1-8b-instruct": f"{RECIPES}/grpo_math_8B_megatron.yaml",
    "qwen3-32b": f"{RECIPES}/recipes/llm/performance/grpo-qwen3-32b-4n8g.yaml",
    "llama-3.3-70b-instruct": f"{RECIPES}/grpo_math_70B_megatron.yaml",
}


@pytest.mark.parametrize("model", MIRRORED)
def test_a_layout_that_names_an_official_recipe_has_its_sizes(model):
    assert Path(MIRRORED[model]).name in (CONFIGS / "model" / f"{model}.yaml").read_text("utf-8")
    official = load_recipe(MIRRORED[model], host=packaged())
    ours = run_of("tool_calling", model, "8n8g", "gdpo").nemo
    s, t = Settings(ours), Settings(official)
    assert (s.model, s.tp, s.pp, s.cp, s.sequence_parallel, s.vllm_tp) == (
        t.model,
        t.tp,
        t.pp,
        t.cp,
        t.sequence_parallel,
        t.vllm_tp,
    )
    key = "policy.make_sequence_length_divisible_by"
    assert s[key] == t[key]


def test_dtensor_variants_train_with_the_optimiser_settings_of_megatron():
    variants = [model for model in MODELS if model.endswith("-dtensor")]
    assert len(variants) == 3
    for model in variants:
        s = Settings(run_of("tool_calling", model, "1n8g", "gdpo").nemo)
        plain = Settings(run_of("tool_calling", model.removesuffix("-dtensor"), "1n8g", "gdpo").nemo)
        assert s.dtensor and not s.megatron and s.model == plain.model
        megatron = plain["policy.megatron_cfg.optimizer"]
        kwargs = s["policy.optimizer.kwargs"]
        assert (kwargs["lr"], kwargs["weight_decay"]) == (megatron["lr"], megatron["weight_decay"])
        assert kwargs["betas"] == [megatron["adam_beta1"], megatron["adam_beta2"]]


def test_no_file_of_a_model_or_cluster_sets_what_the_paper_decides():
    """They come after paper.yaml, so they would win."""
    for folder in ("model", "cluster"):
        for path in (CONFIGS / folder).glob("*.yaml"):
            if path.stem in EMBEDDED:
                continue
            content = yaml.safe_load(path.read_text("utf-8"))
            assert set(content) <= {"defaults", "policy", "cluster"}, path
            assert not {"train_global_batch_size", "max_total_sequence_length"} & set(content.get("policy", {})), path


def test_every_file_is_of_one_scale():
    for path in CONFIGS.rglob("*.yaml"):
        if path.parent.name in ("nemo_rl", "cluster") or path.stem == "paper" or path.stem in MODELS:
            continue
        assert set(load_yaml([path])) <= {"gdpo", "embedded"}, path
