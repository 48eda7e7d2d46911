"""Mirrors of ``metrics.jsonl`` in trackers, on request. The file is the record; a mirror decides nothing.

A row goes to the mirrors after it is in the file. A resumed run repeats the rows after its last checkpoint, with the
same numbers: TensorBoard drops its old ones (``purge_step``), in W&B the resumed process is a run of the same group.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from gdpo_nemo.errors import PrerequisiteError, UnknownNameError
from gdpo_nemo.run_dir import RunDir

PACKAGES = {"tensorboard": "tensorboard", "wandb": "wandb"}
"""Tracker -> the package that it needs."""


class Tracker(Protocol):
    """Where rows go."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """The finite numbers of one step."""

    def close(self) -> None:
        """Write what is left."""


def parse(text: str | None) -> tuple[str, ...]:
    """The trackers of a comma-separated list, each once.

    Raises:
        UnknownNameError: one does not exist.
        PrerequisiteError: the package of one is not installed.
    """
    names = tuple(dict.fromkeys(name.strip() for name in (text or "").split(",") if name.strip()))
    for name in names:
        if name not in PACKAGES:
            raise UnknownNameError("tracker", name, PACKAGES)
        if importlib.util.find_spec(PACKAGES[name]) is None:
            raise PrerequisiteError(f"tracker {name} needs a package: pip install {PACKAGES[name]}")
    return names


class TrackedRun(RunDir):
    """A run directory whose rows of metrics go to trackers too."""

    def __init__(self, path: Path, trackers: Sequence[Tracker]) -> None:
        super().__init__(path)
        self._trackers = tuple(trackers)

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        """Add one step's row, then mirror it."""
        super().append_metrics(row)
        numbers = {
            name: float(value)
            for name, value in row.items()
            if name != "step" and isinstance(value, int | float) and math.isfinite(value)
        }
        for tracker in self._trackers:
            tracker.log(int(row["step"]), numbers)


@contextlib.contextmanager
def tracked(run: RunDir, names: Sequence[str]) -> Iterator[RunDir]:
    """The run with its trackers open, under ``logs/tensorboard`` and ``logs/wandb``; the run itself without any.

    Raises:
        PrerequisiteError: a tracker cannot be opened.
    """
    if not names:
        yield run
        return
    step = run.checkpoints()[-1][0] if run.checkpoints() else 0
    trackers: list[Tracker] = []
    with contextlib.ExitStack() as stack:
        for name in names:
            tracker = OPEN[name](run, step)
            stack.callback(tracker.close)
            trackers.append(tracker)
        yield TrackedRun(run.path, trackers)


class _TensorBoard:
    def __init__(self, run: RunDir, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder = run.path / "logs" / "tensorboard"
        self._writer = SummaryWriter(str(folder), purge_step=step + 1 if step else None)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class _WandB:
    """Online unless ``WANDB_MODE`` says otherwise; the key is W&B's own business (``wandb login``, WANDB_API_KEY)."""

    def __init__(self, run: RunDir, step: int) -> None:
        import wandb

        experiment, scale, model, arm, seed = ("run", *run.path.resolve().parts)[-5:]
        folder = run.path / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        try:
            self._run = wandb.init(
                project=f"gdpo-{experiment}",
                name=f"{arm} {seed}",
                group=f"{scale} {model} {arm}",
                dir=str(folder),
                config=run.config(),
                mode=os.environ.get("WANDB_MODE", "online"),  # type: ignore[arg-type]
                settings=wandb.Settings(console="off", silent=True, x_disable_stats=True, x_disable_meta=True),
            )
        except (wandb.errors.Error, OSError) as error:
            raise PrerequisiteError(
                f"W&B cannot be opened: {error}. Log in (wandb login), or set WANDB_MODE=offline and sync it later"
            ) from error

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


OPEN: dict[str, Callable[[RunDir, int], Tracker]] = {"tensorboard": _TensorBoard, "wandb": _WandB}
