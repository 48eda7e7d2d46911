"""Three rewards for replies to customers, one of each kind; gdpo.yaml beside this file names and weighs them.

A reward gets the row (`id`, `fields`, `gold`) and the rollout (`response`, `length_tokens`, `truncated`) and returns
a number within its declared range, or None where it does not apply.
"""

from collections.abc import Sequence

from gdpo_nemo.types import Rollout, Row

LONGEST_TOKENS = 16


def right_desk(row: Row, rollout: Rollout) -> float:
    """1 when the reply begins with the desk that the message belongs to."""
    return float(rollout.response.strip().lower().startswith(row.fields["desk"]))


async def thanks(row: Row, rollout: Rollout) -> float | None:
    """1 when the reply thanks the customer. Complaints want no thanks: the reward does not apply to them."""
    if row.fields["tone"] == "complaint":
        return None
    return float("thank you" in rollout.response.lower())


def brief(rows: Sequence[Row], rollouts: Sequence[Rollout]) -> list[float]:
    """From 1 for an empty reply to 0 for one of 16 tokens or more; one call for the whole batch."""
    return [1 - min(rollout.length_tokens, LONGEST_TOKENS) / LONGEST_TOKENS for rollout in rollouts]
