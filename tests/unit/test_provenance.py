import json
import subprocess
from pathlib import Path

import pytest

import gdpo_nemo
from gdpo_nemo.provenance import collect, git_state, grader_hashes, template_hashes, tidy
from gdpo_nemo.suite.command_line import execute


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *identity, "-C", str(folder), *arguments], check=True, capture_output=True)


def test_it_is_json_and_names_code_packages_and_machine(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("MY_API_TOKEN", "hunter2")
    found = json.loads(json.dumps(collect(["gdpo", "run", "tool_calling"])))
    assert found["command"] == "gdpo run tool_calling"
    assert found["packages"]["numpy"]
    assert found["code"]["version"] == gdpo_nemo.__version__
    assert found["machine"]["cores"] >= 1 and found["machine"]["memory_gib"] > 0
    assert found["environment"]["OMP_NUM_THREADS"] == "1"
    assert "hunter2" not in json.dumps(found)


def test_no_home_directory_and_nothing_that_looks_like_a_secret(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tidy(f"--out {tmp_path}/runs") == "--out ~/runs"
    assert tidy("--hub-token abc x.api_key=def y=1") == "--hub-token *** x.api_key=*** y=1"


def test_a_clean_checkout_is_its_commit_and_a_changed_one_adds_the_change(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "a.txt").write_text("one\n")
    git(tmp_path, "add", "a.txt")
    git(tmp_path, "commit", "-q", "-m", "a")
    clean = git_state(tmp_path)
    assert len(clean["commit"]) == 40
    assert (clean["diff"], clean["diff_sha256"], clean["untracked"]) == (None, None, [])
    (tmp_path / "a.txt").write_text("two\n")
    (tmp_path / "b.txt").write_text("new\n")
    changed = git_state(tmp_path)
    assert changed["commit"] == clean["commit"]
    assert "+two" in changed["diff"] and len(changed["diff_sha256"]) == 64
    assert changed["untracked"] == ["b.txt"]
    (tmp_path / "a.txt").write_text("x" * 100_000)
    assert git_state(tmp_path)["diff"] is None
    assert git_state(tmp_path)["diff_sha256"] not in (None, changed["diff_sha256"])


def test_a_package_installed_inside_a_foreign_repository_has_no_commit(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "site-packages").mkdir()
    assert git_state(tmp_path / "site-packages")["commit"] is None
    (tmp_path / ".git").rename(tmp_path / "gone")
    assert git_state(tmp_path)["commit"] is None


def test_every_prompt_template_has_a_hash():
    hashes = template_hashes(Path(gdpo_nemo.__file__).parent)
    assert hashes and all(len(digits) == 16 for digits in hashes.values())


SECRET = "s3cr3t-v4lue-0f-a-user"


@pytest.mark.parametrize(
    "text",
    [
        f"--api-key {SECRET}",
        f"--api_key={SECRET} x=1",
        f'+    "password": "{SECRET}",',
        f"+  wandb_api_key: {SECRET}",
        f"curl -H 'Authorization: Bearer {SECRET}'",
        f"--endpoint https://me:{SECRET}@host:8000/v1",
        f"hf_{SECRET.replace('-', '')}",
        "nvapi-" + SECRET,
    ],
)
def test_secrets_are_taken_out_of_commands_and_changes(text):
    assert SECRET not in tidy(text) and SECRET.replace("-", "") not in tidy(text)
    assert "***" in tidy(text)


def test_the_rest_of_a_command_stays():
    line = "gdpo run tool_calling --seeds 0-4 gdpo.task=tool_calling max_tokens=32 data.tokenizer.name=x key=a@b"
    assert tidy(line).split()[:5] == line.split()[:5]
    assert tidy("git@host:a/b and https://host/a@b") == "git@host:a/b and https://host/a@b"


def test_a_secret_of_the_environment_is_found_wherever_it_stands(monkeypatch):
    monkeypatch.setenv("TEAM_CREDENTIALS", SECRET)
    monkeypatch.setenv("SOME_KEY", "1")
    assert tidy(f"--note x{SECRET}y --seeds 1") == "--note x***y --seeds 1"


def test_secrets_reach_no_file_of_a_run(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_TOKEN", SECRET)
    monkeypatch.setenv("SLURM_JOB_ID", SECRET)
    monkeypatch.setattr("sys.argv", ["gdpo", "--note", f"https://u:{SECRET}@host"])
    monkeypatch.chdir(tmp_path)
    line = "run tool_calling --smoke --arms gdpo --seeds 0 --jobs 1"
    assert execute(line.split()) == 0
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "provenance.json" for path in files)
    assert [path.name for path in files if SECRET.encode() in path.read_bytes()] == []


def test_the_grader_is_named_by_its_source(tmp_path):
    (tmp_path / "rewards" / "sums").mkdir(parents=True)
    source = tmp_path / "rewards" / "sums" / "__init__.py"
    source.write_text("ONE = 1\n")
    first = grader_hashes(tmp_path, "sums")
    source.write_text("ONE = 2\n")
    assert first["sums"] != grader_hashes(tmp_path, "sums")["sums"]
    assert grader_hashes(tmp_path, "absent") == grader_hashes(tmp_path, None) == {}
    assert collect(["gdpo"], task="tool_calling")["code"]["graders"]["tool_calling"]


def test_gpus_and_container_are_named(monkeypatch, tmp_path):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA H100, 81559 MiB, 550.54'\necho 'NVIDIA H100, 81559 MiB, 550.54'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("GDPO_CONTAINER", "registry/nemo-rl@sha256:abc")
    found = collect(["gdpo"])
    assert (
        found["machine"]["gpus"]
        == [{"name": "NVIDIA H100", "memory.total": "81559 MiB", "driver_version": "550.54"}] * 2
    )
    assert found["container"] == "registry/nemo-rl@sha256:abc"
    assert collect(["gdpo"], container="other")["container"] == "other"
