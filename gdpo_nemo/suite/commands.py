"""The commands of ``gdpo``: what each does, and a command line to copy. Plain data, so that ``--help`` is quick."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """One command: what it does, and a command line to copy (after the program's name)."""

    summary: str
    example: str
    starts_runs: bool = False


COMMANDS = {
    "plan": Command("what a run would do, need and reuse; starts nothing", "plan{} --sweep", starts_runs=True),
    "run": Command(
        "do what is not finished yet, then report; goes on after any interruption",
        "run{} --seeds 0-4 embedded.train.steps=200",
        starts_runs=True,
    ),
    "status": Command("state and last rewards of every run, also while they run", "status{}"),
    "report": Command(
        "tables, figures and verdicts, written and printed; of an experiment, or one: report table1",
        "report{} --html",
    ),
    "check": Command("is every claim of the experiment supported? exit code 0 or 4", "check{} --json"),
}
CLUSTER_COMMANDS = {
    "rehearse": Command(
        "run NeMo RL's own main on a CPU, a few steps and a resume, before any GPU is paid for",
        "rehearse{} --model qwen2.5-7b-instruct",
    ),
    "train": Command(
        "run NeMo RL's own main here with the plug-in registered; the same command resumes",
        "train{} --model qwen2.5-7b-instruct --arms gdpo --seeds 0",
    ),
    "launch": Command(
        "render and submit the jobs of a cluster: models x arms x seeds",
        "launch{} --to slurm --dry-run --model qwen2.5-7b-instruct",
    ),
    "checkpoint": Command(
        "export a checkpoint of NeMo RL to Hugging Face format, and verify it",
        "checkpoint export runs/tool_calling/paper/qwen2.5-7b-instruct/gdpo/seed0@latest --to export",
    ),
}
"""What ``gdpo`` does with NeMo RL; the arguments are in ``cluster_commands``."""
LIST = Command("experiments, their scales and arms, and how far they are", "list")
EVAL = Command(
    "published benchmarks and questions of your own: of a served model, a folder or a checkpoint",
    "eval math_suite --endpoint http://localhost:8000/v1",
)


@dataclass(frozen=True)
class Tool:
    """A command about files, not about an experiment: its module has ``add_arguments(parser)`` and ``answer(options)``.

    Attributes:
        summary, example: as of ``Command``.
        module: imported only when the command is used.
    """

    summary: str
    example: str
    module: str


TOOLS = {
    "explain": Tool(
        "from a printed number down to its runs, evaluations, samples, prompts and configurations",
        "explain embedded:tiny/gdpo/format --experiment tool_calling",
        "gdpo_nemo.suite.explaining",
    ),
    "power": Tool(
        "what the runs at hand could have found, and how many seeds the paper's effects take",
        "power table1 --spread 1.5",
        "gdpo_nemo.suite.powering",
    ),
    "diff": Tool(
        "what differs between two runs: configuration, code, packages, machine, results",
        "diff runs/tool_calling/embedded/tiny/grpo/seed0 runs/tool_calling/embedded/tiny/gdpo/seed0",
        "gdpo_nemo.suite.comparing",
    ),
    "health": Tool(
        "what the rewards are like before they are trained on, which one decides, and what to do",
        "health tool_calling --prompts 200 --rollouts-per-prompt 8",
        "gdpo_nemo.suite.health_commands",
    ),
    "monitor": Tool(
        "alarms about a run, finished or under way: lost rewards, collapse, a metric that falls while the rewards rise",
        "monitor runs/tool_calling/embedded/tiny/gdpo/seed0 --metric correct",
        "gdpo_nemo.suite.monitoring",
    ),
    "data": Tool(
        "the published data sets of a task: fetch and lock them, verify them, count rows",
        "data fetch math_length",
        "gdpo_nemo.suite.data_commands",
    ),
    "doctor": Tool(
        "what this machine has and lacks, and what its sandbox can keep in", "doctor", "gdpo_nemo.suite.doctor"
    ),
}
"""Commands of ``gdpo`` alone, not of a script."""
GROUPS = {
    "experiments on this machine": ("plan", "run", "status", "report", "check", "list"),
    "what stands behind a result": ("explain", "power", "diff", "health", "monitor"),
    "models": ("eval", "checkpoint"),
    "NeMo RL, on a cluster": ("rehearse", "train", "launch"),
    "what is needed": ("data", "doctor"),
}
"""The commands as ``gdpo --help`` lists them."""
