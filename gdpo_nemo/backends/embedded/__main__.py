"""Perform one run: ``python -m gdpo_nemo.backends.embedded RUN_DIR [TRACKERS]``."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

from gdpo_nemo import tracking
from gdpo_nemo.config import RunConfig, validate
from gdpo_nemo.errors import GdpoError
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.tracking import tracked


def main(arguments: list[str]) -> int:
    """Run or resume; a finished run returns at once."""
    if len(arguments) not in (1, 2):
        print("usage: python -m gdpo_nemo.backends.embedded RUN_DIR [tensorboard,wandb]", file=sys.stderr)
        return 2
    _end_with_parent()
    run = RunDir(Path(arguments[0]))
    try:
        config = validate(RunConfig, run.config(), origin=str(run.path))
        with run.lock():
            if run.result() is not None:
                print(f"{run.path} is already finished")
                return 0
            import torch
            from transformers.utils import logging

            logging.disable_progress_bar()
            torch.set_num_threads(config.embedded.threads)
            with tracked(run, tracking.parse(arguments[1] if arguments[1:] else None)) as claimed:
                if config.kind == "warmup":
                    from gdpo_nemo.backends.embedded.warmup import warm_up

                    warm_up(claimed, config)
                else:
                    from gdpo_nemo.backends.embedded.train import train

                    train(claimed, config)
    except GdpoError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _end_with_parent() -> None:
    """When a supervisor started us (GDPO_PARENT is its pid), ask Linux to end us with it."""
    parent = os.environ.get("GDPO_PARENT")
    if parent and sys.platform == "linux":
        PR_SET_PDEATHSIG = 1
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != int(parent):  # it died before the request
            sys.exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
