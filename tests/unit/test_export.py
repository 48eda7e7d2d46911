"""Exports of checkpoints: which one, in which format, by which command, and whether the result is the model."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from gdpo_nemo.checkpoints import ExportOptions, converters, export, find, newest_step
from gdpo_nemo.checkpoints.export import exported_step
from gdpo_nemo.checkpoints.verify import ExportError
from gdpo_nemo.errors import InputError, PrerequisiteError, RunDirError

POLICY = {
    "model_name": "owner/base",
    "tokenizer": {"name": "owner/base"},
    "megatron_cfg": {"enabled": True, "tensor_model_parallel_size": 4, "pipeline_model_parallel_size": 4},
}


@dataclass
class Host:
    """Stands for a NeMo RL whose converters are scripts of a test."""

    root: Path
    variables: dict

    def environment(self) -> dict:
        return dict(self.variables)


def never() -> Host:
    raise AssertionError("no converter was needed")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


def write_step(run: Path, step: int, policy: dict = POLICY, info: dict | None = None, **more) -> Path:
    folder = run / "checkpoints" / f"step_{step}"
    (folder / "policy" / "tokenizer").mkdir(parents=True)
    (folder / "policy" / "weights").mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump({"policy": policy, **more}))
    (folder / "training_info.json").write_text(json.dumps({"total_steps": step, **(info or {})}))
    return folder


def tiny_model(seed: int = 0) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=256, max_position_embeddings=128))


def byte_tokenizer() -> PreTrainedTokenizerFast:
    from tokenizers import Tokenizer, models, pre_tokenizers

    alphabet = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    built = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=built)
    tokenizer.chat_template = "trained with {{ messages }}"
    return tokenizer


@pytest.fixture
def rehearsed(run: Path) -> Path:
    """A run with one checkpoint as a rehearsal on the CPU writes it."""
    folder = write_step(run, 3, policy={"model_name": "base", "tokenizer": {"name": "base"}})
    tiny_model().save_pretrained(folder / "policy" / "weights")
    byte_tokenizer().save_pretrained(folder / "policy" / "tokenizer")
    return run


# ---- which checkpoint


def test_a_checkpoint_is_named_by_its_step_or_as_the_latest(run) -> None:
    for step in (20, 100, 3):
        write_step(run, step)
    (run / "checkpoints" / "tmp_step_120").mkdir()
    assert find(f"{run}@20").step == 20
    assert find(f"{run}@latest").path == find(str(run)).path == run / "checkpoints" / "step_100"
    assert find(f"{run / 'checkpoints'}@3").step == find(str(run / "checkpoints" / "step_3")).step == 3
    assert newest_step(run) == 100


@pytest.mark.parametrize(("higher", "expected"), [(True, 40), (False, 60)])
def test_the_best_is_by_the_metric_of_the_run(run, higher, expected) -> None:
    settings = {"metric_name": "val:accuracy", "higher_is_better": higher}
    for step, score in ((20, 0.5), (40, 0.5), (60, 0.2)):
        write_step(run, step, info={"val:accuracy": score}, checkpointing=settings)
    write_step(run, 80, checkpointing=settings)
    assert find(f"{run}@best").step == expected


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("@7", RunDirError, "no checkpoint of step 7; it has 20"),
        ("@last", InputError, "step 'last' .* is neither a number nor latest or best"),
        ("@best", RunDirError, r"checkpointing\.metric_name is not set"),
        ("/checkpoints/step_20@20", InputError, "leave @20 out"),
        ("-not", RunDirError, "no folder"),
        ("/checkpoints/step_20/policy", RunDirError, "no checkpoint in"),
    ],
)
def test_a_name_without_a_checkpoint_is_refused(run, name, error, message) -> None:
    write_step(run, 20)
    with pytest.raises(error, match=message):
        find(f"{run}{name}")


def test_an_at_sign_in_a_path_is_part_of_the_path(tmp_path) -> None:
    write_step(tmp_path / "me@host" / "run", 5)
    assert find(str(tmp_path / "me@host" / "run")).step == 5
    assert find(f"{tmp_path / 'me@host' / 'run'}@5").step == 5


def test_a_run_of_the_embedded_backend_is_told_apart(run) -> None:
    (run / "checkpoints" / "step4").mkdir(parents=True)
    with pytest.raises(RunDirError, match="run of the embedded backend"):
        find(str(run))


# ---- formats


@pytest.mark.parametrize(
    ("files", "form", "folder"),
    [
        (["iter_0000000/common.pt"], "Megatron", "iter_0000000"),
        ([".metadata", "__0_0.distcp"], "DCP", "."),
        (["model/.metadata", "model/__0_0.distcp"], "DCP", "model"),
        (["config.json", "model.safetensors"], "Hugging Face", "."),
        (["model/consolidated/config.json", "model/consolidated/a.safetensors"], "Hugging Face", "model/consolidated"),
    ],
)
def test_formats_are_told_apart_by_their_files(run, files, form, folder) -> None:
    weights = write_step(run, 1) / "policy" / "weights"
    for name in files:
        (weights / name).parent.mkdir(parents=True, exist_ok=True)
        (weights / name).touch()
    assert find(str(run)).source == (form, weights / folder)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "it is empty"),
        (["junk.bin"], r"junk\.bin"),
        (["model/shard-00001-model-00001-of-00002.safetensors"], r"checkpointing\.save_consolidated=true"),
    ],
)
def test_weights_without_a_converter_are_refused(run, files, message) -> None:
    weights = write_step(run, 1) / "policy" / "weights"
    for name in files:
        (weights / name).parent.mkdir(exist_ok=True)
        (weights / name).touch()
    with pytest.raises(PrerequisiteError, match=message):
        find(str(run)).source  # noqa: B018


# ---- a copy


def test_an_export_is_the_model_with_the_trained_tokenizer(rehearsed, tmp_path) -> None:
    to = tmp_path / "exports" / "hf"
    exported = export(f"{rehearsed}@latest", to, locate=never)
    assert exported.verification.difference == 0
    assert exported.verification.against == "the checkpoint's own weights"
    assert (exported.step, exported_step(to), exported.command) == (3, 3, "")
    assert (to / "chat_template.jinja").read_text() == "trained with {{ messages }}"
    ids = torch.arange(9)[None]
    assert torch.equal(AutoModelForCausalLM.from_pretrained(to)(ids).logits, tiny_model().eval()(ids).logits)
    assert [path.name for path in to.parent.iterdir()] == ["hf"], "something was left aside"
    assert json.loads((to / "export.json").read_text())["checkpoint"].endswith("step_3")
    assert json.loads(json.dumps(exported.data))["verification"]["difference"] == 0


def test_a_folder_that_holds_something_is_refused_and_an_empty_one_is_not(rehearsed, tmp_path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    with pytest.raises(RunDirError, match="is not empty"):
        export(str(rehearsed), tmp_path / "full", locate=never)
    (tmp_path / "empty").mkdir()
    export(str(rehearsed), tmp_path / "empty", ExportOptions(verify=False), locate=never)
    assert (tmp_path / "empty" / "config.json").exists()


def test_an_earlier_export_is_replaced_on_request_and_nothing_else_is(rehearsed, tmp_path) -> None:
    replacing = ExportOptions(verify=False, replace=True)
    export(str(rehearsed), tmp_path / "out" / "hf", replacing, locate=never)
    (tmp_path / "out" / "hf" / "stale").touch()
    export(str(rehearsed), tmp_path / "out" / "hf", replacing, locate=never)
    assert not (tmp_path / "out" / "hf" / "stale").exists()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["hf"]
    (tmp_path / "out" / "hf" / "export.json").unlink()
    with pytest.raises(RunDirError, match="is not empty"):
        export(str(rehearsed), tmp_path / "out" / "hf", replacing, locate=never)


def test_changes_of_the_run_to_the_models_config_reach_the_export(rehearsed, tmp_path) -> None:
    file = rehearsed / "checkpoints" / "step_3" / "config.yaml"
    changed = {"model_name": "base", "hf_config_overrides": {"rope_parameters": {"factor": 4.0, "rope_type": "linear"}}}
    file.write_text(yaml.safe_dump({"policy": changed}))
    export(str(rehearsed), tmp_path / "hf", ExportOptions(verify=False), locate=never)
    written = json.loads((tmp_path / "hf" / "config.json").read_text())["rope_parameters"]
    assert written == {"rope_theta": 10000.0, "factor": 4.0, "rope_type": "linear"}
    with pytest.raises(ExportError, match="differ by"):  # these weights in their folder have no such change
        export(str(rehearsed), tmp_path / "again", locate=never)
    assert not (tmp_path / "again").exists()


def test_a_checkpoint_without_a_tokenizer_is_refused(rehearsed, tmp_path) -> None:
    shutil.rmtree(rehearsed / "checkpoints" / "step_3" / "policy" / "tokenizer")
    with pytest.raises(RunDirError, match="no policy/tokenizer"):
        export(str(rehearsed), tmp_path / "hf", locate=never)


# ---- converters


@pytest.fixture
def megatron(run: Path):
    weights = write_step(run, 8, cluster={"gpus_per_node": 8}) / "policy" / "weights"
    (weights / "iter_0000000").mkdir()
    return find(str(run))


@pytest.mark.parametrize(
    ("gpus", "expected"), [(0, (4, 2)), (16, (4, 4)), (8, (4, 2)), (5, (4, 1)), (2, (1, 1)), (1, (1, 1))]
)
def test_a_conversion_keeps_the_layout_as_far_as_one_node_carries_it(megatron, gpus, expected) -> None:
    sizes = converters.layout(megatron, gpus)
    assert (sizes["tp"], sizes["pp"]) == expected


def test_megatron_weights_go_through_torchrun_with_the_runs_sizes(megatron, tmp_path) -> None:
    host = Host(tmp_path / "RL", {"NRL_CONTAINER": "1"})
    line = " ".join(converters.command(megatron, megatron.path / "config.yaml", tmp_path / "out", host))
    assert line == (
        f"uv run --project {tmp_path}/RL --extra mcore python -m torch.distributed.run --nproc_per_node=8 "
        f"{tmp_path}/RL/examples/converters/convert_megatron_to_hf_gpu.py --config {megatron.path}/config.yaml "
        f"--megatron-ckpt-path {megatron.weights}/iter_0000000 --hf-ckpt-path {tmp_path}/out "
        "--tp 4 --pp 2 --ep 1 --etp 1"
    )


def test_one_process_converts_what_one_gpu_holds(megatron, tmp_path) -> None:
    host = Host(tmp_path / "RL", {})
    command = converters.command(megatron, megatron.path / "config.yaml", tmp_path / "out", host, gpus=1, named="local")
    assert command[:2] == [sys.executable, f"{tmp_path}/RL/examples/converters/convert_megatron_to_hf.py"]
    assert command[command.index("--hf-model-name") + 1] == "local"
    assert "--tp" not in command


def test_the_converter_reads_the_changes_that_training_read(run, tmp_path) -> None:
    overrides = {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}
    write_step(run, 8, policy=POLICY | {"hf_config_overrides": overrides}, grpo={"max_num_steps": 8})
    checkpoint = find(str(run))
    before = (checkpoint.path / "config.yaml").read_bytes()
    config = yaml.safe_load(converters.write_config(checkpoint, tmp_path / "config.yaml").read_text())
    assert config["policy"]["hf_overrides"] == overrides
    assert config["grpo"] == {"max_num_steps": 8}
    assert (checkpoint.path / "config.yaml").read_bytes() == before


def test_without_changes_the_converter_reads_the_checkpoints_own_file(megatron, tmp_path) -> None:
    assert converters.write_config(megatron, tmp_path / "config.yaml") == megatron.path / "config.yaml"
    named = converters.write_config(megatron, tmp_path / "config.yaml", named="/models/base")
    assert yaml.safe_load(named.read_text())["policy"]["model_name"] == "/models/base"


def test_adapters_are_refused_with_the_converter_for_them(run, tmp_path) -> None:
    policy = POLICY | {"megatron_cfg": {"enabled": True, "peft": {"enabled": True}}}
    (write_step(run, 8, policy=policy) / "policy" / "weights" / "iter_0000000").mkdir()
    with pytest.raises(PrerequisiteError, match=r"convert_lora_to_hf\.py"):
        export(str(run), tmp_path / "hf", locate=never)


SCRIPT = """
import argparse, shutil, sys
parser = argparse.ArgumentParser()
for name in ("config", "hf-model-name", "megatron-ckpt-path", "hf-ckpt-path"):
    parser.add_argument("--" + name)
