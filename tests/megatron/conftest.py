"""Each layout runs once per session; its tests look at what it saved."""

import pytest
from layout_processes import Layout, missing, results


def pytest_runtest_setup(item):
    reason = missing() if item.get_closest_marker("megatron") else None
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def ranks(tmp_path_factory):
    """What each process of a layout computed, by rank: ``ranks("TP=2")``."""
    layouts = {"single": Layout(1, 1), "TP=2": Layout(2, 1), "PP=2": Layout(1, 2)}
    ready = {}

    def call(name):
        if name not in ready:
            try:
                ready[name] = results(layouts[name], tmp_path_factory.mktemp("layout"))
            except Exception as error:  # kept as well, so that a layout that is blocked is started once only
                ready[name] = error
        if isinstance(ready[name], Exception):
            raise ready[name]
        return ready[name]

    return call
