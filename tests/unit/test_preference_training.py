"""The preference arm: one update against a plain reference, anchors, refusals, and runs that are stopped."""

import copy
import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from torch.testing import assert_close

from gdpo_nemo.backends.embedded.preference import gold_answers, update, with_anchors
from gdpo_nemo.backends.embedded.train import new_optimizer, train_step
from gdpo_nemo.config import GdpoConfig, PreferenceConfig
from gdpo_nemo.errors import ConfigError, InputError
from gdpo_nemo.method import Method
from gdpo_nemo.models.log_probs import log_probs
from gdpo_nemo.models.sampling import sample
from gdpo_nemo.preference import Pairs
from gdpo_nemo.prompts.tool_calling import build_prompt
from gdpo_nemo.types import Rollout

pytestmark = pytest.mark.usefixtures("one_thread")
PREFERENCE = "gdpo.method=preference"
GROUPS = torch.arange(4).repeat_interleave(4)


@pytest.fixture(scope="module")
def rows(configure):
    return [*itertools.islice(configure().embedded.data.rows("train", np.random.default_rng(1)), 4)]


@pytest.fixture(scope="module")
def samples(loaded, rows):
    model, tokenizer = loaded
    prompts = [build_prompt(row) for row in rows]
    return sample(model, tokenizer, prompts, rollouts_per_prompt=4, max_new_tokens=20, temperature=1.0, seed=0)


@pytest.fixture(scope="module")
def reference(loaded):
    """The warmed-up model, a little off."""
    model = copy.deepcopy(loaded[0]).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    return model


def pairs(*chosen):
    winner, loser = torch.tensor(chosen, dtype=torch.int64).reshape(-1, 2).T
    return Pairs(winner, loser, torch.ones(len(winner), dtype=torch.float64), 4, 0, 0, 0, 4 - len(winner))


def flat(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).clone()


def step(model, reference, samples, chosen, config, lr=0.3):
    learner = copy.deepcopy(model)
    optimizer = torch.optim.SGD(learner.parameters(), lr=lr)
    metrics = update(learner, reference, optimizer, samples, pairs(*chosen), GROUPS, config)
    return flat(learner) - flat(model), metrics


def whole_logp(model, samples, b, temperature, floor):
    """Log-probability of one response: the sequence alone, without padding, token by token."""
    whole = samples.ids_B_T[b][samples.attention_B_T[b]]
    size = int(samples.response_B_R[b].sum())
    logp_N_V = torch.log_softmax(model(whole[None]).logits[0, -size - 1 : -1] / temperature, dim=-1)
    return sum(logp_N_V[n, whole[n - size]].clamp(min=floor) for n in range(size))


