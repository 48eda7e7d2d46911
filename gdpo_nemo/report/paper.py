"""The paper's tables and figures as exhibits, by experiment: what each shows, of which models, and what it needs.

Columns read benchmarks by the names of ``gdpo eval``: bfcl_v3; math500, aime24, amc, minerva, olympiad; apps,
codecontests, codeforces, taco; gsm8k. Scores: bfcl_v3 ``correct`` and ``correct_format``; mathematics ``correct`` and
``exceed``; code ``pass_rate``, ``exceed`` and ``bug``; gsm8k ``correct``, ``last_number``, ``format`` and ``integer``.

The formulas of BFCL's columns are in ``gdpo_nemo.evaluation.bfcl.aggregates``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from gdpo_nemo.evaluation.bfcl.aggregates import AGGREGATES, CORRECT_FORMAT
from gdpo_nemo.report.spec import Claim, Column, Exhibit

TOOL_MODELS = ("qwen2.5-1.5b-instruct", "qwen2.5-3b-instruct")
MATH_MODELS = ("deepseek-r1-distill-qwen-1.5b", "deepseek-r1-distill-qwen-7b", "qwen3-4b-instruct")
CONDITIONED_MODEL = CODE_MODEL = "deepseek-r1-distill-qwen-7b"
MATH_BENCHMARKS = {
    "math500": "MATH-500",
    "aime24": "AIME-24",
    "amc": "AMC 22/23",
    "minerva": "Minerva",
    "olympiad": "OlympiadBench",
}
CODE_BENCHMARKS = {"apps": "APPS", "codecontests": "CodeContests", "codeforces": "Codeforces", "taco": "TACO"}
WEIGHTS = ("", "_w75", "_w50", "_w25")
BOTH, WITHOUT_STD = ("grpo", "gdpo"), ("grpo", "grpo_no_std", "gdpo")
CONDITIONED = (*BOTH, "grpo_conditioned", "gdpo_conditioned")
TOOL_REWARDS, MATH_REWARDS = ("format", "correct"), ("correct", "length", "length/max")


def _bfcl_columns() -> tuple[Column, ...]:
    aggregates = AGGREGATES["v3"]

    def column(name: str, title: str, strata: Mapping[str, float], reward: str = "correct") -> Column:
        return Column(name, title, reward, digits=2, benchmark="bfcl_v3", strata=strata, reference=name, share=True)

    return (
        column("live", "Live", aggregates["live"]),
        column("multi_turn", "Multi-turn", aggregates["multi_turn"]),
        column("non_live", "Non-live", aggregates["non_live"]),
        column("avg", "Average", aggregates["avg"]),
        column("correct_format", "Correct format", CORRECT_FORMAT["v3"], "correct_format"),
    )


Score = tuple[str, str, Literal["higher", "lower"]]
MATH_SCORES: tuple[Score, ...] = (("correct", "accuracy", "higher"), ("exceed", "too long", "lower"))
CODE_SCORES: tuple[Score, ...] = (
    ("pass_rate", "tests passed", "higher"),
    ("exceed", "too long", "lower"),
    ("bug", "with errors", "lower"),
)


def _score_columns(benchmarks: Mapping[str, str], scores: tuple[Score, ...]) -> tuple[Column, ...]:
    return tuple(
        Column(
            f"{benchmark}_{reward}", f"{title}, {words}", reward, benchmark=benchmark, share=reward != "pass_rate",
            better=better, reference=f"{benchmark}_{reward}",
        )
        for benchmark, title in benchmarks.items()
        for reward, words, better in scores
    )  # fmt: skip


BFCL_COLUMNS = _bfcl_columns()
MATH_COLUMNS, CODE_COLUMNS = _score_columns(MATH_BENCHMARKS, MATH_SCORES), _score_columns(CODE_BENCHMARKS, CODE_SCORES)


def better(left: str, right: str, columns: tuple[Column, ...]) -> tuple[Claim, ...]:
    """The claim that ``left`` beats ``right`` on each column, whichever direction is better there."""
    return tuple(Claim(left, ">" if column.better == "higher" else "<", right, on=column.name) for column in columns)


def _pick(columns: tuple[Column, ...], *names: str) -> tuple[Column, ...]:
    return tuple(column for name in names for column in columns if column.name == name)


def _weighted(methods: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{method}{weight}" for method in methods for weight in WEIGHTS)


def _curves(
    name: str, title: str, models: tuple[str, ...], rewards: tuple[str, ...], runs_of: str, arms: tuple[str, ...] = BOTH
) -> Exhibit:
    needs = f"the runs of {runs_of}; no evaluation"
    return Exhibit(name, title, "curves", models=models, arms=arms, rewards=rewards, needs=needs)


TOOL_CALLING = (
    Exhibit(
        "table1",
        "Table 1: tool calling on BFCL-v3",
        "table",
        models=TOOL_MODELS,
        arms=BOTH,
        columns=BFCL_COLUMNS,
        claims=better("gdpo", "grpo", BFCL_COLUMNS),
        reference="bfcl_v3",
        needs="2 models x 2 arms x 5 seeds of 100 steps on GPUs, and bfcl_v3 of each and of both base models",
    ),
    Exhibit(
        "table2",
        "Table 2: GRPO without standard deviation on BFCL-v3",
        "table",
        models=TOOL_MODELS[:1],
        arms=WITHOUT_STD,
        columns=BFCL_COLUMNS,
        claims=(
            *better("gdpo", "grpo", BFCL_COLUMNS),
            *better("gdpo", "grpo_no_std", BFCL_COLUMNS),
            *better("grpo", "grpo_no_std", _pick(BFCL_COLUMNS, "avg", "correct_format")),
        ),
        reference="bfcl_v3",
        needs="1 model x 3 arms x 5 seeds of 100 steps on GPUs, and bfcl_v3 of each; shares runs with table1",
    ),
    _curves("figure1b", "Figure 1b: rewards of GRPO and GDPO over training", TOOL_MODELS[:1], TOOL_REWARDS, "table1"),
    _curves(
        "figure4",
        "Figure 4: rewards over training, with GRPO without standard deviation",
        TOOL_MODELS[:1],
        TOOL_REWARDS,
        "table2",
        WITHOUT_STD,
    ),
    Exhibit(
        "figure3",
        "Figure 3: distinct advantage groups, exact counts",
        "groups",
        needs="nothing: counted on this machine in seconds",
    ),
)
MATH_LENGTH = (
    Exhibit(
        "table3",
        "Table 3: mathematics within 4000 tokens",
        "table",
        models=MATH_MODELS,
        arms=BOTH,
        columns=MATH_COLUMNS,
        claims=better("gdpo", "grpo", MATH_COLUMNS),
        reference="math_length",
        needs="3 models x 2 arms x 5 seeds of 500 steps on GPUs; five benchmarks, 16 samples per question, of each",
    ),
    Exhibit(
        "table4",
        "Table 4: a length reward given only for right answers",
        "table",
        models=(CONDITIONED_MODEL,),
        arms=CONDITIONED,
        columns=MATH_COLUMNS,
        claims=(
            *better("gdpo_conditioned", "grpo_conditioned", MATH_COLUMNS),
            *better("gdpo_conditioned", "gdpo", tuple(c for c in MATH_COLUMNS if c.better == "higher")),
        ),
        reference="math_conditioned",
        needs="1 model x 4 arms x 5 seeds of 500 steps on GPUs; five benchmarks of each; shares runs with table3",
    ),
    Exhibit(
        "weights",
        "Appendix G: weight of the length reward (the paper's numbers are not known)",
        "table",
        models=(CONDITIONED_MODEL,),
        arms=_weighted(BOTH),
        columns=MATH_COLUMNS,
        reference="math_weights",
        needs="1 model x 8 arms x 5 seeds of 500 steps on GPUs; five benchmarks of each; shares runs with table3",
    ),
    _curves(
        "figure5", "Figure 5: rewards and the longest response over training", MATH_MODELS[:1], MATH_REWARDS, "table3"
    ),
    Exhibit(
        "figure6",
        "Figure 6: accuracy against the share of long responses, over weights of the length reward",
        "tradeoff",
        models=(CONDITIONED_MODEL,),
        arms=_weighted(CONDITIONED),
        columns=_pick(MATH_COLUMNS, "aime24_exceed", "aime24_correct", "math500_exceed", "math500_correct"),
        needs="1 model x 16 arms x 5 seeds of 500 steps on GPUs; aime24 and math500 of each; shares runs with table4",
    ),
    _curves(
        "figure7",
        "Figure 7: rewards and the longest response over training, further models",
        MATH_MODELS[1:],
        MATH_REWARDS,
        "table3",
    ),
)
CODE_REASONING = (
    Exhibit(
        "table5",
        "Table 5: code with two and three objectives",
        "table",
        models=(CODE_MODEL,),
        arms=("grpo_2obj", "gdpo_2obj", "grpo_3obj", "gdpo_3obj"),
        columns=CODE_COLUMNS,
        claims=(
            *better("gdpo_2obj", "grpo_2obj", tuple(c for c in CODE_COLUMNS if c.reward == "pass_rate")),
            *better("gdpo_3obj", "grpo_3obj", tuple(c for c in CODE_COLUMNS if c.reward != "pass_rate")),
        ),
        reference="code_reasoning",
        needs="1 model x 4 arms x 5 seeds of 400 steps on GPUs; four benchmarks of each",
    ),
)
GSM8K_COLUMNS = tuple(
    Column(reward, title, reward, benchmark="gsm8k", share=True)
    for reward, title in {
        "correct": "Correct",
        "last_number": "Correct, last number",
        "format": "Format",
        "integer": "Integer",
    }.items()
)
GSM8K = (
    Exhibit(
        "gsm8k_test",
        "GSM8K with three rewards (an example of the authors' repository; the paper has no table of it)",
        "table",
        models=TOOL_MODELS[:1],
        arms=BOTH,
        columns=GSM8K_COLUMNS,
        claims=better("gdpo", "grpo", tuple(c for c in GSM8K_COLUMNS if c.name != "last_number")),
        needs="1 model x 2 arms x 5 seeds of 233 steps on GPUs; gsm8k of each and of the base model",
    ),
    _curves(
        "gsm8k_rewards",
        "GSM8K with three rewards: rewards over training",
        TOOL_MODELS[:1],
        ("integer", "format", "correct"),
        "gsm8k_test",
    ),
)
EXHIBITS: Mapping[str, tuple[Exhibit, ...]] = {
    "tool_calling": TOOL_CALLING,
    "math_length": MATH_LENGTH,
    "code_reasoning": CODE_REASONING,
    "gsm8k": GSM8K,
}
"""By experiment, for scripts: ``Experiment(exhibits=EXHIBITS["tool_calling"], ...)``."""
