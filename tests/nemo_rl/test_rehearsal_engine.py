"""The CPU engine of a rehearsal: its log-probs are those of the policy, and its stops are NeMo RL's."""

import checkout
import pytest
import torch

checkout.require()

from nemo_rl.distributed.batched_data_dict import BatchedDataDict  # noqa: E402
from nemo_rl.models.generation.interfaces import verify_right_padding  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM  # noqa: E402

from gdpo_nemo.backends.nemo_rl.rehearsal.generation import CpuSampler  # noqa: E402
from gdpo_nemo.backends.nemo_rl.rehearsal.stage import small_architecture  # noqa: E402

PAD, END, VOCABULARY = 0, 1, 12


@pytest.fixture(scope="module", params=["qwen2", "llama", "qwen3"])
def model_folder(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    config = AutoConfig.for_model(**small_architecture(request.param), vocab_size=VOCABULARY, pad_token_id=PAD)
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


def sampler(folder, max_new_tokens=9, max_model_len=16):
    return CpuSampler(
        {
            "model_name": str(folder),
            "temperature": 0.7,
            "max_new_tokens": max_new_tokens,
            "stop_token_ids": [END],
            "_pad_token_id": PAD,
            "vllm_cfg": {"max_model_len": max_model_len},
        }
    )


def prompts(lengths):
    ids = torch.randint(2, VOCABULARY, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(1))
    lengths = torch.tensor(lengths)
    ids *= torch.arange(ids.shape[1]) < lengths[:, None]
    return BatchedDataDict({"input_ids": ids, "input_lengths": lengths})


@pytest.mark.parametrize("greedy", [False, True])
def test_log_probs_are_those_of_the_model_on_the_whole_sequence(model_folder, greedy):
    engine = sampler(model_folder)
    torch.manual_seed(2)
    data = prompts([3, 7, 5, 7])
    made = engine.generate(data, greedy)
    verify_right_padding(made, pad_value=PAD)
    for row, (before, after) in enumerate(zip(data["input_lengths"], made["unpadded_sequence_lengths"], strict=True)):
        ids = made["output_ids"][row : row + 1, :after]
        assert ids[0, :before].equal(data["input_ids"][row, :before])
        logits = engine.model(input_ids=ids).logits[0, :-1].float() / (1.0 if greedy else 0.7)
        expected = torch.log_softmax(logits, -1).gather(-1, ids[0, 1:, None])[:, 0]
        torch.testing.assert_close(made["logprobs"][row, before:after], expected[before - 1 :], rtol=1e-4, atol=1e-5)
        assert (made["logprobs"][row, :before] == 0).all() and (made["logprobs"][row, after:] == 0).all()


def test_a_response_ends_at_the_end_token_the_limit_or_the_model_s_length(model_folder):
    torch.manual_seed(0)
    data = prompts([3, 14, 16] * 20)
    made = sampler(model_folder).generate(data, False)
    ended = 0
    for row, (length, new) in enumerate(zip(data["input_lengths"], made["generation_lengths"], strict=True)):
        response = made["output_ids"][row, length : length + new].tolist()
        assert new <= min(9, 16 - length)
        assert END not in response[:-1]
        assert made["truncated"][row].item() == (END not in response[-1:])
        assert END in response[-1:] or new == min(9, 16 - length)
        ended += END in response[-1:]
    assert 0 < ended < 60
