"""What an alarm does to a run on NeMo RL: its own time-out ends it, and its own clean-up leaves a checkpoint alone."""

import subprocess
import sys
import tempfile
from pathlib import Path

import checkout
import pytest
import yaml

found = checkout.require()

from gdpo_nemo.backends.nemo_rl.rehearsal import stage  # noqa: E402
from gdpo_nemo.cluster.recipes import load_cluster_run  # noqa: E402
from gdpo_nemo.config import GdpoConfig, validate  # noqa: E402
from gdpo_nemo.errors import RunHaltedError  # noqa: E402
from gdpo_nemo.health.following import accept  # noqa: E402
from gdpo_nemo.run_dir import RunDir  # noqa: E402

KEPT = """
import sys
import tempfile
from pathlib import Path
from gdpo_nemo.backends.nemo_rl.alarms import Alarms
from gdpo_nemo.config import GdpoConfig
from gdpo_nemo.run_dir import RunDir
from nemo_rl.utils.checkpoint import CheckpointManager
from nemo_rl.utils.timer import TimeoutChecker

run = RunDir(Path(sys.argv[1]))
on_alarm = {"no_groups": sys.argv[2]}
gdpo = GdpoConfig.model_validate({"task": "tool_calling", "monitor": {"on_alarm": on_alarm}})
alarms = Alarms(run, gdpo, 0)
alarms.register()
folder = run.path / "checkpoints"
manager = CheckpointManager({
    "enabled": True, "checkpoint_dir": str(folder), "metric_name": None, "higher_is_better": False, "keep_top_k": 2,
    "save_period": 10, "checkpoint_must_save_by": None, "save_optimizer": True,
})
clock = TimeoutChecker(None)
for step in range(1, 41):
    if step % 10 == 0:
        (folder / f"step_{step}").mkdir(parents=True)
        (folder / f"step_{step}" / "training_info.json").write_text("{}")
        manager.remove_old_checkpoints()
    alarms.look({"step": step, "loss": 0.1, "groups/alive": 5.0 if step <= 20 else 0.0})
    print(step, clock.check_save(), *sorted(int(path.name[5:]) for path in folder.glob("step_*")))
"""

STOPPED = """
from gdpo_nemo.backends.nemo_rl import __main__ as entry
from gdpo_nemo.backends.nemo_rl.rehearsal import __main__ as rehearsal

rehearsal.end_with_parent()
register = entry.plugin.register
entry.plugin.register = lambda: (register(), rehearsal.replace_workers(), rehearsal.own_ray())
entry.main()
"""
LOST = "gdpo.rewards.lost={fn: 'logging:debug', range: [0, 1]}"  # which gives None: no rollout has it
CONFIGS = Path(__file__).resolve().parents[2] / "configs"


@pytest.fixture
def run(tmp_path):
    return RunDir.claim(tmp_path / "seed0", {"grpo": {"seed": 0}}, {})


@pytest.mark.parametrize(
    ("action", "time_is_up", "kept"), [("warn", [], [30, 40]), ("stop", list(range(25, 41)), [20, 30, 40])]
)
def test_the_checkpoint_from_before_is_kept_and_time_is_up_where_an_alarm_stops(action, time_is_up, kept, run):
    """At step 25 the last five steps had no group with a signal; two checkpoints are kept otherwise."""
    command = [sys.executable, "-c", KEPT, str(run.path), action]
    done = subprocess.run(command, env=found.environment(), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line[:1].isdigit()]
    assert [int(step) for step, up, *_ in rows if up == "True"] == time_is_up
    assert [int(step) for step in rows[-1][2:]] == kept
    assert run.alarms()[0]["last_healthy_checkpoint"] == "checkpoints/step_20"


def test_a_stopped_run_fails_does_not_start_again_and_goes_on_once_accepted(tmp_path):
    """NeMo RL's own main: no rollout has one of the rewards, which the monitor sees at step 5."""
    files = ("tool_calling/paper.yaml", "tool_calling/gdpo.yaml", "model/qwen2.5-7b-instruct.yaml", "cluster/4n8g.yaml")
    stops = "gdpo.monitor.on_alarm={lost_reward: stop}"
    whole = load_cluster_run([CONFIGS / name for name in files], ["gdpo.data=null", LOST, stops]).whole
    gdpo = validate(GdpoConfig, whole["gdpo"])
    model, tokenizer = stage.write_model(gdpo, stage.small_architecture("qwen2"), tmp_path)
    run = tmp_path / "seed0"
    config = stage.shrink(whole, run, model, tokenizer, 8)
    config = stage.merged(config, {"grpo": {"val_period": 0}, "checkpointing": {"save_period": 100}})
    claimed = RunDir.claim(run, config, {})
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))

    first = start(tmp_path)
    assert first.returncode == RunHaltedError.exit_code, first.stdout[-3000:] + first.stderr[-3000:]
    assert "was stopped at step 5 by the alarm lost_reward" in first.stderr
    assert [row["step"] for row in claimed.metrics()] == [1, 2, 3, 4, 5, 6]
    assert [path.name for path in (run / "checkpoints").glob("step_*")] == ["step_6"]
    assert {"entropy", "kl", "frac_truncated", "repeated/ngrams"} <= claimed.metrics()[0].keys()

    again = start(tmp_path)
    assert again.returncode == RunHaltedError.exit_code and "--accept" in again.stderr
    assert "starts" not in again.stdout

    assert accept(claimed)
    last = start(tmp_path)
    assert last.returncode == 0, last.stdout[-3000:] + last.stderr[-3000:]
    assert [row["step"] for row in claimed.metrics()] == list(range(1, 9))


def start(folder):
    """The entry point of a cluster job, with the CPU workers of a rehearsal."""
    with tempfile.TemporaryDirectory(prefix="gdpo-ray-", ignore_cleanup_errors=True) as ray_folder:
        environment = found.environment() | {
            "RAY_TMPDIR": ray_folder,
            "RAY_AUTH_MODE": "disabled",
            "RAY_USAGE_STATS_ENABLED": "0",
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }
        environment.pop("RAY_ADDRESS", None)
        command = [sys.executable, "-c", STOPPED, "--config", str(folder / "config.yaml")]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)
