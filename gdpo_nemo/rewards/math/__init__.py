r"""Rewards of mathematical reasoning: is the boxed answer right, and is the response short enough.

``grade`` and ``grade_many`` are the engine, ``MathReward`` puts them under the protocol of all rewards. What counts as
equal is written in docs/math-grading.md.
"""

from __future__ import annotations

from gdpo_nemo.rewards.math.grading import GRADERS, Grade, grade, grade_many
from gdpo_nemo.rewards.math.pool import close_pools
from gdpo_nemo.rewards.math.reward import REASONS, MathReward

__all__ = ["GRADERS", "REASONS", "Grade", "MathReward", "close_pools", "grade", "grade_many"]
