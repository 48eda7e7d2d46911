"""The NeMo RL that these tests run on: ``require()`` makes it importable, or skips the module with the reason."""

import importlib.util
import os
import sys
import typing

import pytest
import typing_extensions

from gdpo_nemo.backends.nemo_rl import host
from gdpo_nemo.errors import PrerequisiteError


def require():
    """Call before ``nemo_rl`` is imported."""
    try:
        found = host.locate()
    except PrerequisiteError as error:
        pytest.skip(f"make test-nemo NEMO_RL_PATH=checkout: {error}", allow_module_level=True)
    missing = [name for name in ("ray", "datasets", "torchdata", "tensordict") if not importlib.util.find_spec(name)]
    if missing:
        pytest.skip(f"make test-nemo installs what is missing: {', '.join(missing)}", allow_module_level=True)
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    if sys.version_info < (3, 12):
        typing.TypedDict = typing_extensions.TypedDict  # as host.TYPED_DICT_SHIM does in processes
    if str(found.root) not in sys.path:
        sys.path.insert(0, str(found.root))
    return found
