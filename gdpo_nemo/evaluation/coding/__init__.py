"""Programming: tests passed, faults and length of N samples per problem (arXiv 2601.05242, section 4.3)."""

from __future__ import annotations

from gdpo_nemo.evaluation.coding.benchmark import GRADERS, LENGTH_LIMIT, CodingBenchmark
from gdpo_nemo.evaluation.coding.loading import BENCHMARKS, PAPER, load
from gdpo_nemo.evaluation.coding.problems import CodeProblem, CodeProblems, read_code_problems

__all__ = [
    "BENCHMARKS", "GRADERS", "LENGTH_LIMIT", "PAPER", "CodeProblem", "CodeProblems", "CodingBenchmark", "load",
    "read_code_problems",
]  # fmt: skip
