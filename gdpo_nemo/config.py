"""Configuration: the ``gdpo:`` block and the embedded trainer's block.

Each default lives on exactly one field below, so a YAML file states only what differs.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from gdpo_nemo.composing import load_yaml as load_yaml
from gdpo_nemo.data.table import TableFile
from gdpo_nemo.data.tool_world import ToolWorld
from gdpo_nemo.prompts.template import PromptTemplate
from gdpo_nemo.rewards.judge import Judge
from gdpo_nemo.signals.families import Family
from gdpo_nemo.signals.quantile import Quantile
from gdpo_nemo.signals.schedules import Weight
from gdpo_nemo.signals.veto import Veto
from gdpo_nemo.validation import Strict
from gdpo_nemo.validation import validate as validate
from gdpo_nemo.worlds import AnyWorld


class ConditionConfig(Strict):
    """Eq. 8: the reward keeps its value only where ``on`` is at least ``at_least``."""

    on: str
    at_least: float = 1.0
    else_value: float = 0.0


class RewardConfig(Strict):
    """Weight and optional condition of one named reward; a reward of your own also says what computes it."""

    weight: Weight = Field(default=1.0, description="a number, or a schedule: constant, linear, step, curriculum")
    normalise: Literal["quantile"] | None = Field(
        default=None, description="quantile: the reward's place among recent ones, in place of its value"
    )
    condition: ConditionConfig | None = None
    fn: str | None = Field(default=None, description="own reward: package.module:function")
    judge: Judge | None = Field(default=None, description="own reward: a model behind an OpenAI-compatible endpoint")
    range: tuple[float, float] | None = Field(default=None, description="own reward: [lowest, highest] value")
    timeout_s: float = Field(default=10.0, gt=0, description="own reward: seconds per call")
    concurrency: int = Field(default=8, ge=1, description="own reward: calls at once")
    batched: bool = Field(default=False, description="own fn: one call (rows, rollouts) -> list for all samples")

    @property
    def is_own(self) -> bool:
        """Whether the reward is computed by the user's code or endpoint, not by the task."""
        return self.fn is not None or self.judge is not None

    @model_validator(mode="after")
    def _check_kind(self) -> RewardConfig:
        if self.fn is not None and self.judge is not None:
            raise ValueError("a reward has either fn or judge")
        if self.is_own and self.range is None:
            raise ValueError("an own reward (fn or judge) needs its range, e.g. range: [0, 1]")
        if self.judge is not None and self.batched:
            raise ValueError("batched belongs to fn; a judge is asked once per sample, concurrency at a time")
        if not self.is_own:
            for name in ("range", "timeout_s", "concurrency", "batched"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(
                        f"{name} belongs to an own reward; name its function with fn: package.module:function"
                    )
        return self


class PromptLimit(Strict):
    """How long a prompt may be, chat markup included."""

    tokens: int = Field(ge=1, description="rows with longer prompts are left out and counted")
    tokenizer: str | None = Field(default=None, description="that counts; None: the model's own")
    compat: bool = Field(default=False, description="keep them, and cut their front away as ToolRL's code does")


class DataConfig(Strict):
    """Rows of your own, in place of the task's: where they lie, what their columns mean, how they become prompts."""

    train: TableFile
    heldout: TableFile
    columns: dict[str, str] = Field(default={}, description="id, gold, or a field for the prompt -> column")
    prompt: PromptTemplate
    prompt_limit: PromptLimit | None = None


Action = Literal["warn", "checkpoint", "stop"]
AlarmName = Literal[
    "loss", "grad_norm", "lost_reward", "no_groups", "collapse", "hack", "truncated", "kl", "gradient",
    "gradient_spike", "length", "entropy", "few_groups", "dominance", "clipped", "repeated",
]  # fmt: skip
DEFAULT_ALARMS: tuple[AlarmName, ...] = (
    "loss", "grad_norm", "lost_reward", "no_groups", "collapse", "hack", "truncated", "gradient", "length",
)  # fmt: skip
"""Those that are on without being asked for: the 95 % interval of their false alarms on healthy runs ends below 5 %."""


class MonitorConfig(Strict):
    """Alarms while a run goes on: gdpo_nemo/health/monitor.py has the rules and the level of each."""

    alarms: list[Literal[AlarmName, "default", "all"]] = Field(
        default=["default"], description="which are on; default: those that are seldom false; []: none"
    )
    metrics: list[str] | None = Field(
        default=None,
        description="held-out rewards that must not fall while those in use rise; None: scored ones without weight",
    )
    on_alarm: dict[Literal[AlarmName, Action], Action] = Field(
        default={}, description="alarm, or all of a level -> warn, checkpoint or stop; default: as its level says"
    )


class PreferenceConfig(Strict):
    """Group-wise preference training, another algorithm than GDPO (docs/preference.md). Embedded backend only."""

    beta: float = Field(default=0.1, gt=0, allow_inf_nan=False, description="price of leaving the reference")
    temperature: float = Field(
        default=0.5, gt=0, allow_inf_nan=False, description="of the shares in which a lead by Borda count is measured"
    )
    min_gap: float = Field(
        default=0.0, ge=0, le=1, description="smallest lead of a winner over a loser, by both scores"
    )
    anchors: Literal["none", "gold"] = Field(
        default="none", description="gold: the reference answer of each row joins its group, and never loses"
    )
    min_logp: float = Field(default=-20.0, lt=0, description="floor of a token's log-probability, in nats")


class GdpoConfig(Strict):
    """The ``gdpo:`` block: how named rewards become one advantage per rollout. Shared by all backends."""

    stands_under: ClassVar[str] = "gdpo"

    task: str | None = Field(default=None, description="a built-in task; None: own rewards only")
    task_options: dict[str, Any] = Field(default={})
    method: Literal["gdpo", "grpo", "preference"] = "gdpo"
    rewards: dict[str, RewardConfig] = Field(default={}, description="by name; empty means all of the task, weight 1")
    python_path: str | None = Field(default=None, description="folder that the modules of own rewards lie in")
    data: DataConfig | None = Field(default=None, description="own rows; None: those of the task")
    scale_by_std: bool = Field(default=True, description="grpo only: False is the paper's 'GRPO w/o std'")
    batch_norm: bool = Field(default=True, description="gdpo only: False drops the batch step (Appendix A)")
    rescale_by_range: bool = Field(default=False, description="divide each reward by its declared range first")
    kl_in_reward: float = Field(
        default=0.0, ge=0, allow_inf_nan=False, description="grpo only: the total pays this much of the response's KL"
    )
    ddof: Literal[0, 1] = 1
    eps: float = Field(default=1e-6, ge=0)
    families: dict[str, Family] = Field(
        default={}, description="gdpo only: rewards that are added up and normalised as one; name -> [reward, ...]"
    )
    quantile: Quantile = Field(default=Quantile(), description="windows of rewards with normalise: quantile")
    amplification_cap: float | None = Field(
        default=None, ge=1, allow_inf_nan=False, description="gdpo only: most that the batch step scales groups up by"
    )
    clip_advantage: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="largest magnitude of an advantage"
    )
    veto: Veto | None = Field(default=None, description="no positive advantage where this reward is below a value")
    dynamic_sampling: Literal["any_component", "sum"] = Field(
        default="any_component", description="which groups dynamic sampling keeps, where the trainer has it on"
    )
    monitor: MonitorConfig = MonitorConfig()
    preference: PreferenceConfig = PreferenceConfig()

    @field_validator("families", mode="before")
    @classmethod
    def _read_lists(cls, given: Any) -> Any:
        """A list of rewards is a family of weight 1."""
        if not isinstance(given, Mapping):
            return given
        return {name: {"rewards": one} if isinstance(one, list | tuple) else one for name, one in given.items()}


