"""NeMo RL's own rollouts with programs to grade: when each is graded, by how many at once, and what the log says."""

import asyncio
import json

import checkout
import pytest
import torch

found = checkout.require()

import ray  # noqa: E402
from nemo_rl.algorithms import grpo  # noqa: E402
from nemo_rl.distributed.batched_data_dict import BatchedDataDict  # noqa: E402

from gdpo_nemo.backends.nemo_rl import upstream  # noqa: E402
from gdpo_nemo.backends.nemo_rl.environment import RewardActor  # noqa: E402
from gdpo_nemo.backends.nemo_rl.estimator import MethodEstimator  # noqa: E402
from gdpo_nemo.config import GdpoConfig  # noqa: E402
from gdpo_nemo.method import Method  # noqa: E402

LIMITS = {"cpu_s": 0.5, "budget_s": 1.0}
GDPO = {"task": "code_reasoning", "task_options": {"limits": LIMITS, "num_workers": 2}}
RIGHT, WRONG, ENDLESS = "print(2 * int(input()))", "print(input())", "while True: pass"
GOLD = json.dumps({"inputs": ["2\n", "-7\n"], "outputs": ["4\n", "-14\n"]})
PATIENCE_S = 120
MARKING = """

def mark(row, rollout):
    open(os.path.join({folder!r}, row.id), "w").close()
    return 1.0
"""


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory):
    """One token for each byte, so that a decoded response is the text that was meant."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "<pad>", "<end>"]
    tokenizer = Tokenizer(models.BPE(vocab={letter: index for index, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    folder = tmp_path_factory.mktemp("bytes")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>").save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def tokenizer(tokenizer_folder):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tokenizer_folder)


@pytest.fixture(scope="module")
def cluster():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", found.environment()["PYTHONPATH"])
        ray.init(address="local", num_cpus=2, include_dashboard=False)
        yield
        ray.shutdown()


@pytest.fixture
def environment(cluster, tokenizer_folder):
    """An environment with these changes to its configuration, ended after the test."""
    made = []

    def make(gdpo=GDPO, **changes):
        config = {"gdpo": gdpo, "tokenizer": str(tokenizer_folder), "max_new_tokens": 500, **changes}
        made.append(RewardActor.remote(config))
        return made[-1]

    yield make
    for actor in made:
        ray.get(actor.shutdown.remote())
        ray.kill(actor)


@pytest.fixture
def trained(plugin, monkeypatch):
    """The plug-in as in a run of this method."""
    monkeypatch.setattr(plugin, "estimator", MethodEstimator(Method(GdpoConfig(**GDPO)), 2))


class Scripted:
    """An engine that answers with given programs; a response is complete once what it waits for has happened."""

    def __init__(self, tokenizer, programs, waits=None):
        self.cfg = {"backend": "vllm", "vllm_cfg": {"async_engine": True}}
        self.tokenizer, self.programs, self.waits = tokenizer, programs, waits or {}

    def generate(self, data, greedy):
        lengths = zip(data["input_ids"], data["input_lengths"], strict=True)
        rows = [self._row(prompt, int(length)) for prompt, length in lengths]
        pads = {"output_ids": self.tokenizer.pad_token_id, "logprobs": 0.0}
        return BatchedDataDict.from_batches(rows, pad_value_dict=pads)

    async def generate_async(self, data, greedy=False):
        row = self._row(data["input_ids"][0], int(data["input_lengths"][0]))
        if wait := self.waits.get(self._number(data["input_ids"][0], int(data["input_lengths"][0]))):
            await wait()
        yield 0, row

    def _number(self, prompt, length):
        return int(self.tokenizer.decode(prompt[:length]))

    def _row(self, prompt, length):
        text = f"```python\n{self.programs[self._number(prompt, length)]}\n```"
        ids = self.tokenizer(text, return_tensors="pt")["input_ids"][0]
        output = torch.cat([prompt[:length], ids])[None]
        return BatchedDataDict(
            {
                "output_ids": output,
                "generation_lengths": torch.tensor([len(ids)]),
                "unpadded_sequence_lengths": torch.tensor([length + len(ids)]),
                "logprobs": torch.zeros(output.shape),
                "truncated": torch.tensor([False]),
            }
        )


def batch_of(tokenizer, number):
    """Prompts that are their own numbers, each with the doubling task."""
    ids = [tokenizer(str(index), return_tensors="pt")["input_ids"][0] for index in range(number)]
    return BatchedDataDict(
        {
            "message_log": [[{"role": "user", "content": str(i), "token_ids": row}] for i, row in enumerate(ids)],
            "extra_env_info": [{"row": {"id": str(i), "fields": {}, "gold": GOLD}} for i in range(number)],
            "task_name": ["code"] * number,
            "length": torch.tensor([len(row) for row in ids]),
            "loss_multiplier": torch.ones(number),
            "idx": list(range(number)),
        }
    )


def rollout(engine, tokenizer, actor, mode="run_async_multi_turn_rollout"):
    """NeMo RL's rollout of all programs of the engine: batch and metrics."""
    batch = batch_of(tokenizer, len(engine.programs))
    return getattr(grpo, mode)(engine, batch, tokenizer, {"code": actor}, max_seq_len=1000, max_rollout_turns=1)


def rewards_of(batch):
    names = ("pass_rate", "no_bug", "length")
    return dict(zip(names, upstream.from_batch(batch, names).T.tolist(), strict=True))


def exists(*paths):
    """Wait until all of these files are there."""

    async def wait():
        async with asyncio.timeout(PATIENCE_S):
            while not all(path.exists() for path in paths):
                await asyncio.sleep(0.02)

    return wait


def test_the_first_responses_are_graded_before_the_last_is_generated(environment, trained, tokenizer, tmp_path):
    (tmp_path / "marking.py").write_text(MARKING.format(folder=str(tmp_path)))
    mark = {"fn": "marking:mark", "range": [0, 1]}
    gdpo = {**GDPO, "python_path": str(tmp_path), "rewards": {"pass_rate": {}, "no_bug": {}, "length": {}}}
    actor = environment({**gdpo, "rewards": gdpo["rewards"] | {"mark": mark}})
    engine = Scripted(tokenizer, [RIGHT, WRONG, RIGHT], {2: exists(tmp_path / "0", tmp_path / "1")})
    names = ("pass_rate", "no_bug", "length", "mark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gdpo_nemo.backends.nemo_rl.plugin.settle", lambda batch, names: None)
        batch, metrics = rollout(engine, tokenizer, actor)
    rewards = upstream.from_batch(batch, names)
    assert rewards[:, 0].tolist() == [1.0, 0.0, 1.0] and rewards[:, 3].tolist() == [1.0] * 3
    assert 0 < metrics["grading/share_hidden"] < 1


def test_synchronous_generation_hides_nothing(environment, trained, tokenizer):
    batch, metrics = rollout(Scripted(tokenizer, [RIGHT, WRONG]), tokenizer, environment(), "run_multi_turn_rollout")
    assert rewards_of(batch)["pass_rate"] == [1.0, 0.0]
    assert metrics["grading/share_hidden"] == 0 and metrics["grading/queue_high_water"] == 2
    assert metrics["grading/seconds"] == metrics["grading/seconds_exposed"] > 0
