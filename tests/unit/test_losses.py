import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from gdpo_nemo.losses import clipped_surrogate, kl_estimate, token_weights

MASK = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0]], dtype=torch.bool)


# ---- aggregation


def test_the_token_mean_weighs_every_token_alike():
    expected = [[0.2, 0.2, 0.2, 0.2], [0.2, 0, 0, 0], [0, 0, 0, 0]]
    assert_close(token_weights(MASK, "token_mean"), torch.tensor(expected))


def test_the_sequence_mean_weighs_every_response_alike_and_an_empty_one_not_at_all():
    expected = [[0.125, 0.125, 0.125, 0.125], [0.5, 0, 0, 0], [0, 0, 0, 0]]
    assert_close(token_weights(MASK, "sequence_mean"), torch.tensor(expected))


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean"])
@given(st.lists(st.integers(0, 7), min_size=1, max_size=9).filter(any))
def test_weights_add_up_to_one_and_lie_on_responses_only(aggregation, lengths_B):
    mask_B_T = torch.arange(7) < torch.tensor(lengths_B)[:, None]
    weights_B_T = token_weights(mask_B_T, aggregation)
    assert weights_B_T.sum().item() == pytest.approx(1, abs=1e-6)
    assert (weights_B_T[~mask_B_T] == 0).all() and (weights_B_T[mask_B_T] > 0).all()


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean"])
def test_a_batch_without_tokens_weighs_nothing(aggregation):
    assert_close(token_weights(torch.zeros(2, 3, dtype=torch.bool), aggregation), torch.zeros(2, 3))


# ---- clipped surrogate, clip range 0.8 to 1.5


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient"),
    [
        (1.0, 2.0, -2.0, -2.0),
        (1.0, -2.0, 2.0, 2.0),
        (1.4, 2.0, -2.8, -2.8),
        (1.6, 2.0, -3.0, 0.0),  # above the range where more is better: clipped at 1.5
        (0.7, 2.0, -1.4, -1.4),  # below the range where more is better: pulled back
        (1.6, -2.0, 3.2, 3.2),  # above the range where less is better: pulled back
        (0.9, -2.0, 1.8, 1.8),
        (0.7, -2.0, 1.6, 0.0),  # below the range where less is better: clipped at 0.8
        (0.7, 0.0, 0.0, 0.0),
    ],
)
def test_the_surrogate_by_hand(ratio, advantage, loss, gradient):
    """The gradient is by log-probability, so it is ratio * advantage where the clip is not active."""
    logp_B_T = torch.tensor([[math.log(ratio) - 1.0]], dtype=torch.float64, requires_grad=True)
    old_B_T = torch.tensor([[-1.0]], dtype=torch.float64)
    advantages_B = torch.tensor([advantage], dtype=torch.float64)
    loss_B_T, clipped_B_T = clipped_surrogate(logp_B_T, old_B_T, advantages_B, clip_low=0.2, clip_high=0.5)
    loss_B_T.sum().backward()
    assert loss_B_T.item() == pytest.approx(loss)
    assert logp_B_T.grad.item() == pytest.approx(gradient)
    assert clipped_B_T.item() == (gradient == 0 and advantage != 0)


def test_each_rollout_has_its_own_advantage_on_all_its_tokens():
    logp_B_T = torch.zeros(3, 2)
    loss_B_T, _ = clipped_surrogate(logp_B_T, logp_B_T, torch.tensor([1.0, -2.0, 0.0]), clip_low=0.2, clip_high=0.2)
    assert_close(loss_B_T, torch.tensor([[-1.0, -1.0], [2.0, 2.0], [0.0, 0.0]]))


def test_the_advantages_take_the_precision_of_the_policy():
    logp_B_T = torch.zeros(1, 2, dtype=torch.float32)
    loss_B_T, _ = clipped_surrogate(logp_B_T, logp_B_T, torch.ones(1, dtype=torch.float64), clip_low=0.2, clip_high=0.2)
    assert loss_B_T.dtype == torch.float32


