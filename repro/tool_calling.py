"""Tool calling: GRPO, GRPO without std and GDPO. Tables 1, 2 and Figures 1b, 4 of arXiv 2601.05242, in small.

python repro/tool_calling.py                # this machine, minutes, ends in a table
python repro/tool_calling.py plan           # what that needs; starts nothing
python repro/tool_calling.py run --arms all # with the ablations
python repro/tool_calling.py report --html  # table.md/.tex/.csv/.html, curves, verdict.json, report.html
python repro/tool_calling.py report --scale paper                # tables 1 and 2, the paper's cells beside ours
python repro/tool_calling.py plan --scale paper                  # what the paper-scale runs need
python repro/tool_calling.py run --scale paper --launch slurm    # submits them; --dry-run writes the jobs only
python repro/tool_calling.py run --scale paper --launch slurm --evaluate  # then BFCL of each and of the base models
"""

from gdpo_nemo.report.paper import TOOL_CALLING
from gdpo_nemo.suite import Arm, Claim, Column, Deviation, Experiment, main

EXPERIMENT = Experiment(
    name="tool_calling",
    title="Tool calling: two rewards, format (0 or 1) and correctness (-3 to 3)",
    arms=[  # configs/tool_calling/<arm>.yaml
        Arm("grpo", "GRPO"),
        Arm("grpo_no_std", "GRPO w/o std"),
        Arm("gdpo", "GDPO"),
        Arm("grpo_rescaled", "GRPO, rewards rescaled", default=False),
        Arm("gdpo_no_batch_norm", "GDPO w/o batch norm", default=False),
        Arm("grpo_kl_in_reward", "GRPO, KL in the reward", default=False),
        Arm("preference", "preference (not the paper's GDPO)", default=False, scale="embedded"),
    ],
    seeds={"embedded": range(3), "paper": range(5)},
    columns=[
        Column("format", "Correct format", reward="format", at_least=1.0, reference="correct_format"),
        Column("correct", "Correctness", reward="correct", unit="", digits=2),
        Column("exact", "Right call", reward="correct", at_least=3.0),
    ],
    claims=[
        Claim(left, ">", right, on=column)
        for left, right in [("gdpo", "grpo"), ("grpo", "grpo_no_std"), ("gdpo", "grpo_no_std")]
        for column in ("format", "correct")
    ],
    curves=["format", "correct"],
    exhibits=TOOL_CALLING,
    reference="bfcl_v3",
    evaluations={"bfcl": ["bfcl_v3"]},
    deviations=[
        Deviation(
            "model and data",
            "a small model (0.1 M parameters unless --model says otherwise) in a procedural world of trips, warmed up "
            "on demonstrations that seldom keep the whole format and often reason wrongly; the paper trains "
            "Qwen2.5-Instruct on ToolRL's data",
            expected="other absolute values; the order of the methods is what is compared",
            scale="embedded",
        ),
        Deviation(
            "evaluation",
            "held-out questions of the same world, one sample each at temperature 1; the paper reports BFCL",
            expected="lower values than greedy decoding gives",
            scale="embedded",
        ),
        Deviation(
            "Correct format",
            "share of single-turn responses of the shape think and call, think and response, or all three; the paper "
            "does not say how it measured it",
            scale="paper",
        ),
        Deviation(
            "BFCL",
            "version 3 as of bfcl-eval 2025.8.6.2, by its own checkers, greedily, with the prompt and handler for BFCL "
            "that ToolRL released (docs/bfcl.md); the paper does not say how it evaluated",
            scale="paper",
        ),
        Deviation(
            "batch normalisation",
            "over samples, as in the paper's equation; the released trainer whitens over tokens, where long responses "
            "weigh more",
            scale="paper",
        ),
        Deviation(
            "long prompts",
            "rows whose prompt exceeds 2,048 tokens are not trained on; the released code cuts their front away, and "
            "with it the instructions",
            scale="paper",
        ),
        Deviation(
            "rows without a call",
            "a row whose reference holds no call has correctness 0 in the released reward, whatever the answer",
            expected="the mean of Correctness stays below 3 even for a perfect model",
            scale="embedded",
        ),
        Deviation(
            "KL",
            "no KL penalty in any arm but grpo_kl_in_reward; the released GRPO baseline pays 0.001 KL inside its "
            "reward and GDPO does not, which --arms grpo_kl_in_reward repeats",
            expected="GRPO at least as good as in the paper: where a group's rewards are equal, the penalty alone "
            "decides there, at the strength of any reward",
        ),
    ],
)

if __name__ == "__main__":
    main(EXPERIMENT)
