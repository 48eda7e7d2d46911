import json
import subprocess
from pathlib import Path

import gdpo_nemo
from gdpo_nemo.provenance import collect, git_state, template_hashes, tidy


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
