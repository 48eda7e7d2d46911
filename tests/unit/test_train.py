"""Whole runs: the same bytes however often they are stopped, every number in its place, and something is learned."""

import contextlib
import functools
import math
import shutil
from types import MappingProxyType
from typing import ClassVar

import numpy as np
import pytest

from gdpo_nemo.backends.embedded.train import train
from gdpo_nemo.errors import RunDirError
from gdpo_nemo.evaluation.store import EvaluationStore
from gdpo_nemo.rewards import REWARDS
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.types import RewardVector

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def start(base, claim, configure, tmp_path):
    """Claim a run that starts from the warmed-up model: ``start("gdpo", "seed=1")``."""
    (tmp_path / "base").symlink_to(base.path.parent)

    def call(name, *overrides, kind=RunDir):
        config = configure("base=small", *overrides)
        return claim(tmp_path / name / f"seed{config.seed}", config, kind), config

    return call


def trained(run, config):
    train(run, config)
    return run


LINEAR = "{schedule: linear, start: 0.5, end: 2, last_step: 5}"
METHODS = {
    "gdpo": (),
    "preference": ("gdpo.method=preference", "gdpo.preference.anchors=gold"),
    "signals": (
        f"gdpo.rewards={{format: {{weight: {LINEAR}}}, correct: {{normalise: quantile}}}}",
        "gdpo.quantile={window: 6, refresh: 3}",
    ),
}


@pytest.fixture(scope="module")
def undisturbed(base, claim, configure):
    """A run of six steps that nothing disturbed: ``undisturbed("gdpo")``."""

    @functools.cache
    def call(name):
        config = configure("base=small", *METHODS[name])
        return trained(claim(base.path.parents[1] / f"whole_{name}" / "seed0", config), config)

    return call


@pytest.fixture
def whole(undisturbed):
    return undisturbed("gdpo")


EVALUATION = ("eval/heldout/questions.jsonl", "eval/heldout/generations.jsonl", "eval/heldout/scores/default.jsonl")
BYTES = ("metrics.jsonl", "result.json", *EVALUATION)


def evaluation(run):
    return EvaluationStore.open(run.evaluation_path("heldout"))


def content(run):
    weights = run.checkpoints()[-1][1] / "model.safetensors"
    return {name: (run.path / name).read_bytes() for name in BYTES} | {"weights": weights.read_bytes()}


class Stopped(Exception):
    pass


@pytest.mark.parametrize(
    ("method", "moment", "steps"),
    [
        ("gdpo", "before the row", range(1, 7)),
        ("gdpo", "after the row", range(1, 7)),
        ("gdpo", "in the checkpoint", (2, 4, 6)),
        ("gdpo", "before the result", (6,)),
        ("preference", "after the row", range(1, 7)),
        ("signals", "after the row", range(1, 7)),
    ],
)
def test_a_run_stopped_at_every_step_and_resumed_gives_the_same_bytes(method, moment, steps, undisturbed, start, base):
    class Stopping(RunDir):
        stop_at = None

        def append_metrics(self, row):
            if row["step"] == self.stop_at and moment == "before the row":
                raise Stopped
            super().append_metrics(row)
            if row["step"] == self.stop_at and moment == "after the row":
                raise Stopped

        @contextlib.contextmanager
        def new_checkpoint(self, step, **kept):
            with super().new_checkpoint(step, **kept) as folder:
                yield folder
                if step == self.stop_at and moment == "in the checkpoint":
                    (folder / "model.safetensors").write_bytes(b"half")
                    raise Stopped

        def finish(self, result):
            if self.stop_at and moment == "before the result":
                raise Stopped
            super().finish(result)

    whole, (run, config) = undisturbed(method), start("stopped", *METHODS[method], kind=Stopping)
    for stop_at in steps:
        Stopping.stop_at = stop_at
        with pytest.raises(Stopped):
            train(run, config)
        assert run.result() is None
    Stopping.stop_at = None
    assert content(trained(run, config)) == content(whole)
    assert [row["step"] for row in run.metrics()] == [1, 2, 3, 4, 5, 6]
    start_weights = (base.checkpoints()[-1][1] / "model.safetensors").read_bytes()
    assert content(whole)["weights"] != start_weights
    assert [step for step, _ in run.checkpoints()] == [2, 4, 6]