given = parser.parse_args()
print("converting", given.hf_model_name)
shutil.copytree(given.megatron_ckpt_path, given.hf_ckpt_path)
"""


@pytest.fixture
def converter(run: Path, tmp_path: Path) -> Host:
    """A converter that copies, and a checkpoint whose iter_0000000 it can copy."""
    folder = write_step(run, 8) / "policy"
    tiny_model().save_pretrained(folder / "weights" / "iter_0000000")
    byte_tokenizer().save_pretrained(folder / "tokenizer")
    scripts = tmp_path / "RL" / "examples" / "converters"
    scripts.mkdir(parents=True)
    (scripts / "convert_megatron_to_hf.py").write_text(SCRIPT)
    return Host(tmp_path / "RL", {})


def test_megatron_weights_are_checked_by_a_second_load_and_it_says_so(run, converter, tmp_path) -> None:
    exported = export(str(run), tmp_path / "out" / "hf", ExportOptions(gpus=1), locate=lambda: converter)
    assert exported.verification.against == "a second load of the export"
    assert "convert_megatron_to_hf.py" in exported.command
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["hf"]


def test_weights_that_are_not_finite_are_no_export(run, converter, tmp_path) -> None:
    broken = tiny_model()
    broken.lm_head.weight.data[0, 0] = float("nan")
    broken.save_pretrained(find(str(run)).source[1])
    with pytest.raises(ExportError, match="not finite"):
        export(str(run), tmp_path / "hf", ExportOptions(gpus=1), locate=lambda: converter)
    assert not (tmp_path / "hf").exists()


def test_a_converter_that_fails_is_heard(run, converter, tmp_path) -> None:
    script = tmp_path / "RL" / "examples" / "converters" / "convert_megatron_to_hf.py"
    script.write_text("import sys; print('no GPU here'); sys.exit(9)")
    with pytest.raises(ExportError, match=r"(?s)ended with code 9\nno GPU here\n.*The command was: "):
        export(str(run), tmp_path / "hf", ExportOptions(gpus=1), locate=lambda: converter)
    with pytest.raises(ExportError, match="nowhere-uv was not found"):
        export(str(run), tmp_path / "hf", ExportOptions(gpus=1, python="nowhere-uv"), locate=lambda: converter)
