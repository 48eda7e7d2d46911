"""Conditioned rewards by hand (eq. 8), what is refused, and when a condition pays for failing."""

import itertools
import math
import subprocess
import sys
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gdpo_nemo.advantages import gdpo
from gdpo_nemo.conditioning import Condition, ConditionWarning, apply_conditions, check_conditions
from gdpo_nemo.errors import InputError, UnknownNameError

NAN = math.nan
NAMES = ["correct", "length", "format"]


def same(actual, expected):
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=actual.dtype), rtol=0, atol=0, equal_nan=True)


def test_equation_8():
    rewards = torch.tensor([[1.0, 0.5, 1.0], [0.0, 0.5, 1.0], [0.5, 0.25, 0.0], [2.0, 0.0, 0.0]])
    before = rewards.clone()
    conditioned = apply_conditions(rewards, NAMES, [Condition("length", on="correct")])
    same(conditioned, [[1.0, 0.5, 1.0], [0.0, 0.0, 1.0], [0.5, 0.0, 0.0], [2.0, 0.0, 0.0]])
    assert torch.equal(rewards, before)
    half = Condition(reward="length", on="correct", at_least=0.5, else_value=-1.0)
    same(apply_conditions(rewards, NAMES, [half])[:, 1], [0.5, -1.0, 0.25, 0.0])


def test_missing_values():
    rewards = torch.tensor([[NAN, 0.5, 0.0], [1.0, NAN, 0.0], [0.0, NAN, 0.0], [NAN, NAN, 0.0], [0.0, 0.5, 0.0]])
    conditioned = apply_conditions(rewards, NAMES, [Condition("length", on="correct")])
    same(conditioned[:, 1], [NAN, NAN, NAN, NAN, 0.0])
    same(conditioned[:, [0, 2]], rewards[:, [0, 2]].tolist())


def test_two_gates_must_both_hold_and_gates_read_raw_values():
    rewards = torch.tensor([[1.0, 0.5, 1.0], [1.0, 0.5, 0.0], [0.0, 0.5, 1.0], [NAN, 0.5, 0.0], [0.0, 0.5, NAN]])
    both = [Condition("length", on="correct"), Condition("length", on="format")]
    same(apply_conditions(rewards, NAMES, both)[:, 1], [0.5, 0.0, 0.0, NAN, NAN])
    # format is conditioned as well; as a gate it still counts raw
    chain = [Condition("format", on="correct"), Condition("length", on="format")]
    same(apply_conditions(rewards, NAMES, chain)[:, 1], [0.5, 0.0, 0.5, 0.0, NAN])
    same(apply_conditions(rewards, NAMES, chain)[:, 2], [1.0, 0.0, 0.0, NAN, NAN])


def test_no_condition_is_a_copy():
    rewards = torch.rand(3, 3)
    copy = apply_conditions(rewards, NAMES, [])
    assert torch.equal(copy, rewards) and copy.data_ptr() != rewards.data_ptr()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_threshold_is_met_by_its_own_rounding(dtype):
    rewards = torch.tensor([[0.7, 1.0], [0.3, 1.0], [0.1, 1.0]], dtype=dtype)
    for row, threshold in enumerate([0.7, 0.3, 0.1]):
        conditioned = apply_conditions(rewards, ["a", "b"], [Condition("b", on="a", at_least=threshold)])
        assert conditioned[row, 1] == 1.0 and conditioned.dtype == dtype


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from([NAN, -1.0, 0.0, 0.5, 1.0]), min_size=4, max_size=4), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.sampled_from([0.0, 0.5, 1.0])), max_size=5),
    st.sampled_from([0.0, NAN, -2.0]),
)
@pytest.mark.filterwarnings("ignore::gdpo_nemo.conditioning.ConditionWarning")
def test_any_order_gives_the_row_by_row_definition(rows, gates, else_value):
    names = ["a", "b", "c", "d"]
    conditions = [Condition(names[min(k, g - 1)], names[g], t, else_value) for k, g, t in gates]
    expected = [list(row) for row in rows]
    for row, out in zip(rows, expected, strict=True):
        for k, name in enumerate(names):
            mine = [c for c in conditions if c.reward == name]
            gate_values = [row[names.index(c.on)] for c in mine]
            if any(math.isnan(value) for value in [row[k], *gate_values]):
                out[k] = NAN
            elif any(value < c.at_least for value, c in zip(gate_values, mine, strict=True)):
                out[k] = else_value
        for k, name in enumerate(names):
            if not any(c.reward == name for c in conditions):
                out[k] = row[k]
    rewards = torch.tensor(rows, dtype=torch.float64)
    for order in itertools.islice(itertools.permutations(conditions), 6):
        same(apply_conditions(rewards, names, order), expected)


