"""NeMo RL's own rollouts with programs to grade: when each is graded, by how many at once, and what the log says."""

import asyncio
import contextlib
import json
import math
import os
import select
import signal
from pathlib import Path

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
import os

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


@pytest.fixture(scope="module")
def shared(cluster, tokenizer_folder):
    """One environment for all tests that leave it as it was."""
    actor = RewardActor.remote({"gdpo": GDPO, "tokenizer": str(tokenizer_folder), "max_new_tokens": 500})
    yield actor
    ray.get(actor.shutdown.remote())


@pytest.fixture
def environment(cluster, tokenizer_folder):
    """An environment with these changes to its configuration, ended after the test."""
    made = []

    def make(gdpo=GDPO, **changes):
        config = {"gdpo": gdpo, "tokenizer": str(tokenizer_folder), "max_new_tokens": 500, **changes}
        made.append(RewardActor.remote(config))
        ray.get(made[-1].grading_metrics.remote())  # it has started
        return made[-1]

    yield make
    for actor in made:
        with contextlib.suppress(ray.exceptions.ActorDiedError):  # a test may have ended it
            ray.get(actor.shutdown.remote())
        ray.kill(actor)


@pytest.fixture
def trained(plugin, monkeypatch):
    """The plug-in as in a run of this method."""
    monkeypatch.setattr(plugin, "estimator", MethodEstimator(Method(GdpoConfig(**GDPO)), 2))


class Scripted:
    """An engine that answers with given programs; a response is complete once what it waits for has happened."""

    def __init__(self, tokenizer, programs, waits=None, frame="```python\n{}\n```"):
        self.frame = frame
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
        text = self.frame.format(self.programs[self._number(prompt, length)])
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


def batch_of(tokenizer, number, gold):
    """Prompts that are their own numbers, each with this gold."""
    ids = [tokenizer(str(index), return_tensors="pt")["input_ids"][0] for index in range(number)]
    return BatchedDataDict(
        {
            "message_log": [[{"role": "user", "content": str(i), "token_ids": row}] for i, row in enumerate(ids)],
            "extra_env_info": [{"row": {"id": str(i), "fields": {}, "gold": gold}} for i in range(number)],
            "task_name": ["code"] * number,
            "length": torch.tensor([len(row) for row in ids]),
            "loss_multiplier": torch.ones(number),
            "idx": list(range(number)),
        }
    )


def rollout(engine, tokenizer, actor, mode="run_async_multi_turn_rollout", gold=GOLD):
    """NeMo RL's rollout of all programs of the engine: batch and metrics."""
    batch = batch_of(tokenizer, len(engine.programs), gold)
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


def test_synchronous_generation_hides_nothing(shared, trained, tokenizer):
    batch, metrics = rollout(Scripted(tokenizer, [RIGHT, WRONG]), tokenizer, shared, "run_multi_turn_rollout")
    assert rewards_of(batch)["pass_rate"] == [1.0, 0.0]
    assert metrics["grading/share_hidden"] == 0 and metrics["grading/queue_high_water"] == 2
    assert metrics["grading/seconds"] == metrics["grading/seconds_exposed"] > 0


def test_mathematics_is_compared_by_the_library_in_the_environment(environment, plugin, monkeypatch, tokenizer):
    """What only math-verify decides: its alarms raise in threads, so it works in processes of its own."""
    gdpo = {"task": "math_length", "task_options": {"num_workers": 2}}
    monkeypatch.setattr(plugin, "estimator", MethodEstimator(Method(GdpoConfig(**gdpo)), 2))
    answers = ["\\frac{\\sqrt{3}}{2}", "\\sqrt{\\frac{3}{4}}", "\\frac{\\sqrt{2}}{3}"]
    engine = Scripted(tokenizer, answers, frame="\\boxed{{{}}}")
    actor = environment(gdpo)
    batch, metrics = rollout(engine, tokenizer, actor, gold="\\frac{1}{2}\\sqrt{3}")
    assert upstream.from_batch(batch, ("correct", "length")).T.tolist() == [[1.0, 1.0, 0.0], [1.0] * 3]
    workers = [pid for pid, line in below(os.getpid()).items() if b"gdpo_nemo.rewards.math.worker" in line]
    assert workers and metrics["grading/queue_high_water"] <= 3
    ray.get(actor.shutdown.remote())
    assert not set(workers) & set(below(os.getpid()))


def test_an_endless_program_takes_its_own_limit_and_no_more(shared, trained, tokenizer):
    """Many more than the workers: each gets its verdict, and none of a program that ends waits for ever."""
    programs = [ENDLESS, RIGHT] * 4
    batch, metrics = rollout(Scripted(tokenizer, programs), tokenizer, shared)
    assert rewards_of(batch)["pass_rate"] == [0.0, 1.0] * 4
    assert rewards_of(batch)["no_bug"] == [1.0] * 8  # a time-out is no bug
    assert batch["loss_multiplier"].tolist() == [1.0] * 8
    assert metrics["grading/num_over_budget"] == 0 and 1 <= metrics["grading/queue_high_water"] <= 8


