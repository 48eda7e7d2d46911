"""``python -m gdpo_nemo.backends.nemo_rl``: what a job on the cluster starts."""

import subprocess
import sys

import checkout
import yaml

found = checkout.require()


def start(config):
    """The entry point in a process of its own."""
    command = [sys.executable, "-m", "gdpo_nemo.backends.nemo_rl", "--config", str(config)]
    return subprocess.run(command, env=found.environment(), capture_output=True, text=True, timeout=300)


def test_another_run_s_checkpoint_is_refused_before_anything_starts(tmp_path):
    settings = {"policy": {"model_name": "a"}, "checkpointing": {"checkpoint_dir": str(tmp_path)}}
    (tmp_path / "step_3" / "policy" / "weights").mkdir(parents=True)
    (tmp_path / "step_3" / "config.yaml").write_text(yaml.safe_dump(settings))
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(settings | {"policy": {"model_name": "b"}}))
    done = start(tmp_path / "config.yaml")
    assert done.returncode == 1 and "policy.model_name: 'a' there, 'b' now" in done.stderr, done.stderr


def test_the_plug_in_is_registered_before_nemo_rl_s_main_runs(tmp_path):
    """NeMo RL's main stops at a configuration without its sections, after the registration has spoken."""
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"checkpointing": {"checkpoint_dir": str(tmp_path / "none")}}))
    done = start(tmp_path / "config.yaml")
    assert done.returncode == 1 and "processor gdpo_rows registered" in done.stdout and "MasterConfig" in done.stderr
    assert "starts anew" in done.stdout
