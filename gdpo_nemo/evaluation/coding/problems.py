"""Programming problems with their tests, in the shapes in which they are published.

    Eurus-2-RL-Data     prompt (chat), data_source, reward_model.ground_truth: JSON of the tests
    Sandbox Fusion      content, test: JSON of [{"input": {"stdin"}, "output": {"stdout"}}]    (CodeContests there)
    NeMo Gym            responses_create_params.input (chat), verifier_metadata.unit_tests     (TACO there)
    HumanEval           task_id, prompt, entry_point, test: a function ``check(candidate)`` of assertions

HumanEval's program is its prompt, the program of the response, and its test in a function whose value says whether all
assertions held. A response may go on with the body, or write the function again; it cannot end the test early.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from gdpo_nemo.data.eurus import needs_special_judge
from gdpo_nemo.data.selection import value_of
from gdpo_nemo.data.table import TableFile, read_table
from gdpo_nemo.errors import InputError
from gdpo_nemo.prompts.tool_calling import template

EURUS, FUSION, GYM, HUMANEVAL = "eurus", "fusion", "gym", "humaneval"
PASSED: Final = "gdpo_passed"
_BEFORE: Final = '__name__ = "solution"\n'
_AFTER: Final = """
{test}

def {passed}():
    try:
        check({entry_point})
    except AssertionError:
        return False
    return True
"""
Record = Mapping[str, Any]


@dataclass(frozen=True)
class CodeProblem:
    """One problem.

    Attributes:
        id: unique within its file.
        messages: what is asked, as ``{role, content}``.
        gold: JSON of the tests, in Eurus form.
        before: source text in front of the program of a response.
        after: source text behind it.
        special_judge: whether it says that several answers are right.
    """

    id: str
    messages: tuple[Mapping[str, str], ...]
    gold: str
    before: str = ""
    after: str = ""
    special_judge: bool = False


@dataclass(frozen=True)
class CodeProblems:
    """A file of problems.

    Attributes:
        problems: in the order of the file.
        shape: one of the shapes of the module's docstring.
        sha256: of the file.
    """

    problems: tuple[CodeProblem, ...]
    shape: str
    sha256: str


def read_code_problems(path: Path, where: Mapping[str, Sequence[Any]] | None = None) -> CodeProblems:
    """Read a file of problems: JSON lines (gzip too), a JSON list or parquet.

    Args:
        path: of the file.
        where: column -> values of the rows to take; all by default.

    Raises:
        PrerequisiteError: there is no such file, or no library for it.
        InputError: it is no table, has none of those rows, or a row has none of the shapes; the message names it.
        UnknownNameError: a row lacks a part of its shape.
    """
    table = read_table(TableFile(path=str(path), where={key: list(values) for key, values in (where or {}).items()}))
    shapes = [_shape(record, place) for record, place in zip(table.records, table.places, strict=True)]
    if len(set(shapes)) > 1:
        raise InputError(f"{path} mixes problems in the shapes of {' and '.join(sorted(set(shapes)))}; expected one")
    shape = SHAPES[shapes[0]]
    problems = [shape.read(record, place) for record, place in zip(table.records, table.places, strict=True)]
    if max(Counter(problem.id for problem in problems).values()) > 1:
        raise InputError(f"{path} has the id {_repeated(problems)!r} twice; ids must be unique")
    return CodeProblems(tuple(problems), shapes[0], table.sha256)


def _repeated(problems: Sequence[CodeProblem]) -> str:
    return Counter(problem.id for problem in problems).most_common(1)[0][0]


def _shape(record: Record, place: str) -> str:
    for name, shape in SHAPES.items():
        if shape.keys <= record.keys():
            return name
    known = "; ".join(f"{name}: {', '.join(sorted(shape.keys))}" for name, shape in SHAPES.items())
    raise InputError(f"{place} has the columns {', '.join(record)}; a programming problem has {known}")


def _eurus(record: Record, place: str) -> CodeProblem:
    index = record.get("extra_info", {}).get("index") if isinstance(record.get("extra_info"), Mapping) else None
    gold = value_of(record, "reward_model.ground_truth", place)
    name = place.rpartition(" ")[2] if index is None else str(index)
    return _of_chat(name, record["prompt"], gold if isinstance(gold, str) else json.dumps(gold), record, place)


def _gym(record: Record, place: str) -> CodeProblem:
    chat = value_of(record, "responses_create_params.input", place)
    tests = value_of(record, "verifier_metadata.unit_tests", place)
    return _of_chat(str(record.get("hash_id") or place.rpartition(" ")[2]), chat, json.dumps(tests), record, place)


def _of_chat(name: str, chat: Any, gold: str, record: Record, place: str) -> CodeProblem:
    if not isinstance(chat, list) or not chat or not all(isinstance(m, Mapping) and "content" in m for m in chat):
        raise InputError(f"{place}: the problem is {str(chat)[:80]!r}, expected a list of {{role, content}}")
    messages = tuple({"role": str(m["role"]), "content": str(m["content"])} for m in chat)
    return CodeProblem(name, messages, gold, special_judge=_flag(record, [m["content"] for m in messages]))


def _fusion(record: Record, place: str) -> CodeProblem:
    try:
        cases = json.loads(record["test"]) if isinstance(record["test"], str) else record["test"]
        gold = {
            "inputs": [case["input"]["stdin"] for case in cases],
            "outputs": [case["output"]["stdout"] for case in cases],
        }
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{place}: test is no list of {{input: {{stdin}}, output: {{stdout}}}}: {error!r}") from error
    name = record.get("id")
    return CodeProblem(
        place.rpartition(" ")[2] if name is None else str(name),
        _ask("coding", str(record["content"])),
        json.dumps(gold),
        special_judge=_flag(record, record["content"]),
    )


def _humaneval(record: Record, place: str) -> CodeProblem:
    prompt, entry_point, test = (str(record[key]) for key in ("prompt", "entry_point", "test"))
    return CodeProblem(
        str(record["task_id"]),
        _ask("humaneval", prompt.strip("\n")),
        json.dumps({"inputs": [""], "outputs": ["true"], "fn_name": PASSED}),
        before=f"{_BEFORE}{prompt}",
        after=_AFTER.format(test=test, passed=PASSED, entry_point=entry_point),
    )


def _ask(name: str, problem: str) -> tuple[Mapping[str, str], ...]:
    return ({"role": "user", "content": template(name).replace("{problem}", problem).rstrip("\n")},)


def _flag(record: Record, text: Any) -> bool:
    told = record.get("special_judge")
    return told if isinstance(told, bool) else needs_special_judge(text)


class _Shape(NamedTuple):
    keys: frozenset[str]
    read: Callable[[Record, str], CodeProblem]


SHAPES: Final[Mapping[str, _Shape]] = {
    EURUS: _Shape(frozenset({"prompt", "reward_model"}), _eurus),
    FUSION: _Shape(frozenset({"content", "test"}), _fusion),
    GYM: _Shape(frozenset({"responses_create_params", "verifier_metadata"}), _gym),
    HUMANEVAL: _Shape(frozenset({"task_id", "prompt", "entry_point", "test"}), _humaneval),
}
