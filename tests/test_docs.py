"""Documents stay true: links lead somewhere, and the code in the README runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_lead_to_files(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text("utf-8"))
    broken = [target for target in targets if "://" not in target and not (document.parent / target).exists()]
    assert not broken


def test_the_readme_example_runs_and_conditions_the_easy_reward() -> None:
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S)
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    advantages = names["advantages_B"].tolist()  # type: ignore[attr-defined]
    assert advantages[2] == max(advantages)  # right and short
    assert advantages[1] == advantages[3] == min(advantages)  # wrong: being short earns nothing


def test_readme_commands_name_commands_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    from gdpo_nemo.suite.command_line import execute

    lines = re.findall(r"^\.venv/bin/gdpo (\w+)", (ROOT / "README.md").read_text("utf-8"), re.M)
    assert lines
    for command in set(lines):
        with pytest.raises(SystemExit) as stopped:
            execute([command, "--help"])
        assert stopped.value.code == 0 and command in capsys.readouterr().out
