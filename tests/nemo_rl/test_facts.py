"""What ships about NeMo RL's configuration is true of this checkout, and NeMo RL takes what we compose."""

import json
from itertools import product
from pathlib import Path

import checkout
import pytest

found = checkout.require()

from nemo_rl.algorithms.grpo import MasterConfig  # noqa: E402
from nemo_rl.utils.config import load_config, register_omegaconf_resolvers  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402

from gdpo_nemo.cluster.generate_facts import RECIPES, facts_of  # noqa: E402
from gdpo_nemo.cluster.host import FACTS, of_checkout, packaged  # noqa: E402
from gdpo_nemo.cluster.recipes import load_cluster_run, load_recipe  # noqa: E402

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
MODELS = [path.stem for path in sorted((CONFIGS / "model").glob("*.yaml")) if "embedded:" not in path.read_text()]


def test_the_facts_file_has_not_drifted():
    shipped = json.loads((FACTS / f"{found.commit[:7]}.json").read_text())
    assert json.loads(json.dumps(facts_of(of_checkout(found.root), shipped["version"]))) == shipped


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_are_read_as_nemo_rl_reads_them(name):
    register_omegaconf_resolvers()
    theirs = OmegaConf.to_container(load_config(found.root / name), resolve=True)
    for host in (of_checkout(found.root), packaged(found.commit[:7])):
        assert load_recipe(name, host=host) == theirs


@pytest.mark.parametrize(("model", "cluster"), product(MODELS, ["1n8g", "8n8g"]))
def test_nemo_rl_takes_every_configuration(model, cluster):
    files = [f"model/{model}.yaml", f"cluster/{cluster}.yaml"]
    for task in ("tool_calling", "math_length", "code_reasoning", "gsm8k"):
        arm = ["tool_calling/gdpo.yaml"]
        run = load_cluster_run([CONFIGS / name for name in (f"{task}/paper.yaml", *arm, *files)])
        config = MasterConfig(**run.whole)
        assert config.gdpo == run.whole["gdpo"] and config.policy["model_name"]