METRICS = {
    *(f"reward/{name}/{number}" for name in ("format", "correct") for number in ("mean", "std")),
    *(f"reward/{name}/{number}" for name in ("format", "correct") for number in ("frac_dead_groups", "frac_missing")),
    *("advantage/format/share", "advantage/correct/share", "advantage/amplification", "advantage/frac_conflict"),
    *("groups/alive", "groups/total", "length/mean", "length/max", "frac_truncated"),
    *("repeated/ngrams", "repeated/compression"),
    *("step", "loss", "grad_norm", "kl", "entropy", "clip_fraction"),
}


def test_every_step_has_all_its_numbers_and_no_clock(whole):
    for row in whole.metrics():
        assert set(row) == METRICS
        assert all(math.isfinite(value) for value in row.values())
        assert 0 <= row["reward/format/mean"] <= 1 and -3 <= row["reward/correct/mean"] <= 3
        assert row["groups/total"] == 4 and 0 < row["length/mean"] <= row["length/max"] <= 20
    assert whole.result()["steps"] == 6
    assert whole.result()["evaluation"]["questions"] == 8


def test_a_scheduled_weight_is_logged_at_each_step(undisturbed):
    weights = [row["reward/format/weight"] for row in undisturbed("signals").metrics()]
    assert weights == [0.5, 0.875, 1.25, 1.625, 2.0, 2.0]


def test_the_seed_changes_a_run_but_not_the_questions(whole, start):
    other = trained(*start("gdpo", "seed=1"))
    assert whole.metrics() != other.metrics()
    assert evaluation(whole).generations() != evaluation(other).generations()
    assert evaluation(whole).questions() == evaluation(other).questions()


def test_two_methods_with_one_seed_begin_with_the_same_rollouts(whole, start):
    rows = [whole.metrics(), trained(*start("grpo", "gdpo.method=grpo", "embedded.train.steps=2")).metrics()]
    same = [key for key in METRICS if key.startswith(("reward/", "length/", "frac_", "entropy"))]
    assert [rows[0][0][key] for key in same] == [rows[1][0][key] for key in same]
    assert rows[0][0]["loss"] != rows[1][0]["loss"]
    assert rows[0][1] != rows[1][1]


class Witness:
    """Stands in for a task, and keeps what it was shown."""

    names = ("odd",)
    ranges = MappingProxyType({"odd": (0.0, 1.0)})
    shown: ClassVar[list[tuple[str, str]]] = []

    def __init__(self, mode):
        pass

    def __call__(self, row, rollout):
        self.shown.append((row.fields["user"], rollout.response))
        return RewardVector({"odd": float(len(rollout.response) % 2)})


def test_each_step_draws_new_rows_and_new_responses_even_to_a_prompt_it_had_before(start, monkeypatch):
    monkeypatch.setitem(REWARDS, "witness", f"{__name__}:Witness")
    monkeypatch.setattr(Witness, "shown", [])
    small_talk = ("embedded.data.small_talk_share=1", "embedded.data.num_tools=1", "embedded.evaluation.questions=1")
    still = ("embedded.train.lr=0", "embedded.train.steps=8", "embedded.train.prompts_per_step=1")
    trained(*start("arm", "gdpo.task=witness", "base=null", *small_talk, *still))
    groups = [Witness.shown[4 * step : 4 * step + 4] for step in range(8)]
    assert {len({user for user, _ in group}) for group in groups} == {1}
    assert 1 < len({group[0][0] for group in groups}) <= 3, "the world has three greetings, so some come twice"
    assert len({str(group) for group in groups}) == 8


