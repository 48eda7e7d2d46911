"""``gdpo explain``: from a printed number down to its runs, evaluations, samples, prompts and configurations."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gdpo_nemo.arguments import count
from gdpo_nemo.errors import PrerequisiteError, UnknownNameError, UsageError
from gdpo_nemo.randomness import stream
from gdpo_nemo.report.spec import Column, ReportSpec
from gdpo_nemo.suite import exhibits, programs, selecting
from gdpo_nemo.suite.answer import Answer
from gdpo_nemo.suite.experiment import EMBEDDED, Experiment
from gdpo_nemo.suite.explanation import to_text

KEY = re.compile(r"(?P<exhibit>[^:/]+):(?P<model>[^/]+)/(?P<arm>[^/]+)/(?P<column>[^/]+)")
SHOWN = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A key, and how many samples to show."""
    parser.add_argument(
        "key",
        metavar="EXHIBIT:MODEL/ARM/COLUMN",
        help="as in the column key of table.csv, and in a cell's address on the page",
    )
    parser.add_argument(
        "--experiment", metavar="NAME", help="a name or the path of a config, as for run; needed for one of your own"
    )
    selecting.add_arguments(parser)
    parser.add_argument("--samples", type=count, default=SHOWN, metavar="N", help=f"samples to show (default: {SHOWN})")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of samples (default: 0)")
    parser.add_argument(
        "--out", type=Path, default=Path("runs"), metavar="DIR", help="folder of all runs (default: runs)"
    )


def answer(options: argparse.Namespace) -> Answer:
    """Explain one cell.

    Raises:
        UsageError: no key, or one that several experiments have.
        UnknownNameError: a part of the key names nothing.
        PrerequisiteError: no run has been started.
    """
    match = KEY.fullmatch(options.key)
    if match is None:
        raise UsageError(f"{options.key!r} is not of the form table1:<model>/<arm>/<column>; see key in table.csv")
    specs = _specs(match["exhibit"], match["model"], match["arm"], options)
    spec = next(spec for spec in specs if spec.model == match["model"])
    column = next((column for column in spec.columns if column.name == match["column"]), None)
    if column is None:
        raise UnknownNameError(f"column of {spec.exhibit}", match["column"], [one.name for one in spec.columns])
    return explain(specs, spec, match["arm"], column, options.samples, options.seed)


def explain(
    specs: Sequence[ReportSpec], spec: ReportSpec, arm: str, column: Column, num_samples: int = SHOWN, seed: int = 0
) -> Answer:
    """What a cell says, and everything that it was computed from.

    Args:
        specs: all models of the table: claims are adjusted for their number.
        spec: the model of the cell, one of them.
        arm: or ``base``.
        column: of the table.
        num_samples: to show.
        seed: of their choice.

    Raises:
        UnknownNameError: the report has no such arm.
    """
    from gdpo_nemo.report.captions import claim_line, model_label
    from gdpo_nemo.report.loading import examined, is_smoke, read_evaluations
    from gdpo_nemo.report.samples import run_name
    from gdpo_nemo.report.table import BASE, Part, build_table
    from gdpo_nemo.report.verdict import adjusted, judge_all

    parts = {one.model: Part(one, read_evaluations(one)) for one in map(examined, specs)}
    judged = [verdict for one in parts.values() for verdict in judge_all(one.spec, one.evaluations, one.spec.claims)]
    verdicts, part = adjusted(judged, spec.level), parts[spec.model]
    table = build_table([part], verdicts)
    key = f"{spec.exhibit}:{spec.model}/{arm}/{column.name}"
    cell = next((cell for row in table.rows for cell in row.cells if cell.key == key), None)
    if cell is None:
        raise UnknownNameError("arm in the table", arm, [BASE, *dict.fromkeys(one for one, _ in spec.runs)])
    paths = [spec.base] if arm == BASE else [path for (one, _), path in spec.runs.items() if one == arm]
    runs = [_run(path, column, part.evaluations.states[run_name(path)]) for path in paths if path is not None]
    samples = _samples([run for run in runs if run["state"] == "finished"], column, num_samples, seed)
    about = [
        claim_line(spec, verdict)
        for verdict in verdicts
        if verdict.model == spec.model
        and verdict.claim.on == column.name
        and arm in (verdict.claim.left, verdict.claim.right)
    ]
    data: dict[str, Any] = {
        "key": key,
        "title": f"{column.title} of {spec.labels.get(arm, arm)}, {model_label(spec)}",
        "synthetic": table.synthetic,
        "smoke": is_smoke(part.spec),
        "value": cell.value,
        "note": cell.note,
        "interval": cell.interval and [cell.interval.low, cell.interval.high, cell.interval.method],
        "paper": cell.paper,
        "band": cell.band and [cell.band.low, cell.band.high],
        "verdict": cell.verdict,
        "n": {"seeds": cell.num_seeds, "questions": cell.num_questions, "samples": cell.num_samples,
              "ungraded": cell.num_ungraded, "does_not_apply": cell.num_inapplicable, "failed": cell.num_failed},
        "computed_as": _recipe(column),
        "claims": about,
        "notes": list(spec.notes),
        "runs": runs,
        "samples": samples,
    }  # fmt: skip
    return Answer(to_text(data, column), data)


