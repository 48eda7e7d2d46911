"""Register this package with NeMo RL, then run NeMo RL's own main: same options, same overrides.

python -m gdpo_nemo.backends.nemo_rl --config resolved.yaml [key=value ...]
"""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path
from typing import NoReturn

import yaml

from gdpo_nemo.backends.nemo_rl import host, plugin, record
from gdpo_nemo.backends.nemo_rl.alarms import Alarms
from gdpo_nemo.checkpoints import check_resume
from gdpo_nemo.errors import GdpoError


def main() -> None:
    """Run ``examples/run_grpo.py`` of the host with the plug-in in place, unless it would resume another run.

    A run directory of ours is followed: see ``record`` and ``alarms``.
    """
    parser = argparse.ArgumentParser(prog="python -m gdpo_nemo.backends.nemo_rl", description=__doc__, add_help=False)
    parser.add_argument("--config", type=Path)
    options, _ = parser.parse_known_args()
    try:
        found = host.locate()
        config = yaml.safe_load(options.config.read_text("utf-8")) if options.config else {}
        step = check_resume(config) if options.config else 0
        run = record.run_dir_of(config)
        following = None if run is None else Alarms(run, plugin.gdpo_block(config), step)
    except GdpoError as error:
        _fail(error)
    print(f"{found.description}; {f'resumes at step {step}' if step else 'starts anew'}", flush=True)
    plugin.register()
    if run is not None and following is not None:
        following.register()
        record.record_steps(run, step, following.look, record.updates_per_batch(config))
    runpy.run_path(str(found.root / host.MAIN), run_name="__main__")
    if following is not None and following.halted is not None:
        _fail(following.halted)


def _fail(error: GdpoError) -> NoReturn:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