def test_a_run_whose_base_is_missing_or_unfinished_is_refused(start, configure, claim, tmp_path):
    run, config = start("gdpo", "base=elsewhere")
    with pytest.raises(RunDirError, match=r"base/elsewhere is missing or unfinished; `gdpo run` makes it first"):
        train(run, config)
    claim(tmp_path / "base" / "elsewhere", configure("kind=warmup"))
    with pytest.raises(RunDirError, match="missing or unfinished"):
        train(run, config)
    assert run.metrics() == []


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.pt", "config.json"])
def test_a_damaged_checkpoint_is_named_and_without_it_the_run_goes_on(file, start, whole):
    run, config = start("gdpo")
    shutil.copytree(whole.path, run.path, dirs_exist_ok=True)
    (run.path / "result.json").unlink()
    last = run.checkpoints()[-1][1] / file
    last.write_bytes(last.read_bytes()[: last.stat().st_size // 2])
    with pytest.raises(RunDirError, match=r"checkpoints/step6 cannot be read: .*Remove that folder: the run goes on"):
        train(run, config)
    shutil.rmtree(last.parent)
    assert content(trained(run, config)) == content(whole)


def test_a_warm_up_whose_checkpoint_is_gone_is_named(start, claim, configure, tmp_path, base):
    shutil.copytree(base.path, tmp_path / "copy" / "base" / "small")
    shutil.rmtree(tmp_path / "copy" / "base" / "small" / "checkpoints")
    config = configure("base=small")
    with pytest.raises(RunDirError, match=r"the checkpoint of .*base/small is gone; remove that folder"):
        train(claim(tmp_path / "copy" / "gdpo" / "seed0", config), config)


def test_a_run_without_a_base_starts_from_the_random_model(start):
    run, config = start("scratch", "embedded.train.steps=1", "base=null")
    assert trained(run, config).metrics()[0]["reward/correct/mean"] == -3


def test_the_kl_to_the_base_starts_at_zero_and_grows(start):
    run = trained(*start("kl", "embedded.train.loss.kl_coef=0.01", "embedded.train.steps=3"))
    first, *others = [row["kl"] for row in run.metrics()]
    assert first == pytest.approx(0, abs=1e-6)
    assert min(others) > 1e-4


def test_a_kl_in_the_reward_changes_what_is_learned_and_is_no_part_of_the_loss(start):
    settings = ("gdpo.method=grpo", "embedded.train.steps=3", "embedded.train.checkpoint_every=3")
    plain = trained(*start("plain", *settings))
    paid = trained(*start("paid", *settings, "gdpo.kl_in_reward=0.5"))
    kl = [row["reward/kl_in_reward/mean"] for row in paid.metrics()]
    assert kl[0] == pytest.approx(0, abs=1e-5) and min(map(abs, kl[1:])) > 1e-4
    assert [row["kl"] for row in paid.metrics()] == [0.0, 0.0, 0.0]
    assert plain.metrics()[0]["reward/correct/mean"] == paid.metrics()[0]["reward/correct/mean"]
    assert content(plain)["weights"] != content(paid)["weights"]
    assert not any("kl_in_reward" in key for key in plain.metrics()[0])


def test_a_run_starts_from_the_weights_of_its_base(start, base):
    run = trained(*start("still", "embedded.train.lr=0", "embedded.train.steps=1"))
    files = [any_run.checkpoints()[-1][1] / "model.safetensors" for any_run in (run, base)]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_gdpo_learns_the_format(start):
    settings = ("embedded.train.steps=25", "embedded.train.prompts_per_step=6", "embedded.train.rollouts_per_prompt=8")
    run, config = start("gdpo", *settings, "embedded.train.checkpoint_every=25")
    train(run, config)
    format_S = [row["reward/format/mean"] for row in run.metrics()]
    assert np.mean(format_S[:2]) < 0.4
    assert np.mean(format_S[-5:]) > np.mean(format_S[:2]) + 0.25
