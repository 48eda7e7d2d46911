"""Asks the official code, in a process of its own: see ``official``."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gdpo_nemo
from gdpo_nemo.errors import GdpoError
from gdpo_nemo.evaluation.bfcl import official
from gdpo_nemo.evaluation.bfcl.releases import Release
from gdpo_nemo.sandbox import isolation
from gdpo_nemo.sandbox.jobs import SandboxError

SCRATCH_MB = 64
LIMIT_S = 30.0  # of one request; a usual one takes a hundredth
Verdict = Mapping[str, Any]


class CheckerError(GdpoError, RuntimeError):
    """The official code gave no answer to one request."""


class Checkers:
    """One release's data, checkers and tools. Safe to use from several threads; they take turns."""

    def __init__(
        self, release: Release, interpreter: Path, *, limit_s: float = LIMIT_S, mode: str = isolation.AUTO
    ) -> None:
        """Name the process; it starts with the first question.

        Args:
            release: of bfcl-eval.
            interpreter: of its environment, see ``environment.find``.
            limit_s: wall-clock seconds of one request.
            mode: one of ``sandbox.isolation.MODES``.
        """
        self.release, self.interpreter, self.limit_s, self.mode = release, interpreter, limit_s, mode
        self._process: subprocess.Popen[bytes] | None = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._lock = threading.Lock()

    def questions(self, category: str, *, native: bool) -> list[dict[str, Any]]:
        """The entries of a category: ``id``, ``turns``, ``tools``, ``held_out`` tools by turn, ``gold``.

        Args:
            category: of the release.
            native: documents of tools in the form of the OpenAI interface instead of the release's own.

        Raises:
            CheckerError: the official code failed.
        """
        request = {"do": "questions", "category": category, "native": native, "limit_s": 10 * self.limit_s}
        rows: list[dict[str, Any]] = self._ask(request)
        return rows

    def check(self, samples: Sequence[Mapping[str, Any]], model: str) -> list[Verdict]:
        """Verdicts on samples of single turns.

        Args:
            samples: ``category``, ``id`` and ``calls``, each {name: {parameter: value}}.
            model: ``toolrl``, or ``native``: dots in names of tools have become underscores.

        Returns:
            ``valid`` and ``reason``, and where calls are compared ``matched``: whether they can be paired one to one
            with the references; or ``fault``: the checker failed on this sample, and there is no verdict.
        """
        samples = list(samples)
        try:
            verdicts: list[Verdict] = self._ask({"do": "check", "samples": samples, "model": model})
        except CheckerError as error:
            if len(samples) == 1:
                return [{"fault": str(error)}]
            return [verdict for sample in samples for verdict in self.check([sample], model)]
        return verdicts

    def check_dialogue(self, category: str, row_id: str, turns: Sequence[Any], model: str) -> Verdict:
        """Verdict on one sample of several turns, on backends that nothing has touched.

        Args:
            category: of the entry.
            row_id: of the entry.
            turns: per turn, per step, the calls ``{"name", "arguments"}``.
            model: as ``check``.
        """
        request = {"do": "check_dialogue", "category": category, "id": row_id, "turns": turns, "model": model}
        try:
            verdict: Verdict = self._ask(request)
        except CheckerError as error:
            return {"fault": str(error)}
        return verdict

    def execute(self, category: str, row_id: str, steps: Sequence[Any], model: str) -> list[str]:
        """What the entry's tools answer to the last of some steps, after all before it.

        Raises:
            CheckerError: no answer in time, or the process died.
        """
        request = {"do": "execute", "category": category, "id": row_id, "steps": steps, "model": model}
        results: list[str] = self._ask(request)
        return results

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _ask(self, request: Mapping[str, Any]) -> Any:
        with self._lock:
            try:
                return _value(self._exchange(json.dumps({"limit_s": self.limit_s} | dict(request)).encode()))
            except (BrokenPipeError, EOFError):
                self._end()
                raise CheckerError(f"the process of {self.release.requirement} died ({request['do']})") from None

    def _exchange(self, line: bytes) -> bytes:
        process = self._process or self._start()
        assert process.stdin is not None
        process.stdin.write(line + b"\n")
        process.stdin.flush()
        return _line(process)

    def _start(self) -> subprocess.Popen[bytes]:
        _, process = isolation.start(self.mode, self._open)
        return process

    def _open(self, layers: isolation.Layers) -> subprocess.Popen[bytes]:
        self._scratch = tempfile.TemporaryDirectory(prefix="bfcl-")
        config = {
            "namespaces": layers.namespaces,
            "landlock": layers.landlock,
            "seccomp": layers.seccomp,
            "read_only": isolation.read_only_paths(isolation.paths_of(str(self.interpreter))),
            "needed": [str(self.interpreter.parents[1])],
            "scratch": self._scratch.name,
            "scratch_mb": SCRATCH_MB,
            "warm": [],
            "allow_exec": False,
        }
        root = str(Path(gdpo_nemo.__file__).resolve().parents[1])
        script = [str(Path(official.__file__)), self.release.version, json.dumps(config), root]
        self._process = subprocess.Popen(
            [str(self.interpreter), "-s", "-P", *script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            env={"PATH": os.defpath, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"},
        )
        try:
            answer = json.loads(_line(self._process))
        except EOFError:
            answer = {"fault": f"the process of {self.release.requirement} ended"}
        if "fault" in answer:
            self._end()
            raise SandboxError(f"the official checkers did not start: {answer['fault']}")
        return self._process

    def _end(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None and self._process.stdout is not None
            self._process.stdin.close()
            self._process.stdout.close()
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None


def _line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    return line


def _value(line: bytes) -> Any:
    answer = json.loads(line)
    if "fault" in answer:
        raise CheckerError(answer["fault"])
    return answer["value"]
