"""Rewards of the coding task: which tests a program passes, whether it fails, how long the response is.

``judge`` and ``judge_many`` are the engine; ``CodeReward`` puts them under the protocol of all rewards.
"""

from __future__ import annotations

from gdpo_nemo.rewards.code.extraction import extract_code
from gdpo_nemo.rewards.code.judging import SCORERS, Judgement, Tests, judge, judge_many
from gdpo_nemo.rewards.code.reward import REASONS, CodeReward

__all__ = ["REASONS", "SCORERS", "CodeReward", "Judgement", "Tests", "extract_code", "judge", "judge_many"]
