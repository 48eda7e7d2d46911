"""Sampling against two kinds of reference: Markov chains with known answers, and one model call per response."""

from itertools import islice

import numpy as np
import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from gdpo_nemo.data.tool_world import ToolWorld
from gdpo_nemo.errors import GdpoError
from gdpo_nemo.models.sampling import encode, sample
from gdpo_nemo.models.tiny import build_tokenizer
from gdpo_nemo.prompts.tool_calling import build_prompt

WORLD = ToolWorld(num_cities=4, num_relations=2, num_tools=2, max_hops=2, small_talk_share=0.2)
TOKENIZER = build_tokenizer(WORLD)
ROWS = list(islice(WORLD.rows("train", np.random.default_rng(0)), 60))
TRIPS = [build_prompt(row) for row in ROWS if row.fields["path"]]
TALKS = [build_prompt(row) for row in ROWS if not row.fields["path"]]
TRIP, TALK = (TOKENIZER.convert_ids_to_tokens(encode(TOKENIZER, [prompts[0]])[0][-1]) for prompts in (TRIPS, TALKS))
END = TOKENIZER.eos_token
THOUGHT = {TRIP: "<think> ", "<think> ": "twin", "twin": " Oslo", " Oslo": " </think>", " </think>": END}
REPLY = {
    TALK: "<response> ",
    "<response> ": "You are welcome.",
    "You are welcome.": " </response>",
    " </response>": END,
}


def draw(model, prompts, *, each=1, limit=8, temperature=1.0, seed=0):
    return sample(
        model, TOKENIZER, prompts, rollouts_per_prompt=each, max_new_tokens=limit, temperature=temperature, seed=seed
    )


def markov(steps):
    """A real model whose next token depends on the last one: token -> next token, or -> {token: probability}."""
    size = len(TOKENIZER)
    width = size + size % 2
    logits_V_V = torch.full((size, size), -40.0)
    for token, following in steps.items():
        for after, probability in (following if isinstance(following, dict) else {following: 1.0}).items():
            logits_V_V[tuple(TOKENIZER.convert_tokens_to_ids([token, after]))] = np.log(probability)
    shape = Qwen2Config(
        vocab_size=size, hidden_size=width, intermediate_size=4, num_hidden_layers=1, num_attention_heads=1,
        num_key_value_heads=1, tie_word_embeddings=False,
    )  # fmt: skip
    model = Qwen2ForCausalLM(shape).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name:
                parameter.zero_()
        model.model.embed_tokens.weight[:, :size] = torch.eye(size)
        # The layers add nothing, and the final norm brings a unit vector to length sqrt(width).
        model.lm_head.weight[:, :size] = logits_V_V.T / width**0.5
    return model


# ---- ends, limits, order


def test_a_response_is_the_text_up_to_its_end_token():
    (rollout,) = draw(markov(THOUGHT), TRIPS[:1], limit=20).rollouts
    assert (rollout.response, rollout.length_tokens, rollout.truncated) == ("<think> twin Oslo </think>", 4, False)
    assert (rollout.row_id, rollout.index) == (TRIPS[0].row_id, 0)


@pytest.mark.parametrize(
    ("limit", "response", "length", "truncated"),
    [
        (1, "<think> ", 1, True),
        (3, "<think> twin Oslo", 3, True),
        (4, "<think> twin Oslo </think>", 4, True),
        (5, "<think> twin Oslo </think>", 4, False),  # the end token is the last that fits
        (6, "<think> twin Oslo </think>", 4, False),
    ],
)
def test_the_limit_counts_the_end_token_and_the_length_does_not(limit, response, length, truncated):
    samples = draw(markov(THOUGHT), TRIPS[:1], each=2, limit=limit)
    for rollout in samples.rollouts:
        assert (rollout.response, rollout.length_tokens, rollout.truncated) == (response, length, truncated)
    assert samples.response_B_R.tolist() == [[True] * min(limit, 5)] * 2
    assert samples.ids_B_T[0, -1].item() == (
        TOKENIZER.convert_tokens_to_ids(END) if limit >= 5 else TOKENIZER(response)["input_ids"][-1]
    )


