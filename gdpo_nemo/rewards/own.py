"""Rewards of your own: a function by its dotted path, checked before anything is computed.

``python_path`` is a folder that is put in front of ``sys.path``, as ``PYTHONPATH`` would be; without it the
function's package must be installed. A wrong path, an import that fails and a signature that does not fit are
errors here, so that ``plan`` meets them.
"""

from __future__ import annotations

import importlib
import inspect
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gdpo_nemo.errors import ConfigError, UnknownNameError


@dataclass(frozen=True)
class OwnReward:
    """One reward and how it is called.

    Attributes:
        name: the reward's name.
        function: ``(row, rollout) -> float | None``; batched: ``(rows, rollouts) -> sequence`` of these.
            Sync or async. None and NaN: the reward does not apply to this sample.
        range: lowest and highest value that it can give.
        timeout_s: seconds per call, after which the samples of the call count as not graded.
        concurrency: calls at once.
        batched: one call for all samples.
    """

    name: str
    function: Callable[..., Any]
    range: tuple[float, float]
    timeout_s: float = 10.0
    concurrency: int = 8
    batched: bool = False

    def __post_init__(self) -> None:
        lowest, highest = self.range
        if not (math.isfinite(lowest) and math.isfinite(highest) and lowest < highest):
            raise ConfigError(f"range of reward {self.name!r} is [{lowest}, {highest}]; expected [lowest, highest]")
        try:
            inspect.signature(self.function).bind((), ())
        except TypeError as error:
            arguments = "(rows, rollouts)" if self.batched else "(row, rollout)"
            raise ConfigError(
                f"reward {self.name!r}: {describe(self.function)} cannot be called with {arguments}: {error}"
            ) from error
        except ValueError:  # a function of C that tells no signature: the first call will show
            pass

    @property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function."""
        call = getattr(self.function, "__call__", None)  # noqa: B004, an object may have an async __call__
        return inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(call)


def load_function(path: str, python_path: str | None = None) -> Callable[..., Any]:
    """The function that ``package.module:function`` names.

    Raises:
        ConfigError: the path has another form, the module cannot be imported or is another one of that name, or
            the name is nothing that can be called.
        UnknownNameError: the module has no such name.
    """
    module_name, colon, name = path.partition(":")
    if not (colon and name.isidentifier() and all(part.isidentifier() for part in module_name.split("."))):
        raise ConfigError(f"fn: {path!r} is not of the form package.module:function")
    module = _import(module_name, python_path)
    if not hasattr(module, name):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise UnknownNameError(f"function of {module_name}", name, known)
    function = getattr(module, name)
    if not callable(function):
        raise ConfigError(f"fn: {path!r} is a {type(function).__name__}, which cannot be called")
    return function  # type: ignore[no-any-return]


def source_file(function: Callable[..., Any]) -> Path | None:
    """The file that defines a function, where there is one."""
    module = sys.modules.get(getattr(function, "__module__", None) or type(function).__module__)
    name = getattr(module, "__file__", None)
    return Path(name) if name else None


def describe(function: Callable[..., Any]) -> str:
    """``module:name`` of a function."""
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}:{named.__qualname__}"


def _import(module_name: str, python_path: str | None) -> Any:
    where = f"python_path {python_path}" if python_path else "the installed packages (gdpo.python_path names a folder)"
    if python_path is not None:
        if not Path(python_path).is_dir():
            raise ConfigError(f"gdpo.python_path is {python_path}; there is no such folder")
        if python_path not in sys.path:
            sys.path.insert(0, python_path)
            importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise ConfigError(f"fn: there is no module {error.name!r} in {where}") from error
        raise ConfigError(f"fn: importing {module_name!r} fails: {error}") from error
    except Exception as error:  # whatever the module's own code raises
        raise ConfigError(f"fn: importing {module_name!r} fails: {type(error).__name__}: {error}") from error
    if python_path is not None:
        _check_origin(module_name, python_path)
    return module


def _check_origin(module_name: str, python_path: str) -> None:
    """Refuse a module of that name from elsewhere when the folder has one as well."""
    top = module_name.split(".")[0]
    folder = Path(python_path).resolve()
    origin = getattr(sys.modules[top], "__file__", None)
    expected = [path for path in (folder / f"{top}.py", folder / top / "__init__.py") if path.exists()]
    if expected and (origin is None or Path(origin).resolve() not in expected):
        raise ConfigError(f"fn: module {top!r} was already imported from {origin}, not {expected[0]}; rename yours")
