"""A value that is no number in a batch of NeMo RL's: found before the advantages, with its row, reward or token."""

import math

import checkout
import pytest
import torch

checkout.require()

from batches import LENGTH, rollout_batch  # noqa: E402

from gdpo_nemo.backends.nemo_rl.estimator import MethodEstimator  # noqa: E402
from gdpo_nemo.config import GdpoConfig  # noqa: E402
from gdpo_nemo.errors import NonFiniteError  # noqa: E402
from gdpo_nemo.method import Method  # noqa: E402

REWARDS = [[float(i % 2), float(i % 3) - 1] for i in range(8)]
ROWS = [{"row": {"id": f"q{i // 4}", "fields": {}, "gold": ""}} for i in range(8)]


def compute(rewards, masked=(), **log_probs):
    estimator = MethodEstimator(Method(GdpoConfig(task="tool_calling")), 4)
    batch, prompt_ids, mask, totals = rollout_batch(rewards, extra_env_info=ROWS)
    for row in masked:
        mask[row] = 0
    mask[:, 0] = 0  # the prompt
    advantages = estimator.compute_advantage(
        prompt_ids=prompt_ids, rewards=totals, mask=mask, repeated_batch=batch, **log_probs
    )
    return advantages, estimator.last_metrics


def planted(value, row=6, at=3):
    logp = torch.full((8, LENGTH), -1.0)
    logp[row, at] = value
    return logp


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_an_infinite_reward_names_its_row(value):
    rewards = [[*pair] for pair in REWARDS]
    rewards[5][1] = value
    with pytest.raises(NonFiniteError, match=rf"reward 'correct' of row 'q1', rollout 5 of the batch is {value:g}"):
        compute(rewards)
    assert compute(rewards, masked=[5])[0].isfinite().all()


@pytest.mark.parametrize("name", ["logprobs_policy", "logprobs_reference"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_log_probability_names_its_row_and_token(name, value):
    whose = "policy" if name == "logprobs_policy" else "reference"
    with pytest.raises(
        NonFiniteError, match=f"token 3 of row 'q1', rollout 6 of the batch under the {whose} is {value:g}"
    ):
        compute(REWARDS, **{name: planted(value)})


@pytest.mark.parametrize(("value", "at"), [(-math.inf, 3), (math.nan, 0)])
def test_tokens_that_the_loss_does_not_see_are_not_looked_at(value, at):
    """NeMo RL masks -inf itself; the first token belongs to the prompt."""
    expected = compute(REWARDS)[0]
    assert torch.equal(compute(REWARDS, logprobs_policy=planted(value, at=at))[0], expected)


def test_repeated_responses_are_measured_across_prompts():
    """The first response to each of the two prompts is 0 and 4."""
    assert compute(REWARDS)[1]["repeated/ngrams"] == 0
