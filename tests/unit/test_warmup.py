import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from gdpo_nemo.backends.embedded import base_hash, estimate
from gdpo_nemo.backends.embedded.step_times import demonstrated
from gdpo_nemo.backends.embedded.warmup import demonstration_pool, supervised_step, warm_up
from gdpo_nemo.config import EmbeddedConfig, GdpoConfig, RunConfig, TrainConfig
from gdpo_nemo.data.demonstrations import BehaviourMix, demonstrate
from gdpo_nemo.data.program_world import ProgramWorld
from gdpo_nemo.evaluation.store import EvaluationStore
from gdpo_nemo.method import Method
from gdpo_nemo.models import load
from gdpo_nemo.models.pretrained import load_saved
from gdpo_nemo.models.sampling import encode
from gdpo_nemo.prompts.tool_calling import build_prompt
from gdpo_nemo.run_dir import RunDir

pytestmark = pytest.mark.usefixtures("one_thread")
SHORT = tuple(f"embedded.warmup.{item}" for item in ("clean_steps=4", "noisy_steps=2", "batch_size=4"))


def warmed(claim, path, config):
    run = claim(path, config)
    warm_up(run, config)
    return run


def final_weights(run):
    return (run.checkpoints()[-1][1] / "model.safetensors").read_bytes()


def with_mix(config, mix):
    data = replace(config.embedded.data, mix=mix)
    return config.model_copy(update={"embedded": config.embedded.model_copy(update={"data": data})})


# ---- one supervised step


def test_the_loss_is_the_mean_over_the_tokens_of_the_responses_with_their_end(warm, configure):
    """By hand, one demonstration at a time: a batch of 6 holds n of one kind and 6 - n of the other."""
    model, tokenizer = warm
    direct = BehaviourMix(think_share=0, step_noise=0, direct_noise=0, piece_kept=1)
    config = with_mix(configure("embedded.warmup.batch_size=6"), direct)
    rows = config.embedded.data.questions(40, 0)
    rows = [next(row for row in rows if bool(row.fields["path"]) == is_trip) for is_trip in (True, False)]
    pool = list(zip(rows, encode(tokenizer, [build_prompt(row) for row in rows]), strict=True))
    sums, sizes = [], []
    for row, prompt in pool:
        text = demonstrate(config.embedded.data, row, direct, np.random.default_rng(0))
        response = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        with torch.no_grad():
            logits_N_V = model(torch.tensor([prompt + response])).logits[0, -len(response) - 1 : -1]
        nll_N = torch.nn.functional.cross_entropy(logits_N_V, torch.tensor(response), reduction="none")
        sums.append(nll_N.sum().item())
        sizes.append(len(response))
    assert sizes[0] != sizes[1] and len(pool[0][1]) != len(pool[1][1])
    mixed = [(n * sums[0] + (6 - n) * sums[1]) / (n * sizes[0] + (6 - n) * sizes[1]) for n in range(7)]
    optimizer, rng = torch.optim.SGD(model.parameters(), lr=0.0), np.random.default_rng(0)
    losses = [supervised_step(model, tokenizer, optimizer, config, pool, rng, clean=False) for _ in range(12)]
    nearest = [min(range(7), key=lambda n, loss=loss: abs(mixed[n] - loss)) for loss in losses]
    assert losses == pytest.approx([mixed[n] for n in nearest], rel=1e-4)
    assert len(set(nearest)) > 2


def test_the_clean_phase_shows_clean_demonstrations_and_the_noisy_phase_the_mix(warm, configure):
    """The warmed-up model finds wrong cities in the thought more surprising than right ones."""
    model, tokenizer = warm
    mix = BehaviourMix(think_share=0.6, step_noise=1.0, direct_noise=1.0, piece_kept=0.0)
    config = with_mix(configure(), mix)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    pool = demonstration_pool(tokenizer, config, np.random.default_rng(0))
    assert len(pool) == config.embedded.warmup.pool_rows
    loss = {
        clean: supervised_step(model, tokenizer, optimizer, config, pool, np.random.default_rng(1), clean=clean)
        for clean in (True, False)
    }
    assert loss[False] > loss[True] + 0.1


def test_a_step_learns_the_batch(configure):
    config = configure("embedded.warmup.pool_rows=2", "embedded.warmup.batch_size=8")
    model, tokenizer = load(config.embedded)
    optimizer, rng = torch.optim.AdamW(model.parameters(), lr=1e-2), np.random.default_rng(0)
    pool = demonstration_pool(tokenizer, config, rng)
    losses = [supervised_step(model, tokenizer, optimizer, config, pool, rng, clean=True) for _ in range(15)]
    assert losses[0] == pytest.approx(math.log(len(tokenizer)), abs=1.5)
    assert losses[-1] < 0.6 * losses[0]


# ---- the whole warm-up


