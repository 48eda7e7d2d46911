import subprocess
import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gdpo_nemo.randomness import stream, stream_seed

names = st.lists(st.text(st.characters(categories=["L"])) | st.integers(0, 10**6), max_size=3)


def test_a_stream_depends_on_its_arguments_alone():
    first = stream(7, "sampling", 3).integers(10**9, size=4)
    stream(7, "sampling", 2).random(100)
    np.random.seed(1)
    assert (stream(7, "sampling", 3).integers(10**9, size=4) == first).all()


def test_a_seed_is_the_same_in_every_process():
    code = "from gdpo_nemo.randomness import stream_seed; print(stream_seed(7, 'data', 3))"
    others = [subprocess.check_output([sys.executable, "-c", code], text=True) for _ in range(2)]
    assert {int(text) for text in others} == {stream_seed(7, "data", 3)}


@given(st.integers(-5, 2**40), names, st.integers(-5, 2**40), names)
def test_streams_of_different_names_or_roots_have_different_seeds(root, path, other_root, other_path):
    same = (root, *map(str, path)) == (other_root, *map(str, other_path))
    assert (stream_seed(root, *path) == stream_seed(other_root, *other_path)) == same


@given(st.integers(-(2**70), 2**70), names)
def test_a_seed_fits_every_generator(root, path):
    assert 0 <= stream_seed(root, *path) < 2**63


def test_neighbouring_streams_are_unrelated():
    draws_S_N = np.stack([stream(0, "data", step).standard_normal(2000) for step in range(20)])
    correlations = np.corrcoef(draws_S_N)[np.triu_indices(20, 1)]
    assert abs(correlations).max() < 0.1
