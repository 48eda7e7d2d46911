"""Every key that NeMo RL's configuration classes declare, read from their source without importing it.

A key is a dotted path below ``MasterConfig``; ``*`` stands for any name of a mapping, ``[]`` for any place in a list.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gdpo_nemo.errors import PrerequisiteError

# Classes that describe a subtree. The generation section is declared by its base class, and read as the engine's own.
ROOTS = {
    "": ("nemo_rl.algorithms.grpo", "MasterConfig"),
    "policy.generation": ("nemo_rl.models.generation.vllm.config", "VllmConfig"),
}
SCALARS = {"int", "float", "bool", "str", "None", "Any"}
WRAPPERS = {"NotRequired", "Required", "Annotated", "ReadOnly", "Final"}
LISTS = {"list", "List", "Sequence", "tuple", "Tuple"}
MAPPINGS = {"dict", "Dict", "Mapping"}
MAPPING = "mapping"


@dataclass(frozen=True)
class Key:
    """What is known of one dotted path.

    Attributes:
        type: as annotated, with ``mapping`` for a section whose keys are known one by one and ``Any`` for
            what is not checked.
        required: whether it has to be there when the section that holds it is.
    """

    type: str
    required: bool = False


@dataclass(frozen=True)
class _Class:
    """A configuration class, and the module that it stands in."""

    module: str
    name: str


@dataclass(frozen=True)
class _Element:
    """The value type of a mapping (``*``) or a list (``[]``)."""

    place: str
    branches: tuple[_Branch, ...]


_Branch = str | _Class | _Element


def declared_keys(checkout: Path) -> dict[str, Key]:
    """The keys of a NeMo RL checkout by dotted path.

    Raises:
        PrerequisiteError: the folder is not a checkout of NeMo RL.
    """
    reader = _Reader(checkout)
    keys: dict[str, Key] = {}
    for path, (module, name) in ROOTS.items():
        found = dict(reader.section(path, [_Class(module, name)]))
        if path:  # not declared by MasterConfig: nothing of it is required, and free values may be of any type
            loose = {key: Key("Any" if key.endswith(".*") else value.type) for key, value in found.items()}
            found = {key: value for key, value in loose.items() if key not in keys}
        keys |= found
    return keys


class _Reader:
    def __init__(self, checkout: Path) -> None:
        self.checkout = checkout
        self.parse = cache(self._parse)

    def _parse(self, module: str) -> ast.Module:
        stem = self.checkout.joinpath(*module.split("."))
        for path in (stem.with_suffix(".py"), stem / "__init__.py"):
            if path.is_file():
                return ast.parse(path.read_text("utf-8"), str(path))
        raise PrerequisiteError(f"{self.checkout} is not a checkout of NeMo RL: it has no module {module}")

    def find(self, module: str, name: str) -> tuple[str, ast.stmt] | None:
        """The statement that defines a name, and its module; None for what lies outside NeMo RL."""
        for node in ast.walk(self.parse(module)):
            if isinstance(node, ast.ClassDef):
                if node.name == name:
                    return module, node
            elif isinstance(node, ast.Assign):
                if any(isinstance(target, ast.Name) and target.id == name for target in node.targets):
                    return module, node
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nemo_rl"):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        return self.find(str(node.module), alias.name)
        return None

    def branches(self, module: str, annotation: ast.expr) -> Iterator[_Branch]:
        """The alternatives that an annotation allows."""
        match annotation:
            case ast.Constant(value=None):
                yield "None"
            case ast.Constant(value=str(text)):
                yield from self.branches(module, ast.parse(text, mode="eval").body)
            case ast.BinOp(op=ast.BitOr(), left=left, right=right):
                yield from self.branches(module, left)
                yield from self.branches(module, right)
            case ast.Subscript(value=value, slice=inner):
                yield from self._subscripted(module, _last_name(value), annotation, inner)
            case ast.Name(id=name) if name in SCALARS:
                yield name
            case ast.Name(id=name):
                yield from self._named(module, name)
            case _:
                yield "Any"

    def _subscripted(self, module: str, name: str, annotation: ast.expr, inner: ast.expr) -> Iterator[_Branch]:
        arguments = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        if name in WRAPPERS:
            yield from self.branches(module, arguments[0])
        elif name in ("Optional", "Union"):
            for argument in arguments:
                yield from self.branches(module, argument)
            if name == "Optional":
                yield "None"
        elif name == "Literal":
            yield ast.unparse(annotation)
        elif name in LISTS or name in MAPPINGS:
            yield from _container(name, self.branches(module, arguments[-1]))
        else:
            yield "Any"

    def _named(self, module: str, name: str) -> Iterator[_Branch]:
        if name in LISTS or name in MAPPINGS:
            yield from _container(name, ["Any"])
            return
        match self.find(module, name):
            case (where, ast.ClassDef(name=own, bases=bases)) if not any("Enum" in _last_name(base) for base in bases):
                yield _Class(where, own)
            case (where, ast.Assign(value=value)):
                yield from self.branches(where, value)
            case _:
                yield "Any"

    def fields(self, owner: _Class) -> dict[str, tuple[str, ast.expr, bool]]:
        """Fields of a class and its bases: name -> (module, annotation, whether required)."""
        found = self.find(owner.module, owner.name)
        assert found is not None, owner
        module, node = found
        assert isinstance(node, ast.ClassDef), owner
        total = not any(keyword.arg == "total" for keyword in node.keywords)
        fields: dict[str, tuple[str, ast.expr, bool]] = {}
        for base in node.bases:
            for parent in self.branches(module, base):
                fields |= self.fields(parent) if isinstance(parent, _Class) else {}
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                outer = _last_name(getattr(statement.annotation, "value", statement.annotation))
                if outer != "ClassVar":
                    required = total and outer != "NotRequired" and statement.value is None
                    fields[statement.target.id] = (module, statement.annotation, required)
        return fields

    def section(self, path: str, branches: Sequence[_Branch]) -> Iterator[tuple[str, Key]]:
        """The keys below ``path`` when it may hold what ``branches`` describe."""
        classes = [self.fields(branch) for branch in branches if isinstance(branch, _Class)]
        for name in dict.fromkeys(name for fields in classes for name in fields):
            found = [fields[name] for fields in classes if name in fields]
            inner = [branch for module, annotation, _ in found for branch in self.branches(module, annotation)]
            required = len(found) == len(classes) and all(required for *_, required in found)
            yield from self._key(f"{path}.{name}".lstrip("."), inner, required)
        for place in ("*", "[]"):
            elements = [branch for branch in branches if isinstance(branch, _Element) and branch.place == place]
            if elements:
                yield from self._key(f"{path}.{place}", [inner for e in elements for inner in e.branches], False)

    def _key(self, path: str, branches: Sequence[_Branch], required: bool) -> Iterator[tuple[str, Key]]:
        texts = [MAPPING if isinstance(branch, _Class) else branch for branch in branches]
        yield path, Key(" | ".join(dict.fromkeys(text for text in texts if isinstance(text, str))), required)
        yield from self.section(path, branches)


def _container(name: str, inner: Iterable[_Branch]) -> Iterator[_Branch]:
    yield "list" if name in LISTS else MAPPING
    yield _Element("[]" if name in LISTS else "*", tuple(inner))


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
