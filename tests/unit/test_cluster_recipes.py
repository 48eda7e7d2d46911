import json
from pathlib import Path

import pytest

from gdpo_nemo.cluster.generate_facts import RECIPES, facts_of
from gdpo_nemo.cluster.host import FACTS, find_host, of_checkout, packaged
from gdpo_nemo.cluster.recipes import load_cluster_run, load_recipe
from gdpo_nemo.errors import ConfigError, PrerequisiteError, UnknownNameError

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
TOOL_CALLING = [CONFIGS / "tool_calling" / "paper.yaml", CONFIGS / "tool_calling" / "gdpo.yaml"]
COMMITS = sorted(path.stem for path in FACTS.glob("*.json"))
TP = "policy.megatron_cfg.tensor_model_parallel_size"


@pytest.fixture(autouse=True)
def no_checkout(monkeypatch):
    monkeypatch.delenv("NEMO_RL_PATH", raising=False)


@pytest.mark.parametrize("commit", COMMITS)
@pytest.mark.parametrize("name", RECIPES, ids=lambda name: Path(name).stem)
def test_every_official_recipe_loads_without_complaint(name, commit):
    nemo = load_recipe(name, host=packaged(commit))
    assert nemo["policy"]["model_name"] and "${" not in json.dumps(nemo)


def test_both_supported_commits_ship_and_the_tag_is_the_default():
    assert COMMITS == ["7ea279a", "81aa43d"]
    assert find_host().origin == packaged("81aa43d").origin
    with pytest.raises(UnknownNameError, match="81aa43d"):
        packaged("81aa43e")


def test_a_run_is_our_block_and_nemo_rls_sections():
    run = load_cluster_run(TOOL_CALLING, [f"{TP}=2"])
    assert run.gdpo.method == "gdpo" and set(run.gdpo.rewards) == {"format", "correct"}
    assert run.nemo["grpo"]["adv_estimator"]["name"] == "gdpo_nemo"
    assert run.nemo["policy"]["make_sequence_length_divisible_by"] == 2  # the recipe's own reference to TP
    assert run.nemo["env"]["gdpo"]["gdpo"] == run.whole["gdpo"] and "gdpo" not in run.nemo
    assert "v0.7.0" in run.source and "no checkout" in run.source


def test_references_reach_our_defaults_without_a_file_that_sets_them():
    plain = load_cluster_run(TOOL_CALLING)
    no_std = load_cluster_run([TOOL_CALLING[0], CONFIGS / "tool_calling" / "grpo_no_std.yaml"])
    assert plain.nemo["grpo"]["normalize_rewards"] is True
    assert no_std.nemo["grpo"]["adv_estimator"]["normalize_rewards"] is False
    assert no_std.nemo["grpo"]["adv_estimator"]["name"] == "grpo_nemo"


def test_an_override_marker_replaces_a_section():
    run = load_cluster_run(TOOL_CALLING)
    assert "math" not in run.nemo["env"] and "split_validation_size" not in run.nemo["data"]["train"]
    assert "_override_" not in json.dumps(run.whole)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("policy.megatron_cfg.tensor_paralel_size=2", "Did you mean 'policy.megatron_cfg.tensor_model_parallel_size'"),
        ("grpo.foo=1", "unknown key 'grpo.foo'. Known there: adv_estimator"),
        ("loss_fn.ratio_clip_mim=0.1", "Did you mean 'loss_fn.ratio_clip_min'"),
        ("bad.key=1", "cannot set 'bad' here; configuration keys start with one of gdpo, checkpointing, cluster,"),
        ("gdop.method=grpo", "unknown key 'gdop'. Did you mean 'gdpo'"),
        ("polcy.model_name=x", "unknown key 'polcy'. Did you mean 'policy'"),
        ("policy.megatron_cfg.optimizer.learning_rate=1", "unknown key 'policy.megatron_cfg.optimizer.learning_rate'"),
        ("cluster.nodes=4", "unknown key 'cluster.nodes'. Did you mean 'cluster.num_nodes'"),
        ("logger.wandb.projct=x", "Did you mean 'logger.wandb.project'"),
        (f"{TP}=two", f"{TP} is 'two', expected int"),
        (f"{TP}=1.5", f"{TP} is 1.5, expected int"),
        ("policy.dtensor_cfg.enabled=maybe", "policy.dtensor_cfg.enabled is 'maybe'"),
        (
            "policy.scheduler=[{nme: a}]",
            "unknown key 'policy.scheduler[0].nme'. Did you mean 'policy.scheduler[0].name'",
        ),
        ("policy.generation.vllm_cfg.kv_cache_dtype=fp7", "expected Literal['auto', 'fp8', 'fp8_e4m3']"),
        ("cluster={_override_: true, num_nodes: 1}", "'cluster.gpus_per_node' is missing"),
    ],
)
def test_a_wrong_key_or_type_in_nemo_rls_sections_is_an_error(override, message):
    with pytest.raises(ConfigError) as caught:
        load_cluster_run(TOOL_CALLING, [override])
    assert message in str(caught.value) and "v0.7.0" in str(caught.value)


