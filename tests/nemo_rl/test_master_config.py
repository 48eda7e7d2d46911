"""``gdpo plan`` asks NeMo RL's own MasterConfig when there is a checkout."""

import copy
import json
import os
from pathlib import Path

import checkout
import pytest
import yaml

found = checkout.require()

from gdpo_nemo.backends.nemo_rl import master_config  # noqa: E402
from gdpo_nemo.cluster.recipes import load_cluster_run  # noqa: E402
from gdpo_nemo.suite.command_line import execute  # noqa: E402

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
FILES = ("tool_calling/paper.yaml", "tool_calling/gdpo.yaml", "model/qwen2.5-7b-instruct.yaml", "cluster/4n8g.yaml")
MEGATRON = "policy.megatron_cfg"


@pytest.fixture(autouse=True, scope="module")
def one_checkout():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(master_config.VARIABLE, str(found.root))
        yield


def changed(*changes):
    """A whole configuration with values by dotted key; None as a value removes the key."""
    whole = copy.deepcopy(load_cluster_run([CONFIGS / name for name in FILES]).whole)
    for key, value in changes:
        *sections, last = key.split(".")
        section = whole
        for name in sections:
            section = section[name]
        section[last] = value
        if value is None:
            del section[last]
    return whole


WRONG = {
    f"{MEGATRON}.tensor_model_parallel_size": (None, "Field required"),
    f"{MEGATRON}.optimizer.lr": ("fast", "Input should be a valid number, unable to parse string as a number, not 'f"),
    f"{MEGATRON}.recompute_granularity": ("some", "Input should be 'full' or 'selective', not 'some'"),
    "policy.train_global_batch_size": ("many", "Input should be a valid integer"),
    "loss_fn.ratio_clip_min": ([1], "Input should be a valid number"),
    "policy.scheduler": ([3], "Input should be a valid dictionary"),
    "data.train": (3, "Input should be a valid list, not 3"),
    "gdpo.method": ("${no.such.key}", "Interpolation key 'no.such.key' not found"),
}


@pytest.fixture(scope="module")
def opinions():
    """Of a configuration as it is, of each wrong one, and of one with all that is wrong in ``policy``."""
    together = [(key, value) for key, (value, _) in WRONG.items() if key.startswith("policy.")]
    configs = [changed(), *(changed((key, value)) for key, (value, _) in WRONG.items()), changed(*together)]
    accepted, *refused, several = master_config.ask(configs)
    return accepted, dict(zip(WRONG, refused, strict=True)), several


def test_what_ships_is_accepted_and_the_answer_names_the_checkout(opinions):
    accepted, _, _ = opinions
    assert accepted.unasked == "" and accepted.violations == ()
    assert found.commit[:7] in accepted.who and str(found.root) in accepted.who


@pytest.mark.parametrize("key", WRONG)
def test_a_wrong_value_is_one_violation_on_its_key(key, opinions):
    violations = opinions[1][key].violations
    assert {violation.key.partition("[")[0] for violation in violations} == {key}
    assert any(WRONG[key][1] in violation.message for violation in violations)
    assert not any("MegatronConfig" in violation.message or "False" in violation.message for violation in violations)


def test_all_errors_of_one_configuration_are_reported(opinions):
    keys = {violation.key.partition("[")[0] for violation in opinions[2].violations}
    assert keys == {key for key in WRONG if key.startswith("policy.")}


def test_the_plan_of_a_rejected_configuration_fails(tmp_path, capsys):
    # A section that only one of its kinds has to have: the planner's own check of keys lets it pass.
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(changed((f"{MEGATRON}.scheduler", None))))
    assert execute(["plan", str(path), "--json"]) == 2
    (plan,) = json.loads(capsys.readouterr().out)["plans"]
    assert [violation["key"] for violation in plan["violations"]] == [f"{MEGATRON}.scheduler"]
    assert "Field required (NeMo RL's MasterConfig)" in plan["violations"][0]["message"]


def test_the_plan_says_who_was_asked(tmp_path, capsys):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(changed()))
    assert execute(["plan", str(path)]) == 0
    assert f"also asked: the MasterConfig of NeMo RL at {found.root}" in capsys.readouterr().out


def test_a_package_that_nemo_rl_needs_and_this_python_lacks_is_named(tmp_path, monkeypatch):
    """The process itself finds what is missing beyond the packages that are looked for first."""
    (tmp_path / "omegaconf").mkdir()
    (tmp_path / "omegaconf" / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'omegaconf'\")")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    (said,) = master_config.ask([{}])
    assert said.violations == () and "failed: No module named 'omegaconf'" in said.unasked
