"""What follows the run on NeMo RL: the step of schedules, and windows that go into its checkpoints and come back."""

import checkout
import pytest
import torch

checkout.require()

from batches import rollout_batch  # noqa: E402
from nemo_rl.algorithms import grpo  # noqa: E402
from nemo_rl.utils.checkpoint import CheckpointManager  # noqa: E402
from test_plugin import master_config  # noqa: E402

from gdpo_nemo.errors import RunDirError  # noqa: E402

SCHEDULE = "gdpo.rewards.correct.weight={schedule: curriculum, start_step: 4, value: 2.0}"
QUANTILE = ("gdpo.rewards.correct.normalise=quantile", "gdpo.quantile={window: 6, refresh: 2}")
STEPS = 6


def estimator(folder, *overrides):
    """As NeMo RL's trainers make it when they begin or go on."""
    return grpo._create_advantage_estimator(master_config(f"checkpointing.checkpoint_dir={folder}", *overrides))


def batch(step):
    drawn = torch.rand(16, 2, generator=torch.Generator().manual_seed(step))
    return rollout_batch(drawn.tolist())


def advance(made, step):
    batch_, prompt_ids, mask, totals = batch(step)
    return made.compute_advantage(prompt_ids, totals, mask, batch_)[:, 0]


def save(folder, step):
    """Through NeMo RL's own manager of checkpoints."""
    section = master_config(f"checkpointing.checkpoint_dir={folder}").checkpointing
    manager = CheckpointManager(section)
    written = manager.init_tmp_checkpoint(step, {"total_steps": step})
    (folder / f"tmp_step_{step}" / "config.yaml").write_text("policy: {}\n")
    manager.finalize_checkpoint(written)


@pytest.mark.parametrize("overrides", [(SCHEDULE,), QUANTILE, (SCHEDULE, *QUANTILE)], ids=str)
@pytest.mark.parametrize("stop", [2, 3])
def test_a_run_that_goes_on_from_a_checkpoint_is_one_that_never_stopped(overrides, stop, plugin, tmp_path):
    whole = estimator(tmp_path / "whole", *overrides)
    expected = [advance(whole, step) for step in range(1, STEPS + 1)]
    first = estimator(tmp_path / "run", *overrides)
    for step in range(1, stop + 1):
        advance(first, step)
    save(tmp_path / "run", stop)
    advance(first, stop + 1)  # lost with the process
    second = estimator(tmp_path / "run", *overrides)
    assert second.step == stop
    made = [advance(second, step) for step in range(stop + 1, STEPS + 1)]
    assert all(a.equal(b) for a, b in zip(made, expected[stop:], strict=True))
    begun_anew = estimator(tmp_path / "other", *overrides)
    assert not all(advance(begun_anew, step).equal(expected[step - 1]) for step in range(stop + 1, STEPS + 1))
    plugin.estimator = None


def test_the_weight_in_force_is_in_the_log(plugin, tmp_path):
    made = estimator(tmp_path, SCHEDULE)
    logged = []
    for step in range(1, 6):
        advance(made, step)
        logged.append(made.last_metrics["reward/correct/weight"])
    assert logged == [0, 0, 0, 2, 2]
    plugin.estimator = None


def test_a_checkpoint_of_another_step_is_refused_where_it_matters(plugin, tmp_path):
    advance(estimator(tmp_path, SCHEDULE), 1)
    with pytest.raises(RunDirError, match="NeMo RL saves step 2 and has asked for advantages up to step 1"):
        save(tmp_path, 2)
    advance(estimator(tmp_path), 1)
    save(tmp_path, 2)
    plugin.estimator = None


def test_windows_that_a_checkpoint_does_not_have_are_missed(plugin, tmp_path):
    advance(estimator(tmp_path), 1)
    save(tmp_path, 1)
    with pytest.raises(RunDirError, match=r"has no quantiles\.pt"):
        estimator(tmp_path, *QUANTILE)
    plugin.estimator = None
