"""What NeMo RL would accept and our methods must not: settings that change rewards or advantages behind their back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gdpo_nemo.cluster.rules import Rule, Violation, broken
from gdpo_nemo.cluster.settings import Settings
from gdpo_nemo.config import GdpoConfig


class Together(Settings):
    """NeMo RL's sections and our block."""

    def __init__(self, nemo: Mapping[str, Any], gdpo: GdpoConfig) -> None:
        super().__init__(nemo)
        self.gdpo = gdpo

    @property
    def estimator(self) -> str:
        """The name that the plug-in registers for the method."""
        return f"{self.gdpo.method}_nemo"

    @property
    def repeats_a_split(self) -> bool:
        """Whether several training data sets of ours read the same split."""
        train = self["data.train"]
        ours = (
            [one.get("split") for one in train if "gdpo_nemo" in str(one.get("dataset_name"))]
            if (isinstance(train, list))
            else []
        )
        return len(ours) > len(set(ours))


def _contradicts_scaling(key: str) -> Callable[[Together], bool]:
    return lambda s: s[key] is not None and bool(s[key]) != s.gdpo.scale_by_std


ESTIMATOR = "grpo.adv_estimator"
REFUSALS: tuple[Rule[Together], ...] = (
    Rule(
        "gdpo.method",
        lambda s: s.gdpo.method == "preference",
        "method preference trains on pairs with the loss of DPO, and NeMo RL's GRPO trainers know advantages only; it "
        "runs on this machine (--scale embedded)",
        "gdpo",
    ),
    Rule(
        f"{ESTIMATOR}.name",
        lambda s: s[f"{ESTIMATOR}.name"] != s.estimator,
        "the advantage estimator is {s[grpo.adv_estimator.name]!r}, but gdpo.method is {s.gdpo.method!r}",
        lambda s: s.estimator,
    ),
    Rule(
        "grpo.reward_scaling.enabled",
        lambda s: s["grpo.reward_scaling.enabled"],
        "reward scaling clips each reward to [source_min, source_max] without a word; "
        "gdpo.rescale_by_range divides by the declared range instead",
        False,
    ),
    Rule(
        "grpo.reward_shaping.enabled",
        lambda s: s["grpo.reward_shaping.enabled"],
        "reward shaping changes the total only, so a method that reads each reward would ignore it; "
        "make the length a reward of its own",
        False,
    ),
    Rule(
        "grpo.use_leave_one_out_baseline",
        lambda s: s["grpo.use_leave_one_out_baseline"],
        "the leave-one-out std is 0 for the only rollout that differs from its group, and dynamic sampling drops it",
        False,
    ),
    Rule(
        f"{ESTIMATOR}.use_leave_one_out_baseline",
        lambda s: s[f"{ESTIMATOR}.use_leave_one_out_baseline"],
        "the methods of the paper have no leave-one-out baseline, and gdpo_nemo's estimators have none",
        False,
    ),
    *(
        Rule(
            key,
            _contradicts_scaling(key),
            f"{key} is {{s[{key}]}}, but gdpo.scale_by_std, which decides, is {{s.gdpo.scale_by_std}}",
            lambda s: s.gdpo.scale_by_std,
        )
        for key in ("grpo.normalize_rewards", f"{ESTIMATOR}.normalize_rewards")
    ),
    Rule(
        f"{ESTIMATOR}.reward_weights",
        lambda s: s[f"{ESTIMATOR}.reward_weights"],
        "weights are given by name in gdpo.rewards, not by position",
        None,
    ),
    Rule(
        "grpo.num_generations_per_prompt",
        lambda s: s.rollouts < 2,
        "{s.rollouts} rollout per prompt leaves no group to compare it with",
        8,
    ),
    Rule(
        "env.gdpo",
        lambda s: not isinstance(s["env.gdpo"], Mapping),
        "there is no environment gdpo, which gives the named rewards; build on configs/nemo_rl/base.yaml",
        lambda s: {"gdpo": "${gdpo}"},
    ),
    Rule(
        "loss_fn.use_kl_in_reward",
        lambda s: (
            s["loss_fn.use_kl_in_reward"] and s["loss_fn.reference_policy_kl_penalty"] and not s.gdpo.kl_in_reward
        ),
        "NeMo RL would leave the KL penalty out of the loss, and only gdpo.kl_in_reward adds it to the reward",
        False,
    ),
    Rule(
        "loss_fn.use_kl_in_reward",
        lambda s: s.gdpo.kl_in_reward and not s["loss_fn.use_kl_in_reward"],
        "gdpo.kl_in_reward={s.gdpo.kl_in_reward:g} is in the reward, and the loss would pay a KL penalty once more",
        True,
    ),
    Rule(
        "loss_fn.reference_policy_kl_penalty",
        lambda s: s.gdpo.kl_in_reward and s["loss_fn.reference_policy_kl_penalty"] != s.gdpo.kl_in_reward,
        "gdpo.kl_in_reward is {s.gdpo.kl_in_reward:g} and loss_fn.reference_policy_kl_penalty "
        "{s[loss_fn.reference_policy_kl_penalty]}: NeMo RL loads the reference for the latter, which must say the same",
        lambda s: s.gdpo.kl_in_reward,
        "grpo.py:840",
    ),
    Rule(
        "loss_fn.force_on_policy_ratio",
        lambda s: (
            s.gdpo.kl_in_reward and s["loss_fn.force_on_policy_ratio"] and s["grpo.seq_logprob_error_threshold"] is None
        ),
        "gdpo.kl_in_reward={s.gdpo.kl_in_reward:g} needs the policy's log-probabilities, and NeMo RL skips them",
        False,
        "grpo.py:2642",
    ),
    Rule(
        "grpo.advantage_clip_low",
        lambda s: s.gdpo.veto is not None and (s["grpo.advantage_clip_low"] or 0) > 0,
        "grpo.advantage_clip_low of {s[grpo.advantage_clip_low]} would push up what gdpo.veto has taken down to 0",
        None,
        "grpo.py:1839",
    ),
    Rule(
        "grpo.use_dynamic_sampling",
        lambda s: s.asynchronous and s["grpo.use_dynamic_sampling"],
        "asynchronous training has no dynamic sampling",
        False,
        "examples/run_grpo.py:155",
    ),
    Rule(
        "grpo.use_dynamic_sampling",
        lambda s: s["data_plane.enabled"] and s["grpo.use_dynamic_sampling"],
        "the data-plane trainer selects by the std of the total, whatever gdpo.dynamic_sampling says; "
        "set data_plane.enabled=false, or sample without selection",
        False,
        "grpo_sync.py:134",
    ),
    Rule(
        "data.use_multiple_dataloader",
        lambda s: s["data.use_multiple_dataloader"] and s.repeats_a_split,
        "NeMo RL keeps one data loader per task name, and data sets of the same split have the same name: "
        "all but the last would be left out without a word",
        False,
        "data/utils.py:198",
    ),
    Rule(
        "async_rl",
        lambda s: s["async_rl"] is not None,
        "the single-controller path (async_rl) carries one reward per rollout only",
        None,
        "rollout_manager.py:514",
    ),
)


def refusals(nemo: Mapping[str, Any], gdpo: GdpoConfig) -> list[Violation]:
    """What contradicts our method in NeMo RL's sections (also: its real MasterConfig as a mapping)."""
    return broken(REFUSALS, Together(nemo, gdpo))
