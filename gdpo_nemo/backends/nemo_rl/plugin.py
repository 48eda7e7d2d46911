"""Puts this package into NeMo RL: its registries where there is one, and by name where there is none.

NeMo RL has no registry for advantage estimators, and its trainers look the functions below up in
``nemo_rl.algorithms.grpo`` when they call them. ``register`` wraps these; every other name passes through.

    _create_advantage_estimator                    the names gdpo_nemo and grpo_nemo
    dynamic_sampling                               keeps whole groups that the method can learn from
    run_multi_turn_rollout, run_async_...          ungraded samples leave the loss before anything else reads them
    scale_rewards                                  the same where the rollout ran in another process (data plane)
    run_sample_multi_turn_rollout                  as many responses wait for their grades at once as are complete
    _log_mixed_rewards_and_advantages_information  one line per reward in NeMo RL's own log, and what grading cost
    async_grpo_train                               a run that failed ends as one that failed
    CheckpointManager.init_tmp_checkpoint          a checkpoint holds what the method has gathered over the run
"""

from __future__ import annotations

import asyncio
import builtins
import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from gdpo_nemo.backends.nemo_rl import upstream
from gdpo_nemo.backends.nemo_rl.batches import settle, totals
from gdpo_nemo.backends.nemo_rl.estimator import MethodEstimator
from gdpo_nemo.backends.nemo_rl.grading import CALLS_AT_ONCE, grading_metrics
from gdpo_nemo.cluster.refusals import refusals
from gdpo_nemo.config import GdpoConfig, validate
from gdpo_nemo.errors import ConfigError
from gdpo_nemo.method import Method

ESTIMATORS = ("gdpo_nemo", "grpo_nemo")
ENVIRONMENT = "gdpo"
SWALLOWED = "Error in async loop"
"""What async_grpo_train of v0.7.0 prints of an exception before it returns as if all were well."""
COPIES = ("nemo_rl.algorithms.grpo_sync", "nemo_rl.algorithms.single_controller_utils.setup")
"""Modules that took these functions over with ``from ... import``, if they were imported before ``register``."""


class Plugin:
    """The wrapped functions, and the estimator of the run in this process."""

    def __init__(self) -> None:
        self.estimator: MethodEstimator | None = None
        self.environments: Mapping[str, Any] | None = None
        self.swallowed: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def create_estimator(self, original: Callable[..., Any], master_config: Any) -> Any:
        """The estimator that ``grpo.adv_estimator.name`` asks for.

        Raises:
            ConfigError: the ``gdpo:`` block is missing or wrong, or a setting of NeMo RL contradicts it.
        """
        config = upstream.as_dict(master_config)
        name = upstream.as_dict(config["grpo"].get("adv_estimator") or {}).get("name")
        if name not in ESTIMATORS:
            return original(master_config)
        method = Method(gdpo_block(config))
        if refused := refusals(config, method.config):
            raise ConfigError("\n".join(map(str, refused)))
        self.estimator = MethodEstimator(method, int(config["grpo"]["num_generations_per_prompt"]))
        self.estimator.resume(Path(upstream.as_dict(config["checkpointing"])["checkpoint_dir"]))
        print(f"  ✓ {method.config.method.upper()} of gdpo-nemo on {', '.join(method.names)}")
        return self.estimator

    def dynamic_sampling(
        self,
        original: Callable[..., Any],
        repeated_batch: Any,
        std: torch.Tensor,
        baseline: torch.Tensor,
        num_gen_batches: int,
        master_config: Any,
        *rest: Any,
        **named: Any,
    ) -> Any:
        """NeMo RL's own selection, with ``std`` replaced: 1 in groups to learn from, 0 in the others.

        NeMo RL looks at the std of the total, per sample and leave-one-out: it drops a group whose rewards cancel in
        the total, and within a group the one sample that differs. With ``grpo.overlong_filtering`` truncated samples
        are masked after the selection, so they do not count in it.
        """
        if self.estimator is not None:
            method = self.estimator.method
            rewards_B_K = upstream.from_batch(repeated_batch, method.names)
            group_ids_B = torch.arange(len(rewards_B_K)) // self.estimator.rollouts_per_prompt
            valid_B = torch.as_tensor(repeated_batch["loss_multiplier"]) > 0
            if upstream.as_dict(master_config.grpo).get("overlong_filtering"):
                valid_B = valid_B & ~torch.as_tensor(repeated_batch["truncated"], dtype=torch.bool)
            std = method.informative(rewards_B_K, group_ids_B, valid_B, step=self.estimator.step + 1).to(std)
        return original(repeated_batch, std, baseline, num_gen_batches, master_config, *rest, **named)

    def rollout(self, original: Callable[..., Any], *positional: Any, **named: Any) -> Any:
        """A rollout of NeMo RL, with its ungraded samples settled and what their grading cost."""
        batch, metrics = original(*positional, **named)
        if self.estimator is not None:
            settle(batch, self.estimator.method.names)
            metrics.update({name: value for name, value in totals(batch).items() if name in metrics})
            metrics.update(grading_metrics(_task_to_env(original, positional, named)))
        return batch, metrics

    async def sample(self, original: Callable[..., Any], *positional: Any, **named: Any) -> Any:
        """One sample of a rollout, in an event loop with threads enough.

        Each response waits for its grades in a thread of the loop's default executor, which has at most 32: in it a few
        endless programs would keep all other responses from being graded.
        """
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop = loop
            loop.set_default_executor(ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix="gdpo-waiting"))
        return await original(*positional, **named)

    def scale_rewards(self, original: Callable[..., Any], batch: Any, *rest: Any, **named: Any) -> Any:
        """NeMo RL's own, on a batch whose ungraded samples are settled."""
        if self.estimator is not None:
            settle(batch, self.estimator.method.names)
        return original(batch, *rest, **named)

    def log(self, original: Callable[..., Any], *positional: Any, **named: Any) -> None:
        """NeMo RL's own numbers and those of each reward, all under ``train/``."""
        original(*positional, **named)
        if self.estimator is not None:
            named["metrics"].update(self.estimator.last_metrics, **grading_metrics(self.environments))

    def init_checkpoint(self, original: Callable[..., Any], manager: Any, step: int, *rest: Any, **named: Any) -> Any:
        """The folder of a checkpoint, with what the method has gathered in it before anything of the model is.

        Raises:
            RunDirError: as ``MethodEstimator.save``.
        """
        folder = original(manager, step, *rest, **named)
        if self.estimator is not None:
            self.estimator.save(Path(folder), step)
        return folder

    def print(self, *words: Any, **named: Any) -> None:
        """``print`` of NeMo RL's trainers; remembers the exception that it is about."""
        if words and SWALLOWED in str(words[0]):
            self.swallowed = sys.exc_info()[1]
        builtins.print(*words, **named)

    def async_train(self, original: Callable[..., Any], *positional: Any, **named: Any) -> None:
        """The asynchronous trainer.

        Raises:
            BaseException: what ended its loop.
        """
        self.swallowed = None
        self.environments = _task_to_env(original, positional, named)  # its rollouts run in another process
        original(*positional, **named)
        if self.swallowed is not None:
            raise self.swallowed


