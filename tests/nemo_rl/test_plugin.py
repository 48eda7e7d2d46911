"""The plug-in's wraps around NeMo RL's own functions."""

import contextlib
from pathlib import Path
from types import SimpleNamespace

import checkout
import pytest
import torch

checkout.require()

from batches import rollout_batch  # noqa: E402
from nemo_rl.algorithms import grpo  # noqa: E402
from nemo_rl.algorithms.utils import calculate_baseline_and_std_per_prompt  # noqa: E402

from gdpo_nemo.backends.nemo_rl.estimator import MethodEstimator  # noqa: E402
from gdpo_nemo.cluster.recipes import load_cluster_run  # noqa: E402
from gdpo_nemo.config import GdpoConfig  # noqa: E402
from gdpo_nemo.errors import ConfigError  # noqa: E402
from gdpo_nemo.method import Method  # noqa: E402

CANCELLING = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]  # only the sum is constant
ONE_DIFFERS = [[1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
CONSTANT = [[1.0, 1.0]] * 4


CONFIGS = Path(__file__).resolve().parents[2] / "configs"
FILES = ("tool_calling/paper.yaml", "tool_calling/gdpo.yaml", "model/qwen2.5-7b-instruct.yaml", "cluster/4n8g.yaml")


def master_config(*overrides):
    """NeMo RL's own MasterConfig of a run of ours; ``key=null`` at top level leaves a section out."""
    whole = load_cluster_run(
        [CONFIGS / name for name in FILES], ["grpo.num_generations_per_prompt=4", *overrides]
    ).whole
    return grpo.MasterConfig(**whole)


def sampled(plugin, rewards, leave_one_out=False, **options):
    """How many rollouts of these groups NeMo RL's dynamic sampling keeps."""
    batch, prompt_ids, _, totals = rollout_batch(rewards)
    baseline, std = calculate_baseline_and_std_per_prompt(
        prompt_ids, totals, torch.ones_like(totals), leave_one_out_baseline=leave_one_out
    )
    config = master_config("grpo.use_dynamic_sampling=true", "grpo.num_prompts_per_step=100")
    timer = SimpleNamespace(time=lambda name: contextlib.nullcontext())
    plugin.estimator = MethodEstimator(Method(GdpoConfig(task="tool_calling", **options)), 4) if options else None
    try:
        _, complete, cache, _ = grpo.dynamic_sampling(batch, std, baseline, 1, config, timer)
    finally:
        plugin.estimator = None
    assert not complete
    return 0 if cache is None else cache.size


def test_dynamic_sampling_keeps_a_group_whose_rewards_cancel_in_the_sum(plugin):
    rewards = CANCELLING + CONSTANT
    assert sampled(plugin, rewards) == 0  # NeMo RL alone
    assert sampled(plugin, rewards, dynamic_sampling="any_component") == 4
    assert sampled(plugin, rewards, dynamic_sampling="sum") == 0


def test_dynamic_sampling_keeps_groups_whole(plugin):
    rewards = ONE_DIFFERS + CONSTANT
    assert sampled(plugin, rewards, leave_one_out=True) == 3  # NeMo RL alone drops the one that differs
    for criterion in ("any_component", "sum"):
        assert sampled(plugin, rewards, leave_one_out=True, dynamic_sampling=criterion) == 4


def test_the_estimator_is_made_from_the_gdpo_block(plugin):
    made = grpo._create_advantage_estimator(master_config())
    assert isinstance(made, MethodEstimator) and made is plugin.estimator
    assert made.rollouts_per_prompt == 4 and made.method.names == ("format", "correct")
    plugin.estimator = None


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("grpo.adv_estimator.name=grpo_nemo", "is 'grpo_nemo', but gdpo.method is 'gdpo'"),
        ("grpo.reward_scaling.enabled=true", "clips each reward"),
        ("grpo.reward_shaping.enabled=true", "changes the total only"),
        ("grpo.use_leave_one_out_baseline=true", "leave-one-out"),
        ("grpo.normalize_rewards=false", "gdpo.scale_by_std"),
    ],
)
def test_a_setting_that_contradicts_the_method_is_refused(override, words, plugin):
    with pytest.raises(ConfigError, match=words):
        grpo._create_advantage_estimator(master_config(override))
    assert plugin.estimator is None


def test_a_run_without_the_block_is_refused(plugin):
    config = master_config()
    del config.gdpo
    with pytest.raises(ConfigError, match="no gdpo: block"):
        grpo._create_advantage_estimator(config)


def test_other_estimators_pass_through(plugin):
    with pytest.raises((ValueError, KeyError), match="gdpo_nem"):
        grpo._create_advantage_estimator(master_config("grpo.adv_estimator.name=gdpo_nem"))
    assert plugin.estimator is None


def test_without_the_plug_in_a_run_of_ours_stops():
    with pytest.raises(ValueError, match="Invalid adv_estimator name: gdpo_nemo"):
        grpo._create_advantage_estimator.__wrapped__(master_config())
