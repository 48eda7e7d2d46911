"""Demonstrations for the warm-up: what the model can do before reinforcement learning.

``clean`` demonstrations teach the facts of the world and the output format. The ``noisy`` mix
then leaves the model in the state a pre-trained model is in: it knows the facts, mostly answers
without thinking, its thinking is unreliable, and it seldom keeps the whole format.
"""

from __future__ import annotations

import numpy as np

from gdpo_nemo.data.tool_world import SMALL_TALK_REPLY, BehaviourMix, ToolWorld, call_text, follow, think_text
from gdpo_nemo.types import Row

CLEAN = BehaviourMix(think_share=0.6, step_noise=0.0, direct_noise=0.0, piece_kept=1.0)


def demonstrate(world: ToolWorld, row: Row, mix: BehaviourMix, rng: np.random.Generator) -> str:
    """One demonstrated completion of a row."""
    path, start = row.fields["path"], row.fields["start"]
    thinks = rng.random() < mix.think_share
    if not path:
        answer = f"<response> {SMALL_TALK_REPLY} </response>"
        thought = "no tool is needed"
    else:
        if thinks:
            reached: list[str] = []
            for relation in path:
                here = reached[-1] if reached else start
                right = world.destination_of(here, relation)
                reached.append(
                    world.cities[int(rng.integers(world.num_cities))] if rng.random() < mix.step_noise else right
                )
            thought, destination = think_text(path, reached), reached[-1]
        else:
            destination = follow(world, start, path)[-1]
            if rng.random() < mix.direct_noise:
                destination = world.cities[int(rng.integers(world.num_cities))]
            thought = ""
        answer = f"<tool_call>\n{call_text(world, destination, row.fields['day'])}\n</tool_call>"
    if not thinks:
        return answer
    opening = "<think>" if rng.random() < mix.piece_kept else ""
    closing = " </think>" if rng.random() < mix.piece_kept else ""
    separator = "\n" if rng.random() < mix.piece_kept else " "
    return f"{opening} {thought}{closing}{separator}{answer}"
