"""What our methods refuse of NeMo RL's settings, each with a value that works."""

import pytest
from official_recipes import LLAMA_8B, changed, recipe

from gdpo_nemo.cluster.refusals import REFUSALS, refusals
from gdpo_nemo.config import GdpoConfig
from gdpo_nemo.signals.veto import Veto

OURS = {
    "grpo.adv_estimator.name": "gdpo_nemo",
    "grpo.adv_estimator.use_leave_one_out_baseline": False,
    "grpo.use_leave_one_out_baseline": False,
    "env.gdpo": {},
}
GDPO = GdpoConfig(task="tool_calling")
NO_STD = GdpoConfig(task="tool_calling", method="grpo", scale_by_std=False)
PENALISED = GdpoConfig(task="tool_calling", method="grpo", kl_in_reward=0.001)
IN_REWARD = {
    "grpo.adv_estimator.name": "grpo_nemo",
    "loss_fn.use_kl_in_reward": True,
    "loss_fn.reference_policy_kl_penalty": 0.001,
}


def test_a_run_of_ours_is_not_refused():
    assert refusals(changed(recipe(LLAMA_8B), OURS), GDPO) == []
    no_std = {
        "grpo.adv_estimator.name": "grpo_nemo",
        "grpo.normalize_rewards": False,
        "grpo.adv_estimator.normalize_rewards": False,
    }
    assert refusals(changed(recipe(LLAMA_8B), OURS | no_std), NO_STD) == []
    assert refusals(changed(recipe(LLAMA_8B), OURS | IN_REWARD), PENALISED) == []


OUR_ROWS = {"dataset_name": "gdpo_nemo.backends.nemo_rl.dataset.RowDataset", "split": "train"}
REFUSED = [
    ({"grpo.adv_estimator.name": "gdpo"}, GDPO, "grpo.adv_estimator.name", "'gdpo', but gdpo.method is 'gdpo'"),
    ({"grpo.adv_estimator.name": "grpo_nemo"}, GDPO, "grpo.adv_estimator.name", "'grpo_nemo', but"),
    ({"grpo.reward_scaling.enabled": True}, GDPO, "grpo.reward_scaling.enabled", "clips each reward"),
    ({"grpo.reward_shaping.enabled": True}, GDPO, "grpo.reward_shaping.enabled", "changes the total only"),
    ({"grpo.use_leave_one_out_baseline": True}, GDPO, "grpo.use_leave_one_out_baseline", "only rollout that differs"),
    (
        {"grpo.adv_estimator.use_leave_one_out_baseline": True},
        GDPO,
        "grpo.adv_estimator.use_leave_one_out_baseline",
        "no leave-one-out baseline",
    ),
    ({"grpo.normalize_rewards": False}, GDPO, "grpo.normalize_rewards", "is False, but gdpo.scale_by_std"),
    ({"grpo.adv_estimator.normalize_rewards": False}, GDPO, "grpo.adv_estimator.normalize_rewards", "is False, but"),
    ({"grpo.adv_estimator.reward_weights": [1, 2]}, GDPO, "grpo.adv_estimator.reward_weights", "by name"),
    ({"grpo.num_generations_per_prompt": 1}, GDPO, "grpo.num_generations_per_prompt", "no group"),
    ({"env": {"math": {}}}, GDPO, "env.gdpo", "no environment gdpo"),
    ({"loss_fn.use_kl_in_reward": True}, GDPO, "loss_fn.use_kl_in_reward", "out of the loss"),
    (
        IN_REWARD | {"loss_fn.use_kl_in_reward": False},
        PENALISED,
        "loss_fn.use_kl_in_reward",
        "the loss would pay a KL penalty once more",
    ),
    (
        IN_REWARD | {"loss_fn.reference_policy_kl_penalty": 0},
        PENALISED,
        "loss_fn.reference_policy_kl_penalty",
        "gdpo.kl_in_reward is 0.001 and loss_fn.reference_policy_kl_penalty 0",
    ),
    (
        IN_REWARD | {"loss_fn.force_on_policy_ratio": True},
        PENALISED,
        "loss_fn.force_on_policy_ratio",
        "needs the policy's log-probabilities",
    ),
    (
        {"grpo.advantage_clip_low": 0.1},
        GdpoConfig(task="tool_calling", veto=Veto("format", 0.5)),
        "grpo.advantage_clip_low",
        "0.1 would push up what gdpo.veto",
    ),
    (
        {"grpo.use_dynamic_sampling": True, "grpo.async_grpo.enabled": True},
        GDPO,
        "grpo.use_dynamic_sampling",
        "no dynamic sampling",
    ),
    (
        {"grpo.use_dynamic_sampling": True, "data_plane.enabled": True},
        GDPO,
        "grpo.use_dynamic_sampling",
        "the std of the total",
    ),
    (
        {"data.use_multiple_dataloader": True, "data.train": [OUR_ROWS, OUR_ROWS]},
        GDPO,
        "data.use_multiple_dataloader",
        "all but the last",
    ),
    ({"async_rl": {}}, GDPO, "async_rl", "one reward per rollout"),
]


@pytest.mark.parametrize(("changes", "gdpo", "key", "message"), REFUSED, ids=lambda part: str(part)[:40])
def test_a_setting_against_the_method_is_refused_with_a_value_that_works(changes, gdpo, key, message):
    nemo = changed(recipe(LLAMA_8B), OURS | changes)
    (violation,) = refusals(nemo, gdpo)
    assert violation.key == key and message in violation.message
    assert refusals(changed(nemo, {key: violation.works}), gdpo) == []


def test_a_method_without_advantages_is_refused():
    preference = GdpoConfig(task="tool_calling", task_options={"mode": "toolrl"}, method="preference")
    nemo = changed(recipe(LLAMA_8B), OURS | {"grpo.adv_estimator.name": "preference_nemo"})
    (violation,) = refusals(nemo, preference)
    assert (violation.key, violation.works) == ("gdpo.method", "gdpo")
    assert "trains on pairs" in violation.message


def test_every_refusal_is_shown_here():
    assert {rule.key for rule in REFUSALS} == {key for *_, key, _ in REFUSED} | {"gdpo.method"}