def test_more_responses_wait_for_their_grades_than_python_s_event_loop_would_let(
    environment, trained, tokenizer, tmp_path
):
    """Forty that need each other: each reward waits until all are asked, and asyncio's own threads are 32 at most."""
    together = "import threading\n\nall_of_them = threading.Barrier(40)\n\n\ndef meet(row, rollout):\n"
    (tmp_path / "meeting.py").write_text(together + f"    all_of_them.wait({PATIENCE_S})\n    return 1.0\n")
    meet = {"fn": "meeting:meet", "range": [0, 1], "timeout_s": PATIENCE_S, "concurrency": 40}
    gdpo = {"task": "code_reasoning", "python_path": str(tmp_path), "rewards": {"length": {}, "meet": meet}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gdpo_nemo.backends.nemo_rl.plugin.settle", lambda batch, names: None)
        batch, metrics = rollout(Scripted(tokenizer, ["" for _ in range(40)]), tokenizer, environment(gdpo))
    assert upstream.from_batch(batch, ("length", "meet")).tolist() == [[1.0, 1.0]] * 40
    assert metrics["grading/queue_high_water"] == 40


def test_what_the_budget_leaves_over_is_masked_and_counted(environment, trained, tokenizer):
    """An endless program whose own limit is far beyond the budget; workers for the others stay free."""
    options = {"limits": {"cpu_s": 100.0, "budget_s": 100.0}, "num_workers": 3}
    actor = environment({"task": "code_reasoning", "task_options": options}, grading_budget_s=8.0)
    for mode in ("run_async_multi_turn_rollout", "run_multi_turn_rollout"):
        batch, metrics = rollout(Scripted(tokenizer, [RIGHT, "", ENDLESS]), tokenizer, actor, mode)
        rewards = rewards_of(batch)
        assert rewards["pass_rate"][:2] == [1.0, 0.0]
        assert all(math.isnan(values[2]) for values in rewards.values())
        assert batch["loss_multiplier"].tolist() == [1.0, 1.0, 0.0]
        assert metrics["grading/num_over_budget"] == 1
        assert torch.isfinite(batch["total_reward"]).all()


def below(pid):
    """Command lines of all processes below one, by process id."""
    parents, lines = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            lines[int(folder.name)] = (folder / "cmdline").read_bytes()
    found, new = set(), {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    return {pid: lines[pid] for pid in found}


def kill_pools():
    """Kill the processes that run programs on the nodes of the test's cluster; how many there were."""
    pools = [pid for pid, line in below(os.getpid()).items() if line.startswith(b"ray::NodePool")]
    for pid in pools:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(pools)


def test_a_pool_that_is_killed_while_it_grades_grades_again(shared, trained, tokenizer):
    rollout(Scripted(tokenizer, [RIGHT]), tokenizer, shared)
    killed = []

    async def kill():
        killed.append(kill_pools())

    batch, _ = rollout(Scripted(tokenizer, [ENDLESS, RIGHT, RIGHT], {2: kill}), tokenizer, shared)
    assert killed[0] >= 1
    assert rewards_of(batch)["pass_rate"] == [0.0, 1.0, 1.0] and batch["loss_multiplier"].tolist() == [1.0] * 3


def test_a_pool_that_is_lost_for_good_masks_what_it_had(environment, trained, tokenizer):
    actor = environment()
    (pool,) = ray.get(actor.__ray_call__.remote(lambda self: self.method.reward._sandbox()._actors))

    async def kill():
        ray.kill(pool)

    batch, metrics = rollout(Scripted(tokenizer, [ENDLESS, RIGHT], {1: kill}), tokenizer, actor)
    assert all(math.isnan(value) for values in rewards_of(batch).values() for value in values)
    assert batch["loss_multiplier"].tolist() == [0.0, 0.0] and metrics["grading/num_over_budget"] == 0


def test_no_process_stays_of_an_environment(environment, trained, tokenizer):
    before = set(below(os.getpid()))
    actor = environment()
    rollout(Scripted(tokenizer, [RIGHT]), tokenizer, actor)
    sandbox = {pid for pid, line in below(os.getpid()).items() if b"gdpo_nemo.sandbox" in line} - before
    assert sandbox
    assert ray.get(actor.shutdown.remote())
    assert not sandbox & set(below(os.getpid()))
    ray.kill(actor)


def test_an_environment_that_is_killed_takes_the_sandbox_with_it(environment, trained, tokenizer):
    before = set(below(os.getpid()))
    actor = RewardActor.remote({"gdpo": GDPO, "tokenizer": str(tokenizer.name_or_path), "max_new_tokens": 500})
    rollout(Scripted(tokenizer, [RIGHT]), tokenizer, actor)
    sandbox = {pid for pid, line in below(os.getpid()).items() if b"gdpo_nemo.sandbox" in line} - before
    assert sandbox
    watched = [os.pidfd_open(pid) for pid in sandbox]
    ray.kill(actor)
    assert all([bool(select.select([descriptor], [], [], PATIENCE_S)[0]) for descriptor in watched])
