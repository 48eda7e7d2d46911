"""The command line that all programs in ``eval/`` share: whom to ask, how, where to, and what is printed.

gdpo eval NAME --endpoint http://host:8000/v1 --samples 16 --out DIR     # goes on after any interruption
gdpo eval NAME rescore --grader GRADER --out DIR                         # grades again, asks nothing
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from gdpo_nemo import provenance
from gdpo_nemo.arguments import Parser, count, exit_code, positive
from gdpo_nemo.errors import PrerequisiteError
from gdpo_nemo.evaluation.benchmark import Benchmark, Number
from gdpo_nemo.evaluation.engine import IncompleteError, Settings, evaluate, header
from gdpo_nemo.evaluation.grading import rescore
from gdpo_nemo.evaluation.pacing import Pace
from gdpo_nemo.evaluation.sampling import Sampler, SamplingParams
from gdpo_nemo.evaluation.store import EvaluationStore
from gdpo_nemo.terminal import complaint, table

EXIT_CODES = """\
exit codes:
  0    done
  1    something failed, or some samples have no answer; the same command goes on
  2    the command line is wrong
  3    something is missing: a package, a model, a file, the server's address or key
  130  interrupted; nothing is lost, the same command goes on
"""
AGAIN = "rescore"
Results = Mapping[str, Sequence[Number]]


@dataclass(frozen=True)
class EvalProgram:
    """One program of ``eval/``.

    Attributes:
        description: first line of its help.
        benchmarks: the parsed command line -> the benchmarks to run.
        add_arguments: adds options of its own.
        samples: default of ``--samples``.
        params: defaults of sampling.
        table: benchmark -> numbers -> what a person reads.
        further: commands besides rescore: name -> the words before it and the words after it -> exit code.
    """

    description: str
    benchmarks: Callable[[argparse.Namespace], Sequence[Benchmark]]
    add_arguments: Callable[[argparse.ArgumentParser], None] | None = None
    samples: int = 1
    params: SamplingParams = field(default_factory=SamplingParams)
    table: Callable[[Results], str] = field(default=lambda results: numbers_table(results))
    further: Mapping[str, Callable[[str, Sequence[str]], int]] = field(default_factory=dict)


def main(program: EvalProgram) -> NoReturn:
    """Run the command line of this process."""
    sys.exit(execute(program, sys.argv[1:]))


def execute(program: EvalProgram, arguments: Sequence[str], typed: str | None = None) -> int:
    """Carry out one command line and return its exit code.

    Args:
        program: what it is about.
        arguments: the words after the program's name.
        typed: the words before them (default: this process's script).
    """
    words, typed = list(arguments), typed or f"python {sys.argv[0]}"
    return exit_code(lambda: _carry_out(program, words, typed), words, "the same command goes on")


def _carry_out(program: EvalProgram, words: Sequence[str], typed: str) -> int:
    if words and words[0] in program.further:
        return program.further[words[0]](typed, words[1:])
    again = words[:1] == [AGAIN]
    options = build_parser(program, typed, again).parse_args(words[again:])
    text, data, code = _rescore(program, options) if again else _evaluate(program, options)
    print(json.dumps(data, indent=2, allow_nan=False) if options.json else text, flush=True)
    return code


def build_parser(program: EvalProgram, typed: str, again: bool = False) -> Parser:
    """The parser of an evaluation, or (``again``) of rescore; ``typed``: the words before its arguments."""
    examples = [
        f"  {typed} --endpoint http://host:8000/v1 --out DIR",
        f"  {typed} {AGAIN} --grader NAME --out DIR",
    ]
    examples += [f"  {typed} {name} --help" for name in program.further]
    parser = Parser(
        prog=f"{typed} {AGAIN}" if again else typed,
        description=program.description + (" Grade answers again, with another grader." if again else ""),
        epilog="\n".join(["examples:", *examples, "", EXIT_CODES]),
    )
    if again:
        parser.add_argument("--grader", required=True, metavar="NAME", help="who grades")
    else:
        _add_model(parser)
        _add_sampling(parser, program)
    if program.add_arguments:
        program.add_arguments(parser)
    where = "folder with the results" if again else "folder for results (default: RUN/eval, or runs/eval/<model>)"
    parser.add_argument("--out", type=Path, metavar="DIR", required=again, help=f"{where}; <benchmark>/ in it")
    parser.add_argument("--json", action="store_true", help="print JSON on standard output")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def _add_model(parser: argparse.ArgumentParser) -> None:
    model = parser.add_argument_group("whom to ask").add_mutually_exclusive_group(required=True)
    model.add_argument("--endpoint", metavar="URL", help="an OpenAI-compatible server, e.g. http://host:8000/v1")
    model.add_argument("--model", metavar="NAME", help="a Hugging Face folder or hub id, in this process")
    model.add_argument("--checkpoint", metavar="RUN@STEP", help="of a run of ours, in this process")
    server = parser.add_argument_group("at an endpoint")
    server.add_argument(
        "--served-model-name", "--served-name", metavar="M", help="default: the only one that the server has"
    )
    server.add_argument("--api-key-env", metavar="VAR", help="environment variable that holds the key")
    server.add_argument("--completions", metavar="TOKENIZER", help="ask /completions, with this tokenizer's template")
    server.add_argument("--timeout", type=positive, default=3600.0, metavar="S", help="of one attempt (3600)")
    server.add_argument("--retries", type=int, default=Pace.retries, metavar="N", help="further attempts (%(default)s)")
    server.add_argument("--requests-per-minute", type=positive, metavar="N", help="no more than that")
    local = parser.add_argument_group("in this process")
    local.add_argument("--engine", choices=["vllm", "transformers"], help="default: vllm where it is installed")
    local.add_argument("--vllm", type=_object, default={}, metavar="JSON", help="its engine's arguments, e.g. "
                       '{"tensor_parallel_size": 2}')  # fmt: skip
    local.add_argument("--device", help="for transformers, e.g. cuda (default: cuda where there is one, else cpu)")
    local.add_argument("--dtype", help="of the weights (default: auto in vllm, float32 in transformers)")


def _add_sampling(parser: argparse.ArgumentParser, program: EvalProgram) -> None:
    group, params = parser.add_argument_group("how to ask"), program.params
    group.add_argument("--samples", type=count, default=program.samples, metavar="N", help="per question (%(default)s)")
    group.add_argument("--temperature", type=float, default=params.temperature, help="0 is greedy (%(default)s)")
    group.add_argument("--top-p", type=float, default=params.top_p, help="(%(default)s)")
    group.add_argument("--max-tokens", type=count, default=params.max_tokens, help="longest answer (%(default)s)")
    group.add_argument("--seed", type=int, default=params.seed or 0, help="of all samples (%(default)s)")
    group.add_argument("--limit", type=count, metavar="N", help="only the first N questions of each benchmark")
    group.add_argument("--concurrency", type=count, default=Pace.concurrency, metavar="N", help="(%(default)s)")
    group.add_argument("--allow-incomplete", action="store_true", help="make the table without failed samples")


def _evaluate(program: EvalProgram, options: argparse.Namespace) -> tuple[str, Any, int]:
    benchmarks = program.benchmarks(options)
    sampler, out = build_sampler(options)
    out = options.out or out
    settings = Settings(
        options.samples,
        SamplingParams(options.temperature, options.top_p, options.max_tokens, options.seed, program.params.stop),
        Pace(options.concurrency, options.retries, requests_per_minute=options.requests_per_minute),
        options.limit,
        options.allow_incomplete,
    )
    results: dict[str, list[Number]] = {}
    incomplete: list[str] = []
    with asyncio.Runner() as runner:
        try:
            for benchmark in benchmarks:
                origin = provenance.collect(sys.argv) | {"endpoint": provenance.tidy(options.endpoint or "")}
                store = EvaluationStore.create(out / benchmark.name, header(benchmark, sampler, settings, origin))
                try:
                    results[benchmark.name] = evaluate(benchmark, sampler, store, settings, runner)
                except IncompleteError as error:
                    incomplete.append(str(error))
        finally:
            runner.run(sampler.close())
    for text in incomplete:
        print(complaint(text), file=sys.stderr)
    data = {"out": str(out), "incomplete": incomplete, "results": {k: list(map(asdict, v)) for k, v in results.items()}}
    return f"{program.table(results)}\n{out}", data, 1 if incomplete else 0


def _rescore(program: EvalProgram, options: argparse.Namespace) -> tuple[str, Any, int]:
    if not options.out.is_dir():
        raise PrerequisiteError(f"no folder {options.out} with answers to grade again; name it with --out")
    results: dict[str, list[Number]] = {}
    lines, data = list[str](), dict[str, Any]()
    for benchmark in program.benchmarks(options):
        store = EvaluationStore.open(options.out / benchmark.name)
        name, changed = rescore(benchmark, store, options.grader)
        results[f"{benchmark.name} [{name}]"] = numbers = benchmark.numbers(store, name)
        said = ", ".join(f"{score} {count}" for score, count in changed.items()) or "nothing"
        lines.append(f"{benchmark.name}: {name} differs from {store.header['grader']} in samples: {said}")
        data[benchmark.name] = {"scores": name, "changed": changed, "numbers": list(map(asdict, numbers))}
    return "\n".join([program.table(results), *lines]), data, 0


def build_sampler(options: argparse.Namespace) -> tuple[Sampler, Path]:
    """The sampler that a command line asks for, and the folder where its results go by default.

    Raises:
        PrerequisiteError: a package, a model or a key is missing.
    """
    from gdpo_nemo.evaluation import samplers

    if options.endpoint:
        endpoint = samplers.endpoint(
            options.endpoint,
            options.served_model_name,
            api_key_env=options.api_key_env,
            timeout_s=options.timeout,
            tokenizer=options.completions,
        )
        return endpoint, _default_out(endpoint.served_name())
    folder, out = options.model, _default_out(options.model or "")
    if options.checkpoint:
        from gdpo_nemo.evaluation.checkpoint import model_folder

        path, run = model_folder(options.checkpoint)
        folder, out = str(path), run / "eval"
    choice = {"device": options.device, "dtype": options.dtype, "vllm": options.vllm}
    return samplers.local(folder, options.engine, **choice), out


def _default_out(model: str) -> Path:
    return Path("runs") / "eval" / re.sub(r"[^\w.-]+", "_", model.strip("/"))


def numbers_table(results: Results) -> str:
    """All numbers, one a line: value, interval, and what stands behind it."""
    rows: list[tuple[str, ...]] = [
        ("benchmark", "number", "value", "interval", "questions", "samples", "ungraded", "failed")
    ]
    for benchmark, numbers in results.items():
        for number in numbers:
            value = "not run" if number.value is None else f"{_short(number.value)}{number.unit}"
            low_high = number.interval and f"{_short(number.interval.low)} to {_short(number.interval.high)}"
            counts = (number.num_questions, number.num_samples, number.ungraded, number.failed)
            rows.append((benchmark, number.name, value, low_high or "-", *map(str, counts)))
    if len(rows) == 1:
        return "no result"
    kinds = {number.interval for numbers in results.values() for number in numbers if number.interval}
    return "\n".join(
        [table(rows, indent=""), *sorted({f"interval: {100 * kind.level:g} %, {kind.method}" for kind in kinds})]
    )


def _short(value: float) -> str:
    return f"{value:.{0 if value == 0 else max(0, 3 - math.floor(math.log10(abs(value)) + 1))}f}"


def add_suite_options(
    parser: argparse.ArgumentParser, paper: Sequence[str], *, known: str, files: str, length_limit: int, pass_at: str
) -> None:
    """Options of a program with several published benchmarks.

    Args:
        parser: takes them.
        paper: the benchmarks by default.
        known: help of ``--benchmarks``: which there are and which those of the paper are.
        files: help of ``--data``: what a folder of one's own holds.
        length_limit: default of ``--length-limit``, tokens.
        pass_at: example in the help of ``--pass-at``.
    """
    parser.add_argument("--benchmarks", type=name_list, default=list(paper), metavar="A,B", help=known)
    parser.add_argument("--data", type=Path, metavar="DIR", help=f"your own files{files}")
    parser.add_argument("--offline", action="store_true", help="ask nothing of the network (or set GDPO_OFFLINE=1)")
    parser.add_argument(
        "--length-limit", type=int, default=length_limit, metavar="N", help="tokens (default: %(default)s)"
    )
    parser.add_argument("--pass-at", type=count_list, default=[], metavar="K,L", help=f"pass@k as well, e.g. {pass_at}")


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"{text} is no JSON object")
    return found


def name_list(text: str) -> list[str]:
    """The names of a comma-separated list, as the type of an option."""
    return [name.strip() for name in text.split(",") if name.strip()]


def count_list(text: str) -> list[int]:
    """The numbers of a comma-separated list, each 1 or more, as the type of an option."""
    return [count(part) for part in name_list(text)]
