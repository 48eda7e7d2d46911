"""Documents stay true: links lead somewhere, and the code in the README runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NEMO_RL, OWN = ((ROOT / "docs" / name).read_text("utf-8") for name in ("nemo-rl.md", "own-rewards.md"))
FURTHER = ("rescore", "setup")
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
        try:
            code = execute([command, "--help"])
        except SystemExit as stopped:
            code = int(stopped.code or 0)
        assert code == 0 and command in capsys.readouterr().out


def shown_commands() -> list[tuple[str, list[str]]]:
    """(document, words) of every line of a code block that starts with gdpo."""
    found = []
    for document in DOCUMENTS:
        for block in re.findall(r"^```\w*\n(.*?)^```", document.read_text("utf-8"), re.S | re.M):
            for line in block.replace("\\\n", " ").splitlines():
                if match := re.match(r"(?:\S*/)?gdpo (.*)", line):
                    found.append((document.name, shlex.split(match[1], comments=True)))
    return found


def test_every_option_of_a_command_in_the_documents_exists(capsys: pytest.CaptureFixture[str]) -> None:
    from gdpo_nemo.suite.command_line import execute

    helps: dict[tuple[str, ...], str] = {}
    shown = shown_commands()
    assert len(shown) > 40
    for document, words in shown:
        asked = tuple(words[: 2 if words[0] == "eval" else 1]) + tuple(word for word in words[2:3] if word in FURTHER)
        if asked not in helps:
            with pytest.raises(SystemExit):
                execute([*asked, "--help"])
            helps[asked] = capsys.readouterr().out
        options = [word.split("=")[0] for word in words if word.startswith("--")]
        wrong = [option for option in options if not re.search(rf"{option}(?![\w-])", helps[asked])]
        assert not wrong, (document, words)


def nemo_rl_commands() -> list[str]:
    """The lines of docs/nemo-rl.md that plan, or write jobs without submitting them."""
    blocks = [text for kind, text in re.findall(r"^```(\w*)\n(.*?)^```", NEMO_RL, re.S | re.M) if not kind]
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in lines if re.match(r"gdpo (plan|launch .*--dry-run) ?", line)]


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of docs/nemo-rl.md: this repository, NeMo RL's batch script, and the page's own YAML file."""
    monkeypatch.delenv("NEMO_RL_PATH", raising=False)
    monkeypatch.chdir(tmp_path)
    for folder in ("RL", "mine"):
        (tmp_path / folder).mkdir()
    (tmp_path / "RL" / "ray.sub").touch()
    (tmp_path / "gdpo-nemo").symlink_to(ROOT)
    [(name, text)] = re.findall(r"^`(mine/\S+)`:\n\n```yaml\n(.*?)^```", NEMO_RL, re.S | re.M)
    (tmp_path / name).write_text(text, "utf-8")
    [(name, text)] = re.findall(r"^`(my_rewards\.py)`:\n\n```python\n(.*?)^```", OWN, re.S | re.M)
    (tmp_path / "mine" / name).write_text(text, "utf-8")
    return tmp_path


def test_the_nemo_rl_page_plans_and_launches_as_it_says(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from gdpo_nemo.suite.command_line import execute

    commands = nemo_rl_commands()
    assert len(commands) >= 8
    for command in commands:
        _, *arguments = shlex.split(command.replace("$PWD", str(shared)))
        assert execute(arguments) == 0, (command, capsys.readouterr().err)
        out = capsys.readouterr().out
        assert ("Nothing speaks against this run" if arguments[0] == "plan" else "written") in out, command


def test_the_nemo_rl_page_names_every_setting_that_is_refused() -> None:
    from gdpo_nemo.cluster.refusals import REFUSALS

    last = {rule.key: f"`{rule.key.rpartition('.')[2]}`" for rule in REFUSALS}
    assert [key for key, name in last.items() if f"`{key}" not in NEMO_RL and name not in NEMO_RL] == []