def test_a_warm_up_reports_both_phases_and_leaves_an_evaluated_model(base, configure):
    rows = base.metrics()
    assert [(row["step"], row["phase"]) for row in rows] == [(25, "clean"), (50, "clean"), (75, "noisy")]
    assert all(set(row) == {"step", "phase", "loss"} for row in rows)
    assert rows[1]["loss"] < rows[0]["loss"]
    assert [step for step, _ in base.checkpoints()] == [75]
    result = base.result()
    assert (result["steps"], result["evaluation"]["questions"]) == (75, 8)
    assert len(EvaluationStore.open(base.evaluation_path("heldout")).scores()) == 8
    assert load_saved(base.checkpoints()[0][1])[0].config.hidden_size == configure().embedded.model.hidden_size


def test_a_warm_up_follows_from_its_own_seed(configure, claim, tmp_path):
    first, again, other = (
        warmed(claim, tmp_path / name, configure("kind=warmup", *SHORT, seed))
        for name, seed in [("a", "seed=0"), ("b", "seed=1"), ("c", "embedded.warmup.seed=1")]
    )
    assert final_weights(first) == final_weights(again), "the seed of a run does not matter"
    assert final_weights(first) != final_weights(other)


def test_each_phase_has_its_own_steps_and_learning_rate(configure, claim, tmp_path):
    settings = {
        "both": (),
        "clean only": ("embedded.warmup.noisy_steps=0",),
        "noisy still": ("embedded.warmup.noisy_lr=0",),
        "nothing": ("embedded.warmup.noisy_steps=0", "embedded.warmup.lr=0"),
    }
    weights = {
        name: final_weights(warmed(claim, tmp_path / name, configure("kind=warmup", *SHORT, *overrides)))
        for name, overrides in settings.items()
    }
    assert weights["noisy still"] == weights["clean only"]
    assert len(set(weights.values())) == 3


def test_a_killed_warm_up_starts_again_from_the_beginning(configure, claim, tmp_path):
    config = configure("kind=warmup", *SHORT)
    whole = warmed(claim, tmp_path / "whole", config)
    killed = claim(tmp_path / "killed", config)
    killed.append_metrics({"step": 5, "phase": "clean", "loss": 9.0})
    (killed.path / "checkpoints" / ".partial-step6").mkdir(parents=True)
    warm_up(killed, config)
    assert final_weights(killed) == final_weights(whole)
    assert killed.metrics() == whole.metrics()
    assert [path.name for path in (killed.path / "checkpoints").iterdir()] == ["step6"]


class Stopped(Exception):
    pass


class NeverFinished(RunDir):
    """Stopped between its checkpoint and its result, which is while it is evaluated."""

    def finish(self, result):
        raise Stopped


def test_a_warm_up_killed_in_its_evaluation_is_evaluated_and_says_nothing_twice(configure, claim, tmp_path):
    config = configure("kind=warmup", *SHORT)
    whole = warmed(claim, tmp_path / "a" / "base", config)
    killed = claim(tmp_path / "b" / "base", config, NeverFinished)
    with pytest.raises(Stopped):
        warm_up(killed, config)
    resumed = warmed(claim, killed.path, config)
    assert final_weights(resumed) == final_weights(whole)
    for name in ("metrics.jsonl", "result.json", "eval/heldout/generations.jsonl"):
        assert (resumed.path / name).read_bytes() == (whole.path / name).read_bytes(), name


# ---- sharing and planning


@pytest.mark.parametrize(
    ("override", "same"),
    [
        ("embedded.train.steps=99", True),
        ("embedded.train.lr=0.5", True),
        ("gdpo.method=grpo", True),
        ("seed=7", True),
        ("embedded.data.num_cities=5", False),
        ("embedded.model.num_layers=1", False),
        ("embedded.data.mix.step_noise=0.123", False),
        ("embedded.warmup.noisy_steps=7", False),
        ("embedded.evaluation.questions=9", False),
    ],
)
def test_runs_share_a_warm_up_exactly_when_what_makes_it_is_equal(override, same, configure):
    assert (base_hash(configure(override).embedded) == base_hash(configure().embedded)) == same


def test_the_estimate_scores_answers_that_are_worth_scoring():
    spec = TrainConfig(prompts_per_step=3, rollouts_per_prompt=4)
    embedded = EmbeddedConfig(data=ProgramWorld(), train=spec)
    config = RunConfig(gdpo=GdpoConfig(task="code_reasoning"), embedded=embedded)
    rows, rollouts = demonstrated(config, np.random.default_rng(0))
    assert [rollout.row_id for rollout in rollouts] == [row.id for row in rows]
    assert [rollout.index for rollout in rollouts] == list(range(spec.rollouts_per_prompt)) * spec.prompts_per_step
    vectors = Method(config.gdpo).score(rows, rollouts)
    assert sum(vector.values["pass_rate"] for vector in vectors) > 0.25 * len(vectors)


def test_the_estimate_grows_with_the_steps(configure):
    config = configure("embedded.train.steps=1000", "embedded.warmup.clean_steps=0", "embedded.warmup.noisy_steps=0")
    measured = estimate(config)
    assert measured["tokens_per_step"] == 4 * 4 * 20
    assert measured["warmup_s"] == 0
    assert 1 < measured["run_s"] < 1000
    assert measured["parameters"] == sum(p.numel() for p in load(config.embedded)[0].parameters())
