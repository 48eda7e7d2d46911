"""Tests on NeMo RL's own code: ``make test-nemo NEMO_RL_PATH=checkout[:checkout]``. Nothing of it is imitated."""

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.nemo_rl)


@pytest.fixture(scope="session")
def plugin():
    """The plug-in, registered once in this process."""
    from gdpo_nemo.backends.nemo_rl.plugin import register

    return register()
