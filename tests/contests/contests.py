"""Judge labelled programs on 20 CodeContests problems, in every isolation that holds here; exit 1 if a label does not.

    python tests/contests/contests.py code_eval_code_contests.jsonl [--modes full,landlock_seccomp] [--json]

The file is sandbox/tests/datasets/samples/code_eval_code_contests.jsonl of github.com/bytedance/SandboxFusion: problems
and tests of DeepMind's CodeContests (CC BY 4.0), without solutions. Programs and labels are ours: labels.toml.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from checkers import CHECKERS, accepts, segments_of_good_functions

from gdpo_nemo.errors import GdpoError, PrerequisiteError
from gdpo_nemo.evaluation.coding import read_code_problems
from gdpo_nemo.rewards.code import Tests, judge_many
from gdpo_nemo.rewards.code.judging import FAULTS, WRONG
from gdpo_nemo.sandbox.isolation import AUTO, MODES
from gdpo_nemo.sandbox.jobs import OK, TIMEOUT, Job, Limits, SandboxError
from gdpo_nemo.sandbox.opening import open_sandbox

HERE = Path(__file__).parent
BRIEF = Limits(cpu_s=0.25, budget_s=0.5)
"""For the programs that should time out; all others have the limits of the reward."""
UNSEEN = "unseen"
SOURCE = "sandbox/tests/datasets/samples/code_eval_code_contests.jsonl of github.com/bytedance/SandboxFusion"


@dataclass(frozen=True)
class Program:
    """A program and its label.

    Attributes:
        id: of its problem, as ``problem`` is its name.
        mistake: what is wrong with it; None for a right one.
        source: text.
        verdict: how it fails; None for a right one.
        several: whether the problem accepts several answers.
        passed: tests that a right program passes as the file prints them, of how many; None for all of any number.
        shows: an input and its answer that show a mistake which no test of the file does.
        also: a status that the file's inputs bring about in any program.
    """

    id: int
    problem: str
    mistake: str | None
    source: str
    verdict: str | None = None
    several: bool = False
    passed: tuple[int, int] | None = None
    also: str | None = None
    shows: tuple[str, str] | None = None


def programs() -> Iterator[Program]:
    """All programs of labels.toml."""
    for problem in tomllib.loads((HERE / "labels.toml").read_text("utf-8"))["problem"]:
        known = {"several": problem.get("several", False), "also": problem.get("also")}
        passed = tuple(problem["passed"]) if "passed" in problem else None
        right = (HERE / "programs" / problem["program"]).read_text("utf-8")
        yield Program(problem["id"], problem["name"], None, right, passed=passed, **known)
        for mistake, fault in problem["faults"].items():
            if "change" in fault:
                old, new = fault["change"]
                assert right.count(old) == 1, f"{problem['name']}: {old!r} is not once in {problem['program']}"
                source = right.replace(old, new)
            else:
                source = (HERE / "programs" / fault["program"]).read_text("utf-8")
            shows = tuple(fault["shows"]) if fault["verdict"] == UNSEEN else None
            yield Program(problem["id"], problem["name"], mistake, source, fault["verdict"], shows=shows, **known)


def judge(path: Path, mode: str = AUTO) -> list[dict]:
    """One row per program whose problem is in the file: its label, its verdict, and whether the label holds.

    Args:
        path: the file.
        mode: isolation.

    Raises:
        SandboxError: the isolation does not hold here.
    """
    tests = {int(problem.id): Tests.parse(problem.gold) for problem in read_code_problems(path).problems}
    chosen = [program for program in programs() if program.id in tests]
    sandbox, verdicts = open_sandbox(mode), {}
    for slow in (False, True):
        part = [program for program in chosen if (program.verdict == TIMEOUT) is slow]
        items = [(program.source, tests[program.id]) for program in part]
        judged = judge_many(items, sandbox=sandbox, limits=BRIEF if slow else None)
        verdicts |= zip(part, judged, strict=True)
    return [_row(program, verdicts[program], _valid(program, tests[program.id], sandbox)) for program in chosen]


def _row(program, verdict, valid):
    if verdict.failure:
        raise SandboxError(f"{program.problem}: {verdict.failure}")
    statuses, num_tests = Counter(verdict.statuses), len(verdict.statuses)
    expected, seen = {program.verdict, program.also} - {None, UNSEEN}, set(statuses) - {OK}
    if program.several:  # another right answer than the file's is "wrong" to a comparison
        expected, seen = expected - {WRONG}, seen - {WRONG}
    holds = seen == expected and verdict.bug == (not FAULTS.isdisjoint(expected))
    if program.mistake is None:
        told, of = program.passed or (num_tests, num_tests)
        holds = holds and valid[0] == valid[1] and statuses[OK] == (told if num_tests == of else num_tests)
    elif program.several and program.verdict == WRONG:
        holds = holds and valid[0] < valid[1]
    return {
        "problem": program.problem, "program": program.mistake or "right", "label": program.verdict or "right",
        "passed": statuses[OK], "tests": num_tests, "statuses": dict(statuses), "valid": valid,
        "holds": holds,
    }  # fmt: skip


def _valid(program, tests, sandbox):
    """Of how many tests a checker says that the answer is right, and how many it judges; (0, 0) where none is asked."""
    if not program.several or program.verdict not in (None, WRONG):
        return 0, 0
    if program.id not in CHECKERS:
        return segments_of_good_functions(program.source)
    [result] = sandbox.run([Job(program.source, tests.inputs)])
    printed = [run.stdout.decode("utf-8", "replace") for run in result.runs]
    answers = [accepts(program.id, *test) for test in zip(tests.inputs, tests.outputs, printed, strict=True)]
    return answers.count(True), len(answers) - answers.count(None)


def main(arguments: list[str] | None = None) -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", default=os.environ.get("CONTESTS"), help="the problems (default $CONTESTS)")
    parser.add_argument("--modes", help="comma-separated; by default every one that holds here")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    options = parser.parse_args(arguments)
    try:
        if not options.file or not Path(options.file).is_file():
            raise PrerequisiteError(f"no file {options.file or '(CONTESTS is not set)'}; it is {SOURCE}")
        tables = {}
        for mode, rows in _tables(Path(options.file), options.modes):
            tables[mode] = rows
            if not options.json:
                print("\n".join(_lines(mode, rows)), end="\n\n", flush=True)
    except GdpoError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    if options.json:
        print(json.dumps(tables, indent=2))
    return int(not tables or not all(row["holds"] for rows in tables.values() for row in rows))


def _tables(path, modes):
    for mode in modes.split(",") if modes else MODES[1:]:
        try:
            open_sandbox(mode)
        except SandboxError as error:
            if modes:
                raise
            print(f"{mode} does not hold here: {error}", file=sys.stderr)
            continue
        yield mode, judge(path, mode)


def _lines(mode, rows):
    yield f"mode {mode}: {sum(row['holds'] for row in rows)} of {len(rows)} labels hold"
    yield ""
    yield "| problem | program | label | passed | of | other statuses | right to the checker | holds |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in rows:
        other = ", ".join(f"{status} {count}" for status, count in row["statuses"].items() if status != OK)
        valid = "{} of {}".format(*row["valid"]) if any(row["valid"]) else ""
        yield (
            f"| {row['problem']} | {row['program']} | {row['label']} | {row['passed']} | {row['tests']} | {other} "
            f"| {valid} | {'yes' if row['holds'] else 'NO'} |"
        )


if __name__ == "__main__":
    sys.exit(main())
