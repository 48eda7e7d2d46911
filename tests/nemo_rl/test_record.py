"""metrics.jsonl of a run on NeMo RL, written from NeMo RL's own logger."""

import subprocess
import sys

import checkout
import pytest

from gdpo_nemo.backends.nemo_rl.record import run_dir_of, updates_per_batch
from gdpo_nemo.run_dir import RunDir

found = checkout.require()

LOG = """
import sys
from pathlib import Path
from gdpo_nemo.backends.nemo_rl.record import record_steps
from gdpo_nemo.run_dir import RunDir
from nemo_rl.utils.logger import Logger

shown = []
record_steps(RunDir(Path(sys.argv[1])), int(sys.argv[2]), shown.append, updates=4)
logger = Logger.__new__(Logger)
logger.loggers = []
for step in range(int(sys.argv[2]) + 1, int(sys.argv[3]) + 1):
    logger.log_metrics({"mean_gen_tokens_per_sample": 1.0}, step, prefix="train")  # rollouts, before the step is over
    numbers = {"loss": 1.0 / step, "max_gen_tokens_per_sample": 9, "reward/format/mean": float("nan"), "rows": [1, 2]}
    numbers |= {"truncation_rate": 0.25, "approx_entropy": 2.0, "kl_penalty": 0.4}
    logger.log_metrics(numbers, step, prefix="train")
    logger.log_metrics({"loss": 7.0}, step, "validation")
    logger.log_metrics({"total": 3.0}, step=step, prefix="timing/train", step_finished=True)
print([row["step"] for row in shown])
"""


@pytest.fixture
def run(tmp_path):
    return RunDir.claim(tmp_path / "seed0", {"grpo": {"seed": 0}}, {})


def log(run, first, last):
    command = [sys.executable, "-c", LOG, str(run.path), str(first), str(last)]
    done = subprocess.run(command, env=found.environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(list(range(first + 1, last + 1)))


def test_each_step_is_one_row_under_the_names_that_reports_read(run):
    log(run, 0, 2)
    rows = run.metrics()
    assert [row["step"] for row in rows] == [1, 2]
    assert (rows[1]["loss"], rows[1]["length/max"]) == (0.5, 9.0)
    assert (rows[0]["frac_truncated"], rows[0]["entropy"], rows[0]["kl"]) == (0.25, 0.5, 0.1)
    assert rows[0]["reward/format/mean"] != rows[0]["reward/format/mean"] and "rows" not in rows[0]


def test_a_resumed_run_has_every_step_once(run):
    log(run, 0, 5)
    log(run, 3, 6)
    assert [row["step"] for row in run.metrics()] == [1, 2, 3, 4, 5, 6]


def test_only_a_claimed_directory_is_written_to(run, tmp_path):
    assert run_dir_of({"checkpointing": {"checkpoint_dir": str(run.path / "checkpoints")}}).path == run.path
    assert run_dir_of({"checkpointing": {"checkpoint_dir": str(tmp_path / "other" / "checkpoints")}}) is None
    assert run_dir_of({}) is None


@pytest.mark.parametrize(("size", "updates"), [(512, 1), (128, 4), (1024, 1), (None, 1)])
def test_the_optimiser_s_steps_on_a_batch_follow_from_the_configuration(size, updates):
    policy = {} if size is None else {"train_global_batch_size": size}
    grpo = {"num_prompts_per_step": 32, "num_generations_per_prompt": 16}
    assert updates_per_batch({"grpo": grpo, "policy": policy}) == updates
    assert updates_per_batch({}) == 1