def test_subgroup_variant_normalises_over_the_rows_that_pass():
    rewards = torch.tensor([[1.0, 0.2], [1.0, 0.8], [0.0, 0.9], [0.0, 0.9]], dtype=torch.float64)
    groups = torch.zeros(4, dtype=torch.int64)
    conditioned = apply_conditions(rewards, ["correct", "length"], [Condition("length", "correct", else_value=NAN)])
    by_length = gdpo(conditioned[:, 1:], groups, batch_norm=False)
    torch.testing.assert_close(by_length, torch.tensor([-1, 1, 0, 0]).double() * math.sqrt(0.5))


@pytest.mark.parametrize(
    ("conditions", "error", "message"),
    [
        ([("lenght", "correct")], UnknownNameError, "'lenght'.*Did you mean 'length'"),
        ([("length", "corect")], UnknownNameError, "'corect'.*Did you mean 'correct'"),
        ([("length", "correct"), ("correct", "length")], InputError, "circle: length -> correct -> length"),
        (
            [("length", "correct"), ("correct", "format"), ("format", "length")],
            InputError,
            "circle: length -> correct -> format -> length",
        ),
    ],
)
def test_refused_conditions(conditions, error, message):
    conditions = [Condition(*condition) for condition in conditions]
    for call in (
        lambda: apply_conditions(torch.rand(2, 3), NAMES, conditions),
        lambda: check_conditions(NAMES, conditions),
    ):
        with pytest.raises(error, match=message):
            call()


def test_else_values_of_one_reward_must_agree():
    zero, one = Condition("length", "correct", else_value=0.0), Condition("length", "format", else_value=-1.0)
    for order in ([zero, one], [one, zero]):
        with pytest.raises(InputError, match=r"else values -1.0 and 0.0"):
            check_conditions(NAMES, order)
    with pytest.raises(InputError, match=r"else values -1.0 and nan"):
        check_conditions(NAMES, [Condition("length", "correct", else_value=NAN), one])
    check_conditions(NAMES, [Condition("length", "correct", else_value=NAN), Condition("length", "format", 0.5, NAN)])


def test_refused_numbers_and_columns():
    with pytest.raises(InputError, match="at_least of the condition on 'length' is nan"):
        Condition("length", "correct", at_least=NAN)
    with pytest.raises(InputError, match="else_value of the condition on 'length' is inf"):
        Condition("length", "correct", else_value=math.inf)
    with pytest.raises(InputError, match="'length' is conditioned on itself"):
        Condition("length", "length")
    with pytest.raises(InputError, match="for 2 columns"):
        apply_conditions(torch.rand(2, 2), NAMES, [])
    with pytest.raises(InputError, match="for 2 columns"):
        apply_conditions(torch.rand(2, 2), ["a", "a"], [])
    with pytest.raises(InputError, match="expected floating point"):
        apply_conditions(torch.ones(2, 3, dtype=torch.int64), NAMES, [])
    with pytest.raises(UnknownNameError, match=r"'lenght'.*Did you mean 'length'"):
        apply_conditions(torch.rand(2, 3), NAMES, [], ranges={"lenght": (0, 1)})


PENALTY = torch.tensor([[1.0, -0.5, 1.0], [0.0, -0.25, 1.0]])
BONUS = torch.tensor([[1.0, 0.5, 1.0], [0.0, 0.0, 1.0]])


@pytest.mark.parametrize(
    ("rewards", "else_value", "ranges", "warns"),
    [
        (PENALTY, 0.0, None, True),
        (PENALTY, -0.5, None, False),
        (PENALTY, NAN, None, False),
        (BONUS, 0.0, None, False),
        (BONUS, 0.25, None, True),
        (BONUS, 0.0, {"length": (-1.0, 0.0)}, True),
        (BONUS, -1.0, {"length": (-1.0, 0.0)}, False),
        (BONUS, NAN, {"length": (-1.0, 0.0)}, False),
        (PENALTY, 0.0, {"length": (0.0, 1.0)}, False),
        (PENALTY, 0.0, {"format": (-1.0, 1.0)}, True),
    ],
)
def test_a_warning_when_failing_the_gate_pays(rewards, else_value, ranges, warns):
    condition = Condition("length", "correct", else_value=else_value)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        apply_conditions(rewards, NAMES, [condition], ranges=ranges)
    assert [w.category for w in caught] == [ConditionWarning] * warns
    if warns:
        assert "failing the gate 'correct' then pays more" in str(caught[0].message)


def test_a_declared_range_warns_without_a_batch():
    with pytest.warns(ConditionWarning, match="its range starts at -1"):
        check_conditions(NAMES, [Condition("length", "correct")], ranges={"length": (-1.0, 0.0)})


def test_the_warning_of_a_batch_does_not_name_its_values_so_it_is_shown_once():
    messages = set()
    for value in (-0.5, -0.25):
        with pytest.warns(ConditionWarning) as caught:
            apply_conditions(torch.tensor([[1.0, value, 0.0]]), NAMES, [Condition("length", "correct")])
        messages.add(str(caught[0].message))
    assert len(messages) == 1


def test_conditions_can_be_declared_and_checked_without_torch():
    program = (
        "import sys; from gdpo_nemo.conditioning import Condition, check_conditions; "
        "check_conditions(['a', 'b'], [Condition('a', on='b')]); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
