"""Environments of bfcl-eval that `make test-bfcl` builds: one with the checkers, one with all of `bfcl evaluate`."""

import os
import sys
from pathlib import Path

import pytest

from gdpo_nemo.errors import PrerequisiteError
from gdpo_nemo.evaluation.bfcl import environment
from gdpo_nemo.evaluation.bfcl.checkers import Checkers
from gdpo_nemo.evaluation.bfcl.releases import RELEASES

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "unit"))  # for scripted_server


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.bfcl)
            item.add_marker(pytest.mark.slow)


def interpreter(version, suffix=""):
    try:
        return environment.find(RELEASES[version], ROOT / f"build/bfcl-{version}{suffix}")
    except PrerequisiteError as error:
        pytest.skip(f"make test-bfcl: {error}")


@pytest.fixture(scope="session", params=list(RELEASES))
def checkers(request):
    """The checkers of each release."""
    made = Checkers(RELEASES[request.param], interpreter(request.param))
    yield made
    made.close()


@pytest.fixture(scope="session")
def small_model():
    """SmolLM2-135M-Instruct in Hugging Face format, as tests/vllm has it."""
    from gdpo_nemo.models.pretrained import load_pretrained, save

    folder = ROOT / "build" / "smollm2"
    if not folder.exists():
        try:
            loaded, tokenizer = load_pretrained("smollm2")
        except PrerequisiteError as error:
            pytest.skip(str(error))
        partial = folder.with_name(f"smollm2.{os.getpid()}")
        save(loaded.bfloat16(), tokenizer, partial)
        partial.rename(folder)
    return str(folder)


@pytest.fixture(scope="session")
def evaluate_python(checkers):
    """The interpreter that has all of ``bfcl evaluate``."""
    return interpreter(checkers.release.version, "-evaluate")