class ModelConfig(Strict):
    """Which causal LM. ``tiny`` builds a Qwen2 model of the given size over the task's own vocabulary."""

    name: str = Field(default="tiny", description="tiny, smollm2, a local Hugging Face directory, or a hub id")
    hidden_size: int = Field(default=64, ge=1)
    intermediate_size: int = Field(default=192, ge=1)
    num_layers: int = Field(default=2, ge=1)
    num_heads: int = Field(default=4, ge=1)
    device: str = "cpu"
    dtype: Literal["float32", "bfloat16"] = "float32"


class WarmupConfig(Strict):
    """Supervised phase before reinforcement learning: clean demonstrations, then a noisy behaviour mix."""

    seed: int = 0
    clean_steps: int = Field(default=300, ge=0)
    noisy_steps: int = Field(default=150, ge=0)
    pool_rows: int = Field(default=2048, ge=1, description="rows that demonstrations are drawn for")
    batch_size: int = Field(default=64, ge=1)
    lr: float = Field(default=4e-3, ge=0, allow_inf_nan=False)
    noisy_lr: float = Field(default=1e-3, ge=0, allow_inf_nan=False)
    weight_decay: float = Field(default=0.0, ge=0, allow_inf_nan=False)


class LossConfig(Strict):
    """Clipped surrogate and optional KL to the warm-up model."""

    clip_low: float = Field(default=0.2, ge=0)
    clip_high: float = Field(default=0.2, ge=0)
    aggregation: Literal["token_mean", "sequence_mean"] = "token_mean"
    kl_coef: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    kl_estimator: Literal["k1", "k2", "k3"] = Field(default="k3", description="k1 does not pull: docs/algorithm.md")

    @model_validator(mode="after")
    def _check_estimator(self) -> LossConfig:
        if self.kl_coef and self.kl_estimator == "k1":
            warnings.warn(
                "kl_estimator k1 as a term of the loss does not hold the model near its reference: the gradient of "
                "k1 does not depend on the reference and is 0 in expectation. Use k2 or k3.",
                stacklevel=2,
            )
        return self


