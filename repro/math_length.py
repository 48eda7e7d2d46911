"""Mathematics under a length limit. Tables 3, 4 and Figures 5 to 7 of arXiv 2601.05242, in small.

python repro/math_length.py                 # this machine, minutes, ends in a table
python repro/math_length.py plan            # what that needs; starts nothing
python repro/math_length.py run --sweep     # also over the weight of the length reward; draws figure 6
python repro/math_length.py report --html   # table.md/.tex/.csv/.html, curves, verdict.json, report.html
python repro/math_length.py report --scale paper                # tables 3 and 4, the paper's cells beside ours
python repro/math_length.py plan --scale paper                  # what the paper-scale runs need
python repro/math_length.py run --scale paper --launch slurm    # submits them; --dry-run writes the jobs only
"""

from gdpo_nemo.report.paper import MATH_LENGTH
from gdpo_nemo.suite import Arm, Claim, Column, Deviation, Experiment, main

WEIGHTS = {"w75": "0.75", "w50": "0.5", "w25": "0.25"}
METHODS = {
    "grpo": "GRPO",
    "gdpo": "GDPO",
    "grpo_conditioned": "GRPO, conditioned",
    "gdpo_conditioned": "GDPO, conditioned",
}

EXPERIMENT = Experiment(
    name="math_length",
    title="Mathematics under a length limit: two rewards, correct and length (0 or 1 each)",
    arms=[  # configs/math_length/<arm>.yaml
        *(Arm(name, label) for name, label in METHODS.items()),
        *(
            Arm(f"{name}_{weight}", f"{label}, w = {value}", default=False)
            for name, label in METHODS.items()
            for weight, value in WEIGHTS.items()
        ),
    ],
    seeds={"embedded": range(3), "paper": range(5)},
    columns=[
        Column("accuracy", "Accuracy", reward="correct", at_least=1.0),
        Column("hard", "Accuracy, hard", reward="correct", at_least=1.0, strata={"hard": 1.0}),
        Column("exceed", "Over limit", reward="length", below=1.0, better="lower"),
    ],
    claims=[
        Claim("gdpo", ">", "grpo", on="accuracy"),
        Claim("gdpo", "<", "grpo", on="exceed"),
        Claim("gdpo_conditioned", ">", "gdpo", on="accuracy"),
        Claim("grpo_conditioned", ">", "grpo", on="accuracy"),
        Claim("gdpo_conditioned", ">", "grpo_conditioned", on="accuracy"),
        Claim("gdpo_conditioned", "<", "grpo_conditioned", on="exceed"),
    ],
    curves=["correct", "length", "length/max"],
    tradeoff=("exceed", "accuracy"),
    exhibits=MATH_LENGTH,
    reference="math_conditioned",
    evaluations={"math_suite": ["math500", "aime24", "amc", "minerva", "olympiad"]},
    deviations=[
        Deviation(
            "model and data",
            "a small model (0.1 M parameters unless --model says otherwise) in a procedural world of arithmetic modulo "
            "7; the paper trains reasoning models of 1.5 to 7 billion parameters on DeepScaleR",
            expected="other absolute values; the order of the methods is what is compared",
            scale="embedded",
        ),
        Deviation(
            "limit",
            "9 tokens in place of 4000",
            expected="none by itself: answers are as much shorter",
            scale="embedded",
        ),
        Deviation(
            "algorithm",
            "clip 0.2/0.2, no KL, no dynamic sampling; the paper has 0.2/0.28, KL 5e-4 and dynamic sampling",
            scale="embedded",
        ),
    ],
)

if __name__ == "__main__":
    main(EXPERIMENT)
