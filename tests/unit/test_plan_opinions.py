"""What a cluster plan says of programs that it asks where they are installed: NeMo RL and megatron-core."""

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from gdpo_nemo.backends.nemo_rl import master_config
from gdpo_nemo.cluster import megatron_core
from gdpo_nemo.cluster.plan import plan_cluster
from gdpo_nemo.cluster.recipes import load_cluster_run
from gdpo_nemo.cluster.rules import Opinion, Violation
from gdpo_nemo.suite.command_line import execute

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
PARALLEL = "policy.megatron_cfg.tensor_model_parallel_size"


@pytest.fixture
def nothing_installed(monkeypatch):
    monkeypatch.delenv("NEMO_RL_PATH", raising=False)
    for name in ("nemo_rl", "megatron"):
        monkeypatch.setitem(sys.modules, name, None)
    megatron_core._core.cache_clear()
    yield
    megatron_core._core.cache_clear()


def run_of(*overrides, model="qwen2.5-7b-instruct"):
    files = ["tool_calling/paper.yaml", "tool_calling/gdpo.yaml", f"model/{model}.yaml", "cluster/4n8g.yaml"]
    return load_cluster_run([CONFIGS / name for name in files], list(overrides))


def test_one_line_for_each_that_was_not_asked(nothing_installed, capsys):
    assert execute(["plan", "tool_calling", "--scale", "paper", "--arms", "gdpo", "--model", "qwen3-32b"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "not asked: NeMo RL's MasterConfig, NEMO_RL_PATH names no checkout" in lines
    assert "not asked: megatron-core's TransformerConfig, megatron-core is not installed" in lines
    assert not [line for line in lines if line.startswith("also asked")]


def test_the_same_as_json(nothing_installed, capsys):
    arguments = ["plan", "tool_calling", "--scale", "paper", "--arms", "gdpo", "--model", "qwen3-32b", "--json"]
    assert execute(arguments) == 0
    (plan,) = json.loads(capsys.readouterr().out)["plans"]
    assert plan["asked"] == []
    assert plan["not_asked"][master_config.NAME] == "NEMO_RL_PATH names no checkout"


def test_megatron_core_is_not_asked_of_a_dtensor_run():
    plan = plan_cluster(run_of(model="qwen2.5-1.5b-instruct-dtensor"))
    assert "not asked: megatron-core's TransformerConfig, DTensor trains" in plan.text


def test_a_checkout_without_its_packages_is_not_asked_and_they_are_named(tmp_path, monkeypatch):
    for name in ("nemo_rl/__init__.py", "examples/run_grpo.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    monkeypatch.setenv("NEMO_RL_PATH", str(tmp_path))
    monkeypatch.setattr(master_config, "NEEDED", ("json", "no_such_package", "nor_this_one"))
    assert find_spec("no_such_package") is None
    assert (
        master_config.ask([{}, {}])
        == [Opinion(master_config.NAME, unasked="this Python has no no_such_package, nor_this_one")] * 2
    )


def test_what_another_program_refuses_makes_the_plan_fail():
    refused = Violation(
        "policy.model_name", "Input should be a valid string, not 3 (NeMo RL's MasterConfig)", None, False
    )
    plan = plan_cluster(run_of(), opinions=[Opinion("the MasterConfig of NeMo RL at /somewhere", (refused,))])
    assert plan.violations == (refused,)
    assert "also asked: the MasterConfig of NeMo RL at /somewhere" in plan.text
    assert plan.text.endswith(
        "This run would fail:\n  policy.model_name: Input should be a valid string, not 3 (NeMo RL's MasterConfig)"
    )


@pytest.mark.parametrize("key", [PARALLEL, "policy.megatron_cfg"])
def test_what_the_planner_says_with_a_value_that_works_is_said_once(key):
    said = Opinion("another program", (Violation(key, "heads do not divide", None, known=False),))
    plan = plan_cluster(run_of(f"{PARALLEL}=8"), opinions=[said])
    (violation,) = plan.violations
    assert violation.key == PARALLEL and violation.works == 4
    other = Violation(f"{PARALLEL}_of_another", "as well", None, known=False)
    plan = plan_cluster(run_of(f"{PARALLEL}=8"), opinions=[Opinion("another program", (other,))])
    assert plan.violations == (violation, other)
