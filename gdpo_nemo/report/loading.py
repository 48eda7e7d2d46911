"""Evaluations from the stores of runs: what is finished, what is missing and why, and whether it can be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gdpo_nemo.differences import differing_keys
from gdpo_nemo.errors import InputError, RunDirError
from gdpo_nemo.evaluation.store import EvaluationStore
from gdpo_nemo.report.samples import FINISHED, SYNTHETIC, Evaluation, Evaluations, run_name
from gdpo_nemo.report.spec import HELDOUT, Column, ReportSpec
from gdpo_nemo.run_dir import RunDir

SHARED = ("benchmark", "grader", "sampling")
SMOKE = "SMOKE RUN, its numbers mean nothing"


def examined(spec: ReportSpec) -> ReportSpec:
    """The spec, told what of its runs cannot be read, and in its title that these are smoke runs."""
    paths = [*spec.runs.values(), *([spec.base] if spec.base else [])]
    found = {path: text for path in paths if (text := RunDir(path).damage())}
    spec = replace(spec, unreadable={**found, **spec.unreadable})
    return replace(spec, title=f"{SMOKE}: {spec.title}") if is_smoke(spec) else spec


def is_smoke(spec: ReportSpec) -> bool:
    """Whether some of the runs that can be read were made with ``--smoke``."""
    commands = (str(RunDir(path).provenance().get("command")) for path in spec.readable.values() if path.is_dir())
    return any("--smoke" in command.split() for command in commands)


def read_evaluations(spec: ReportSpec) -> Evaluations:
    """Read every finished evaluation that the columns need; one that cannot be read is left out and named.

    Raises:
        InputError: two runs, or a run and the base model, answered different questions, a share of values that are
            none, or some runs are made up and others are not.
    """
    benchmarks = tuple(dict.fromkeys(column.benchmark for column in spec.columns))
    planned: dict[str, tuple[int, ...]] = {}
    arms: dict[str, dict[int, dict[str, Evaluation]]] = {}
    states: dict[str, dict[str, str]] = {}
    base: dict[str, Evaluation] = {}
    unreadable: list[str] = []
    if spec.base is not None:
        states[run_name(spec.base)], base = _read(spec, spec.base, benchmarks, unreadable)
    first = dict(base)
    for (arm, seed), path in spec.runs.items():
        planned[arm] = (*planned.get(arm, ()), seed)
        states[run_name(path)], found = _read(spec, path, benchmarks, unreadable)
        for benchmark, evaluation in found.items():
            _check_same_questions(first.setdefault(benchmark, evaluation), evaluation)
        arms.setdefault(arm, {})
        if found:
            arms[arm][seed] = found
    evaluations = Evaluations(base, arms, planned, states, tuple(unreadable))
    check_all_or_none_synthetic(evaluations.all())
    return evaluations


def check_all_or_none_synthetic(evaluations: list[Evaluation]) -> bool:
    """Whether the evaluations are made up.

    Raises:
        InputError: some are and others are not.
    """
    made_up = {evaluation.synthetic: evaluation for evaluation in evaluations}
    if len(made_up) > 1:
        raise InputError(
            f"{made_up[True].path} is synthetic and {made_up[False].path} is not; they never share a report. "
            "Keep made-up runs in a folder of their own (--out DIR)"
        )
    return True in made_up


def _read(
    spec: ReportSpec, path: Path, benchmarks: tuple[str, ...], unreadable: list[str]
) -> tuple[dict[str, str], dict[str, Evaluation]]:
    run = RunDir(path)
    if path in spec.unreadable:
        unreadable.append(spec.unreadable[path])
        return dict.fromkeys(benchmarks, "unreadable"), {}
    states: dict[str, str] = {}
    found: dict[str, Evaluation] = {}
    for benchmark in benchmarks:
        store = EvaluationStore(run.evaluation_path(benchmark))
        try:
            state = _state(run, store, benchmark)
            if state == "incomplete" and spec.allow_incomplete:
                state = FINISHED
            loaded = _load(run_name(path), store) if state == FINISHED else None
        except RunDirError as error:
            unreadable.append(f"{error}. Mend that file, or remove {store.path} and evaluate again")
            states[benchmark] = "unreadable"
            continue
        if loaded is not None:
            found[benchmark] = loaded
            _check_shares(loaded, [column for column in spec.columns if column.benchmark == benchmark])
        states[benchmark] = "lost" if state == FINISHED and loaded is None else state
    return states, found


def _state(run: RunDir, store: EvaluationStore, benchmark: str) -> str:
    if benchmark == HELDOUT:  # part of the run itself, which is finished when its result is there
        return run.state()
    state = store.state()
    if state == "missing":
        return "not_evaluated" if run.path.is_dir() else "missing"
    return FINISHED if state == "complete" else state


def _load(name: str, store: EvaluationStore) -> Evaluation | None:
    """None where its files are gone, or hold no score."""
    if not store.exists():
        return None
    matrix = EvaluationStore.open(store.path).score_matrix()
    if not matrix.row_ids or not matrix.values:
        return None
    order = sorted(range(len(matrix.row_ids)), key=lambda q: matrix.row_ids[q])
    values = {name: values_Q_N[order] for name, values_Q_N in matrix.values.items()}
    num_failed = len(store.failures())
    return Evaluation(
        run=name,
        path=store.path,
        row_ids=tuple(matrix.row_ids[q] for q in order),
        groups=tuple(matrix.groups[q] for q in order),
        values=values,
        num_failed=num_failed,
        num_without_score=int((~matrix.scored_Q_N).sum()) - num_failed,
        synthetic=bool(store.header.get(SYNTHETIC)),
        settings=_settings(store.header),
        inapplicable={name: marks_Q_N[order] for name, marks_Q_N in matrix.inapplicable.items()},
    )


def _check_shares(evaluation: Evaluation, columns: Sequence[Column]) -> None:
    for column in columns:
        values_Q_N = evaluation.values.get(column.reward)
        if not column.share or column.threshold is not None or values_Q_N is None:
            continue
        odd = values_Q_N[(values_Q_N < 0) | (values_Q_N > 1)]
        if odd.size:
            raise InputError(
                f"{evaluation.path}: {column.reward} of a sample is {odd[0]:g}, expected 0 to 1 for the share "
                f"{column.title!r}; grade its answers again"
            )


def _settings(header: Mapping[str, Any]) -> dict[str, Any]:
    """What has to be equal for two evaluations to be compared; the seed of the samples may differ, as the runs' do."""
    if header["schema"] == 1:
        return {}
    shared = {key: header[key] for key in SHARED}
    shared["sampling"] = {key: value for key, value in shared["sampling"].items() if key != "seed"}
    return shared


def _check_same_questions(first: Evaluation, other: Evaluation) -> None:
    for what, left, right in (
        ("questions", len(first.row_ids), len(other.row_ids)),
        ("samples per question", first.samples_per_question, other.samples_per_question),
    ):
        if left != right:
            raise InputError(
                f"{first.run} has {left} {what}, {other.run} has {right}: they cannot be paired; "
                "use one evaluation setting for all runs (--fresh starts them again)"
            )
    if first.row_ids != other.row_ids:
        odd = sorted(set(first.row_ids) ^ set(other.row_ids))[0]
        raise InputError(f"{first.run} and {other.run} answered different questions, e.g. only one has {odd!r}")
    if first.groups != other.groups:
        raise InputError(f"{first.run} and {other.run} sort their questions into different groups")
    odd_keys = list(differing_keys(first.settings, other.settings)) if first.settings and other.settings else []
    if odd_keys:
        key, left, right = odd_keys[0]
        raise InputError(
            f"{first.path} and {other.path} were not evaluated in the same way: {key} is {left!r} and {right!r}; "
            "evaluate one of them again, or keep them in different folders (--out DIR)"
        )