def test_all_may_end_at_once_and_at_the_first_token():
    samples = draw(markov({TRIP: END, TALK: END}), [TRIPS[0], TALKS[0]], each=3)
    assert [(r.response, r.length_tokens, r.truncated) for r in samples.rollouts] == [("", 0, False)] * 6
    assert samples.response_B_R.tolist() == [[True]] * 6
    assert (samples.ids_B_T[:, -1] == TOKENIZER.eos_token_id).all()


@pytest.mark.parametrize(("num_trips", "num_talks"), [(1, 6), (2, 2), (6, 1)])
def test_rollouts_that_end_early_keep_their_place_and_their_text(num_trips, num_talks):
    """Whether or not the batch was shrunk in between; after its end token a chain would say more."""
    endless = {**THOUGHT, " Oslo": "twin", **REPLY, END: "<response> "}
    prompts = [*TALKS[:num_talks], *TRIPS[:num_trips]]
    samples = draw(markov(endless), prompts, each=2, limit=12)
    assert [(r.row_id, r.index) for r in samples.rollouts] == [(p.row_id, i) for p in prompts for i in (0, 1)]
    talks, trips = samples.rollouts[: 2 * num_talks], samples.rollouts[2 * num_talks :]
    assert {(r.response, r.length_tokens, r.truncated) for r in talks} == {
        ("<response> You are welcome. </response>", 3, False)
    }
    assert {(r.response, r.length_tokens, r.truncated) for r in trips} == {
        ("<think> " + "twin Oslo" * 5 + "twin", 12, True)
    }
    assert samples.response_B_R.sum(1).tolist() == [4] * (2 * num_talks) + [12] * (2 * num_trips)
    after_end = samples.ids_B_T[: 2 * num_talks, -12:][~samples.response_B_R[: 2 * num_talks]]
    assert len(after_end) == 2 * num_talks * 8 and (after_end == TOKENIZER.pad_token_id).all()


def test_prompts_are_padded_on_the_left_and_responses_on_the_right():
    prompts = [TRIPS[0], TALKS[0]]
    samples = draw(markov({**THOUGHT, **REPLY}), prompts, each=2, limit=20)
    num_response = samples.response_B_R.shape[1]
    assert num_response == 5, "as long as the longest response, not as the limit"
    ids, attended = samples.ids_B_T.tolist(), samples.attention_B_T.tolist()
    for b, rollout in enumerate(samples.rollouts):
        prompt = encode(TOKENIZER, [prompts[b // 2]])[0]
        response = [*TOKENIZER(rollout.response)["input_ids"], TOKENIZER.eos_token_id]
        assert [i for i, there in zip(ids[b], attended[b], strict=True) if there] == prompt + response
        left = len(ids[b]) - num_response - len(prompt)
        assert attended[b] == [i >= left and i < left + len(prompt + response) for i in range(len(ids[b]))]
    assert samples.attention_B_T[:, -num_response:].equal(samples.response_B_R)


# ---- against a model without cache and without padding


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["tiny", "Llama", "gpt2", "Qwen3"])
def test_greedy_is_what_hugging_face_generates_for_each_prompt_alone(name, attention, warm, foreign):
    """Random models with large weights: there, each token depends on all tokens before it."""
    model = warm[0] if name == "tiny" else foreign(name, len(TOKENIZER))
    model.set_attn_implementation(attention)
    prompts = [TRIPS[0], TALKS[0], *TRIPS[1:8], *TALKS[1:4]]
    samples = draw(model, prompts, temperature=0, limit=12)
    expected = [
        model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=12)[0, len(ids) :].tolist()
        for ids in encode(TOKENIZER, prompts)
    ]
    responses_B_R = samples.ids_B_T[:, -samples.response_B_R.shape[1] :]
    made = [ids[mask].tolist() for ids, mask in zip(responses_B_R, samples.response_B_R, strict=True)]
    assert made == expected
    assert len(set(map(tuple, expected))) > 5, "the prompts have different responses"


def test_a_window_of_attention_that_the_prompt_does_not_fit_is_kept_or_refused(foreign):
    """Never sampled as if the model saw the whole prompt."""
    model = foreign("Mistral", len(TOKENIZER), sliding_window=6)
    try:
        samples = draw(model, TRIPS[:1], temperature=0, limit=10)
    except GdpoError:
        return
    ids = encode(TOKENIZER, TRIPS[:1])[0]
    expected = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=10)[0, len(ids) :]
    assert samples.ids_B_T[0, len(ids) :].tolist() == expected.tolist()


