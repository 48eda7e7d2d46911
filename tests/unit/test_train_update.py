"""The optimiser steps of one batch against a plain reference."""

import copy
import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from gdpo_nemo.backends.embedded.train import new_optimizer, update
from gdpo_nemo.models.log_probs import response_kl
from gdpo_nemo.models.sampling import sample
from gdpo_nemo.prompts.tool_calling import build_prompt

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def batch(loaded, configure):
    """16 rollouts of 4 prompts, and an advantage for each."""
    return draw_batch(loaded, configure, temperature=1.0)


def draw_batch(warm, configure, temperature):
    model, tokenizer = warm
    rows = itertools.islice(configure().embedded.data.rows("train", np.random.default_rng(1)), 4)
    prompts = [build_prompt(row) for row in rows]
    samples = sample(
        model, tokenizer, prompts, rollouts_per_prompt=4, max_new_tokens=20, temperature=temperature, seed=0
    )
    assert len({rollout.length_tokens for rollout in samples.rollouts}) > 2
    return samples, torch.randn(16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def flat(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).clone()


def step(model, batch, spec, *, lr=1.0, reference=None, graded_B=None):
    """Change of the weights by one plain gradient descent update, and its metrics; the model stays as it was."""
    learner = copy.deepcopy(model)
    metrics = update(learner, reference, torch.optim.SGD(learner.parameters(), lr=lr), *batch, spec, graded_B)
    return flat(learner) - flat(model), metrics


def response_logp(model, samples, b, temperature):
    """Log-probabilities [N] of the tokens of one response: the sequence alone, without padding."""
    whole = samples.ids_B_T[b][samples.attention_B_T[b]]
    size = int(samples.response_B_R[b].sum())
    logp_N_V = torch.log_softmax(model(whole[None]).logits[0, -size - 1 : -1] / temperature, dim=-1)
    return logp_N_V.gather(1, whole[-size:, None])[:, 0]


def reference_step(model, batch, spec, *, lr=1.0, reference=None):
    """What ``step`` must give: eq. 3 of the paper, token by token, one response at a time."""
    samples, advantages_B = batch
    learner, start, terms = copy.deepcopy(model), copy.deepcopy(model), spec.loss
    losses = []
    per_minibatch = (spec.minibatch_prompts or 4) * 4
    for minibatch in torch.arange(16).split(per_minibatch):
        sizes = samples.response_B_R.sum(1)[minibatch]
        loss = torch.zeros(())
        for b in minibatch.tolist():
            logp_N = response_logp(learner, samples, b, spec.temperature)
            ratio_N = (logp_N - response_logp(start, samples, b, spec.temperature).detach()).exp()
            a = advantages_B[b].item()
            bounded_N = ratio_N.clamp(1 - terms.clip_low, 1 + terms.clip_high)
            loss_N = -torch.min(ratio_N * a, bounded_N * a)
            if reference is not None:
                d = logp_N - response_logp(reference, samples, b, spec.temperature).detach()
                loss_N = (
                    loss_N + terms.kl_coef * {"k1": d, "k2": d**2 / 2, "k3": (-d).exp() - 1 + d}[terms.kl_estimator]
                )
            if terms.aggregation == "token_mean":
                loss = loss + loss_N.sum() / sizes.sum()
            else:
                loss = loss + loss_N.mean() / len(sizes)
        losses.append(loss.item())
        gradients = torch.autograd.grad(loss, list(learner.parameters()))
        norm = torch.cat([gradient.flatten() for gradient in gradients]).norm()
        factor = min(1.0, spec.grad_clip / norm.item())
        with torch.no_grad():
            for parameter, gradient in zip(learner.parameters(), gradients, strict=True):
                parameter -= lr * factor * gradient
    return flat(learner) - flat(model), sum(losses) / len(losses)


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("loss.aggregation=sequence_mean", "microbatch_rollouts=5"),
        ("temperature=0.7", "loss.clip_high=0.3"),
        ("minibatch_prompts=1", "loss.clip_low=0.1", "loss.clip_high=0.4"),
        ("minibatch_prompts=3", "microbatch_rollouts=2", "temperature=1.3"),
        ("minibatch_prompts=2", "loss.aggregation=sequence_mean", "loss.kl_coef=0.5", "loss.kl_estimator=k2"),
        ("loss.kl_coef=0.5", "loss.kl_estimator=k1"),
        ("loss.kl_coef=2.0", "loss.kl_estimator=k3", "microbatch_rollouts=3"),
        ("grad_clip=0.01", "minibatch_prompts=2"),
    ],
    ids=" ".join,
)
def test_an_update_is_the_gradient_of_the_equation(overrides, warm, batch, configure):
    model, _ = warm
    spec = configure("embedded.train.grad_clip=1000", *(f"embedded.train.{item}" for item in overrides)).embedded.train
    reference = None
    if spec.loss.kl_coef:
        reference = copy.deepcopy(model)
        with torch.no_grad():
            for parameter in reference.parameters():
                parameter += 0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    made, metrics = step(model, batch, spec, lr=0.3, reference=reference)
    expected, loss = reference_step(model, batch, spec, lr=0.3, reference=reference)
    assert expected.norm() > 1e-3
    rounding = 3e-7  # of weights near 1
    assert_close(made, expected, rtol=1e-3, atol=max(rounding, 1e-4 * expected.abs().max().item()))
    assert metrics["loss"] == pytest.approx(loss, rel=1e-3, abs=1e-5)
    if "minibatch_prompts=1" in overrides:
        assert metrics["clip_fraction"] > 0.05


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean"])
def test_rows_without_an_advantage_count_in_the_mean(aggregation, warm, batch, configure):
    """As those of a group whose rewards are all equal."""
    model, _ = warm
    samples, advantages_B = batch
    some = samples, torch.where(torch.arange(16) % 3 == 1, advantages_B, 0)
    settings = [f"embedded.train.loss.aggregation={aggregation}", "embedded.train.minibatch_prompts=2"]
    spec = configure("embedded.train.grad_clip=1000", *settings, "embedded.train.microbatch_rollouts=3").embedded.train
    made, metrics = step(model, some, spec, lr=0.3)
    expected, loss = reference_step(model, some, spec, lr=0.3)
    assert expected.norm() > 1e-3
    assert_close(made, expected, rtol=1e-3, atol=1e-4 * expected.abs().max().item())
    assert metrics["loss"] == pytest.approx(loss, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean"])
@pytest.mark.parametrize("kl_coef", [0.0, 0.5])
def test_a_sample_that_is_not_graded_is_as_if_it_had_not_been_drawn(aggregation, kl_coef, warm, batch, configure):
    """As on NeMo RL, whose loss has it masked: neither its length nor its KL counts."""
    model, _ = warm
    reference = copy.deepcopy(model)
    with torch.no_grad():
        reference.model.norm.weight *= 1.3
    samples, advantages_B = batch
    graded_B = torch.arange(16) % 3 != 1
    settings = [f"embedded.train.loss.aggregation={aggregation}", f"embedded.train.loss.kl_coef={kl_coef}"]
    spec = configure("embedded.train.grad_clip=1000", *settings).embedded.train
    held = reference if kl_coef else None
    whole = samples, advantages_B * graded_B
    made, metrics = step(model, whole, spec, lr=0.3, reference=held, graded_B=graded_B)
    fields = ("ids_B_T", "attention_B_T", "response_B_R", "entropy_B_R")
    kept = replace(
        samples, **{name: getattr(samples, name)[graded_B] for name in fields},
        rollouts=tuple(itertools.compress(samples.rollouts, graded_B.tolist())),
    )  # fmt: skip
    expected, same = step(model, (kept, advantages_B[graded_B]), spec, lr=0.3, reference=held)
    assert_close(made, expected, rtol=1e-3, atol=1e-4 * expected.abs().max().item())
    for key in ("loss", "kl", "grad_norm"):
        assert metrics[key] == pytest.approx(same[key], rel=1e-3, abs=1e-6)
    assert made.norm() > 1e-3 and metrics["entropy"] != same["entropy"]


@pytest.mark.parametrize("name", ["Llama", "gpt2", "Gemma2"])
def test_an_update_of_another_architecture_is_the_gradient_of_the_equation(name, batch, foreign, configure, warm):
    spec = configure("embedded.train.minibatch_prompts=2", "embedded.train.microbatch_rollouts=5").embedded.train
    model = foreign(name, len(warm[1]))
    made, metrics = step(model, batch, spec, lr=0.05)
    expected, loss = reference_step(model, batch, spec, lr=0.05)
    assert_close(made, expected, rtol=1e-3, atol=1e-3 * expected.abs().max().item())
    assert metrics["loss"] == pytest.approx(loss, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean"])
@pytest.mark.parametrize("size", [1, 5, 100])
def test_micro_batches_of_any_size_give_the_same_update(size, aggregation, warm, batch, configure):
    model, _ = warm
    settings = [f"embedded.train.loss.aggregation={aggregation}", "embedded.train.loss.kl_coef=0.1"]
    whole, metrics = step(model, batch, configure(*settings).embedded.train, reference=model)
    settings.append(f"embedded.train.microbatch_rollouts={size}")
    parts, same_metrics = step(model, batch, configure(*settings).embedded.train, reference=model)
    assert whole.norm() > 1e-3
    assert_close(parts, whole, rtol=1e-3, atol=1e-5 * whole.abs().max().item())
    assert same_metrics == pytest.approx(metrics, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(("prompts", "num_steps"), [(None, 1), (4, 1), (3, 2), (2, 2), (1, 4)])
def test_a_mini_batch_is_one_optimiser_step(prompts, num_steps, warm, batch, configure):
    model, _ = warm
    spec = configure(f"embedded.train.minibatch_prompts={prompts or 'null'}").embedded.train
    optimizer = new_optimizer(model, 1e-3, 0.0)
    update(model, None, optimizer, *batch, spec)
    assert {int(state["step"]) for state in optimizer.state.values()} == {num_steps}


@pytest.mark.parametrize("prompts", [None, 1])
def test_as_long_as_the_weights_stand_still_all_ratios_are_one(prompts, warm, batch, configure):
    """The loss is then minus the mean advantage, over the tokens of each mini-batch."""
    model, _ = warm
    spec = configure(f"embedded.train.minibatch_prompts={prompts or 'null'}", "embedded.train.loss.clip_low=1e-4")
    _, metrics = step(model, batch, spec.embedded.train, lr=0.0)
    samples, advantages_B = batch
    sizes_B = samples.response_B_R.sum(1)
    parts = torch.arange(16).split(4 * (prompts or 4))
    means = [(advantages_B[part] * sizes_B[part]).sum() / sizes_B[part].sum() for part in parts]
    assert metrics["loss"] == pytest.approx(-torch.stack(means).mean().item(), abs=1e-5)
    assert metrics["clip_fraction"] == 0


def test_without_advantages_nothing_is_learned(warm, batch, configure):
    model, _ = warm
    before, optimizer = flat(model), new_optimizer(model, 1e-2, 0.0)
    metrics = update(model, None, optimizer, batch[0], torch.zeros(16, dtype=torch.float64), configure().embedded.train)
    assert torch.equal(flat(model), before)
    assert metrics["grad_norm"] == metrics["loss"] == metrics["clip_fraction"] == 0


def test_weight_decay_shrinks_all_weights_without_any_gradient(warm, batch, configure):
    model, _ = warm
    before, optimizer = flat(model), new_optimizer(model, 1e-2, 0.5)
    update(model, None, optimizer, batch[0], torch.zeros(16, dtype=torch.float64), configure().embedded.train)
    assert_close(flat(model), before * (1 - 1e-2 * 0.5))


def test_a_long_gradient_is_cut_to_its_limit_and_reported_whole(warm, batch, configure):
    model, _ = warm
    free, metrics = step(model, batch, configure("embedded.train.grad_clip=1000").embedded.train)
    cut, same_metrics = step(model, batch, configure("embedded.train.grad_clip=0.01").embedded.train)
    assert metrics["grad_norm"] == same_metrics["grad_norm"] == pytest.approx(free.norm().item(), rel=1e-4)
    assert free.norm() > 0.02
    assert_close(cut, free * 0.01 / free.norm(), rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_entropy_is_that_of_the_sampling_distribution(temperature, warm, configure):
    model, _ = warm
    batch = draw_batch(warm, configure, temperature)
    samples, _ = batch
    _, metrics = step(model, batch, configure(f"embedded.train.temperature={temperature}").embedded.train, lr=0.0)
    total = count = 0.0
    for b in range(16):
        whole, size = samples.ids_B_T[b][samples.attention_B_T[b]], int(samples.response_B_R[b].sum())
        logits_N_V = model(whole[None]).logits[0, -size - 1 : -1].detach() / temperature
        total += torch.distributions.Categorical(logits=logits_N_V).entropy().sum().item()
        count += size
    assert metrics["entropy"] == pytest.approx(total / count, rel=1e-3)


def test_the_kl_to_an_equal_model_is_zero_and_to_another_is_not(warm, batch, configure):
    model, _ = warm
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.model.norm.weight *= 1.3
    spec = configure("embedded.train.loss.kl_coef=1").embedded.train
    assert step(model, batch, spec, reference=copy.deepcopy(model))[1]["kl"] == pytest.approx(0, abs=1e-7)
    assert step(model, batch, spec, reference=other)[1]["kl"] > 1e-3


def test_a_large_kl_coefficient_holds_the_model_near_its_reference(warm, batch, configure):
    model, _ = warm
    kl = {}
    for coefficient in (0.001, 10):
        learner = copy.deepcopy(model)
        optimizer = new_optimizer(learner, 3e-3, 0.0)
        spec = configure(f"embedded.train.loss.kl_coef={coefficient}").embedded.train
        for _ in range(8):
            kl[coefficient] = update(learner, model, optimizer, *batch, spec)["kl"]
    assert 0 < kl[10] < kl[0.001] / 3


@pytest.mark.parametrize("rows_at_once", [None, 3])
def test_the_kl_of_a_response_is_added_up_over_its_tokens_whatever_is_computed_together(rows_at_once, warm, batch):
    model, _ = warm
    samples, _ = batch
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.model.norm.weight *= 1.3
        expected = [
            sum(response_logp(model, samples, b, 0.7) - response_logp(other, samples, b, 0.7)).item() for b in range(16)
        ]
    kl_B = response_kl(model, other, samples, 0.7, rows_at_once)
    assert not kl_B.requires_grad and kl_B.dtype == torch.float64
    assert kl_B.tolist() == pytest.approx(expected, rel=1e-3, abs=1e-4)
