"""Evaluate a model on questions of your own with one right answer each.

    gdpo eval exact_answers --questions capitals.jsonl --endpoint http://localhost:8000/v1 --samples 4
    gdpo eval exact_answers rescore --questions capitals.jsonl --grader last_line --out runs/eval/M

Lines of the file: {"question": "What is the capital of France?", "answer": "Paris"}.
"""

from pathlib import Path

from gdpo_nemo.evaluation.command_line import EvalProgram, main
from gdpo_nemo.evaluation.exact_answers import ExactAnswers
from gdpo_nemo.evaluation.sampling import SamplingParams


def add_arguments(parser):
    """Options of this program."""
    parser.add_argument(
        "--questions", type=Path, required=True, nargs="+", metavar="FILE", help=".json, .jsonl or .parquet"
    )
    parser.add_argument("--system", default="", metavar="TEXT", help="system message of every conversation")


PROGRAM = EvalProgram(
    description=__doc__.splitlines()[0],
    benchmarks=lambda options: [ExactAnswers(path, system=options.system) for path in options.questions],
    add_arguments=add_arguments,
    params=SamplingParams(temperature=0.0, top_p=1.0, max_tokens=512),
)

if __name__ == "__main__":
    main(PROGRAM)