def log_softmax_alone(model, ids, temperature=1.0):
    """Log-probabilities [T, V] after each token of one sequence, by one plain call."""
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor([ids])).logits[0].double() / temperature, dim=-1)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.5])
def test_samples_are_drawn_from_the_distribution_of_the_model(temperature, warm):
    """sum_t (log p_t + entropy_t) has mean 0 and a known variance when each token is drawn from p_t."""
    model, _ = warm
    samples = draw(model, [*TRIPS[:5], *TALKS[:3]], each=8, limit=20, temperature=temperature)
    assert len({rollout.length_tokens for rollout in samples.rollouts}) > 3
    surplus = variance = 0.0
    for ids, attended, is_response in zip(samples.ids_B_T, samples.attention_B_T, samples.response_B_R, strict=True):
        whole, num_new = ids[attended].tolist(), int(is_response.sum())
        logp_N_V = log_softmax_alone(model, whole, temperature)[-num_new - 1 : -1]
        logp_N = logp_N_V.gather(1, torch.tensor(whole[-num_new:])[:, None])[:, 0]
        mean_N = (logp_N_V.exp() * logp_N_V).sum(1)
        surplus += (logp_N - mean_N).sum().item()
        variance += ((logp_N_V.exp() * logp_N_V.square()).sum(1) - mean_N.square()).sum().item()
    assert variance > 50, "there is something to draw"
    assert abs(surplus) < 3 * variance**0.5


@pytest.mark.parametrize(("temperature", "power"), [(1.0, 1), (0.5, 2)])
def test_frequencies_are_the_probabilities_at_that_temperature(temperature, power):
    first, second = {"twin": 0.6, "rival": 0.3, END: 0.1}, {" Oslo": 0.8, END: 0.2}
    model = markov({TRIP: first, "twin": second, "rival": END, " Oslo": END})
    count = 4000
    rollouts = draw(model, TRIPS[:1], each=count, limit=4, temperature=temperature).rollouts
    a, b = (
        {token: p**power / sum(q**power for q in step.values()) for token, p in step.items()}
        for step in (first, second)
    )
    expected = {
        "twin Oslo": a["twin"] * b[" Oslo"], "twin": a["twin"] * b[END], "rival": a["rival"], "": a[END]
    }  # fmt: skip
    assert {rollout.response for rollout in rollouts} == set(expected)
    chi_square = sum(
        (sum(rollout.response == text for rollout in rollouts) - count * p) ** 2 / (count * p)
        for text, p in expected.items()
    )
    assert chi_square < 16.3, "0.1 % at 3 degrees of freedom"


# ---- randomness and side effects


def test_a_sample_follows_from_its_seed_alone(warm):
    model, _ = warm
    torch.manual_seed(1)
    first = draw(model, TRIPS[:4], each=4, seed=5)
    unchanged = torch.rand(2)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(2), unchanged), "the global generator was used"
    again = draw(model, TRIPS[:4], each=4, seed=5)
    assert again.rollouts == first.rollouts and torch.equal(again.ids_B_T, first.ids_B_T)
    assert draw(model, TRIPS[:4], each=4, seed=6).rollouts != first.rollouts
    greedy = [draw(model, TRIPS[:4], temperature=0, seed=seed).rollouts for seed in (5, 6)]
    assert greedy[0] == greedy[1]


def test_rollouts_of_a_group_differ(warm):
    model, _ = warm
    rollouts = draw(model, TRIPS[:3], each=8, limit=20).rollouts
    for p in range(3):
        assert len({rollout.response for rollout in rollouts[8 * p : 8 * p + 8]}) > 3


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_of_the_model_is_restored_and_no_gradient_is_kept(training, warm):
    model, _ = warm
    samples = draw(model.train(training), TRIPS[:1])
    assert model.training == training
    assert not samples.ids_B_T.requires_grad and all(parameter.grad is None for parameter in model.parameters())


def test_dropout_is_off_while_sampling(warm):
    model, _ = warm
    expected = draw(model, TRIPS[:8], temperature=0).rollouts
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 1.0
    assert draw(model.train(), TRIPS[:8], temperature=0).rollouts == expected
