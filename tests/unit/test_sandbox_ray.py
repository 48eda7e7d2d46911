"""The sandbox spread over a Ray cluster; skips where Ray is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gdpo_nemo.rewards.code import judge_many
from gdpo_nemo.sandbox.opening import close_all, open_sandbox
from gdpo_nemo.sandbox.ray_pool import RayPool

ray = pytest.importorskip("ray")
DOUBLE = {"inputs": ["2\n", "-7\n"], "outputs": ["4\n", "-14\n"]}


@pytest.fixture(scope="module")
def pool() -> Iterator[RayPool]:
    root = str(Path(__file__).resolve().parents[2])
    ray.init(num_cpus=2, include_dashboard=False, runtime_env={"env_vars": {"PYTHONPATH": root}})
    made = open_sandbox()
    assert isinstance(made, RayPool)
    yield made
    close_all()
    ray.shutdown()


def test_programs_are_judged_on_every_node_in_order(pool: RayPool) -> None:
    items = [(f"print({n} * int(input()))", DOUBLE) for n in (1, 2, 3)] * 10
    assert [judgement.pass_rate for judgement in judge_many(items, sandbox=pool)] == [0.0, 1.0, 0.0] * 10


def test_a_pool_that_is_lost_comes_back(pool: RayPool) -> None:
    ray.kill(pool._actors[0], no_restart=False)
    (judgement,) = judge_many([("print(2 * int(input()))", DOUBLE)], sandbox=pool)
    assert judgement.pass_rate == 1.0


def test_a_cluster_that_is_lost_is_no_verdict(pool: RayPool) -> None:
    for actor in pool._actors:
        ray.kill(actor)
    (judgement,) = judge_many([("print(2 * int(input()))", DOUBLE)], sandbox=pool)
    assert judgement.bug is None and "lost" in str(judgement.failure)
