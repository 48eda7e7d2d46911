"""The plug-in's wraps around NeMo RL's own functions."""

import contextlib
import inspect
from pathlib import Path
from types import SimpleNamespace

import checkout
import pytest
import torch

checkout.require()

from batches import rollout_batch  # noqa: E402
from nemo_rl.algorithms import grpo  # noqa: E402
from nemo_rl.algorithms.utils import calculate_baseline_and_std_per_prompt  # noqa: E402

from gdpo_nemo.advantages import gdpo as gdpo_advantages  # noqa: E402
from gdpo_nemo.backends.nemo_rl import plugin as plugin_module  # noqa: E402
from gdpo_nemo.backends.nemo_rl.estimator import MethodEstimator  # noqa: E402
from gdpo_nemo.cluster.recipes import load_cluster_run  # noqa: E402
from gdpo_nemo.config import GdpoConfig, RewardConfig  # noqa: E402
from gdpo_nemo.errors import ConfigError  # noqa: E402
from gdpo_nemo.method import Method  # noqa: E402

NAN = float("nan")
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


def scaling_off():
    section = master_config().grpo
    return section["reward_scaling"] if isinstance(section, dict) else section.reward_scaling


def sampled(plugin, rewards, leave_one_out=False, overlong_filtering=False, truncated=(), **options):
    """How many rollouts of these groups NeMo RL's dynamic sampling keeps."""
    batch, prompt_ids, _, totals = rollout_batch(rewards)
    batch["truncated"] = torch.isin(torch.arange(len(totals)), torch.tensor(truncated))
    baseline, std = calculate_baseline_and_std_per_prompt(
        prompt_ids, totals, torch.ones_like(totals), leave_one_out_baseline=leave_one_out
    )
    overlong = f"grpo.overlong_filtering={str(overlong_filtering).lower()}"
    config = master_config("grpo.use_dynamic_sampling=true", "grpo.num_prompts_per_step=100", overlong)
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


def test_dynamic_sampling_over_several_batches_hands_over_the_rows_it_kept(plugin):
    """Through a partly filled cache and the final cut, also for a lone reward, which v0.7.0 keeps in the total."""
    for names in (("format", "correct"), ("correct",)):
        gdpo = GdpoConfig(task="tool_calling", rewards={name: RewardConfig() for name in names})
        plugin.estimator = estimator = MethodEstimator(Method(gdpo), 4)
        config = master_config("grpo.use_dynamic_sampling=true", "grpo.num_prompts_per_step=3")
        timer = SimpleNamespace(time=lambda name: contextlib.nullcontext())
        drawn = torch.randint(3, (3, 3, 4, len(names)), generator=torch.Generator().manual_seed(1)).float()
        drawn[:, 0] = 1.0  # the first prompt of every batch teaches nothing
        drawn[1, 1, 2] = NAN
        try:
            cache = None
            for count, groups in enumerate(drawn[:2], start=1):
                made = rollout_batch(groups.flatten(0, 1).tolist(), names)[0]
                batch, _ = plugin.rollout(lambda given=made: (given, {}))
                zeros = torch.zeros(batch.size)
                batch, complete, cache, _ = grpo.dynamic_sampling(batch, zeros, zeros, count, config, timer, cache)
        finally:
            plugin.estimator = None
        assert complete and batch.size == 12
        kept = torch.cat([drawn[0, 1], drawn[0, 2], drawn[1, 1]])
        logged = batch["total_reward"].clone()
        mask = batch["loss_multiplier"][:, None].expand(12, 6)
        prompts = torch.arange(3).repeat_interleave(4)[:, None]
        advantages = estimator.compute_advantage(prompts, batch["filtered_reward"], mask, batch)
        expected = gdpo_advantages(kept, torch.arange(12) // 4)
        torch.testing.assert_close(advantages[:, 0], expected)
        assert estimator.last_metrics["reward/frac_ungraded"] == 1 / 12
        assert mask[:, 0].tolist() == [float(i != 10) for i in range(12)]
        assert (batch["total_reward"] == logged).all()  # of the rows before the selection, for NeMo RL's log


def test_what_will_be_masked_as_overlong_does_not_keep_its_group(plugin):
    rewards = ONE_DIFFERS + CANCELLING
    for filtering, kept in ((False, 8), (True, 4)):
        options = {"overlong_filtering": filtering, "dynamic_sampling": "any_component"}
        assert sampled(plugin, rewards, truncated=[0], **options) == kept


def test_an_ungraded_sample_hides_no_number_of_a_rollout(plugin):
    """Of NeMo RL's asynchronous rollouts, and of those that the data plane's actor ran without the plug-in."""
    rewards = [[1.0, 2.0], [NAN, NAN], [0.0, NAN], [0.0, 1.0]]
    plugin.estimator = MethodEstimator(Method(GdpoConfig(task="tool_calling")), 4)
    try:
        batch = rollout_batch(rewards)[0]
        numbers = {"mean_total_reward": NAN, "max_total_reward": NAN, "other": 1.0}
        _, metrics = plugin.rollout(lambda: (batch, dict(numbers)))
        unsettled = rollout_batch(rewards)[0]
        scaled = grpo.scale_rewards(unsettled, scaling_off())
    finally:
        plugin.estimator = None
    assert metrics == {"mean_total_reward": pytest.approx(4 / 3), "max_total_reward": 3.0, "other": 1.0}
    assert scaled["total_reward"].isfinite().all() and scaled["loss_multiplier"].tolist() == [1, 0, 1, 1]


def test_an_asynchronous_run_that_failed_does_not_end_as_if_all_were_well(plugin):
    """The end of v0.7.0's trainer, run among its own names; main raises by itself."""
    assert plugin_module.SWALLOWED in inspect.getsource(grpo.async_grpo_train.__wrapped__)
    code = "def train():\n try: 1 / 0\n except Exception as e: print(f'❌ Error in async loop: {e}')\n"
    names = {}
    exec(code, grpo.__dict__, names)
    with pytest.raises(ZeroDivisionError):
        plugin.async_train(names["train"])
    plugin.async_train(lambda: None)
