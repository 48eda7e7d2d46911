"""Word problems with three rewards: format, correct and integer. The authors' GSM8K example, in small.

python repro/gsm8k.py          # this machine, minutes, ends in a table
python repro/gsm8k.py plan     # what that needs; starts nothing
python repro/gsm8k.py report --html   # table.md/.tex/.csv/.html, curves, verdict.json, report.html
python repro/gsm8k.py plan --scale paper                  # what the runs on GSM8K itself need
python repro/gsm8k.py run --scale paper --launch slurm    # submits them; --dry-run writes the jobs only
"""

from gdpo_nemo.report.paper import GSM8K
from gdpo_nemo.suite import Arm, Claim, Column, Deviation, Experiment, main

EXPERIMENT = Experiment(
    name="gsm8k",
    title="Word problems: three rewards, format, correct and integer (0 or 1 each)",
    arms=[  # configs/gsm8k/<arm>.yaml
        Arm("grpo", "GRPO"),
        Arm("grpo_no_std", "GRPO w/o std"),
        Arm("gdpo", "GDPO"),
    ],
    seeds={"embedded": range(3), "paper": range(5)},
    columns=[
        Column("correct", "Correct", reward="correct", at_least=1.0),
        Column("format", "Format", reward="format", at_least=1.0),
        Column("integer", "Integer", reward="integer", at_least=1.0),
    ],
    claims=[Claim("gdpo", ">", "grpo", on=column) for column in ("correct", "format", "integer")],
    curves=["format", "correct", "integer"],
    exhibits=GSM8K,
    evaluations={"gsm8k": ["gsm8k"]},
    deviations=[
        Deviation(
            "model and data",
            "a small model (0.1 M parameters unless --model says otherwise) in a procedural world of word problems; "
            "the authors train Qwen2.5-1.5B-Instruct on GSM8K",
            expected="other absolute values; the order of the methods is what is compared",
            scale="embedded",
        ),
        Deviation(
            "algorithm",
            "clip 0.2/0.2 and no KL, at a constant learning rate; the release has the same clip, KL 0.04 (k3) and a "
            "cosine with warm-up",
            scale="embedded",
        ),
        Deviation(
            "GRPO w/o std",
            "the authors compare GRPO and GDPO alone on GSM8K; their tool-calling runs have this arm too",
        ),
        Deviation(
            "paper",
            "the paper has no table of this experiment, and the authors' repository shows training rewards of one run "
            "per method; nothing here is judged against their numbers",
            scale="paper",
        ),
        Deviation(
            "prompt",
            "asks for the same sections in other words than the authors' system message",
            scale="paper",
        ),
        Deviation(
            "loss",
            "a mean over all response tokens of the 512 rollouts; TRL 0.18 takes it over the 16 of one device at a "
            "time, and then the mean of these, so that tokens of short responses weigh more",
            scale="paper",
        ),
        Deviation(
            "epsilon",
            "nothing is added to the standard deviation of a group, 1e-6 to that of the batch; TRL adds 1e-4 to both",
            expected="none for rewards of 0 and 1",
            scale="paper",
        ),
    ],
)

if __name__ == "__main__":
    main(EXPERIMENT)
