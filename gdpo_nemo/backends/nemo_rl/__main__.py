"""Register this package with NeMo RL, then run NeMo RL's own main: same options, same overrides.

python -m gdpo_nemo.backends.nemo_rl --config resolved.yaml [key=value ...]
"""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

import yaml

from gdpo_nemo.backends.nemo_rl import host, plugin, record
from gdpo_nemo.checkpoints import check_resume
from gdpo_nemo.errors import GdpoError


def main() -> None:
    """Run ``examples/run_grpo.py`` of the host with the plug-in in place, unless it would resume another run."""
    parser = argparse.ArgumentParser(prog="python -m gdpo_nemo.backends.nemo_rl", description=__doc__, add_help=False)
    parser.add_argument("--config", type=Path)
    options, _ = parser.parse_known_args()
    try:
        found = host.locate()
        config = yaml.safe_load(options.config.read_text("utf-8")) if options.config else {}
        step = check_resume(config) if options.config else 0
    except GdpoError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    print(f"{found.description}; {f'resumes at step {step}' if step else 'starts anew'}", flush=True)
    plugin.register()
    run = record.run_dir_of(config)
    if run is not None:
        record.record_steps(run, step)
    runpy.run_path(str(found.root / host.MAIN), run_name="__main__")


if __name__ == "__main__":
    main()