def _task_to_env(function: Callable[..., Any], positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
    return inspect.signature(function).bind_partial(*positional, **named).arguments.get("task_to_env")


def gdpo_block(config: Mapping[str, Any]) -> GdpoConfig:
    """The ``gdpo:`` block, which NeMo RL's MasterConfig keeps beside its own sections.

    Raises:
        ConfigError: it is missing or wrong.
    """
    block = config.get("gdpo")
    if not isinstance(block, Mapping):
        raise ConfigError("the configuration has no gdpo: block, which the estimators gdpo_nemo and grpo_nemo read")
    return validate(GdpoConfig, block, "gdpo")


def register() -> Plugin:
    """Make NeMo RL know the estimators, the environment ``gdpo`` and the processor ``gdpo_rows``.

    Call once, in the driver, before NeMo RL's main.
    """
    from nemo_rl.algorithms import grpo
    from nemo_rl.data.processors import register_processor
    from nemo_rl.distributed.ray_actor_environment_registry import ACTOR_ENVIRONMENT_REGISTRY
    from nemo_rl.distributed.virtual_cluster import PY_EXECUTABLES
    from nemo_rl.environments.utils import register_env
    from nemo_rl.experience import rollouts
    from nemo_rl.utils.checkpoint import CheckpointManager

    from gdpo_nemo.backends.nemo_rl import dataset, environment

    register_env(ENVIRONMENT, environment.ACTOR)
    ACTOR_ENVIRONMENT_REGISTRY[environment.ACTOR] = PY_EXECUTABLES.SYSTEM
    register_processor(dataset.PROCESSOR, dataset.process_row)
    plugin = Plugin()
    wrappers: dict[str, Callable[..., Any]] = {
        "_create_advantage_estimator": plugin.create_estimator,
        "dynamic_sampling": plugin.dynamic_sampling,
        "run_multi_turn_rollout": plugin.rollout,
        "run_async_multi_turn_rollout": plugin.rollout,
        "scale_rewards": plugin.scale_rewards,
        "_log_mixed_rewards_and_advantages_information": plugin.log,
        "async_grpo_train": plugin.async_train,
    }
    grpo.print = plugin.print
    modules = [grpo, *(sys.modules[name] for name in COPIES if name in sys.modules)]
    for name, wrapper in wrappers.items():
        original: Callable[..., Any] = getattr(grpo, name)
        for module in modules:
            if getattr(module, name, None) is original:
                setattr(module, name, functools.wraps(original)(functools.partial(wrapper, original)))
    sample = rollouts.run_sample_multi_turn_rollout
    rollouts.run_sample_multi_turn_rollout = functools.wraps(sample)(functools.partial(plugin.sample, sample))
    init = CheckpointManager.init_tmp_checkpoint
    CheckpointManager.init_tmp_checkpoint = functools.wraps(init)(
        lambda manager, *positional, **named: plugin.init_checkpoint(init, manager, *positional, **named)
    )
    return plugin