@pytest.mark.parametrize(
    "override",
    [
        "policy.generation.vllm_kwargs.compilation_config.backend=eager",
        "policy.tokenizer.chat_template_kwargs={enable_thinking: false}",
        "policy.hf_config_overrides={rope_scaling: {factor: 2.0}}",
        "data.train.my_own_argument=1",
        "policy.megatron_cfg.env_vars={NCCL_DEBUG: INFO}",
        "logger.wandb={project: a, entity: b}",
    ],
)
def test_what_is_free_form_upstream_is_free_here(override):
    load_cluster_run(TOOL_CALLING, [override])


def test_a_run_needs_a_method():
    with pytest.raises(ConfigError, match=r"no gdpo: block .*configs/tool_calling/gdpo.yaml"):
        load_cluster_run([CONFIGS / "cluster" / "1n8g.yaml"])
    with pytest.raises(ConfigError, match=r"Did you mean 'gdpo\.method'. Known under 'gdpo'"):
        load_cluster_run(TOOL_CALLING, ["gdpo.metod=grpo"])


def test_a_recipe_that_the_facts_lack_is_named_with_its_neighbours(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("defaults: nemo_rl:examples/configs/grpo_math_2B.yaml\ngdpo: {task: tool_calling}\n")
    with pytest.raises(UnknownNameError, match=r"v0.7.0.*grpo_math_1B"):
        load_cluster_run([path])


def test_a_folder_that_is_no_checkout_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("NEMO_RL_PATH", f"{tmp_path}:/elsewhere")
    with pytest.raises(PrerequisiteError, match=r"is not a checkout of NeMo RL.*NEMO_RL_PATH"):
        load_cluster_run(TOOL_CALLING)


@pytest.fixture
def small_checkout(tmp_path):
    """A folder laid out as NeMo RL's repository, with classes of every kind that its own use."""
    sources = {
        "nemo_rl/algorithms/grpo.py": """
            from typing import Any, NotRequired, Optional, TypedDict, Union
            from pydantic import BaseModel
            from nemo_rl.policy import PolicyConfig as Policy
            class Master(BaseModel):
                policy: Policy
                env: dict[str, Any]
            class MasterConfig(Master, extra="allow"):
                grpo: Optional["Grpo"] = None
            class Grpo(TypedDict, total=False):
                steps: int
        """,
        "nemo_rl/policy/__init__.py": """
            from typing import Any, Literal, NotRequired, TypedDict
            class Off(TypedDict):
                enabled: Literal[False]
            class On(TypedDict):
                enabled: Literal[True]
                size: int
                kind: NotRequired[Literal["a", "b"] | None]
            Switch = On | Off
            class Step(TypedDict):
                name: str
            class PolicyConfig(TypedDict):
                engine: Switch
                steps: NotRequired[list[Step]]
                dtype: "torch.dtype"
        """,
        "nemo_rl/models/generation/vllm/config.py": "class VllmConfig(dict):\n    vllm_cfg: dict\n",
        "examples/configs/base.yaml": "grpo: {steps: 1}\npolicy: {engine: {enabled: true, size: 1, extra: {x: 1}}}\n",
        "examples/configs/other/child.yaml": "defaults: ../base.yaml\nlater: 1\npolicy: {_override_: true, dtype: x}\n",
        "examples/configs/sft.yaml": "sft: {epochs: 1}\n",
    }
    import textwrap

    for name, text in sources.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), "utf-8")
    return tmp_path


def test_keys_are_read_from_classes_and_examples_of_a_checkout(small_checkout):
    keys = of_checkout(small_checkout).keys
    assert {path: (key.type, key.required) for path, key in keys.items()} == {
        "policy": ("mapping", True),
        "policy.engine": ("mapping", True),
        "policy.engine.enabled": ("Literal[True] | Literal[False]", True),
        "policy.engine.size": ("int", False),
        "policy.engine.kind": ("Literal['a', 'b'] | None", False),
        "policy.engine.extra": ("Any", False),
        "policy.engine.extra.x": ("Any", False),
        "policy.steps": ("list", False),
        "policy.steps.[]": ("mapping", False),
        "policy.steps.[].name": ("str", True),
        "policy.dtype": ("Any", True),
        "policy.generation.vllm_cfg": ("mapping", False),
        "policy.generation.vllm_cfg.*": ("Any", False),
        "env": ("mapping", True),
        "env.*": ("Any", False),
        "grpo": ("mapping | None", False),
        "grpo.steps": ("int", False),
        "later": ("Any", False),
    }


def test_recipes_of_a_checkout_build_on_each_other(small_checkout):
    host = of_checkout(small_checkout)
    with pytest.raises(ConfigError, match=r"'policy.engine' is missing.*\n.*'env' is missing"):
        load_recipe("examples/configs/other/child.yaml", host=host)
    nemo = load_recipe("examples/configs/base.yaml", ["policy.dtype=x", "env={}"], host=host)
    assert nemo["policy"]["engine"]["size"] == 1
    assert host.checkout == small_checkout and str(small_checkout) in host.origin


def test_a_facts_file_holds_what_recipes_build_on(small_checkout, monkeypatch):
    monkeypatch.setattr("gdpo_nemo.cluster.generate_facts.RECIPES", ("examples/configs/other/child.yaml",))
    facts = facts_of(of_checkout(small_checkout), "v9")
    assert set(facts["recipes"]) == {"examples/configs/other/child.yaml", "examples/configs/base.yaml"}
    assert facts["keys"]["policy.engine.size"] == "int" and "policy.engine" in facts["required"]