def plain_step(model, reference, samples, chosen, config, lr=0.3):
    """What ``step`` must give: eq. 7 of arXiv 2305.18290, one pair at a time."""
    spec, wanted = config.embedded.train, config.gdpo.preference
    learner, losses, margins = copy.deepcopy(model), [], []
    size = spec.minibatch_prompts or 4
    for first in range(0, 4, size):
        some = [(w, x) for w, x in chosen if first <= w // 4 < first + size]
        if not some:
            continue
        terms = []
        for w, x in some:
            policy, start = (
                [whole_logp(m, samples, b, spec.temperature, wanted.min_logp) for b in (w, x)]
                for m in (learner, reference)
            )
            margin = wanted.beta * ((policy[0] - start[0].detach()) - (policy[1] - start[1].detach()))
            terms.append(torch.log(1 + torch.exp(-margin)))
            margins.append(margin.item())
        losses += [term.item() for term in terms]
        gradients = torch.autograd.grad(sum(terms) / len(terms), list(learner.parameters()))
        norm = torch.cat([gradient.flatten() for gradient in gradients]).norm()
        with torch.no_grad():
            for parameter, gradient in zip(learner.parameters(), gradients, strict=True):
                parameter -= lr * min(1.0, spec.grad_clip / norm.item()) * gradient
    return flat(learner) - flat(model), losses, margins


ALL = [(0, 3), (6, 5), (8, 9), (15, 12)]


@pytest.mark.parametrize(
    ("chosen", "overrides"),
    [
        (ALL, ()),
        (ALL, ("gdpo.preference.beta=1.5", "embedded.train.temperature=0.7")),
        (ALL, ("gdpo.preference.min_logp=-1", "embedded.train.microbatch_rollouts=3")),
        (ALL, ("embedded.train.minibatch_prompts=2", "embedded.train.microbatch_rollouts=2")),
        (ALL[1:2], ("embedded.train.minibatch_prompts=1", "embedded.train.grad_clip=0.01")),
    ],
    ids=str,
)
def test_an_update_is_the_gradient_of_the_equation(chosen, overrides, loaded, reference, samples, configure):
    config = configure(PREFERENCE, "embedded.train.grad_clip=1000", *overrides)
    made, metrics = step(loaded[0], reference, samples, chosen, config)
    expected, losses, margins = plain_step(loaded[0], reference, samples, chosen, config)
    assert expected.norm() > 1e-3
    assert_close(made, expected, rtol=1e-3, atol=max(3e-7, 1e-4 * expected.abs().max().item()))
    assert metrics["loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-3)
    assert metrics["preference/margin_mean"] == pytest.approx(sum(margins) / len(margins), rel=1e-3, abs=1e-5)
    assert metrics["preference/accuracy"] == sum(margin > 0 for margin in margins) / len(margins)


def test_without_pairs_nothing_moves(loaded, reference, samples, configure):
    learner = copy.deepcopy(loaded[0])
    optimizer = new_optimizer(learner, 1e-2, 0.5)
    metrics = update(learner, reference, optimizer, samples, pairs(), GROUPS, configure(PREFERENCE))
    assert torch.equal(flat(learner), flat(loaded[0])) and not optimizer.state
    assert metrics["loss"] == metrics["grad_norm"] == 0 and math.isnan(metrics["preference/accuracy"])


def test_learning_pairs_raises_the_winner_over_the_loser(loaded, samples, configure):
    learner, config = copy.deepcopy(loaded[0]), configure(PREFERENCE)
    optimizer = new_optimizer(learner, 2e-3, 0.0)
    rows = [update(learner, loaded[0], optimizer, samples, pairs(*ALL), GROUPS, config) for _ in range(10)]
    assert rows[0]["preference/margin_mean"] == 0 and rows[0]["loss"] == pytest.approx(math.log(2))
    assert rows[-1]["preference/accuracy"] == 1 and rows[-1]["loss"] < 0.5


def test_an_anchor_has_the_log_probability_of_its_text(loaded, samples, rows):
    model, tokenizer = loaded
    texts = [row.gold for row in rows]
    everything, anchors = with_anchors(samples, tokenizer, rows, texts)
    assert [rollout.response for rollout in everything.rollouts] == [r.response for r in samples.rollouts] + texts
    assert {(anchor.index, anchor.truncated) for anchor in anchors} == {(4, False)}
    with torch.no_grad():
        before = log_probs(model, samples, torch.arange(16), 1.0)
        after = log_probs(model, everything, torch.arange(20), 1.0)
        for p, row in enumerate(rows):
            alone = tokenizer.apply_chat_template(
                [{"role": m.role, "content": m.content} for m in build_prompt(row).messages],
                add_generation_prompt=True, tokenize=False,
            )  # fmt: skip
            prompt = tokenizer(alone, add_special_tokens=False)["input_ids"]
            said = [*tokenizer(row.gold, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
            logits = model(torch.tensor([prompt + said])).logits[0, len(prompt) - 1 : -1]
            expected = torch.log_softmax(logits, -1)[range(len(said)), said].sum()
            assert_close(after[16 + p].sum(), expected, rtol=1e-4, atol=1e-4)
            assert anchors[p] == Rollout(row.id, 4, row.gold, len(said) - 1)
    assert_close(after[:16, : before.shape[1]], before, rtol=1e-4, atol=1e-4)


def test_what_anchors_say_is_drawn_by_seed_and_step(rows, configure):
    said = {
        (seed, step): tuple(gold_answers(configure(PREFERENCE, f"seed={seed}"), rows * 10, step))
        for seed in (0, 1)
        for step in (1, 2)
    }
    assert len(set(said.values())) == 4
    assert tuple(gold_answers(configure(PREFERENCE, "seed=1"), rows * 10, 2)) == said[1, 2]


# ---- whole steps


def test_a_step_logs_the_fate_of_its_groups_and_the_rewards_of_what_was_sampled(loaded, reference, configure):
    plain, anchored = (
        take_step(loaded, reference, configure(PREFERENCE, f"gdpo.preference.anchors={anchors}"))
        for anchors in ("none", "gold")
    )
    for metrics in (plain, anchored):
        assert set(metrics) == METRICS
        fates = [metrics[f"preference/frac_{fate}"] for fate in FATES]
        assert sum(fates) == pytest.approx(1) and fates[0] == metrics["groups/alive"] / 4 > 0
    same = [key for key in METRICS if key.startswith(("reward/", "length/", "entropy", "repeated/"))]
    assert [plain[key] for key in same] == [anchored[key] for key in same]
    assert anchored["loss"] != plain["loss"]


def test_an_anchor_is_never_pushed_down(loaded, reference, configure):
    """With negative weights the reference answer is the worst of its group, and the pairs are those without it."""
    worst = "gdpo.rewards={format: {weight: -1}, correct: {weight: -1}}"
    plain, anchored = (
        take_step(loaded, reference, configure(PREFERENCE, worst, f"gdpo.preference.anchors={anchors}"))
        for anchors in ("none", "gold")
    )
    same = ("loss", "grad_norm", "preference/margin_mean", "preference/frac_used")
    assert [anchored[key] for key in same] == pytest.approx([plain[key] for key in same], rel=1e-4)
    assert plain["preference/frac_used"] > 0


def test_a_group_in_which_all_are_vetoed_is_skipped(loaded, reference, configure):
    everything = take_step(loaded, reference, configure(PREFERENCE, "gdpo.veto={reward: correct, below: 9}"))
    assert everything["preference/frac_vetoed"] == 1 and everything["grad_norm"] == 0
    some = take_step(loaded, reference, configure(PREFERENCE, "gdpo.veto={reward: format, below: 1}"))
    assert 0 < some["preference/frac_vetoed"] < 1


def test_a_reward_counts_in_the_ranking_where_its_condition_holds(loaded, reference, configure):
    correct = ("gdpo.rewards.correct.weight=1", "gdpo.rewards.format.weight=0")
    plain = take_step(loaded, reference, configure(PREFERENCE, *correct))
    never = "gdpo.rewards.correct.condition={on: format, at_least: 9}"
    gated = take_step(loaded, reference, configure(PREFERENCE, *correct, never))
    assert plain["preference/frac_used"] > 0
    assert gated["preference/frac_used"] == 0 and gated["preference/frac_close"] == 1  # nothing else ranks them


def test_the_smallest_lead_and_the_temperature_that_it_is_measured_at_decide_which_groups_have_a_pair(
    loaded, reference, configure
):
    def close_and_gap(*options):
        metrics = take_step(loaded, reference, configure(PREFERENCE, *options))
        return metrics["preference/frac_close"], metrics["preference/gap_mean"]

    (close, gap), (all_close, _) = close_and_gap(), close_and_gap("gdpo.preference.min_gap=1")
    assert all_close > close and gap > 0
    assert close_and_gap("gdpo.preference.temperature=50")[1] < gap / 10  # the lead is at most tanh(1 / 100)


def take_step(loaded, reference, config):
    model, tokenizer = copy.deepcopy(loaded[0]), loaded[1]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return train_step(model, tokenizer, reference, optimizer, config, Method(config.gdpo), 1)[0]


FATES = ("used", "ungraded", "vetoed", "disagreeing", "close")
METRICS = {
    *(f"reward/{name}/{number}" for name in ("format", "correct") for number in ("mean", "std")),
    *(f"reward/{name}/{number}" for name in ("format", "correct") for number in ("frac_dead_groups", "frac_missing")),
    *("groups/alive", "groups/total", "length/mean", "length/max", "frac_truncated", "entropy"),
    *("repeated/ngrams", "repeated/compression", "loss", "grad_norm"),
    *(f"preference/frac_{fate}" for fate in FATES),
    *("preference/gap_mean", "preference/margin_mean", "preference/accuracy"),
}


# ---- what is refused


def method(**block):
    return Method(GdpoConfig(task="tool_calling", **block))


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"batch_norm": False}, "gdpo.batch_norm=False means nothing under method preference"),
        ({"scale_by_std": False}, "gdpo.scale_by_std=False means nothing under method preference"),
        ({"rescale_by_range": True}, "gdpo.rescale_by_range=True means nothing"),
        ({"kl_in_reward": 0.1}, "gdpo.kl_in_reward=0.1 means nothing"),
        ({"eps": 0.1}, "gdpo.eps=0.1 means nothing"),
    ],
)
def test_options_of_the_other_methods_are_refused(block, message):
    with pytest.raises(ConfigError, match=message):
        method(method="preference", **block)


