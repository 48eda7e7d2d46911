"""The monitor of a run on NeMo RL: it sees each step when NeMo RL logs it, and acts through what NeMo RL offers.

    checkpoint  ``CheckpointManager.remove_old_checkpoints`` does not see the last healthy checkpoint, so ``keep_top_k``
                and ``ft_keep_latest_k`` leave it where it is
    stop        ``TimeoutChecker.check_save``, which every trainer asks once a step, says that time is up: NeMo RL ends
                the next step, saves a checkpoint, and returns; ``python -m gdpo_nemo.backends.nemo_rl`` then fails

A step is logged after its checkpoint was written, which is why a stop takes one step more.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from gdpo_nemo.config import GdpoConfig
from gdpo_nemo.errors import RunHaltedError
from gdpo_nemo.health.following import Monitor
from gdpo_nemo.run_dir import RunDir


class Alarms:
    """Follows the run of this process.

    Attributes:
        monitor: of the run.
        halted: why the run ends, once an alarm has asked for it.
    """

    def __init__(self, run: RunDir, gdpo: GdpoConfig, first_step: int) -> None:
        """Take up what was logged up to ``first_step``.

        Raises:
            RunHaltedError: an alarm stopped the run before, and nobody has accepted it.
            UnknownNameError: a held-out metric that is no reward.
        """
        self.monitor = Monitor(run, gdpo, first_step)
        self.halted: RunHaltedError | None = None

    def look(self, row: Mapping[str, Any]) -> None:
        """The row of a step that is over."""
        self.halted = self.monitor.look(row) or self.halted

    def register(self) -> None:
        """Put what an alarm asks for into NeMo RL; once a process, before its main."""
        from nemo_rl.utils import checkpoint
        from nemo_rl.utils.timer import TimeoutChecker

        check_save = TimeoutChecker.check_save
        remove = checkpoint.CheckpointManager.remove_old_checkpoints

        @functools.wraps(check_save)
        def time_is_up(checker: Any) -> bool:
            return self.halted is not None or bool(check_save(checker))

        @functools.wraps(remove)
        def remove_others(manager: Any, *positional: Any, **named: Any) -> None:
            load = checkpoint._load_checkpoint_history
            checkpoint._load_checkpoint_history = lambda folder: self._without_healthy(load(folder))
            try:
                remove(manager, *positional, **named)
            finally:
                checkpoint._load_checkpoint_history = load

        TimeoutChecker.check_save = time_is_up
        checkpoint.CheckpointManager.remove_old_checkpoints = remove_others

    def _without_healthy(self, history: list[Any]) -> list[Any]:
        """Checkpoints as NeMo RL lists them, (step, path, numbers), but for the newest from before an alarm."""
        until = self.monitor.standing_since
        healthy = max((step for step, *_ in history if until is not None and step <= until), default=None)
        return [one for one in history if one[0] != healthy]
