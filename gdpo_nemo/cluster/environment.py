"""The environment ``gdpo`` of NeMo RL's ``env`` section, and whether its grades come while the batch generates."""

from __future__ import annotations

from pydantic import Field

from gdpo_nemo.cluster.settings import VLLM, Settings
from gdpo_nemo.config import GdpoConfig
from gdpo_nemo.validation import Strict

AT_ONCE = "each response as soon as it is complete, while others generate"
AT_THE_END = "all responses after the last one, while the GPUs wait"
ASYNC_KEYS = {
    "vllm": f"{VLLM}.async_engine",
    "megatron": "policy.generation.mcore_generation_config.async_engine",
    "sglang": "policy.generation.use_async_rollouts",
}
"""Generation backend -> the key that makes its rollouts asynchronous (``_should_use_async_rollouts`` of grpo.py)."""


class EnvironmentConfig(Strict):
    """``env.gdpo``."""

    gdpo: GdpoConfig
    tokenizer: str = Field(description="counts the tokens of a response, for rewards that ask for its length")
    max_new_tokens: int = Field(ge=1, description="a response of so many tokens was cut off")
    grading_budget_s: float | None = Field(
        default=None,
        gt=0,
        description="seconds from a response to its grades, and so the most that a step waits for them after its last "
        "response; what is not graded by then is masked and counted; None: no end but the limits of each reward",
    )


def grades_at_once(s: Settings) -> bool:
    """Whether NeMo RL hands each response to the environment when it is complete."""
    key = ASYNC_KEYS.get(str(s["policy.generation.backend"]))
    return key is not None and bool(s[key])


def grading(s: Settings) -> str:
    """When rewards are computed, in words; with synchronous generation also what would change that."""
    if grades_at_once(s):
        return AT_ONCE
    key = ASYNC_KEYS.get(str(s["policy.generation.backend"]))
    return f"{AT_THE_END}; {key}=true grades while others generate" if key else AT_THE_END
