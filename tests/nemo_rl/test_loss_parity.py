"""NeMo RL's clipped loss and ours are the same number, and the same gradient, on the same batch."""

import checkout
import pytest
import torch

checkout.require()

from nemo_rl.algorithms.loss import ClippedPGLossConfig, ClippedPGLossFn  # noqa: E402
from nemo_rl.distributed.batched_data_dict import BatchedDataDict  # noqa: E402

from gdpo_nemo.losses import clipped_surrogate, kl_estimate, token_weights  # noqa: E402

SHAPE = (6, 9)


@pytest.fixture
def batch():
    """Log-probs [B, T], old ones, those of a reference, response mask, sample mask, advantages [B]."""
    generator = torch.Generator().manual_seed(0)

    def near(scale):
        return scale * torch.randn(SHAPE, generator=generator)

    logp = -torch.rand(SHAPE, generator=generator) * 3
    lengths = torch.randint(2, SHAPE[1] + 1, (SHAPE[0],), generator=generator)
    response = torch.arange(SHAPE[1]) < lengths[:, None]
    samples = torch.tensor([1.0, 1, 1, 0, 1, 1])
    return logp, logp + near(0.3), logp + near(0.5), response, samples, torch.randn(SHAPE[0], generator=generator)


def theirs(batch, aggregation, kl_coef, estimator):
    logp, old, reference, response, samples, advantages = batch
    logp = logp.clone().requires_grad_()
    first = torch.nn.functional.pad  # their tensors hold the first token too, which nothing predicts
    data = BatchedDataDict(
        {
            "token_mask": first(response.float(), (1, 0)),
            "sample_mask": samples,
            "advantages": advantages[:, None].expand(-1, SHAPE[1] + 1),
            "prev_logprobs": first(old, (1, 0)),
            "generation_logprobs": first(old, (1, 0)),
            "reference_policy_logprobs": first(reference, (1, 0)),
        }
    )
    config = ClippedPGLossConfig(
        token_level_loss=aggregation == "token_mean",
        ratio_clip_min=0.2,
        ratio_clip_max=0.28,
        reference_policy_kl_penalty=kl_coef,
        reference_policy_kl_type=estimator,
    )
    valid_toks = (response * samples[:, None]).sum()
    loss, _ = ClippedPGLossFn(config)(
        next_token_logprobs=logp, data=data, global_valid_seqs=samples.sum(), global_valid_toks=valid_toks
    )
    loss.backward()
    return loss.detach(), logp.grad


def ours(batch, aggregation, kl_coef, estimator):
    logp, old, reference, response, samples, advantages = batch
    logp = logp.clone().requires_grad_()
    weights = token_weights(response & samples.bool()[:, None], aggregation)
    policy, _ = clipped_surrogate(logp, old, advantages, clip_low=0.2, clip_high=0.28)
    loss = ((policy + kl_coef * kl_estimate(logp, reference, estimator)) * weights).sum()
    loss.backward()
    return loss.detach(), logp.grad


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean"])
@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_loss_is_the_same(batch, aggregation, estimator):
    torch.testing.assert_close(
        theirs(batch, aggregation, 0.1, estimator)[0], ours(batch, aggregation, 0.1, estimator)[0]
    )


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean"])
def test_so_is_its_gradient_without_kl(batch, aggregation):
    """With KL, NeMo RL adds the score-function term that follows from sampling, and we do not."""
    torch.testing.assert_close(theirs(batch, aggregation, 0.0, "k3")[1], ours(batch, aggregation, 0.0, "k3")[1])
    assert (theirs(batch, aggregation, 0.1, "k3")[1] - ours(batch, aggregation, 0.1, "k3")[1]).abs().max() > 1e-4
