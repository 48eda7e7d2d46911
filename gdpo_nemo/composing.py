"""YAML files that build on each other, with NeMo RL's grammar (nemo_rl/utils/config.py).

``defaults:`` names one or more files, relative to the file that names them, merged in order before the
file itself; ``${a.b}`` refers to another key and ``${mul:${a.b},2}`` computes (add, mul, div, max); a
top-level section with ``_override_: true`` replaces the section that it would be merged into; ``a.b=c``
on the command line overrides last. The paths in ``PATHS`` are relative to the file that names them, and to the
current folder on the command line.
"""

from __future__ import annotations

import posixpath
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gdpo_nemo.errors import ConfigError

PATHS = ("gdpo.python_path", "gdpo.data.train.path", "gdpo.data.heldout.path")
Source = Callable[[str], Mapping[str, Any]]
OVERRIDE = "_override_"
MISSING = "???"
RESOLVERS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "max": lambda a, b: max(a, b),
}


def load_yaml(paths: Sequence[Path], overrides: Iterable[str] = ()) -> dict[str, Any]:
    """Merge YAML files (with their ``defaults:``) left to right, then dotted overrides; resolve all references.

    Args:
        paths: files on disk.
        overrides: dotted ``key=value``.

    Raises:
        ConfigError: a file is missing or not a mapping, an override is not ``key=value`` with a
            YAML value, or an interpolation does not resolve.
    """
    return resolved(merge_yaml(paths, overrides))


def merge_yaml(
    paths: Sequence[Path | str], overrides: Iterable[str] = (), sources: Mapping[str, Source] | None = None
) -> dict[str, Any]:
    """As ``load_yaml``, with references still as written.

    Args:
        paths: files on disk, or ``<scheme>:<name>``, which an entry of ``defaults`` may be as well.
        overrides: dotted ``key=value``.
        sources: where those come from: scheme -> content of a name.

    Raises:
        ConfigError: as there, except for interpolations.
    """
    here = _Place("", str(Path.cwd() / "_"))
    places = [here.beside(str(path), sources or {}) for path in paths]
    return merge([*(_with_defaults(place, sources or {}, ()) for place in places), _overriding(overrides)])


def merge(configs: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Later mappings win, key by key; a top-level section with ``_override_: true`` replaces the section."""
    merged: dict[str, Any] = {}
    for config in configs:
        for key, value in config.items():
            marked = isinstance(value, Mapping) and bool(value.get(OVERRIDE))
            section = {name: inner for name, inner in value.items() if name != OVERRIDE} if marked else value
            merged[key] = section if marked or key not in merged else _over(merged[key], section)
    return merged


def resolved(merged: Mapping[str, Any]) -> dict[str, Any]:
    """The same with every reference replaced by its value.

    Raises:
        ConfigError: an interpolation does not resolve.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    _register_resolvers()
    try:
        container = OmegaConf.to_container(OmegaConf.create(dict(merged)), resolve=True)
    except (OmegaConfBaseException, ArithmeticError, TypeError) as error:
        raise ConfigError(f"cannot resolve the configuration: {error}") from error
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}


def _register_resolvers() -> None:
    """NeMo RL's functions in ``${...}``, left alone where it has registered its own."""
    from omegaconf import OmegaConf

    # 2.4 renames it to register_resolver, which in 2.3 is another function.
    register = getattr(OmegaConf, "register_new_resolver", None) or OmegaConf.register_resolver
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, function in RESOLVERS.items():
            if not OmegaConf.has_resolver(name):
                register(name, function)


def _over(below: Any, above: Any) -> Any:
    if isinstance(below, Mapping) and isinstance(above, Mapping):
        return {**below, **{key: _over(below[key], value) if key in below else value for key, value in above.items()}}
    return below if above == MISSING else above


def _overriding(overrides: Iterable[str]) -> dict[str, Any]:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    overrides = list(overrides)
    for override in overrides:
        _check_override(override)
    try:
        own: dict[str, Any] = _as_written(OmegaConf.to_container(OmegaConf.from_dotlist(overrides)))
    except (OmegaConfBaseException, YAMLError) as error:
        raise ConfigError(f"cannot resolve the configuration: {error}") from error
    return _absolute_paths(own, Path.cwd())


def _check_override(override: str) -> None:
    from yaml import YAMLError, safe_load

    key, equals, value = override.partition("=")
    if not (key.strip() and equals):
        raise ConfigError(f"override {override!r} is not of the form key.sub=value, e.g. embedded.train.steps=50")
    try:
        safe_load(value)
    except YAMLError as error:
        raise ConfigError(f"the value of override {override!r} is not valid YAML: {error}") from error


class _Place(NamedTuple):
    """A file: on disk (no scheme), or a name that a source knows."""

    scheme: str
    name: str

    def __str__(self) -> str:
        return f"{self.scheme}:{self.name}" if self.scheme else self.name

    def beside(self, name: str, schemes: Iterable[str]) -> _Place:
        """What ``name`` in this file's ``defaults`` stands for."""
        scheme, colon, rest = name.partition(":")
        if colon and scheme in schemes:
            return _Place(scheme, posixpath.normpath(rest))
        joined = posixpath.normpath(posixpath.join(posixpath.dirname(self.name), name))
        return _Place(self.scheme, joined if self.scheme else str(Path(joined).resolve()))


def _with_defaults(place: _Place, sources: Mapping[str, Source], seen: tuple[_Place, ...]) -> dict[str, Any]:
    if place in seen:
        raise ConfigError(f"defaults form a loop: {' -> '.join(str(p) for p in (*seen, place))}")
    own = _as_written(sources[place.scheme](place.name)) if place.scheme else read_yaml(Path(place.name))
    parents = own.pop("defaults", None) or []
    parents = [parents] if isinstance(parents, str) else parents
    if not isinstance(parents, list):
        raise ConfigError(f"defaults of {place} must be a file name or a list of them, not {parents!r}")
    places = [place.beside(str(name), sources) for name in parents]
    return merge([*(_with_defaults(parent, sources, (*seen, place)) for parent in places), own])


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping that one YAML file holds, ``defaults`` and references as written.

    Raises:
        ConfigError: there is no such file, or it holds something else.
    """
    from omegaconf import DictConfig, OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    if not path.is_file():
        raise ConfigError(f"no configuration file {path}")
    try:
        own = OmegaConf.load(path)
    except (OmegaConfBaseException, YAMLError) as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(own, DictConfig):
        raise ConfigError(f"{path} must hold a mapping at top level")
    content: dict[str, Any] = _as_written(OmegaConf.to_container(own))
    return _absolute_paths(content, path.parent)


def _absolute_paths(content: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Join the paths in ``PATHS`` to a folder, in place; a reference such as ``${oc.env:DATA}`` stays as it is."""
    for key in PATHS:
        *sections, name = key.split(".")
        block: Any = content
        for section in sections:
            block = block.get(section) if isinstance(block, dict) else None
        if isinstance(block, dict) and isinstance(block.get(name), str) and not block[name].startswith("${"):
            block[name] = str((folder / Path(block[name]).expanduser()).resolve())
    return content


def _as_written(value: Any) -> Any:
    """YAML 1.1 reads the key ``on`` as true; no key here is a truth value, and conditions have an ``on``."""
    if isinstance(value, Mapping):
        return {"on" if key is True else key: _as_written(item) for key, item in value.items()}
    return [_as_written(item) for item in value] if isinstance(value, list) else value
