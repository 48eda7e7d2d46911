"""One evaluation of one model on one benchmark: a directory of files that only grow.

    <run>/eval/<benchmark>/
        evaluation.json          schema, benchmark, grader, model, sampling, samples_per_question, provenance
        questions.jsonl          {"row_id", "messages", "gold", "group"?, ...}: written whole, before anything is asked
        generations.jsonl        {"row_id", "index", "response", "length_tokens", "truncated", "finish_reason", ...}
        scores/<grader>.jsonl    {"row_id", "index", "values": {name: number or null}, "reasons": {name: [codes]}}
        failures.jsonl           {"row_id", "index", "error", "attempts"}: asked in vain; an answer later on settles it
        result.json              written last: state, counts and aggregates
        evaluation.lock          held (flock) while a process works here; a crash releases it

A value of null is ungraded; with the code ``does_not_apply`` the score does not apply to the sample. A sample that
failed has no generation and no score: it is neither wrong nor forgotten.
Version 1 is what a run wrote before: questions, generations and scores in ``<run>/eval/`` itself, and no header.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from gdpo_nemo.differences import differing_keys
from gdpo_nemo.errors import InputError, RunDirError, UnknownNameError
from gdpo_nemo.evaluation.matrix import ScoreMatrix, fill_matrix
from gdpo_nemo.files import (
    append_jsonl,
    half_written,
    hold,
    is_held,
    iterate_jsonl,
    read_json,
    to_jsonl,
    write_json,
    write_text,
)

SCHEMA = 2
HEADER, RESULT, LOCK = "evaluation.json", "result.json", "evaluation.lock"
REQUIRED = ("benchmark", "grader", "model", "sampling", "samples_per_question")
DEFAULT_GRADER = "default"
GRADER = re.compile(r"[\w.+@-]+")


class EvaluationStore:
    """The directory of one evaluation. Cheap to construct; holds no open files."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)

    @classmethod
    def create(cls, path: Path, header: Mapping[str, Any]) -> EvaluationStore:
        """Begin an evaluation, or open the one that was begun with the same header (but for ``provenance``).

        Args:
            path: its directory.
            header: ``benchmark`` (name, revision, hashes), ``grader``, ``model``, ``sampling``,
                ``samples_per_question`` and what else describes the evaluation, as JSON-able values.

        Raises:
            InputError: the header lacks a key.
            RunDirError: the directory holds another evaluation; the message names the keys that differ.
        """
        missing = [key for key in REQUIRED if key not in header]
        if missing:
            raise InputError(f"the header of an evaluation needs {', '.join(missing)}")
        _check_grader(str(header["grader"]))
        store = cls(path)
        if store.exists():
            differing = list(differing_keys(_identity(store.header), _identity({"schema": SCHEMA} | dict(header))))
            if differing:
                listing = "\n".join(f"  {key}: {old!r} there, {new!r} now" for key, old, new in differing[:8])
                raise RunDirError(
                    f"{store.path} holds another evaluation:\n{listing}\n"
                    "Use another place (--out DIR), or ask for that one again."
                )
            return store
        store.path.mkdir(parents=True, exist_ok=True)
        write_json(store.path / HEADER, {"schema": SCHEMA} | dict(header))
        return store

    @classmethod
    def open(cls, path: Path) -> EvaluationStore:
        """An evaluation to read, of this schema or of the one before.

        Raises:
            RunDirError: there is none, or its schema is newer.
        """
        store = cls(path)
        if not store.exists():
            raise RunDirError(f"{store.path} holds no evaluation: it has no {HEADER}")
        if store.header["schema"] > SCHEMA:
            raise RunDirError(
                f"{store.path} has schema {store.header['schema']}, this version reads {SCHEMA} and below; "
                "upgrade gdpo-nemo"
            )
        return store

    def exists(self) -> bool:
        """Whether an evaluation was begun here."""
        return (self.path / HEADER).exists() or self._is_version_1

    @property
    def _is_version_1(self) -> bool:
        return not (self.path / HEADER).exists() and (self.path.parent / "scores.jsonl").exists()

    @cached_property
    def header(self) -> dict[str, Any]:
        """What was evaluated and how; of version 1 what its files tell.

        Raises:
            RunDirError: a key is absent or no value for it.
        """
        header = read_json(self.path / HEADER)
        if header is not None:
            self._check_header(header)
            return header
        benchmark: dict[str, Any] = {"name": self.path.name, "revision": None, "hashes": {}}
        samples = 1 + max((int(row["index"]) for row in iterate_jsonl(self.file("scores"))), default=0)
        return {"schema": 1, "benchmark": benchmark, "grader": DEFAULT_GRADER, "model": {}, "sampling": {}} | {
            "samples_per_question": samples
        }

    @property
    def samples_per_question(self) -> int:
        """N."""
        return int(self.header["samples_per_question"])

    # ---- reading

    def questions(self) -> list[dict[str, Any]]:
        """The questions, in their order."""
        return list(self._rows("questions", ("row_id",)))

    def generations(self) -> list[dict[str, Any]]:
        """The answers so far, in the order of finishing."""
        return list(self.each_generation())

    def each_generation(self) -> Iterator[dict[str, Any]]:
        """The same one by one: long answers need not fit into memory together."""
        return self._rows("generations", ("row_id", "index", "response"))

    def scores(self, grader: str | None = None) -> list[dict[str, Any]]:
        """The scores of a grader, by default that of the header.

        Raises:
            UnknownNameError: it graded nothing here.
        """
        return list(self._rows(self._scores_name(grader), ("row_id", "index", "values")))

    def graders(self) -> list[str]:
        """Every grader with scores here, that of the header first."""
        if self._is_version_1:
            return [DEFAULT_GRADER]
        own = self.header["grader"]
        found = {path.stem for path in (self.path / "scores").glob("*.jsonl")}
        return [*([own] if own in found else []), *sorted(found - {own})]

    def failures(self) -> list[dict[str, Any]]:
        """The last failure of each sample that no later run answered."""
        last = {(row["row_id"], row["index"]): row for row in self._rows("failures", ("row_id", "index", "error"))}
        if last:
            for row in self._rows("generations", ("row_id", "index")):
                last.pop((row["row_id"], row["index"]), None)
        return list(last.values())

    def score_matrix(self, grader: str | None = None) -> ScoreMatrix:
        """The scores of a grader as arrays: a million rows in seconds and tens of megabytes.

        Raises:
            UnknownNameError: as ``scores``.
            RunDirError: a score of a sample that was not asked for, or two of one sample.
        """
        name = self._scores_name(grader)
        rows = iterate_jsonl(self.file(name))  # a key that is absent is found where it is read
        questions = self._rows("questions", ("row_id",))
        return fill_matrix(questions, rows, self.samples_per_question, self.file(name))

    def result(self) -> dict[str, Any] | None:
        """State, counts and aggregates of the last run that ended, None before."""
        return read_json(self.path / RESULT)

    def state(self) -> str:
        """``missing``, ``started``, ``running``, ``complete``, or ``incomplete`` where failures are left."""
        if not self.exists():
            return "missing"
        if self._is_version_1:
            return "complete"
        if is_held(self.path / LOCK):
            return "running"
        result = self.result()
        if result is not None:
            return str(result["state"])
        return "incomplete" if self.failures() else "started"

    def half_written(self) -> dict[str, int]:
        """File -> bytes of a last line that a kill cut off; readers leave it out, the next writer removes it."""
        paths = [self.file(name) for name in ("questions", "generations", "failures")]
        paths += [self.file(f"scores/{grader}") for grader in self.graders()]
        return {path.name: count for path in paths if (count := half_written(path))}

    # ---- writing

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the evaluation for one process; the kernel lets go when the process ends in any way.

        Raises:
            RunDirError: another process holds it.
        """
        with hold(self.path / LOCK):
            yield

    def write_questions(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write all questions, or check that they are those that are there.

        Raises:
            RunDirError: others are there.
            InputError: two have one id.
        """
        rows = list(rows)
        if len({row["row_id"] for row in rows}) < len(rows):
            raise InputError(f"two questions of {self.header['benchmark']['name']} have the same row_id")
        text, path = to_jsonl(rows), self.file("questions")
        if path.exists() and path.read_text("utf-8") != text:
            raise RunDirError(f"{path} holds other questions; use another place (--out DIR)")
        write_text(path, text)

    def append_generations(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add answers as they finish."""
        append_jsonl(self.file("generations"), rows)

    def append_scores(self, rows: Iterable[Mapping[str, Any]], grader: str | None = None) -> None:
        """Add scores of a grader, by default that of the header."""
        name = grader or str(self.header["grader"])
        _check_grader(name)
        append_jsonl(self.file(f"scores/{name}"), rows)

    def append_failures(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add samples that were asked in vain."""
        append_jsonl(self.file("failures"), rows)

    def finish(self, state: str, summary: Mapping[str, Any]) -> None:
        """Write the result: ``complete``, or ``incomplete`` by the user's wish."""
        assert state in ("complete", "incomplete"), state
        write_json(self.path / RESULT, {"state": state} | dict(summary))

    # ---- names

    def _check_header(self, header: dict[str, Any]) -> None:
        schema = header.get("schema")
        good = isinstance(schema, int)
        if isinstance(schema, int) and schema <= SCHEMA:
            good = all(isinstance(header.get(key), dict) for key in ("benchmark", "sampling"))
            good = good and isinstance(header.get("samples_per_question"), int) and header["samples_per_question"] > 0
            good = good and set(header) >= set(REQUIRED)
        if not good:
            raise RunDirError(
                f"{self.path / HEADER} is corrupt: expected schema, {', '.join(REQUIRED)}, got {str(header)[:300]}; "
                "evaluate again in another place (--out DIR)"
            )

    def _scores_name(self, grader: str | None) -> str:
        name = grader or str(self.header["grader"])
        if grader is not None and name not in self.graders():
            raise UnknownNameError(f"grader in {self.path}", name, self.graders())
        return f"scores/{name}"

    def file(self, name: str) -> Path:
        """Where ``questions``, ``generations``, ``failures`` or ``scores/<grader>`` are."""
        if self._is_version_1:
            return self.path.parent / f"{name.split('/')[0]}.jsonl"
        return self.path / f"{name}.jsonl"

    def _rows(self, name: str, keys: Sequence[str]) -> Iterator[dict[str, Any]]:
        path = self.file(name)
        for number, row in enumerate(iterate_jsonl(path), start=1):
            for key in keys:
                if key not in row:
                    raise RunDirError(f"{path} line {number} is corrupt: it has no {key!r}")
            yield row


def _identity(header: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in header.items() if key != "provenance"}


def _check_grader(name: str) -> None:
    if not GRADER.fullmatch(name):
        raise InputError(f"grader {name!r} is no file name; use letters, digits and . _ + @ -")