class TrainConfig(Strict):
    """Reinforcement learning on one machine."""

    steps: int = Field(default=60, ge=1)
    prompts_per_step: int = Field(default=16, ge=1)
    rollouts_per_prompt: int = Field(default=8, ge=1)
    minibatch_prompts: int | None = Field(default=None, ge=1, description="prompts per optimiser step; None: all")
    microbatch_rollouts: int | None = Field(default=None, ge=1, description="rollouts per backward pass; None: all")
    max_new_tokens: int = Field(default=24, ge=1)
    temperature: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    lr: float = Field(default=6e-4, ge=0, allow_inf_nan=False)
    weight_decay: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    grad_clip: float = Field(default=1.0, gt=0, description="largest norm of a gradient; .inf: any")
    checkpoint_every: int = Field(default=20, ge=1)
    on_non_finite: Literal["stop", "skip"] = Field(
        default="stop", description="at an infinite reward, log-prob or gradient: end the run, or leave the step out"
    )
    loss: LossConfig = LossConfig()


class EvalConfig(Strict):
    """Held-out evaluation at the end of a run (and of the warm-up)."""

    questions: int = Field(default=512, ge=1)
    samples_per_question: int = Field(default=1, ge=1)
    temperature: float = Field(default=1.0, ge=0, description="0 is greedy")
    seed: int = 0


class EmbeddedConfig(Strict):
    """Everything the embedded backend needs besides the ``gdpo:`` block."""

    data: AnyWorld = Field(
        default=ToolWorld(), description="a procedural world; its kind: trips, residues, programs or word_problems"
    )
    model: ModelConfig = ModelConfig()
    warmup: WarmupConfig = WarmupConfig()
    train: TrainConfig = TrainConfig()
    evaluation: EvalConfig = EvalConfig()
    threads: int = Field(default=1, ge=1)


class RunConfig(Strict):
    """One run: an arm with one seed, or (kind ``warmup``) the model that all arms start from."""

    kind: Literal["train", "warmup"] = "train"
    seed: int = 0
    gdpo: GdpoConfig
    embedded: EmbeddedConfig = EmbeddedConfig()
    base: str | None = Field(default=None, description="content hash of the warm-up that the run starts from")

    @model_validator(mode="after")
    def _check_loss(self) -> RunConfig:
        if self.gdpo.method == "preference" and self.embedded.train.loss != LossConfig():
            raise ValueError(
                "embedded.train.loss belongs to methods gdpo and grpo; method preference has that of gdpo.preference"
            )
        return self


def content_hash(*parts: Any) -> str:
    """Twelve hex digits that name any JSON-able content; equal content, equal name."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
