"""Our batch file around NeMo RL's own ray.sub, with scripts that stand for Slurm's commands and no container."""

import os
import subprocess

import checkout
import pytest

found = checkout.require()

from gdpo_nemo import launch  # noqa: E402
from gdpo_nemo.run_tree import RunTree  # noqa: E402

WHOLE = {
    "gdpo": {"task": "tool_calling"},
    "policy": {"model_name": "owner/model", "tokenizer": {"name": "owner/model"}},
    "grpo": {"max_num_steps": 100, "seed": 42},
    "checkpointing": {"checkpoint_dir": "results"},
    "cluster": {"num_nodes": 1, "gpus_per_node": 8},
}
COMMANDS = {
    "sinfo": "echo gpu:8",
    "scontrol": """case "$1 $2" in
  "show hostnames") echo localhost ;;
  "show node") echo "NodeName=localhost CPUTot=16 State=ALLOCATED" ;;
  requeue*) echo "$@" >"$RECORD/requeue"; kill -TERM "$PPID" ;;
esac""",
    # In place of a container with Ray in it: notes what the container would get, says that Ray is up, waits for ray.sub
    # to see it, and runs the driver's command.
    "srun": """printf '%s\\n' "$@" >"$RECORD/srun"
touch "$BASE_LOG_DIR/$SLURM_JOB_ID-logs/STARTED_RAY_HEAD"
until grep -q "STARTED_RAY_HEAD observed" "$RECORD/log"; do sleep 0.1; done
bash "$BASE_LOG_DIR/$SLURM_JOB_ID-logs/driver_command.sh" """,
    "uv": """echo "$PWD $NEMO_RL_PATH $PYTHONPATH $*" >"$RECORD/uv"
[[ -e $RECORD/fails ]] && exit 5
mkdir -p "$RECORD/run/gdpo/seed0/checkpoints/step_40" """,
}


@pytest.fixture
def job(tmp_path):
    """Starts the batch file; gives its exit code and the folder with records."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, script in COMMANDS.items():
        (commands / name).write_text(f"#!/bin/bash\n{script}\n")
        (commands / name).chmod(0o755)
    code = tmp_path / "nemo-rl"
    code.mkdir()
    options = launch.SlurmOptions(
        account="team",
        partition="batch",
        time="4:00:00",
        container="image",
        nemo_rl=str(found.root),
        code=str(code),
        package="-",
    )
    tree = RunTree(tmp_path / "run")
    [one] = [launch.training_job("tool_calling", "gdpo", 0, WHOLE, tree.run("gdpo", 0))]
    launch.launch([one], options, tree, dry_run=True)
    environment = os.environ | {
        "PATH": f"{commands}:{os.environ['PATH']}",
        "RECORD": str(tmp_path),
        "PYTHONPATH": "/of/the/image",
        "SLURM_JOB_ID": "77",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_JOB_NODELIST": "localhost",
        "SLURM_JOB_PARTITION": "batch",
        "SLURM_JOB_ACCOUNT": "team",
        "SLURM_SUBMIT_DIR": "/somewhere/else",
    }

    def start():
        script = str(one.folder / "train.sbatch")
        with (tmp_path / "log").open("wb") as log:
            done = subprocess.run(["bash", script], env=environment, stdout=log, stderr=log, timeout=120, check=False)
        return done.returncode, tmp_path, one

    return start


def test_the_driver_starts_in_the_container_with_this_package_and_the_job_goes_on(job):
    _, record, one = job()
    srun = (record / "srun").read_text().splitlines()
    assert "--container-image=image" in srun
    assert f"--container-workdir={found.root}" in srun
    [mounts] = [line for line in srun if line.startswith("--container-mounts=")]
    assert f"{one.dir.path}:{one.dir.path}" in mounts
    where, nemo_rl, path, *command = (record / "uv").read_text().split()
    assert where == nemo_rl == str(record / "nemo-rl")
    assert path == f"{record / 'nemo-rl'}:/of/the/image"
    assert command == [
        *("run", "python", "-m", "gdpo_nemo.backends.nemo_rl", "--config", str(one.config_path)),
        "checkpointing.checkpoint_must_save_by=00:03:30:00",
    ]
    assert (record / "requeue").read_text() == "requeue 77\n"


def test_the_exit_code_of_training_is_that_of_the_job(job, tmp_path):
    (tmp_path / "fails").touch()
    code, record, _ = job()
    assert code == 5
    assert not (record / "requeue").exists()
