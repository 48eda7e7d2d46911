"""One value that is no number, planted in each place: found before the optimiser's step, with its sample named."""

import copy
import itertools
import math
from types import MappingProxyType

import numpy as np
import pytest
import torch

from gdpo_nemo.backends.embedded.finite import check_kl
from gdpo_nemo.backends.embedded.train import new_optimizer, train, update
from gdpo_nemo.errors import NonFiniteError
from gdpo_nemo.models.log_probs import response_kl
from gdpo_nemo.models.sampling import sample
from gdpo_nemo.prompts.tool_calling import build_prompt
from gdpo_nemo.rewards import REWARDS
from gdpo_nemo.types import RewardVector

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def samples(loaded, configure):
    """16 rollouts of 4 prompts."""
    rows = itertools.islice(configure().embedded.data.rows("train", np.random.default_rng(1)), 4)
    prompts = [build_prompt(row) for row in rows]
    return sample(*loaded, prompts, rollouts_per_prompt=4, max_new_tokens=20, temperature=1.0, seed=0)


@pytest.fixture
def learner(loaded):
    return copy.deepcopy(loaded[0])


def advantages(**planted):
    values = torch.randn(16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for row, value in planted.items():
        values[int(row[1:])] = value
    return values


def named(samples, b):
    return f"row {samples.rollouts[b].row_id!r}, rollout {samples.rollouts[b].index}"


def refused(model, samples, advantages_B, spec, reference=None):
    """The message; the weights and the optimiser are as they were."""
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = new_optimizer(model, 1e-2, 0.1)
    with pytest.raises(NonFiniteError) as error:
        update(model, reference, optimizer, samples, advantages_B, spec)
    assert all(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))
    assert not optimizer.state
    return str(error.value)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("together", ["null", "5"])
def test_the_loss_of_a_token_names_its_sample(value, together, learner, samples, configure):
    spec = configure(f"embedded.train.microbatch_rollouts={together}").embedded.train
    message = refused(learner, samples, advantages(b6=value), spec)
    assert f"policy loss of token 1 of {named(samples, 6)}" in message


def test_a_log_probability_names_its_sample_and_its_token(learner, samples, configure):
    """The first place where the token stands that the model now gives no probability."""
    responses = samples.ids_B_T[:, samples.ids_B_T.shape[1] - samples.response_B_R.shape[1] :]
    said = responses.masked_fill(~samples.response_B_R, -1).tolist()
    rare = next(token for token in said[9] if token not in said[0] + said[1])
    b = next(b for b in range(16) if rare in said[b])

    def forbid(module, arguments, result):
        result.logits[..., rare] = -math.inf
        return result

    learner.register_forward_hook(forbid)
    message = refused(learner, samples, advantages(), configure().embedded.train)
    assert f"log probability of token {said[b].index(rare) + 1} of {named(samples, b)} is -inf" in message


def test_a_weight_that_is_no_number_is_found_in_the_first_sample(learner, samples, configure):
    with torch.no_grad():
        learner.model.norm.weight[3] = math.nan
    spec = configure("embedded.train.minibatch_prompts=2").embedded.train
    optimizer = new_optimizer(learner, 1e-2, 0.0)
    with pytest.raises(NonFiniteError, match=r"log probability of token 1 of .*is nan"):
        update(learner, None, optimizer, samples, advantages(), spec)
    assert not optimizer.state


def test_the_reference_is_looked_at_too(loaded, learner, samples, configure):
    reference = copy.deepcopy(loaded[0])
    with torch.no_grad():
        reference.model.norm.weight[3] = math.nan
    spec = configure("embedded.train.loss.kl_coef=0.1").embedded.train
    assert "reference log probability of token 1" in refused(learner, samples, advantages(), spec, reference)


def test_a_penalty_in_the_reward_names_its_sample(loaded, samples):
    kl_B = response_kl(loaded[0], loaded[0], samples, 1.0)
    check_kl(kl_B, samples.rollouts)
    kl_B[[7, 9]] = math.nan
    with pytest.raises(NonFiniteError, match=f"KL to the reference of {named(samples, 7)} is nan"):
        check_kl(kl_B, samples.rollouts)


