import pytest

from gdpo_nemo.data.program_world import ProgramMix
from gdpo_nemo.data.questions import split_of
from gdpo_nemo.data.residue_world import StyleMix
from gdpo_nemo.data.tool_world import BehaviourMix
from gdpo_nemo.data.word_problem_world import ProblemMix
from gdpo_nemo.errors import InputError


@pytest.mark.parametrize(
    ("mix", "name"),
    [
        (BehaviourMix, "step_noise"),
        (StyleMix, "hard_guesses"),
        (ProgramMix, "verbose_share"),
        (ProblemMix, "piece_kept"),
    ],
)
@pytest.mark.parametrize("value", [-0.1, 1.1])
def test_a_share_or_chance_of_demonstrated_behaviour_is_from_0_to_1(mix, name, value):
    with pytest.raises(InputError, match=rf"mix\.{name} is {value}; it must be 0 to 1"):
        mix(**{name: value})


def test_about_the_asked_share_is_held_out_and_more_of_it_holds_the_same_out():
    parts = [(str(i), "twin") for i in range(1000)]
    held_out = {share: {key for key in parts if split_of(key, share) == "heldout"} for share in (0.25, 0.5)}
    assert 200 < len(held_out[0.25]) < 300 and 450 < len(held_out[0.5]) < 550
    assert held_out[0.25] < held_out[0.5]