def _specs(exhibit: str, model: str, arm: str, options: argparse.Namespace) -> list[ReportSpec]:
    """Those of all models of the exhibit, ``model`` among them."""
    from gdpo_nemo.suite.reporting import embedded_spec

    out: Path = options.out
    if exhibit in [program.experiment.name for program in programs.all_programs()]:
        raise UsageError(f"{exhibit} is an experiment; its cells are embedded:{model}/..., with --experiment {exhibit}")
    if exhibit != EMBEDDED:
        program, found = exhibits.find(exhibit)
        if not found.columns:
            raise UsageError(f"{exhibit} has no columns: it is a figure without cells, see its CSV")
        [found] = exhibits.narrowed(program.experiment, [found], selecting.arms(options))
        specs = exhibits.specs(program.experiment, found, out, selecting.seeds(options))
        if model not in found.models:
            raise UnknownNameError(f"model of {exhibit}", model, found.models)
        return specs
    candidates = _candidates(options.experiment)
    known = {one.name for program in candidates for one in program.experiment.arms} | {"base"}
    if arm not in known:
        raise UnknownNameError("arm of the embedded experiments", arm, sorted(known))
    named = [program for program in candidates if _has(program.experiment, arm)]
    present = [program for program in named if (out / program.experiment.name / EMBEDDED / model).is_dir()]
    on_disk = sorted({path.name for program in named for path in (out / program.experiment.name / EMBEDDED).glob("*")})
    if not present and on_disk:
        raise UnknownNameError(f"model with embedded runs in {out}", model, on_disk)
    if not present:
        raise PrerequisiteError(f"no embedded runs of {arm} with {model} in {out}; `run` makes them")
    if len(present) > 1:
        names = ", ".join(program.experiment.name for program in present)
        raise UsageError(f"several experiments have {arm} with {model}: {names}; name one with --experiment")
    return [embedded_spec(selecting.selection(present[0], options, model=model))]


def _candidates(wanted: str | None) -> list[programs.Program]:
    """The experiments that a key may be about: the one that was named, by name or by file, else those shipped."""
    if wanted is None:
        return programs.all_programs()
    if Path(wanted).suffix:
        return [programs.find(wanted)]
    shipped = {program.experiment.name: program for program in programs.all_programs()}
    if wanted not in shipped:
        own = UnknownNameError("experiment", wanted, shipped)
        raise UsageError(f"{own} Of an experiment of your own, name the config that `gdpo run` was given")
    return [shipped[wanted]]


def _has(experiment: Experiment, arm: str) -> bool:
    return arm == "base" or any(one.name == arm for one in experiment.arms)


def _run(path: Path, column: Column, states: dict[str, str] | Any) -> dict[str, Any]:
    from gdpo_nemo.evaluation.store import EvaluationStore
    from gdpo_nemo.run_dir import RunDir

    run = RunDir(path)
    store = EvaluationStore(run.evaluation_path(column.benchmark))
    state = states.get(column.benchmark, "missing")
    described: dict[str, Any] = {"path": str(path), "state": state, "evaluation": str(store.path)}
    if run.exists():
        described["config"] = str(path / "config.resolved.yaml")
    if (path / "provenance.json").exists():
        described["provenance"] = str(path / "provenance.json")
    if store.exists():
        header = store.header
        described |= {
            "benchmark": header.get("benchmark"),
            "grader": header.get("grader"),
            "sampling": header.get("sampling"),
            "samples_per_question": store.samples_per_question,
        }
    return described


def _samples(runs: Sequence[dict[str, Any]], column: Column, count: int, seed: int) -> list[dict[str, Any]]:
    """A seeded choice over runs, questions and samples, each with its prompt, response and score."""
    from gdpo_nemo.evaluation.lookup import find_rows
    from gdpo_nemo.evaluation.store import EvaluationStore

    if not runs:
        return []
    rng, found = stream(seed, "explain", column.name), []
    for _ in range(count):
        store = EvaluationStore.open(Path(runs[int(rng.integers(len(runs)))]["evaluation"]))
        asked = [
            row for row in store.questions() if column.strata is None or str(row.get("group")) in column.strata
        ]  # fmt: skip
        question = asked[int(rng.integers(len(asked)))]
        key = (str(question["row_id"]), int(rng.integers(store.samples_per_question)))
        generations, scores = store.file("generations"), store.file(f"scores/{store.header['grader']}")
        line, generation = find_rows(generations, [key]).get(key, (0, {}))
        score_line, score = find_rows(scores, [key]).get(key, (0, {}))
        found.append(
            {
                "row_id": key[0],
                "index": key[1],
                "group": question.get("group"),
                "messages": question.get("messages", []),
                "gold": question.get("gold"),
                "response": generation.get("response"),
                "values": score.get("values"),
                "reasons": score.get("reasons"),
                "response_at": f"{generations}:{line}" if line else None,
                "score_at": f"{scores}:{score_line}" if score_line else None,
            }
        )
    return found


def _recipe(column: Column) -> str:
    what = f"mean of {column.reward}"
    if column.at_least is not None:
        what = f"share of samples with {column.reward} at least {column.at_least:g}"
    if column.below is not None:
        what = f"share of samples with {column.reward} below {column.below:g}"
    groups = ""
    if column.strata is not None:
        groups = ", weighted: " + ", ".join(f"{group} {weight:.4f}" for group, weight in column.strata.items())
    return (
        f"{what} over the samples of each question, then over the questions of {column.benchmark}{groups}, then seeds"
    )
