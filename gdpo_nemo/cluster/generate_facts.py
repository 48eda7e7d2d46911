"""Write the facts file of a NeMo RL checkout: ``python -m gdpo_nemo.cluster.generate_facts CHECKOUT VERSION``.

VERSION is how messages call it, such as ``v0.7.0`` or ``main of 2026-08-22``.
"""

from __future__ import annotations

import json
import posixpath
import sys
from pathlib import Path
from typing import Any

from gdpo_nemo.cluster.host import EXAMPLES, FACTS, Host, of_checkout
from gdpo_nemo.files import write_text

LLM = f"{EXAMPLES}/recipes/llm"
# Recipes that our configurations build on, and those that the planner is tested against.
RECIPES = (
    f"{EXAMPLES}/grpo_math_1B.yaml",
    f"{EXAMPLES}/grpo_math_1B_megatron.yaml",
    f"{EXAMPLES}/gdpo_math_1B.yaml",
    f"{EXAMPLES}/grpo_math_8B_megatron.yaml",
    f"{LLM}/grpo-qwen2.5-7b-instruct-4n8g-megatron.yaml",
    f"{LLM}/grpo-qwen2.5-7b-instruct-4n4g-megatron.yaml",
    f"{LLM}/grpo-qwen3-8b-base-1n8g-fp8-kvcache-megatron.yaml",
    f"{LLM}/performance/grpo-llama3.1-8b-instruct-2n8g.yaml",
    f"{LLM}/performance/grpo-qwen3-32b-4n8g.yaml",
    f"{LLM}/performance/grpo-qwen3-32b-8n8g-async-1off.yaml",
    f"{EXAMPLES}/grpo_math_70B_megatron.yaml",
    f"{EXAMPLES}/grpo_math_70B_megatron_fp8.yaml",
    f"{LLM}/grpo-qwen2.5-1.5B-4n8g-megatron-yarn-256k.yaml",
)


def facts_of(host: Host, version: str) -> dict[str, Any]:
    """What a facts file holds: recipes with all that they build on, and the known keys."""
    recipes: dict[str, Any] = {}
    wanted = list(RECIPES)
    while wanted:
        name = wanted.pop()
        if name not in recipes:
            recipes[name] = host.recipe(name)
            parents = recipes[name].get("defaults") or []
            parents = [parents] if isinstance(parents, str) else parents
            wanted += [posixpath.normpath(posixpath.join(posixpath.dirname(name), parent)) for parent in parents]
    return {
        "source": "https://github.com/NVIDIA-NeMo/RL (Apache-2.0)",
        "commit": host.commit,
        "version": version,
        "recipes": {name: recipes[name] for name in sorted(recipes)},
        "keys": {path: key.type for path, key in sorted(host.keys.items())},
        "required": sorted(path for path, key in host.keys.items() if key.required),
    }


def main() -> None:
    """Write the file and print its path."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    host = of_checkout(Path(sys.argv[1]).resolve())
    path = FACTS / f"{host.commit[:7]}.json"
    write_text(path, json.dumps(facts_of(host, sys.argv[2]), indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main()
