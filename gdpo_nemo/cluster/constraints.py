"""Everything that NeMo RL, Megatron and vLLM refuse, most of it only after the GPUs are allocated.

The rules are data: of the algorithm here, of ``layouts``, ``batches`` and ``engines`` there. Line numbers are of
NeMo RL v0.7.0 and megatron-core 0.16.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gdpo_nemo.cluster.batches import BATCHES, GBS
from gdpo_nemo.cluster.engines import GENERATION, TRAINING
from gdpo_nemo.cluster.layouts import LAYOUTS
from gdpo_nemo.cluster.rules import Rule, Violation, broken
from gdpo_nemo.cluster.settings import COLOCATED, VLLM, Settings


def _splits(s: Settings) -> Any:
    train = s["data.train"]
    blocks = train if isinstance(train, list) else [train]
    return any(isinstance(block, Mapping) and block.get("split_validation_size") for block in blocks)


def _asynchronous_with(key: str) -> Callable[[Settings], bool]:
    return lambda s: s.asynchronous and bool(s[key])


ALGORITHM: tuple[Rule[Settings], ...] = (
    Rule(
        GBS,
        lambda s: s["loss_fn.force_on_policy_ratio"] and s.samples != s.gbs,
        "loss_fn.force_on_policy_ratio allows one optimiser step per rollout batch of {s.samples}, "
        "but policy.train_global_batch_size is {s.gbs}",
        lambda s: s.samples,
        "grpo.py:429",
    ),
    Rule(
        "grpo.skip_reference_policy_logprobs_calculation",
        lambda s: (
            s["grpo.skip_reference_policy_logprobs_calculation"] and s["loss_fn.reference_policy_kl_penalty"] != 0
        ),
        "a KL penalty of {s[loss_fn.reference_policy_kl_penalty]} needs the reference's log-probabilities",
        False,
        "grpo.py:441",
    ),
    Rule(
        "grpo.batch_multiplier",
        lambda s: (s["grpo.batch_multiplier"] or 1) != 1 and not s["grpo.use_dynamic_sampling"],
        "grpo.batch_multiplier {s[grpo.batch_multiplier]} belongs to dynamic sampling, which is off",
        1,
        "grpo.py:343",
    ),
    Rule(
        "grpo.val_period",
        lambda s: (s["grpo.val_period"] or 0) > 0 and not s["data.validation"] and not _splits(s),
        "grpo.val_period {s[grpo.val_period]} needs data.validation",
        0,
        "grpo.py:403",
    ),
    Rule(
        "checkpointing.metric_name",
        lambda s: (
            s["checkpointing.enabled"]
            and s["checkpointing.metric_name"] is not None
            and not str(s["checkpointing.metric_name"]).startswith(("train:", "val:"))
        ),
        "checkpointing.metric_name {s[checkpointing.metric_name]} starts with neither train: nor val:",
        None,
        "grpo.py:2901",
    ),
    Rule(
        f"{VLLM}.async_engine",
        lambda s: s.asynchronous and s.vllm and not s[f"{VLLM}.async_engine"],
        "asynchronous training needs vLLM's asynchronous engine",
        True,
        "grpo.py:3364",
    ),
    Rule(
        "loss_fn.use_importance_sampling_correction",
        lambda s: s.asynchronous and not s["loss_fn.use_importance_sampling_correction"],
        "asynchronous training is off-policy, which has to be corrected",
        True,
        "grpo.py:3374",
    ),
    Rule(
        f"{COLOCATED}.enabled",
        lambda s: s.asynchronous and s.colocated,
        "asynchronous training needs GPUs of its own for generation",
        False,
        "grpo.py:3415",
    ),
    *(
        Rule(
            key,
            _asynchronous_with(key),
            f"asynchronous training does not go with {key}",
            False,
            "examples/run_grpo.py:155",
        )
        for key in (
            "grpo.use_dynamic_sampling",
            "grpo.reward_scaling.enabled",
            "grpo.reward_shaping.enabled",
            "data.use_multiple_dataloader",
        )
    ),
)

CONSTRAINTS = (*LAYOUTS, *BATCHES, *TRAINING, *GENERATION, *ALGORITHM)


def host_violations(nemo: Mapping[str, Any]) -> list[Violation]:
    """What NeMo RL, Megatron or vLLM would refuse after the GPUs are allocated."""
    return broken(CONSTRAINTS, Settings(nemo))
