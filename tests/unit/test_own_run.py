"""A configuration by itself: the example from plan to report, and the code of docs/own-rewards.md."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from gdpo_nemo.cluster.recipes import load_cluster_run
from gdpo_nemo.config import GdpoConfig, load_yaml, validate
from gdpo_nemo.errors import UnknownNameError
from gdpo_nemo.method import reward_ranges
from gdpo_nemo.suite.command_line import execute
from gdpo_nemo.suite.programs import find

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "own_rewards"
DOCUMENT = (ROOT / "docs" / "own-rewards.md").read_text("utf-8")
FILES = dict(re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```", DOCUMENT, re.S | re.M))
REWARDS = ("right_desk", "thanks", "brief")
SHORT = ("embedded.warmup.clean_steps=12", "embedded.train.steps=3", "embedded.evaluation.samples_per_question=2")


@pytest.fixture
def example(tmp_path, monkeypatch):
    """A copy of the example, and nothing of it imported before."""
    folder = tmp_path / "my_task"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture(autouse=True)
def imports_undone(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for module in ("support_rewards", "my_rewards"):
        sys.modules.pop(module, None)


@pytest.fixture(scope="module")
def trained(gdpo, tmp_path_factory):
    """A folder with a copy of the example and its finished run, and what the command printed."""
    folder = tmp_path_factory.mktemp("trained")
    shutil.copytree(EXAMPLE, folder / "my_task", ignore=shutil.ignore_patterns("__pycache__"))
    done = gdpo("run", "my_task/gdpo.yaml", *SHORT, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def test_the_example_trains_and_ends_in_a_table_of_its_rewards(trained):
    folder, answer = trained
    (made,) = answer["runs"]
    assert made["path"] == "runs/my_task/embedded/tiny/gdpo/seed0"
    run = folder / made["path"]
    evaluation = made["result"]["evaluation"]
    assert evaluation["questions"] == 6, "all held-out rows"
    assert all(0 <= evaluation[f"reward/{name}/mean"] <= 1 for name in REWARDS)
    table = (run.parents[1] / "report" / "table.csv").read_text("utf-8")
    assert all(column in table for column in REWARDS)
    code = json.loads((run / "provenance.json").read_text("utf-8"))["own_code"]
    assert {name: Path(file["path"]).name for name, file in code.items()} == dict.fromkeys(
        REWARDS, "support_rewards.py"
    )


def steps(trained):
    folder, answer = trained
    rows = (folder / answer["runs"][0]["path"] / "metrics.jsonl").read_text("utf-8").splitlines()
    return [json.loads(row) for row in rows]


def test_a_reward_that_does_not_apply_is_missing_and_has_not_failed(trained):
    assert [step["step"] for step in steps(trained)] == [1, 2, 3]
    assert all(step["reward/thanks/frac_failed"] == 0 for step in steps(trained))
    assert all(0 < step["reward/thanks/frac_missing"] < 1 for step in steps(trained))
    assert all(step["reward/brief/frac_missing"] == 0 for step in steps(trained))


def test_a_finished_run_is_reused_and_other_rows_are_another_run(trained, tmp_path, gdpo):
    shutil.copytree(trained[0], tmp_path, dirs_exist_ok=True)
    line = ("run", "my_task/gdpo.yaml", *SHORT, "--json")
    tree = tmp_path / "runs"
    for path in tree.rglob("config.resolved.yaml"):  # the copy stands elsewhere
        path.write_text(path.read_text("utf-8").replace(str(trained[0]), str(tmp_path)), "utf-8")
    assert json.loads(gdpo(*line, cwd=trained[0]).stdout)["reused"] == ["gdpo seed0"]
    rows = (tmp_path / "my_task" / "train.jsonl").read_text("utf-8").splitlines()
    (tmp_path / "my_task" / "train.jsonl").write_text("\n".join(rows[1:]) + "\n", "utf-8")
    done = gdpo(*line, cwd=tmp_path)
    assert done.returncode == 1 and "gdpo.data.train.sha256" in done.stderr


def test_the_plan_reads_everything_and_calls_no_reward(example, capsys):
    source = (example / "support_rewards.py").read_text("utf-8")
    (example / "support_rewards.py").write_text(source + "\nright_desk = lambda row, rollout: 1 / 0\n", "utf-8")
    assert execute(["plan", "my_task/gdpo.yaml", *SHORT, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["evaluation"]["questions"], plan["warm_up"]["total_steps"]) == (6, 12)
    assert plan["rows"] == {"train": 14, "heldout": 6}
    assert "your own rewards" in plan["time"]["basis"]
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("gdpo.yaml", "support_rewards:thanks", "support_rewards:thank", "Did you mean 'thanks'?"),
        ("gdpo.yaml", "{message}", "{massage}", "Did you mean 'message'?"),
        ("gdpo.yaml", "gold: reply", "gold: replies", "column of train.jsonl line 1 'replies'. Did you mean 'reply'?"),
        ("gdpo.yaml", "on: right_desk", "on: right_dek", "Did you mean 'right_desk'?"),
        ("gdpo.yaml", "embedded:", "embedded:\n  model: {name: smollm2}", "name the model with --model smollm2"),
        ("train.jsonl", '{"id": "train-03"', '{"id": "train-03', "train.jsonl line 3 is not valid JSON"),
        ("train.jsonl", "train-03", "train-02", "train.jsonl line 3 has the same id"),
        ("support_rewards.py", "def right_desk(row: Row, ", "def right_desk(", "cannot be called with (row, rollout)"),
    ],
)
def test_a_mistake_is_found_before_anything_starts(file, old, new, words, example, capsys):
    text = (example / file).read_text("utf-8")
    assert old in text
    (example / file).write_text(text.replace(old, new, 1), "utf-8")
    assert execute(["plan", "my_task/gdpo.yaml"]) == 2
    assert words in capsys.readouterr().err


def test_files_beside_it_that_set_a_method_are_further_arms(example):
    (example / "grpo.yaml").write_text("defaults: gdpo.yaml\ngdpo: {method: grpo}\n", "utf-8")
    (example / "base.yaml").write_text("gdpo: {eps: 0.1}\n", "utf-8")
    (example / "notes.yaml").write_text("- a\n", "utf-8")
    (example / "broken.yaml").write_text("a: [\n", "utf-8")
    program = find("my_task/gdpo.yaml")
    assert program.arms == ("gdpo",)
    assert [arm.name for arm in program.experiment.arms] == ["gdpo", "grpo"]
    assert [column.name for column in program.experiment.columns] == list(REWARDS)
    assert program.experiment.name == "my_task"


def test_both_arms_start_from_one_model_and_stand_in_one_table(example, capsys):
    (example / "grpo.yaml").write_text(
        "defaults: gdpo.yaml\ngdpo: {method: grpo, rewards: {thanks: {weight: 2.0}}}\n", "utf-8"
    )
    assert execute(["plan", "my_task/gdpo.yaml", "--arms", "all", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["arms"] == ["gdpo", "grpo"]
    (example / "grpo.yaml").write_text(
        "defaults: gdpo.yaml\ngdpo: {method: grpo, rewards: {thanks: {range: [0, 2]}}}\n", "utf-8"
    )
    assert execute(["plan", "my_task/gdpo.yaml", "--arms", "all"]) == 2
    assert "the rewards of your own" in capsys.readouterr().err


def test_a_typo_in_the_name_of_a_shipped_folder_is_not_an_experiment_of_its_own():
    with pytest.raises(UnknownNameError, match="experiment 'model'"):
        find("configs/model/tiny.yaml")


def test_the_example_is_an_arm_of_a_cluster_run_as_it_is():
    arm = EXAMPLE / "gdpo.yaml"
    run = load_cluster_run([ROOT / "configs" / "nemo_rl" / "base.yaml", arm])
    assert run.gdpo == validate(GdpoConfig, load_yaml([arm])["gdpo"])
    for block in (run.nemo["data"]["default"]["gdpo"], run.nemo["env"]["gdpo"]["gdpo"]):
        assert validate(GdpoConfig, block) == run.gdpo
    assert "embedded" not in run.whole


# ---- docs/own-rewards.md


@pytest.fixture
def documented(tmp_path, monkeypatch):
    """The files of the document in a folder, with held-out rows beside them."""
    for name, content in FILES.items():
        (tmp_path / name).write_text(content, "utf-8")
    held_out = {"id": "c", "question": "Who wrote Ulysses?", "answer": "Joyce", "source": "novels.txt"}
    (tmp_path / "heldout.jsonl").write_text(json.dumps(held_out) + "\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_files_of_the_document_make_a_plan(documented, capsys):
    assert set(FILES) == {"my_rewards.py", "train.jsonl", "gdpo.yaml", "judge.yaml"}
    (documented / "judge.yaml").unlink()
    assert execute(["plan", "gdpo.yaml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["evaluation"]["questions"] == 1


def test_the_code_of_the_document_gives_the_rewards_it_says(documented, capsys):
    code = re.findall(r"^```python\n(from .*?)^```", DOCUMENT, re.S | re.M)
    assert len(code) == 1
    exec(compile(code[0], "own-rewards.md", "exec"), {})
    (expected,) = re.findall(r"print\(.*\) +# (.*)", code[0])
    assert capsys.readouterr().out.strip() == expected


def test_the_judges_of_the_document_are_valid(documented):
    config = validate(GdpoConfig, load_yaml([documented / "judge.yaml"])["gdpo"])
    assert reward_ranges(config) == {"helpful": (1, 5), "preferred": (-20, 20)}


def test_the_metrics_of_the_document_exist(trained):
    table = DOCUMENT.split("## What to look at")[1].split("## When")[0]
    named = [key for cell in re.findall(r"^\| (`.*?) \|", table, re.M) for key in re.findall(r"`([\w/<>]+)`", cell)]
    assert len(named) > 7
    for key in named:
        name = "reward/<name>" + key if key.startswith("/") else key
        assert name.replace("<name>", "brief") in steps(trained)[0]
