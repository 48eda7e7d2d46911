"""A cluster run: YAML files that build on NeMo RL's own recipes become one checked configuration.

One tree holds our ``gdpo:`` block and NeMo RL's sections (``policy``, ``grpo``, ``loss_fn``, ...) as its
``MasterConfig`` has them. A ``defaults:`` entry ``nemo_rl:examples/configs/<file>.yaml`` is a file of NeMo RL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gdpo_nemo.cluster.environment import EnvironmentConfig
from gdpo_nemo.cluster.host import SCHEME, Host, find_host
from gdpo_nemo.cluster.keys import check_keys
from gdpo_nemo.composing import merge, merge_yaml, resolved
from gdpo_nemo.config import GdpoConfig, validate
from gdpo_nemo.errors import ConfigError

OWN_SECTIONS = ("gdpo", "embedded")


@dataclass(frozen=True)
class ClusterRun:
    """One run on a cluster, composed and checked key by key.

    Attributes:
        gdpo: our block.
        nemo: NeMo RL's sections, resolved.
        whole: both, as NeMo RL's entry point reads them.
        host: the version of NeMo RL whose recipes and keys were used.
    """

    gdpo: GdpoConfig
    nemo: dict[str, Any]
    whole: dict[str, Any]
    host: Host

    @property
    def source(self) -> str:
        """In words, where NeMo RL's recipes and keys were read."""
        return self.host.origin


def load_cluster_run(
    paths: Sequence[Path], overrides: Sequence[str] = (), *, checkout: Path | None = None
) -> ClusterRun:
    """Compose files and overrides, and check every key of every section.

    Args:
        paths: merged left to right, each after its ``defaults``.
        overrides: dotted ``key=value``, applied last.
        checkout: a NeMo RL checkout; None: the first one that ``NEMO_RL_PATH`` names, else the packaged facts.

    Raises:
        ConfigError: a file, key, type or reference is wrong, or there is no ``gdpo:`` block.
        PrerequisiteError: the checkout is none.
    """
    host = find_host(checkout)
    merged = merge_yaml(paths, overrides, {SCHEME: host.recipe})
    if "gdpo" not in merged:
        raise ConfigError(
            f"no gdpo: block in {', '.join(map(str, paths)) or 'the configuration'}; "
            "add an arm such as configs/tool_calling/gdpo.yaml"
        )
    # NeMo RL's sections may refer to keys of ours that no file sets.
    whole = resolved(merge([{"gdpo": _defaults()}, merged]))
    whole.pop("embedded", None)  # the block of another backend
    gdpo = validate(GdpoConfig, whole["gdpo"], origin="the gdpo: block")
    nemo = {key: value for key, value in whole.items() if key not in OWN_SECTIONS}
    check_keys(nemo, host.keys, host.origin)
    if environment := (nemo.get("env") or {}).get("gdpo"):
        validate(EnvironmentConfig, environment, origin="env.gdpo")
    return ClusterRun(gdpo, nemo, whole, host)


def load_recipe(name: str, overrides: Sequence[str] = (), *, host: Host) -> dict[str, Any]:
    """NeMo RL's sections of one of its own recipes.

    Raises:
        ConfigError: as ``load_cluster_run``.
    """
    nemo = resolved(merge_yaml([f"{SCHEME}:{name}"], overrides, {SCHEME: host.recipe}))
    check_keys(nemo, host.keys, host.origin)
    return nemo


def _defaults() -> dict[str, Any]:
    return GdpoConfig().model_dump(mode="json")
