"""Evaluate one model on one benchmark, sample by sample, so that any interruption costs what was under way and no more.

Every answer is written as it comes and asked for once. A sample whose request failed for good goes to
``failures.jsonl``; it is no answer, and the evaluation stays incomplete until a later run of the same command, which
asks again for exactly what is missing.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from gdpo_nemo.errors import GdpoError, RunDirError
from gdpo_nemo.evaluation.benchmark import Benchmark, Number, Row
from gdpo_nemo.evaluation.grading import grade_new
from gdpo_nemo.evaluation.pacing import Pace, Pacer
from gdpo_nemo.evaluation.progress import Progress
from gdpo_nemo.evaluation.sampling import (
    LENGTH,
    Completion,
    Messages,
    Sampler,
    SamplingError,
    SamplingParams,
    UnreachableError,
)
from gdpo_nemo.evaluation.store import EvaluationStore
from gdpo_nemo.randomness import stream_seed

SEED_BITS = 31  # what every server takes
UNREACHABLE_IN_A_ROW = 8


class IncompleteError(GdpoError, RuntimeError):
    """Some samples have no answer."""


@dataclass(frozen=True)
class Settings:
    """How a benchmark is asked.

    Attributes:
        samples_per_question: N.
        params: of every request; ``params.seed`` is the root that each sample's own seed is derived from.
        pace: concurrency, retries and limits.
        limit: only so many questions, the first ones; None: all.
        allow_incomplete: grade and report what there is when requests failed.
    """

    samples_per_question: int = 1
    params: SamplingParams = field(default_factory=SamplingParams)
    pace: Pace = field(default_factory=Pace)
    limit: int | None = None
    allow_incomplete: bool = False


def header(benchmark: Benchmark, sampler: Sampler, settings: Settings, provenance: Mapping[str, Any]) -> dict[str, Any]:
    """The header of an evaluation, see ``EvaluationStore.create``."""
    limit = {} if settings.limit is None else {"limit": settings.limit}
    return limit | {
        "benchmark": {"name": benchmark.name, "revision": benchmark.revision, "hashes": dict(benchmark.hashes)},
        "grader": benchmark.graders[0],
        "model": sampler.describe(),
        "sampling": settings.params.described(),
        "samples_per_question": settings.samples_per_question,
        "provenance": dict(provenance),
    }


def evaluate(
    benchmark: Benchmark, sampler: Sampler, store: EvaluationStore, settings: Settings, runner: asyncio.Runner
) -> list[Number]:
    """Ask what was not answered yet, grade what was not graded yet, and give the numbers.

    Args:
        benchmark: what to ask.
        sampler: whom; the caller closes it, in the loop of ``runner``.
        store: created for ``header`` of these.
        settings: how.
        runner: of the event loop, one for all evaluations with this sampler.

    Raises:
        IncompleteError: requests failed for good, and ``allow_incomplete`` is off or nothing at all was answered.
        PrerequisiteError: the server refuses every request: its address, the key or the model's name is wrong.
        RunDirError: another process works on this evaluation, or one of its files is corrupt.
    """
    with store.lock():
        for name, count in store.half_written().items():
            print(f"{name} ended in a half-written line of {count} bytes; it does not count", file=sys.stderr)
        questions = list(benchmark.questions())[: settings.limit]
        store.write_questions(questions)
        missing = missing_samples(store, questions)
        if missing:
            runner.run(_ask_all(benchmark, sampler, store, settings, questions, missing))
        grade_new(benchmark, store, benchmark.graders[0])
        failures = store.failures()
        num_missing = len(missing_samples(store, questions))
        is_answered = num_missing < len(questions) * settings.samples_per_question
        allowed = not num_missing or (settings.allow_incomplete and is_answered)
        numbers = benchmark.numbers(store, benchmark.graders[0]) if allowed else []
        if numbers:
            _finish(store, numbers, num_missing, failures)
    if not allowed:
        raise IncompleteError(incomplete_text(store, num_missing, failures))
    return numbers


def missing_samples(store: EvaluationStore, questions: Sequence[Row]) -> list[tuple[int, int]]:
    """Question number and sample index of everything without an answer, in order.

    Raises:
        RunDirError: an answer to something that was not asked, or two answers to one sample.
    """
    position = {row["row_id"]: q for q, row in enumerate(questions)}
    done: set[tuple[int, int]] = set()
    for row in store.each_generation():
        key = (position.get(row["row_id"], -1), row["index"])
        if key in done or key[0] < 0 or not 0 <= key[1] < store.samples_per_question:
            what = "a second answer" if key in done else "an answer that was not asked for"
            raise RunDirError(f"{store.path} has {what}: sample {row['index']} of {row['row_id']!r}")
        done.add(key)
    return [
        (q, index)
        for q in range(len(questions))
        for index in range(store.samples_per_question)
        if (q, index) not in done
    ]


async def _ask_all(
    benchmark: Benchmark,
    sampler: Sampler,
    store: EvaluationStore,
    settings: Settings,
    questions: Sequence[Row],
    missing: Sequence[tuple[int, int]],
) -> None:
    total = len(questions) * settings.samples_per_question
    progress = Progress(benchmark.name, total, total - len(missing))
    run = _Asking(benchmark, sampler, store, settings, progress, Pacer(settings.pace, settings.params.seed or 0))
    left = iter(missing)
    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(settings.pace.concurrency, len(missing))):
                tasks.create_task(run.work(questions, left))
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
    finally:
        progress.close()


@dataclass
class _Asking:
    benchmark: Benchmark
    sampler: Sampler
    store: EvaluationStore
    settings: Settings
    progress: Progress
    pacer: Pacer
    unreachable: int = 0  # failures in a row because nobody listens

    async def work(self, questions: Sequence[Row], left: Iterator[tuple[int, int]]) -> None:
        """Take one sample after the other until none is left, or until the server is gone."""
        for q, index in left:
            if self.unreachable >= max(UNREACHABLE_IN_A_ROW, self.settings.pace.concurrency):
                return
            await self.one(questions[q], index)

    async def one(self, question: Row, index: int) -> None:
        key = {"row_id": question["row_id"], "index": index}
        calls: list[Completion] = []

        async def ask(messages: Messages, **changes: Any) -> Completion:
            seed = self.settings.params.seed
            name = (str(question["row_id"]), index, len(calls))
            own = None if seed is None else stream_seed(seed, "sample", *name) >> (63 - SEED_BITS)
            params = replace(self.settings.params, seed=own, **changes)
            calls.append(await self.pacer.call(lambda: self.sampler.complete(messages, params), *name))
            return calls[-1]

        try:
            answer = await self.benchmark.answer(question, ask)
        except SamplingError as error:
            self.unreachable = self.unreachable + 1 if isinstance(error, UnreachableError) else 0
            failure = {"kind": error.kind, "error": str(error), "attempts": error.attempts, "calls": len(calls)}
            self.store.append_failures([key | failure])
            self.progress.add(failed=True)
            return
        self.unreachable = 0
        self.store.append_generations([key | dict(answer) | _counts(calls)])
        self.progress.add(tokens=sum(call.completion_tokens or 0 for call in calls))


def _counts(calls: Sequence[Completion]) -> dict[str, Any]:
    """Length and ends of the calls of one sample; a length is null where a server did not count."""
    lengths, prompts = ([getattr(c, f"{what}_tokens") for c in calls] for what in ("completion", "prompt"))
    counts: dict[str, Any] = {
        "length_tokens": None if None in lengths else sum(lengths),
        "truncated": any(call.finish_reason == LENGTH for call in calls),
        "finish_reason": calls[-1].finish_reason if calls else None,
        "prompt_tokens": None if None in prompts else sum(prompts),
    }
    return counts | ({"calls": len(calls)} if len(calls) != 1 else {})


def _finish(
    store: EvaluationStore, numbers: Sequence[Number], num_missing: int, failures: Sequence[Mapping[str, Any]]
) -> None:
    answered = empty = truncated = 0
    for row in store.each_generation():
        answered += 1
        empty += not row["response"]
        truncated += bool(row.get("truncated"))
    counts = {
        "answered": answered,
        "missing": num_missing,
        "failed": len(failures),
        "empty": empty,
        "truncated": truncated,
        "numbers": [asdict(number) for number in numbers],
    }
    store.finish("incomplete" if num_missing else "complete", counts)


def incomplete_text(store: EvaluationStore, num_missing: int, failures: Sequence[Mapping[str, Any]]) -> str:
    """What is missing and why, and the ways on."""
    kinds = Counter(row.get("kind", "error") for row in failures)
    reasons = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    lines = [f"{store.path} is incomplete: {num_missing} samples have no answer ({reasons or 'not asked'})"]
    if len(failures) < num_missing:
        lines.append(f"{num_missing - len(failures)} of them were not asked: the server cannot be reached")
    lines += [f"last: {failures[-1]['error']}"] if failures else []
    lines.append(
        "The same command asks for these alone; --allow-incomplete makes the table without them and counts them."
    )
    return "\n".join(lines)
