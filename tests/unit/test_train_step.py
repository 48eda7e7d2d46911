"""One step as a run takes it: each setting reaches the place it is for, each number is of the rollouts it names."""

import copy
import math
from itertools import islice
from types import MappingProxyType

import pytest
import torch
from torch.testing import assert_close

from gdpo_nemo.backends.embedded.train import train_step
from gdpo_nemo.errors import NonFiniteError
from gdpo_nemo.health.repetition import repetition
from gdpo_nemo.losses import kl_estimate, token_weights
from gdpo_nemo.method import Method
from gdpo_nemo.models.log_probs import log_probs, response_kl
from gdpo_nemo.models.sampling import sample
from gdpo_nemo.randomness import stream, stream_seed
from gdpo_nemo.rewards import REWARDS
from gdpo_nemo.source import row_source
from gdpo_nemo.types import RewardVector

pytestmark = pytest.mark.usefixtures("one_thread")
STEP = 3
IN_REWARD = ("gdpo.method=grpo", "gdpo.kl_in_reward=0.5")
IN_LOSS = ("embedded.train.loss.kl_coef=0.1",)
PAIRS = ("gdpo.method=preference",)


@pytest.fixture(scope="module")
def reference(loaded):
    """The warmed-up model, a little off."""
    model = copy.deepcopy(loaded[0]).eval()
    with torch.no_grad():
        model.model.norm.weight *= 1.3
    return model


