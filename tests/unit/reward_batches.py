"""Generated batches of rewards: rewards [B, K], labels [B], and the options that every advantage function has."""

import math

import torch
from hypothesis import strategies as st

LABELS = [0, 1, 2, -7, 10**12, -(2**63)]
EIGHTHS = st.integers(-8, 16).map(lambda n: n / 8)
REWARD = st.one_of(st.just(math.nan), EIGHTHS, st.floats(-3, 3, width=32).map(lambda x: round(x, 3)))
WEIGHT = st.sampled_from([1.0, 1.0, 0.5, 0.0, -1.0, 3.0, 0.1])


@st.composite
def batches(draw, dtypes=(torch.float64, torch.float32), reward=REWARD, min_rewards=1):
    num_rows = draw(st.integers(1, 14))
    num_rewards = draw(st.integers(min_rewards, 3))
    rows = draw(
        st.lists(st.lists(reward, min_size=num_rewards, max_size=num_rewards), min_size=num_rows, max_size=num_rows)
    )
    rewards = torch.tensor(rows, dtype=draw(st.sampled_from(dtypes)))
    labels = draw(
        st.lists(st.sampled_from(LABELS[: draw(st.integers(1, len(LABELS)))]), min_size=num_rows, max_size=num_rows)
    )
    weights = draw(st.lists(WEIGHT, min_size=num_rewards, max_size=num_rewards))
    valid = torch.tensor(
        draw(st.lists(st.sampled_from([True, True, True, False]), min_size=num_rows, max_size=num_rows))
    )
    return rewards, torch.tensor(labels), {"weights": weights, "valid_B": valid}


def assert_same(actual, expected):
    assert actual.dtype == expected.dtype
    tolerance = 1e-9 if actual.dtype == torch.float64 else 5e-6
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)
