"""What the files of the project say, and that they can be read: no machine's own paths, valid data files."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

import gdpo_nemo

ROOT = Path(__file__).resolve().parents[1]

# Each pattern is written so that it does not match itself.
FORBIDDEN = {
    r"/wor[k]/|/roo[t]/|/User[s]/": "a path that exists on one machine only",
    r"\b(pypi\.or[g]|pythonhosted\.or[g]|npmjs\.or[g]|deb\.debian\.or[g])\b": "the host of a package registry",
    r"\b(this|another|an earlier|a later) sessio[n]\b|\bCE[O]\b": "talk about how the text was written",
    r"SPDX-License-Identifie[r]|Licensed under the Apache Licens[e]|Copyright \(c[)]|Copyright 2[0]": (
        "a licence header; LICENSE speaks for all files"
    ),
}
GENERATED = {"LICENSE"}
PARSERS = {
    ".yaml": lambda text: list(yaml.safe_load_all(text)),
    ".yml": lambda text: list(yaml.safe_load_all(text)),
    ".cff": yaml.safe_load,
    ".toml": tomllib.loads,
    ".json": json.loads,
    ".jsonl": lambda text: [json.loads(line) for line in text.splitlines()],
}


def project_files() -> list[Path]:
    """The tracked files; without git (a source archive), all that is not built or made by a run."""
    if shutil.which("git") and (ROOT / ".git").exists():
        done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return [path for name in done.stdout.split("\0") if name and (path := ROOT / name).is_file()]
    made = {"runs", "build", "dist", "__pycache__"}
    paths = [path.relative_to(ROOT) for path in ROOT.rglob("*")]
    ours = [
        path for path in paths if not made & set(path.parts) and (path.parts[0] == ".ci" or path.parts[0][0] != ".")
    ]
    return [ROOT / path for path in ours if (ROOT / path).is_file()]


def project_texts() -> dict[str, str]:
    """Text of each file by its path in the project; a file with a NUL byte is not text."""
    data = {str(path.relative_to(ROOT)): path.read_bytes() for path in project_files()}
    return {name: content.decode("utf-8") for name, content in data.items() if b"\0" not in content}


def text_faults(texts: dict[str, str]) -> list[str]:
    """One line for each place where a text says what it must not."""
    return [
        f"{name}:{number}: {match.group()!r} is {what}"
        for name, text in texts.items()
        if name not in GENERATED
        for number, line in enumerate(text.splitlines(), start=1)
        for pattern, what in FORBIDDEN.items()
        for match in re.finditer(pattern, line)
    ]


def test_no_text_speaks_of_one_machine_or_carries_a_licence_header() -> None:
    faults = text_faults(project_texts())
    assert not faults, "\n" + "\n".join(faults)


@pytest.mark.parametrize(
    "line",
    [
        "see /wor" + "k/main/x",
        "index https://pypi.or" + "g/simple",
        "as a later sessio" + "n found",
        "# Copyright 2" + "026",
    ],
)
def test_a_forbidden_word_is_found(line: str) -> None:
    (fault,) = text_faults({"a.md": f"first\n{line}\n"})
    assert fault.startswith("a.md:2: ")


def test_harmless_words_are_not_faults() -> None:
    text = "/workspace/model, a pytest fixture of scope='session', sessions, ${HOME}/work, Python, pip and npm"
    assert text_faults({"a.md": text}) == []


def test_lines_end_in_one_way() -> None:
    wrong = [name for name, text in project_texts().items() if "\r" in text or (text and not text.endswith("\n"))]
    assert not wrong, f"CR line ends, or no line end at the end: {wrong}"


def test_every_data_file_parses() -> None:
    faults = []
    for name, text in project_texts().items():
        parse = PARSERS.get(Path(name).suffix)
        if parse is None or name.startswith("tests/"):  # fixtures may be broken on purpose
            continue
        try:
            parse(text)
        except (ValueError, yaml.YAMLError) as error:
            faults.append(f"{name}: {error}")
    assert not faults, "\n" + "\n".join(faults)


def test_the_citation_names_this_version_and_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == gdpo_nemo.__version__
    assert [reference["url"] for reference in citation["references"]] == ["https://arxiv.org/abs/2601.05242"]
