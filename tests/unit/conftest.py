"""A run small enough for tests: a world of four cities, a model of 22,000 parameters, a warm-up of seconds."""

import copy
import shutil

import pytest
from hypothesis import HealthCheck, settings
from planted_runs import write_all

from gdpo_nemo.config import RunConfig, load_yaml, validate
from gdpo_nemo.run_dir import RunDir

# A busy machine fails no test.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

SMALL = (
    "gdpo.task=tool_calling",
    "gdpo.task_options.mode=toolrl",
    "embedded.data.num_cities=4",
    "embedded.data.num_relations=2",
    "embedded.data.num_tools=2",
    "embedded.data.max_hops=2",
    "embedded.data.small_talk_share=0.1",
    "embedded.data.heldout_share=0.25",
    "embedded.model.hidden_size=32",
    "embedded.model.intermediate_size=64",
    "embedded.model.num_layers=2",
    "embedded.model.num_heads=2",
    "embedded.warmup.clean_steps=50",
    "embedded.warmup.noisy_steps=25",
    "embedded.warmup.pool_rows=64",
    "embedded.warmup.batch_size=24",
    "embedded.warmup.lr=1e-2",
    "embedded.warmup.noisy_lr=1e-3",
    "embedded.data.mix={think_share: 0.5, step_noise: 0.7, direct_noise: 0.05, piece_kept: 0.6}",
    "embedded.train.steps=6",
    "embedded.train.checkpoint_every=2",
    "embedded.train.prompts_per_step=4",
    "embedded.train.rollouts_per_prompt=4",
    "embedded.train.max_new_tokens=20",
    "embedded.train.lr=2e-3",
    "embedded.evaluation.questions=8",
)


@pytest.fixture(scope="session")
def configure():
    """The small run, changed by dotted overrides: ``configure("embedded.train.steps=3")``."""
    return lambda *overrides: validate(RunConfig, load_yaml([], [*SMALL, *overrides]))


@pytest.fixture(scope="session")
def one_thread():
    """Sums in one order, so that results can be compared to the bit."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def claim():
    """A run directory for a configuration: ``claim(path, config, RunDir)``."""
    return lambda path, config, kind=RunDir: kind.claim(path, config.model_dump(mode="json"), {})


@pytest.fixture(scope="session")
def base(configure, claim, one_thread, tmp_path_factory):
    """The finished warm-up of the small run, to read only. Runs that start from it lie in ``base.path.parents[1]``."""
    from gdpo_nemo.backends.embedded.warmup import warm_up

    config = configure("kind=warmup")
    run = claim(tmp_path_factory.mktemp("runs") / "base" / "small", config)
    warm_up(run, config)
    return run


@pytest.fixture(scope="session")
def foreign():
    """A random model of another architecture with large weights: ``foreign("gpt2", vocab_size)``."""
    import torch
    import transformers

    def call(name, vocab_size, **settings):
        torch.manual_seed(0)
        ends = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None}
        if name == "gpt2":
            size = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 256}
            shape = transformers.GPT2Config(vocab_size=vocab_size, initializer_range=0.3, **size, **ends)
            return transformers.GPT2LMHeadModel(shape).eval()
        size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "initializer_range": 0.3}
        heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
        shape = getattr(transformers, f"{name}Config")(vocab_size=vocab_size, **size, **heads, **ends, **settings)
        return getattr(transformers, f"{name}ForCausalLM")(shape).eval()

    return call


@pytest.fixture(scope="session")
def loaded(base):
    """The warmed-up model and its tokenizer, to read only."""
    from gdpo_nemo.models.pretrained import load_saved

    return load_saved(base.checkpoints()[-1][1])


@pytest.fixture
def warm(loaded):
    """A copy of the warmed-up model for this test, and its tokenizer."""
    model, tokenizer = loaded
    return copy.deepcopy(model), tokenizer


@pytest.fixture(scope="session")
def chat_tokenizer(tmp_path_factory):
    """A folder with a tokenizer of bytes whose chats read "<user>text<assistant>"."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    built = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    built.pre_tokenizer, built.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=built)
    tokenizer.chat_template = (
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    folder = tmp_path_factory.mktemp("chat_tokenizer")
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def finished_runs(tmp_path_factory):
    """Runs with planted effects, to be read only."""
    root = tmp_path_factory.mktemp("finished")
    write_all(root)
    return root


@pytest.fixture
def root(finished_runs, tmp_path):
    """A copy of the runs with planted effects."""
    return shutil.copytree(finished_runs, tmp_path / "runs")
