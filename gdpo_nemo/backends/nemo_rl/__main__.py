"""Register this package with NeMo RL, then run NeMo RL's own main: same options, same overrides.

python -m gdpo_nemo.backends.nemo_rl --config resolved.yaml [key=value ...]
"""

from __future__ import annotations

import runpy

from gdpo_nemo.backends.nemo_rl import host, plugin


def main() -> None:
    """Run ``examples/run_grpo.py`` of the host with the plug-in in place."""
    found = host.locate()
    print(found.description, flush=True)
    plugin.register()
    runpy.run_path(str(found.root / host.MAIN), run_name="__main__")


if __name__ == "__main__":
    main()
