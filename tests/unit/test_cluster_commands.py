"""``train``, ``rehearse``, ``launch``, ``checkpoint`` and ``status`` of cluster runs, on a machine without NeMo RL."""

import json
from pathlib import Path

import pytest
import yaml

from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.suite.command_line import execute

ROOT = Path(__file__).resolve().parents[2]
OWN = str(ROOT / "examples" / "own_rewards" / "gdpo.yaml")
MODEL = ("--model", "qwen2.5-7b-instruct")
ONE = ("tool_calling", *MODEL, "--arms", "gdpo", "--seeds", "0")
SLURM = ("--to", "slurm", "--account", "a", "--partition", "p", "--time", "4:00:00", "--container", "c.sqsh")


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    """A command line in an empty folder, without a checkout: exit code, output, errors."""
    monkeypatch.delenv("NEMO_RL_PATH", raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        code = execute(arguments)
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def checkout(tmp_path):
    """What ``--nemo-rl`` needs to name: a folder with NeMo RL's batch script."""
    folder = tmp_path / "RL"
    folder.mkdir()
    (folder / "ray.sub").touch()
    return folder


def test_a_dry_run_writes_the_jobs_of_the_matrix(call, checkout):
    arguments = ("tool_calling", *MODEL, "--arms", "grpo,gdpo", "--seeds", "0-1", *SLURM, "--nemo-rl", str(checkout))
    code, out, _ = call("launch", *arguments, "--dry-run", "--json")
    assert code == 0
    [launched] = json.loads(out)
    files = [Path(file) for file in launched["files"]]
    assert launched["jobs"] == [] and all(file.is_file() for file in files)
    trained = {(file.parents[2].name, file.parents[1].name) for file in files if file.name == "train.sbatch"}
    assert trained == {(arm, seed) for arm in ("grpo", "gdpo") for seed in ("seed0", "seed1")}
    config = yaml.safe_load((files[0].parent / "config.yaml").read_text())
    assert config["grpo"]["adv_estimator"]["name"] == "grpo_nemo" and config["gdpo"]["method"] == "grpo"


def test_run_with_launch_is_launch(call, checkout):
    options = (*MODEL, "--arms", "gdpo", "--seeds", "0", "--nemo-rl", str(checkout), "--dry-run", "--json")
    [_, *slurm] = SLURM
    first = call("run", "tool_calling", "--scale", "paper", "--launch", *slurm, *options)
    second = call("launch", "tool_calling", *SLURM, *options)
    assert first == second and first[0] == 0


def test_options_that_a_target_needs_are_named_together(call):
    code, _, error = call("launch", *ONE, "--to", "slurm", "--dry-run")
    assert code == 2
    for option in ("--account", "--partition", "--time", "--container", "--nemo-rl"):
        assert option in error


@pytest.mark.parametrize("command", ["train", "rehearse"])
def test_without_nemo_rl_the_way_to_get_it_is_named(command, call):
    code, _, error = call(command, *ONE, "gdpo.data=null")
    assert code == 3 and "git clone https://github.com/NVIDIA-NeMo/RL" in error
    assert not Path("runs").exists()


@pytest.mark.parametrize("command", ["train", "rehearse", "launch"])
def test_what_nemo_rl_would_refuse_is_refused_first(command, call):
    more = ("--to", "local") if command == "launch" else ()
    code, _, error = call(command, *ONE, *more, "grpo.reward_scaling.enabled=true")
    assert code == 2 and "Set grpo.reward_scaling.enabled=false" in error


def test_a_rehearsal_without_its_data_says_how_to_do_without(call):
    code, _, error = call("rehearse", *ONE)
    assert code == 3 and "rlla_4k/train.parquet" in error and "gdpo.data=null rehearses" in error
    assert "`gdpo data fetch tool_calling" in error


@pytest.mark.parametrize("command", ["launch", "rehearse", "train"])
def test_a_task_that_does_not_exist_does_not_start(command, call):
    more = ("--to", "local", "--dry-run") if command == "launch" else ()
    one = ("--model", "qwen3-4b-instruct", "--arms", "gdpo", "--seeds", "0")
    code, _, error = call(command, "math_length", *more, *one, "gdpo.task=maths")
    assert code == 2 and "unknown task 'maths'" in error


def test_jobs_without_their_data_are_not_handed_in(call, checkout):
    code, _, error = call("launch", *ONE, *SLURM, "--nemo-rl", str(checkout))
    assert code == 3 and "rlla_4k/train.parquet" in error


def test_train_takes_one_run(call):
    code, _, error = call("train", "tool_calling", *MODEL)
    assert code == 2 and "names 3 (qwen2.5-7b-instruct grpo" in error and "--arms" in error


def test_own_rewards_go_on_a_cluster_as_they_are(call):
    code, out, _ = call("launch", OWN, *MODEL, "--to", "local", "--dry-run", "--json")
    assert code == 0
    [launched] = json.loads(out)
    config = yaml.safe_load((Path(launched["files"][0]).parent / "config.yaml").read_text())
    assert set(config["gdpo"]["rewards"]) == {"right_desk", "thanks", "brief"}
    assert config["data"]["train"]["dataset_name"] == "gdpo_nemo.backends.nemo_rl.dataset.RowDataset"
    assert config["gdpo"]["data"]["train"]["path"] == str(ROOT / "examples" / "own_rewards" / "train.jsonl")


def test_status_names_the_alarm_that_stopped_a_run(call, tmp_path):
    line = ("status", "tool_calling", "--scale", "paper", *MODEL, "--arms", "gdpo", "--seeds", "0", "--json")
    folder = tmp_path / "runs" / "tool_calling" / "paper" / "qwen2.5-7b-instruct" / "gdpo" / "seed0"
    row = {"step": 9, "rule": "hack", "subject": "correct", "since": 4, "text": "", "action": "stop"}
    RunDir(folder).write_alarms([row | {"accepted": False, "last_healthy_checkpoint": None}])
    assert json.loads(call(*line)[1])[0]["state"] == "stopped by hack"
    RunDir(folder).write_alarms([row | {"accepted": True, "last_healthy_checkpoint": None}])
    assert json.loads(call(*line)[1])[0]["state"] == "not submitted"


@pytest.mark.parametrize(
    ("file", "what"), [("logs/alarms.jsonl", "holds a row without 'action'"), ("result.json", "result.json is corrupt")]
)
def test_status_names_a_run_that_cannot_be_read_and_shows_the_others(file, what, call, tmp_path):
    line = ("status", "tool_calling", "--scale", "paper", *MODEL, "--arms", "gdpo", "--seeds", "0-1")
    arm = tmp_path / "runs" / "tool_calling" / "paper" / "qwen2.5-7b-instruct" / "gdpo"
    RunDir.claim(arm / "seed0", {}, {})
    (arm / "seed0" / file).write_text('{"rule": "kl"}\n' if file.endswith("l") else '{"steps": ')
    RunDir.claim(arm / "seed1", {}, {}).finish({})
    code, out, _ = call(*line)
    assert code == 1 and what in " ".join(out.split()) and "start the run again" in " ".join(out.split())
    code, out, _ = call(*line, "--json")
    broken, whole = json.loads(out)
    assert (code, broken["state"], whole["state"]) == (1, "unreadable", "finished") and what in broken["error"]


def test_status_of_the_matrix_before_anything_ran(call):
    code, out, _ = call("status", "tool_calling", "--scale", "paper", *MODEL, "--arms", "gdpo", "--json")
    rows = json.loads(out)
    assert code == 0 and [row["run"] for row in rows] == [f"gdpo seed{seed}" for seed in range(5)]
    assert {row["state"] for row in rows} == {"not submitted"} and {row["step"] for row in rows} == {0}


def test_a_run_of_this_machine_says_what_to_use_instead(call):
    code, _, error = call("run", "tool_calling", "--scale", "paper")
    assert code == 2 and "--launch slurm" in error


def test_an_unknown_model_or_cluster_has_a_nearest(call):
    code, _, error = call("rehearse", "tool_calling", "--model", "qwen2.5-7b-instuct")
    assert code == 2 and "Did you mean 'qwen2.5-7b-instruct'?" in error
    code, _, error = call("plan", "tool_calling", "--scale", "paper", *MODEL, "--cluster", "4n8")
    assert code == 2 and "Did you mean '4n8g'?" in error


def test_checkpoint_export_of_nothing(call):
    code, _, error = call("checkpoint", "export", "runs/x@latest", "--to", "export")
    assert code == 2 and "no folder" in error


def test_launch_can_go_on_to_the_benchmarks_and_the_report(call, checkout, tmp_path):
    line = ("launch", *ONE, *SLURM, "--nemo-rl", str(checkout), "--dry-run", "--evaluate")
    code, _, error = call(*line)
    assert code == 0, error
    scripts = {path.name: path.read_text() for path in Path.cwd().rglob("*.sbatch")}
    assert "gdpo_nemo.cli eval bfcl --model" in scripts["eval-bfcl.sbatch"]
    assert "gdpo_nemo.cli report tool_calling --scale paper" in scripts["report.sbatch"]
    assert "--seeds" not in scripts["report.sbatch"], "declared ones are in the report anyhow"
    assert call(*line, "--seeds", "7")[0] == 0
    assert "--scale paper --seeds 0-4,7" in next(Path.cwd().rglob("report.sbatch")).read_text()
    code, _, error = call("launch", *ONE, "--to", "kuberay", "--dry-run", "--evaluate")
    assert code == 2 and "--evaluate goes with --to slurm" in error