@pytest.fixture
def take(loaded, reference):
    """A step from the warmed-up model: its metrics; ``take(config)``."""

    def call(config, other=reference, lr=0.1, see=None):
        model = copy.deepcopy(loaded[0])
        if see:
            model.register_forward_pre_hook(see, with_kwargs=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        return train_step(model, loaded[1], other, optimizer, config, Method(config.gdpo), STEP)[0]

    return call


@pytest.fixture
def drawn(loaded):
    """What such a step draws, by the rule in the docstrings of ``randomness`` and ``train``."""

    def call(config):
        spec, source = config.embedded.train, row_source(config.gdpo, config.embedded.data)
        rows = [*islice(source.rows("train", stream(config.seed, "data", STEP)), spec.prompts_per_step)]
        samples = sample(
            *loaded, [source.prompt(row) for row in rows], rollouts_per_prompt=spec.rollouts_per_prompt,
            max_new_tokens=spec.max_new_tokens, temperature=spec.temperature,
            seed=stream_seed(config.seed, "sampling", STEP),
        )  # fmt: skip
        return rows, samples

    return call


@pytest.mark.parametrize("temperature", [0.6, 1.4])
@pytest.mark.parametrize("method", [IN_REWARD, PAIRS], ids=str)
def test_a_step_samples_and_measures_at_the_temperature_of_the_run(temperature, method, configure, take, drawn, loaded):
    config = configure(*method, f"embedded.train.temperature={temperature}", "seed=4")
    metrics, (_, samples) = take(config), drawn(config)
    entropy = (samples.entropy_B_R * token_weights(samples.response_B_R, "token_mean")).sum().item()
    assert metrics["entropy"] == pytest.approx(entropy, rel=1e-6)


def test_the_kl_in_the_reward_is_of_the_temperature_of_the_run(configure, take, drawn, loaded, reference):
    for temperature in (0.6, 1.4):
        config = configure(*IN_REWARD, f"embedded.train.temperature={temperature}")
        kl_B = response_kl(loaded[0], reference, drawn(config)[1], temperature)
        assert take(config)["reward/kl_in_reward/mean"] == pytest.approx(kl_B.mean().item(), rel=1e-6)


@pytest.mark.parametrize("method", [(), PAIRS], ids=["advantages", "pairs"])
def test_the_numbers_of_a_step_are_of_its_rollouts(method, configure, take, drawn):
    shown = "gdpo.rewards={correct: {}}", "embedded.train.max_new_tokens=11"
    config = configure(*method, *shown)
    metrics, (rows, samples) = take(config), drawn(config)
    lengths = [rollout.length_tokens for rollout in samples.rollouts]
    cut = [rollout.truncated for rollout in samples.rollouts]
    assert 0 < sum(cut) < len(cut) and len(set(lengths)) > 2
    assert metrics["frac_truncated"] == sum(cut) / len(cut)
    assert (metrics["length/mean"], metrics["length/max"]) == (sum(lengths) / len(lengths), max(lengths))
    one_each = [samples.rollouts[first].response for first in range(0, len(lengths), len(lengths) // len(rows))]
    for key, value in repetition(one_each).items():
        assert metrics[key] == value
    scored = Method(config.gdpo).score([row for row in rows for _ in range(4)], samples.rollouts)
    unused = [vector["format"] for vector in scored]
    assert metrics["reward/format/mean"] == pytest.approx(sum(unused) / len(unused))


def half_fails(row, rollout):
    """A reward of one's own that crashes on every other rollout."""
    return 1.0 / (rollout.index % 2)


@pytest.mark.parametrize("method", [(), PAIRS], ids=["advantages", "pairs"])
def test_a_step_tells_how_many_calls_of_an_own_reward_failed(method, configure, take):
    own = f"gdpo.rewards={{format: {{}}, correct: {{}}, own: {{fn: '{__name__}:half_fails', range: [0, 1]}}}}"
    assert take(configure(*method, own))["reward/own/frac_failed"] == 0.5


@pytest.mark.parametrize("settings", [(), IN_REWARD, IN_LOSS, PAIRS], ids=str)
def test_a_micro_batch_bounds_what_goes_through_the_model_at_once(settings, configure, take):
    """In responses' tokens; sampling is not part of it."""
    largest = {}
    for size in (2, 16):
        seen = []
        settings_now = (*settings, f"embedded.train.microbatch_rollouts={size}")
        take(
            configure(*settings_now, "embedded.train.minibatch_prompts=null"),
            see=lambda module, args, kwargs, seen=seen: None if kwargs["use_cache"] else seen.append(
                kwargs["logits_to_keep"].numel() * kwargs["input_ids"].shape[0]
            ),
        )  # fmt: skip
        largest[size] = max(seen)
    assert largest[2] < 0.7 * largest[16]


def test_what_is_not_graded_is_not_in_the_kl_of_the_loss(configure, take, drawn, loaded, reference):
    own = f"gdpo.rewards={{format: {{}}, own: {{fn: '{__name__}:half_fails', range: [0, 1]}}}}"
    config = configure(*IN_LOSS, own)
    _, samples = drawn(config)
    graded = torch.tensor([b for b, rollout in enumerate(samples.rollouts) if rollout.index % 2])
    with torch.no_grad():
        logp, reference_logp = (log_probs(model, samples, graded, 1.0) for model in (loaded[0], reference))
    kl = kl_estimate(logp, reference_logp, "k3") * token_weights(samples.response_B_R[graded], "token_mean")
    assert take(config)["kl"] == pytest.approx(kl.sum().item(), rel=1e-4)


# ---- a number that is none is found in each place of a step


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (IN_REWARD, "the KL to the reference of row .*, rollout 0 is nan"),
        (IN_LOSS, "the reference log probability of token 1 of row"),
        (PAIRS, "the reference log probability of token 1 of row"),
    ],
    ids=str,
)
def test_a_broken_reference_is_named(settings, words, configure, take, reference):
    broken = copy.deepcopy(reference)
    with torch.no_grad():
        broken.model.norm.weight[3] = math.nan
    with pytest.raises(NonFiniteError, match=words):
        take(configure(*settings), broken)


@pytest.mark.parametrize("settings", [(), PAIRS], ids=["advantages", "pairs"])
def test_a_gradient_without_a_norm_is_named_before_the_optimiser_moves(settings, configure, loaded, reference):
    model = copy.deepcopy(loaded[0])

    def spoil(module, arguments, result):
        if result.requires_grad:
            result.register_hook(lambda gradient: gradient * math.inf)

    model.get_input_embeddings().register_forward_hook(spoil)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    config = configure(*settings)
    with pytest.raises(NonFiniteError, match="the norm of the gradient is"):
        train_step(
            model, loaded[1], reference, torch.optim.SGD(model.parameters(), lr=1.0), config, Method(config.gdpo), STEP
        )
    assert all(map(torch.equal, before, model.parameters()))


class InfiniteAnchor:
    """Stands in for a task: the reference answer of a row has an infinite reward."""

    names = ("long",)
    ranges = MappingProxyType({"long": (0.0, 20.0)})

    def __init__(self, mode):
        pass

    def __call__(self, row, rollout):
        return RewardVector({"long": math.inf if rollout.index == 4 else float(rollout.length_tokens)})


def test_an_infinite_reward_of_an_anchor_is_named(configure, take, monkeypatch):
    monkeypatch.setitem(REWARDS, "anchored", f"{__name__}:InfiniteAnchor")
    config = configure(*PAIRS, "gdpo.task=anchored", "gdpo.preference.anchors=gold")
    with pytest.raises(NonFiniteError, match=r"reward 'long' of row .*, rollout 4 is inf"):
        take(config)


def test_a_veto_of_pairs_reads_the_raw_value(configure, take):
    """The condition sets it to 9 for all, which is above the threshold; no raw value is."""
    lifted = "gdpo.rewards={format: {}, correct: {condition: {on: format, at_least: 9, else_value: 9}}}"
    metrics = take(configure(*PAIRS, lifted, "gdpo.veto={reward: correct, below: 4}"))
    assert metrics["preference/frac_vetoed"] == 1


def test_weight_decay_is_that_of_the_run(base, claim, configure, tmp_path):
    """AdamW's: apart from its own term the step is the same."""
    from safetensors.torch import load_file

    from gdpo_nemo.backends.embedded.train import train

    (tmp_path / "base").symlink_to(base.path.parent)
    weights = {}
    for decay in (0.0, 0.5):
        config = configure("base=small", "embedded.train.steps=1", f"embedded.train.weight_decay={decay}")
        run = claim(tmp_path / f"decay{decay}" / "seed0", config)
        train(run, config)
        weights[decay] = load_file(run.checkpoints()[-1][1] / "model.safetensors")
    start = load_file(base.checkpoints()[-1][1] / "model.safetensors")
    for name, value in weights[0.5].items():
        assert_close(value, weights[0.0][name] - config.embedded.train.lr * 0.5 * start[name], rtol=0, atol=1e-6)
