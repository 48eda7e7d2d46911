"""TP=2 and PP=2 over gloo give the log-probabilities and the GDPO gradients of one process, element by element."""

import pytest
import rollout_batch
import torch
from shards import collect_stages, differences, gather_ranks

pytestmark = pytest.mark.megatron
PUT_TOGETHER = {"TP=2": gather_ranks, "PP=2": collect_stages}
LAYOUTS = sorted(PUT_TOGETHER)


@pytest.fixture
def single(ranks):
    """What one process computed: ``single("untied")``."""
    (alone,) = ranks("single")
    return alone.__getitem__


@pytest.fixture
def gradient_faults(ranks, single):
    """The parameters whose gradient is not that of one process."""

    def call(layout, step, model):
        found = PUT_TOGETHER[layout]([rank[step]["gradients"] for rank in ranks(layout)])
        return differences(single(model)["gradients"], found)

    return call


@pytest.mark.parametrize("model", ["untied", "tied"])
def test_the_batch_asks_for_all_parts_of_the_loss(single, model):
    """Otherwise equal gradients would say little: both signs, active and inactive clips, none at its edge."""
    batch, alone = rollout_batch.make(), single(model)
    assert batch.advantages_B.min() < -0.3 and batch.advantages_B.max() > 0.3
    inside = batch.response_B_T & (batch.advantages_B != 0)[:, None]
    ratio = (alone["logp"] - alone["old_logp"]).exp()[inside]
    edges = torch.tensor([1 - rollout_batch.CLIP_LOW, 1 + rollout_batch.CLIP_HIGH])
    assert (ratio[:, None] - edges).abs().min() > 1e-4
    assert 0.05 < ((ratio < edges[0]) | (ratio > edges[1])).float().mean() < 0.95
    assert all(gradient.abs().max() > 1e-4 for gradient in alone["gradients"].values())


@pytest.mark.parametrize("model", ["untied", "tied"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_log_probabilities_are_those_of_one_process(ranks, single, layout, model):
    alone = single(model)
    with_logits = [rank[model] for rank in ranks(layout) if "logp" in rank[model]]
    assert len(with_logits) == (2 if layout == "TP=2" else 1)
    for found in with_logits:
        for name in ("old_logp", "logp"):
            torch.testing.assert_close(found[name], alone[name], rtol=1e-5, atol=1e-5)
        assert found["loss"] == pytest.approx(alone["loss"], rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("model", ["untied", "tied"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_are_those_of_one_process(gradient_faults, layout, model):
    faults = gradient_faults(layout, model, model)
    assert not faults, "\n" + "\n".join(faults)


@pytest.mark.parametrize("step", ["shifted advantages", "mean of means"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_wrong_loss_shows_in_every_gradient(gradient_faults, single, layout, step):
    assert len(gradient_faults(layout, step, "untied")) >= len(single("untied")["gradients"])


@pytest.mark.parametrize(
    ("layout", "parts"),
    [("TP=2", ("q_layernorm", "k_layernorm")), ("PP=2", ("embedding.word_embeddings",))],
)
def test_a_sum_over_ranks_left_out_shows_in_the_parameters_it_is_for(gradient_faults, single, layout, parts):
    wrong = {fault.split(":")[0] for fault in gradient_faults(layout, "not finalized", "tied")}
    assert wrong == {name for name in single("tied")["gradients"] if any(part in name for part in parts)}