def test_at_ratio_one_it_is_the_policy_gradient():
    generator = torch.Generator().manual_seed(0)
    parameters = torch.randn(5, 7, generator=generator, dtype=torch.float64, requires_grad=True)
    tokens_B_T = torch.randint(7, (4, 3), generator=generator)
    states_B_T = torch.randint(5, (4, 3), generator=generator)
    advantages_B = torch.randn(4, generator=generator, dtype=torch.float64)
    weights_B_T = token_weights(torch.arange(3) < torch.tensor([[3], [1], [2], [3]]), "token_mean")
    logp_B_T = parameters.log_softmax(-1)[states_B_T].gather(-1, tokens_B_T[..., None])[..., 0]
    loss_B_T, _ = clipped_surrogate(logp_B_T, logp_B_T.detach(), advantages_B, clip_low=0.2, clip_high=0.2)
    (gradient,) = torch.autograd.grad((loss_B_T * weights_B_T).sum(), parameters, retain_graph=True)
    expected = torch.zeros_like(gradient)
    for b, t in weights_B_T.nonzero().tolist():
        (one,) = torch.autograd.grad(logp_B_T[b, t], parameters, retain_graph=True)
        expected -= advantages_B[b] * weights_B_T[b, t] * one
    assert_close(gradient, expected)


# ---- KL estimators


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [("k1", [0.5, -0.5, 0]), ("k2", [0.125, 0.125, 0]), ("k3", [math.exp(-0.5) - 0.5, math.exp(0.5) - 1.5, 0])],
)
def test_the_estimators_by_hand(estimator, expected):
    logp_B_T = torch.tensor([[-1.0, -2.0, -3.0]], dtype=torch.float64)
    reference_B_T = torch.tensor([[-1.5, -1.5, -3.0]], dtype=torch.float64)
    expected_B_T = torch.tensor([expected], dtype=torch.float64)
    assert_close(kl_estimate(logp_B_T, reference_B_T, estimator), expected_B_T)


@given(st.lists(st.floats(-3, 3), min_size=2, max_size=6), st.lists(st.floats(-3, 3), min_size=6, max_size=6))
def test_what_each_estimator_teaches_as_a_term_of_the_loss(logits, other_logits):
    """Expected gradients over all tokens, each with its probability under the policy that sampled them."""
    logits_V = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    logp_V = logits_V.log_softmax(0)
    reference_V = torch.tensor(other_logits[: len(logits)], dtype=torch.float64).log_softmax(0)

    def gradient(loss):
        return torch.autograd.grad(loss, logits_V, retain_graph=True)[0]

    learned = {
        estimator: gradient((logp_V.exp().detach() * kl_estimate(logp_V, reference_V, estimator)).sum())
        for estimator in ("k1", "k2", "k3")
    }
    assert_close(learned["k1"], torch.zeros_like(logits_V), atol=1e-9, rtol=0)
    assert_close(learned["k2"], gradient((logp_V.exp() * (logp_V - reference_V)).sum()), atol=1e-9, rtol=1e-6)
    assert_close(learned["k3"], gradient((reference_V.exp() * (reference_V - logp_V)).sum()), atol=1e-9, rtol=1e-6)


@given(st.lists(st.floats(-3, 3), min_size=2, max_size=6), st.lists(st.floats(-3, 3), min_size=6, max_size=6))
def test_k1_and_k3_have_the_kl_as_their_mean_and_k3_is_never_negative(logits, other_logits):
    """Over all tokens, each with its probability under the policy."""
    logp_V = torch.tensor(logits, dtype=torch.float64).log_softmax(0)
    reference_V = torch.tensor(other_logits[: len(logits)], dtype=torch.float64).log_softmax(0)
    kl = (logp_V.exp() * (logp_V - reference_V)).sum()
    for estimator in ("k1", "k3"):
        assert_close((logp_V.exp() * kl_estimate(logp_V, reference_V, estimator)).sum(), kl, atol=1e-9, rtol=1e-6)
    assert (kl_estimate(logp_V, reference_V, "k3") >= -1e-12).all()
