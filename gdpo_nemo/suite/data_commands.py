"""``gdpo data``: the published data sets of a task, fetched once and locked."""

from __future__ import annotations

import argparse
from pathlib import Path

from gdpo_nemo.data.sources import SOURCES, data_stats, fetch_data, verify_data
from gdpo_nemo.suite.answer import Answer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to do, and for which task."""
    parser.add_argument(
        "action",
        choices=["fetch", "verify", "stats"],
        help="fetch: download what is not there and lock it; verify: is every file the one that was locked? "
        "stats: rows and columns",
    )
    parser.add_argument("task", help=", ".join(SOURCES))
    parser.add_argument(
        "--tokenizer", metavar="NAME", help="stats of tool_calling: count prompts that are too long for this model"
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="where data sets lie (default: GDPO_DATA, else data)")
    parser.add_argument("--offline", action="store_true", help="ask nothing of the network (or set GDPO_OFFLINE=1)")
    parser.add_argument(
        "--from", dest="copy_from", type=Path, metavar="DIR", help="fetch: copy the files from here, not the network"
    )


def answer(options: argparse.Namespace) -> Answer:
    """Fetch, verify or count.

    Raises:
        UnknownNameError, PrerequisiteError, DataLockError: as ``gdpo_nemo.data.locks``.
    """
    if options.action == "fetch":
        text, data = fetch_data(options.task, options.data, offline=options.offline, copy_from=options.copy_from)
    elif options.action == "verify":
        text, data = verify_data(options.task, options.data)
    else:
        text, data = data_stats(options.task, options.data, options.tokenizer)
    return Answer(text, data)
