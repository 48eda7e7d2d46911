"""NeMo RL's own recipes by name, and variants of them."""

import copy
from functools import cache
from pathlib import Path

from gdpo_nemo.cluster.generate_facts import RECIPES
from gdpo_nemo.cluster.host import packaged
from gdpo_nemo.cluster.recipes import load_recipe

NAMES = {Path(name).stem: name for name in RECIPES}
LLAMA_8B = "grpo_math_8B_megatron"


@cache
def recipe(name):
    return load_recipe(NAMES[name], host=packaged())


def changed(nemo, changes):
    """A copy with dotted keys set."""
    nemo = copy.deepcopy(nemo)
    for key, value in changes.items():
        *sections, last = key.split(".")
        section = nemo
        for name in sections:
            section = section.setdefault(name, {})
        section[last] = value
    return nemo