def test_a_gradient_names_the_sample_that_has_it_alone(learner, samples, configure):
    """The loss is finite; the gradient is infinite where a word goes in that the first rollouts do not have."""
    rows = samples.ids_B_T.masked_fill(~samples.attention_B_T, -1).tolist()
    rare = next(token for row in rows for token in row if token > 0 and token not in rows[0] + rows[1])
    b = next(b for b in range(16) if rare in rows[b])

    def spoil(module, arguments, result):
        if result.requires_grad:
            there = (arguments[0] == rare)[..., None]
            result.register_hook(lambda gradient: gradient.masked_fill(there, math.inf))

    learner.get_input_embeddings().register_forward_hook(spoil)
    message = refused(learner, samples, advantages(), configure().embedded.train)
    assert f"norm of the gradient is inf: that of {named(samples, b)} is not finite in model.embed_tokens" in message


class Infinite:
    """Stands in for a task: an infinite reward in one rollout of the second step."""

    names = ("short", "spare")
    ranges = MappingProxyType({"short": (-20.0, 0.0), "spare": (0.0, 1.0)})
    calls = 0

    def __init__(self, mode):
        Infinite.calls = 0

    def __call__(self, row, rollout):
        Infinite.calls += 1
        planted = 16 < Infinite.calls <= 32 and rollout.index == 2
        return RewardVector({"short": math.inf if planted else -float(rollout.length_tokens), "spare": 0.5})


@pytest.fixture
def run(base, claim, configure, tmp_path, monkeypatch):
    (tmp_path / "base").symlink_to(base.path.parent)
    monkeypatch.setitem(REWARDS, "infinite", f"{__name__}:Infinite")
    short = ("base=small", "gdpo.task=infinite", "embedded.train.steps=3", "embedded.train.checkpoint_every=1")

    def call(*overrides):
        config = configure(*short, *overrides)
        return claim(tmp_path / "arm" / "seed0", config), config

    return call


def weights(run):
    return [(path / "model.safetensors").read_bytes() for _, path in run.checkpoints()]


def test_an_infinite_reward_ends_the_run_and_the_step_changes_nothing(run):
    made, config = run()
    with pytest.raises(NonFiniteError, match=r"step 2: reward 'short' of row '.*', rollout 2 is inf.*on_non_finite"):
        train(made, config)
    assert [row["step"] for row in made.metrics()] == [1] and made.result() is None
    assert [step for step, _ in made.checkpoints()] == [1]


def test_the_step_is_left_out_and_counted_where_that_is_asked_for(run, capsys):
    made, config = run("embedded.train.on_non_finite=skip")
    train(made, config)
    first, second, third = weights(made)
    assert first == second != third
    assert [row.get("skipped") for row in made.metrics()] == [None, 1.0, None]
    assert "rollout 2 is inf; the step is left out" in capsys.readouterr().out
    assert made.alarms() == [] and made.result()["steps"] == 3


def infinite_at_times(row, rollout):
    """A reward of one's own: infinite for the second rollout of some prompts."""
    return math.inf if rollout.index == 1 and rollout.length_tokens % 2 else 0.0


def test_an_infinite_reward_of_ones_own_is_left_out_like_any_other(run):
    own = f"gdpo.rewards.own={{fn: '{__name__}:infinite_at_times', range: [0, 1]}}"
    made, config = run(
        "gdpo.task=tool_calling", "gdpo.rewards.format.weight=1", own, "embedded.train.on_non_finite=skip"
    )
    train(made, config)
    assert 1.0 in [row.get("skipped") for row in made.metrics()]


def test_an_infinite_reward_of_ones_own_ends_the_run_otherwise(run):
    own = f"gdpo.rewards.own={{fn: '{__name__}:infinite_at_times', range: [0, 1]}}"
    made, config = run("gdpo.task=tool_calling", own)
    with pytest.raises(NonFiniteError, match=r"step \d: reward 'own' of row '.*', rollout 1 is inf, outside its range"):
        train(made, config)