@pytest.mark.parametrize("setting", ["clip_low=0.1", "kl_coef=0.1", "aggregation=sequence_mean"])
def test_settings_of_the_clipped_loss_are_refused(setting, configure):
    with pytest.raises(ConfigError, match=r"  Value error, embedded\.train\.loss belongs to methods gdpo"):
        configure(PREFERENCE, f"embedded.train.loss.{setting}")


@pytest.mark.parametrize("name", ["gdpo", "grpo"])
def test_the_other_methods_refuse_its_options(name):
    with pytest.raises(ConfigError, match=r"gdpo\.preference=.*means nothing under method " + name):
        method(method=name, preference={"beta": 0.2})


def test_rewards_of_which_none_counts_are_refused_before_a_run():
    none = {name: {"weight": 0} for name in ("format", "correct")}
    with pytest.raises(ConfigError, match=r"gdpo\.rewards have weight 0, all of them"):
        method(method="preference", rewards=none)
    assert method(method="preference", rewards=none | {"correct": {"weight": -1}})


def test_anchors_need_reference_answers():
    columns = {"gold": "answer"}
    for data in (own_data(columns), None):
        assert method(method="preference", preference={"anchors": "gold"}, data=data)
    assert method(method="preference", data=own_data({}))
    with pytest.raises(ConfigError, match=r"anchors=gold needs reference answers: .*gdpo\.data\.columns\.gold"):
        method(method="preference", preference={"anchors": "gold"}, data=own_data({}))


def own_data(columns):
    tables = {"train": {"path": "train.jsonl"}, "heldout": {"path": "heldout.jsonl"}}
    return {**tables, "columns": columns, "prompt": {"user": "{question}"}}


def test_it_has_no_advantages():
    with pytest.raises(InputError, match="no advantages"):
        method(method="preference").advantages(
            torch.zeros(4, 2, dtype=torch.float64), torch.zeros(4, dtype=torch.int64)
        )


# ---- its page


PAGE = (Path(__file__).resolve().parents[2] / "docs" / "preference.md").read_text("utf-8")


def test_the_page_shows_the_defaults():
    [block] = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)
    shown = yaml.safe_load(block)["gdpo"]
    assert shown == {"method": "preference", "preference": PreferenceConfig().model_dump()}


def test_the_example_of_the_page_prints_what_it_says(capsys):
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    exec(compile(code, "preference.md", "exec"), {})
    printed = [float(line.split()[1]) for line in capsys.readouterr().out.splitlines()]
    said = [float(number) for number in re.findall(r"\b[234] (0\.\d+)", code)]
    assert len(said) == 3 and printed == pytest.approx(said, abs=1e-3)
