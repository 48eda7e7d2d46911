import dataclasses

import pytest

from gdpo_nemo import errors
from gdpo_nemo.errors import GdpoError, UnknownNameError
from gdpo_nemo.types import Message, Prompt, RewardVector, Rollout, Row


@pytest.mark.parametrize(
    ("name", "standard", "exit_code"),
    [
        ("InputError", ValueError, 2),
        ("UnknownNameError", ValueError, 2),
        ("UsageError", ValueError, 2),
        ("ConfigError", ValueError, 2),
        ("PrerequisiteError", RuntimeError, 3),
        ("RewardError", RuntimeError, 1),
        ("NonFiniteError", ArithmeticError, 1),
        ("InfiniteRewardError", ArithmeticError, 1),
        ("RunHaltedError", RuntimeError, 5),
        ("RunDirError", RuntimeError, 1),
        ("NotARunError", RuntimeError, 2),
        ("OutsideBandError", AssertionError, 4),
    ],
)
def test_each_error_is_ours_and_the_standard_one_it_stands_for(name, standard, exit_code):
    kind = getattr(errors, name)
    assert issubclass(kind, GdpoError) and issubclass(kind, standard)
    assert kind.exit_code == exit_code


def test_no_error_is_missing_above():
    found = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, GdpoError)}
    tested = test_each_error_is_ours_and_the_standard_one_it_stands_for.pytestmark[0].args[1]
    assert found == {"GdpoError", *(name for name, _, _ in tested)}


@pytest.mark.parametrize(
    ("name", "known", "message"),
    [
        ("formt", ("format", "correct"), "unknown reward 'formt'. Did you mean 'format'? Known: format, correct."),
        ("length", ("format", "correct"), "unknown reward 'length'. Known: format, correct."),
        ("x", (), "unknown reward 'x'. Known: none."),
    ],
)
def test_an_unknown_name_comes_with_the_nearest_known_one(name, known, message):
    error = UnknownNameError("reward", name, iter(known))
    assert str(error) == message
    assert (error.kind, error.name, error.known) == ("reward", name, known)


@pytest.mark.parametrize(
    "value",
    [
        Message("user", "Hi"),
        Row("r", {}, "gold"),
        Prompt("r", (Message("user", "Hi"),)),
        Rollout("r", 0, "text", 3),
        RewardVector({"format": 1.0}),
    ],
)
def test_the_values_between_stages_cannot_be_changed(value):
    for field in dataclasses.fields(value):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, field.name, None)


def test_a_reward_is_found_by_name_only():
    vector = RewardVector({"format": 1.0, "correct": -3.0})
    assert (vector["correct"], vector["format"]) == (-3.0, 1.0)
    with pytest.raises(KeyError):
        vector["corect"]
    assert vector.reasons == {}
