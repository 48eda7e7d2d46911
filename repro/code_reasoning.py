"""Code reasoning: tests passed, length and errors. Table 5 of arXiv 2601.05242, in small.

python repro/code_reasoning.py          # this machine, minutes, ends in a table
python repro/code_reasoning.py plan     # what that needs; starts nothing
python repro/code_reasoning.py report --html   # table.md/.tex/.csv/.html, curves, verdict.json, report.html
python repro/code_reasoning.py report --scale paper                # table 5, the paper's cells beside ours
python repro/code_reasoning.py plan --scale paper                  # what the paper-scale runs need
python repro/code_reasoning.py run --scale paper --launch slurm    # submits them; --dry-run writes the jobs only
"""

from gdpo_nemo.report.paper import CODE_REASONING
from gdpo_nemo.suite import Arm, Claim, Column, Deviation, Experiment, main

EXPERIMENT = Experiment(
    name="code_reasoning",
    title="Code reasoning: tests passed, length where all pass, and no error",
    arms=[  # configs/code_reasoning/<arm>.yaml
        Arm("grpo_2obj", "GRPO, 2 rewards"),
        Arm("gdpo_2obj", "GDPO, 2 rewards"),
        Arm("grpo_3obj", "GRPO, 3 rewards"),
        Arm("gdpo_3obj", "GDPO, 3 rewards"),
    ],
    seeds={"embedded": range(3), "paper": range(5)},
    columns=[
        Column("pass_rate", "Tests passed", reward="pass_rate"),
        Column("solved", "All passed", reward="pass_rate", at_least=1.0),
        Column("no_bug", "Without error", reward="no_bug", at_least=1.0),
        Column("within", "Within limit", reward="length", at_least=1.0),
    ],
    claims=[
        Claim("gdpo_2obj", ">", "grpo_2obj", on="pass_rate"),
        Claim("gdpo_3obj", ">", "grpo_3obj", on="within"),
        Claim("gdpo_3obj", ">", "grpo_3obj", on="no_bug"),
        Claim("gdpo_3obj", ">", "gdpo_2obj", on="no_bug"),
    ],
    curves=["pass_rate", "no_bug", "length"],
    exhibits=CODE_REASONING,
    reference="code_reasoning",
    evaluations={"coding": ["apps", "codecontests", "codeforces", "taco"]},
    deviations=[
        Deviation(
            "model and data",
            "a small model (0.1 M parameters unless --model says otherwise), procedural tasks of three to seven lines "
            "with three hidden tests each, run in the real sandbox; the paper trains DeepSeek-R1-Distill-Qwen-7B on "
            "24k tasks of Eurus-2-RL",
            expected="other absolute values; the order of the methods is what is compared",
            scale="embedded",
        ),
        Deviation(
            "limit",
            "13 tokens in place of 4000, set so that on a share of the tasks no program is right, short and safe",
            expected="more over the limit than in the paper, where a right program mostly fits",
            scale="embedded",
        ),
        Deviation(
            "algorithm",
            "clip 0.2/0.2, no KL, no dynamic sampling; the paper has 0.2/0.28, KL 5e-4 and dynamic sampling",
            scale="embedded",
        ),
        Deviation(
            "training rows",
            "the coding rows of Eurus-2-RL-Data (26,758) without those whose text accepts several answers; the paper "
            "trains on 24k of them and does not say which",
            scale="paper",
        ),
        Deviation(
            "prompt",
            "as published with the data, PRIME's system message included; the paper does not say what it asks",
            scale="paper",
        ),
        Deviation(
            "several right answers",
            "the tables count all problems of the validation file, as programs that read the data would; problems that "
            "need a judge of their own lower every arm alike (docs/evaluation.md)",
            expected="TACO lowest of the four",
            scale="paper",
        ),
        Deviation(
            "Taco cells",
            "Exceed and Bug of the base model and of two rewards are in no source at hand and stay empty; those of "
            "three rewards come from a secondary source",
            scale="paper",
        ),
        Deviation(
            "time",
            "a test may take 4 s of CPU time and a program 16 s over all tests; the paper gives no limit",
            scale="paper",
        ),
    ],
)

if __name__ == "__main__":
    main(EXPERIMENT)
