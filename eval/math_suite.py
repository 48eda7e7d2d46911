"""Evaluate a model on AIME-24, AIME-25, AMC, MATH-500, Minerva and OlympiadBench, with accuracy and length.

    gdpo eval math_suite --endpoint http://localhost:8000/v1 --benchmarks aime24,math500
    gdpo eval math_suite --checkpoint runs/math_length/paper/MODEL/gdpo/seed0@latest
    gdpo eval math_suite rescore --grader math_verify --out runs/eval/MODEL --benchmarks aime24,math500

The defaults are the paper's: 16 samples per problem at temperature 0.6 and top-p 0.95, up to 32768 tokens, and a length
limit of 4000 tokens. Benchmarks are fetched once and locked (gdpo data), or read from a folder of yours (--data).
"""

from gdpo_nemo.evaluation import mathematics
from gdpo_nemo.evaluation.command_line import EvalProgram, add_suite_options, count_list, main
from gdpo_nemo.evaluation.sampling import SamplingParams

PAPER = ("math500", "aime24", "amc", "minerva", "olympiad")


def add_arguments(parser):
    """Options of this program."""
    add_suite_options(
        parser,
        PAPER,
        known=f"of {', '.join(mathematics.FILES)} (default: those of the paper, {','.join(PAPER)})",
        files=", named aime24.json and so on",
        length_limit=mathematics.LENGTH_LIMIT,
        pass_at="1,16",
    )
    parser.add_argument("--maj-at", type=count_list, default=[], metavar="K,L", help="majority vote of k as well")


def benchmarks(options):
    """What the command line asks for."""
    return mathematics.load(
        options.benchmarks,
        options.data,
        offline=options.offline,
        length_limit=options.length_limit,
        pass_at=options.pass_at,
        majority_at=options.maj_at,
    )


PROGRAM = EvalProgram(
    description=__doc__.splitlines()[0],
    benchmarks=benchmarks,
    add_arguments=add_arguments,
    samples=16,
    params=SamplingParams(),
)

if __name__ == "__main__":
    main(PROGRAM)
