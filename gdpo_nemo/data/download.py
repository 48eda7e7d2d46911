"""Files of data sets on the Hugging Face hub, on GitHub or at a plain address, through the standard library.

A revision that is not given is asked for first, so that all files come from one commit. ``HF_ENDPOINT`` names a mirror
of the hub, ``HF_TOKEN`` a key; the key goes to that host alone, not to where it redirects.
"""

from __future__ import annotations

import fnmatch
import json
import os
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gdpo_nemo.errors import InputError, PrerequisiteError

TIMEOUT_S = 60.0
HUB, GITHUB, URL = "hub", "github", "url"
INSTEAD = "`gdpo data fetch TASK --from DIR` takes files that you have already"


@dataclass(frozen=True)
class Origin:
    """Where a data set comes from.

    Attributes:
        kind: ``hub`` (a data set), ``github`` (a repository) or ``url`` (a folder).
        name: ``owner/name``, or the address of the folder.
    """

    kind: str
    name: str

    def __post_init__(self) -> None:
        if self.kind not in (HUB, GITHUB, URL):
            raise InputError(f"origin {self.kind!r} is none of {HUB}, {GITHUB}, {URL}")

    def __str__(self) -> str:
        return self.name if self.kind == URL else f"{self.kind}:{self.name}"

    def resolve(self, revision: str | None, patterns: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
        """The commit that a revision stands for (the newest for None), and the files there that fit the patterns.

        Raises:
            PrerequisiteError: the host cannot be reached, or has no such data set, revision or file.
        """
        if self.kind == URL:
            return revision, tuple(patterns)
        if self.kind == GITHUB:
            about = _json(f"https://api.github.com/repos/{self.name}/commits/{revision or 'HEAD'}")
            return str(about["sha"]), tuple(patterns)
        about = _json(f"{_hub()}/api/datasets/{self.name}/revision/{revision or 'main'}")
        there = [str(entry["rfilename"]) for entry in about["siblings"] if ".." not in entry["rfilename"]]
        found: list[str] = []
        for pattern in patterns:
            fitting = sorted(fnmatch.filter(there, pattern))
            if not fitting:
                raise PrerequisiteError(
                    f"{self} has no file {pattern} at {about['sha']}; it has {', '.join(there[:20])}"
                )
            found += fitting
        return str(about["sha"]), tuple(dict.fromkeys(found))

    def address(self, file: str, revision: str | None) -> str:
        """Where one file lies."""
        path = urllib.parse.quote(file)
        if self.kind == HUB:
            return f"{_hub()}/datasets/{self.name}/resolve/{revision}/{path}"
        if self.kind == GITHUB:
            return f"https://raw.githubusercontent.com/{self.name}/{revision}/{path}"
        return f"{self.name.rstrip('/')}/{path}"


def download(address: str, target: Path) -> None:
    """Get one file whole.

    Raises:
        PrerequisiteError: it cannot be had; the message names the address.
    """
    try:
        with _open(address) as answer, target.open("wb") as handle:
            shutil.copyfileobj(answer, handle)
            expected = answer.headers.get("Content-Length")
    except (OSError, ValueError) as error:
        raise PrerequisiteError(f"cannot download {address}: {_why(error)}; {INSTEAD}") from error
    if expected is not None and target.stat().st_size != int(expected):
        raise PrerequisiteError(f"{address} broke off after {target.stat().st_size} of {expected} bytes; try again")


def _hub() -> str:
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def _json(address: str) -> Any:
    try:
        with _open(address) as answer:
            return json.load(answer)
    except (OSError, ValueError) as error:
        raise PrerequisiteError(f"cannot ask {address}: {_why(error)}; {INSTEAD}") from error


def _why(error: Exception) -> str:
    reason = getattr(error, "reason", None)  # of a URLError: what the system said, without the words around it
    return str(reason if isinstance(reason, OSError) else error)


def _open(address: str) -> Any:
    request = urllib.request.Request(address, headers={"User-Agent": "gdpo-nemo"})
    if os.environ.get("HF_TOKEN") and address.startswith(_hub() + "/"):
        request.add_unredirected_header("Authorization", f"Bearer {os.environ['HF_TOKEN']}")
    return urllib.request.urlopen(request, timeout=TIMEOUT_S)
