"""``python -m gdpo_nemo.sandbox [--json]``: what isolation this machine can give. Exit status 3 when auto refuses."""

from __future__ import annotations

import argparse
import sys

from gdpo_nemo.sandbox.probe import probe


def main() -> int:
    """Print the report."""
    parser = argparse.ArgumentParser(prog="python -m gdpo_nemo.sandbox", description="Probe the sandbox's layers.")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    wanted = parser.parse_args()
    report = probe()
    print(report.to_json() if wanted.json else "\n".join(report.lines()))
    return 0 if report.chosen else 3


if __name__ == "__main__":
    sys.exit(main())
