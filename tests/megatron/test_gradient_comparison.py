"""The comparison that judges the layouts: it puts parts together rightly, and sees what is wrong."""

import pytest
import torch
from layout_processes import upstream_line
from shards import Shard, collect_stages, cut, differences, gather, gather_ranks

NORM = torch.linspace(-1, 1, 6)
WHOLE = torch.arange(1.0, 49.0).reshape(8, 6).sin()


@pytest.mark.parametrize(("dim", "stride"), [(0, 1), (0, 2), (1, 1)])
def test_parts_become_the_whole(dim, stride):
    (whole,) = gather([Shard(part, dim, stride) for part in cut(WHOLE, dim, stride, 2)])
    assert torch.equal(whole, WHOLE)


def test_each_rank_of_a_gated_layer_holds_a_half_of_the_gate_and_a_half_of_the_input():
    """The layer's own ``chunk(2)`` must separate the two on each rank."""
    first, second = cut(torch.arange(8), 0, 2, 2)
    assert first.tolist() == [0, 1, 4, 5]
    assert second.tolist() == [2, 3, 6, 7]


def _ranks():
    return [{"a": Shard(part, 0, 2), "norm": Shard(NORM.clone(), None, 1)} for part in cut(WHOLE, 0, 2, 2)]


def test_rounding_is_no_difference():
    ranks = _ranks()
    ranks[0]["a"].value.mul_(1 + 5e-7)
    assert differences({"a": WHOLE, "norm": NORM}, gather_ranks(ranks)) == []


@pytest.mark.parametrize("name", ["a", "norm"])
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    "change",
    [
        lambda value: value.mul_(1.001),
        lambda value: value.mul_(2),
        lambda value: value.zero_(),
        lambda value: value.view(-1)[-1:].add_(1e-4),
        lambda value: value.view(-1)[-1:].fill_(float("nan")),
    ],
    ids=["scaled", "doubled", "without gradient", "one element", "not a number"],
)
def test_a_change_on_one_rank_shows(change, rank, name):
    ranks = _ranks()
    change(ranks[rank][name].value)
    (fault,) = differences({"a": WHOLE, "norm": NORM}, gather_ranks(ranks))
    assert fault.startswith(f"{name}: off by ")


def test_exchanged_ranks_and_a_missed_stride_show():
    ranks = _ranks()
    assert differences({"a": WHOLE, "norm": NORM}, gather_ranks(ranks[::-1]))
    straight = [rank | {"a": rank["a"]._replace(stride=1)} for rank in ranks]
    assert differences({"a": WHOLE, "norm": NORM}, gather_ranks(straight))


def test_missing_and_surplus_and_misshapen_parameters_show():
    stages = [{"a": Shard(WHOLE, None, 1)}, {"b": Shard(NORM, None, 1)}]
    faults = differences({"a": WHOLE.T, "c": NORM}, collect_stages(stages))
    assert faults == ["c: missing", "b: not expected", "a: shape (8, 6) instead of (6, 8)"]


def test_every_copy_of_a_parameter_on_two_stages_is_compared():
    stages = [{"a": Shard(WHOLE, None, 1)}, {"a": Shard(WHOLE * 2, None, 1)}]
    assert len(differences({"a": WHOLE}, collect_stages(stages))) == 1


def test_an_error_from_megatron_core_is_placed():
    source = "\n\ndef zeros():\n    raise AssertionError('no CUDA')"
    names = {}
    exec(compile(source, "/x/megatron/core/pipe/schedules.py", "exec"), names)
    with pytest.raises(AssertionError) as caught:
        names["zeros"]()
    assert upstream_line(caught.value) == "megatron/core/pipe/schedules.py:4 in zeros"
    assert upstream_line(ValueError("ours")) is None
