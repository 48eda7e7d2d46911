"""Evaluate a model on GSM8K's test problems: right by its answer tag, right by its last number, format and integer.

    gdpo eval gsm8k --endpoint http://localhost:8000/v1
    gdpo eval gsm8k --checkpoint runs/gsm8k/paper/MODEL/gdpo/seed0@latest
    gdpo eval gsm8k rescore --grader released --out runs/eval/MODEL

Greedy, one answer per problem of up to 1024 tokens, asked as the training asks. The test set is fetched once and locked
(gdpo data fetch gsm8k), or read from a file of yours with the columns question and answer (--data).
"""

from pathlib import Path

from gdpo_nemo.evaluation import gsm8k
from gdpo_nemo.evaluation.command_line import EvalProgram, main
from gdpo_nemo.evaluation.sampling import SamplingParams


def add_arguments(parser):
    """Options of this program."""
    parser.add_argument("--data", type=Path, metavar="FILE", help="your own file: .jsonl, .json or .parquet")
    parser.add_argument("--offline", action="store_true", help="ask nothing of the network (or set GDPO_OFFLINE=1)")


PROGRAM = EvalProgram(
    description=__doc__.splitlines()[0],
    benchmarks=lambda options: gsm8k.load(options.data, offline=options.offline),
    add_arguments=add_arguments,
    params=SamplingParams(temperature=0.0, top_p=1.0, max_tokens=1024),
)

if __name__ == "__main__":
    main(PROGRAM)
