"""The tables and figures of all experiments: which there are, what each needs, and the runs that it shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gdpo_nemo.errors import UnknownNameError
from gdpo_nemo.report.spec import HELDOUT, Exhibit, ReportSpec
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.run_tree import RunTree
from gdpo_nemo.suite import programs
from gdpo_nemo.suite.experiment import EMBEDDED, Experiment
from gdpo_nemo.suite.seeds import seeds_left_out

if TYPE_CHECKING:
    from gdpo_nemo.report.references import ReferenceTable

PAPER: Literal["paper"] = "paper"
REFERENCES = Path("repro", "references", "tables.json")


def find(name: str) -> tuple[programs.Program, Exhibit]:
    """The paper-scale exhibit of that name, and the experiment that declares it.

    Raises:
        UnknownNameError, UsageError: no experiment declares it.
    """
    known = programs.exhibits()
    if name not in known:
        raise programs.unknown_target(name, also=[EMBEDDED])
    return known[name]


def reference_table(name: str | None) -> ReferenceTable | None:
    """The paper's numbers, None for None."""
    if name is None:
        return None
    from gdpo_nemo.report.references import load_references

    return load_references(programs.programs_root() / REFERENCES).table(name)


def report_path(experiment: Experiment, exhibit: Exhibit, out: Path) -> Path:
    """Where the files of a paper-scale exhibit go."""
    return out / experiment.name / PAPER / "report" / exhibit.name


def narrowed(experiment: Experiment, chosen: Sequence[Exhibit], arms: Sequence[str] | None) -> list[Exhibit]:
    """Tables and figures with these of their arms alone; of several, those that show none of them are left out.

    Args:
        experiment: whose they are.
        chosen: tables and figures.
        arms: names, ``["all"]``, or None for all too.

    Raises:
        UnknownNameError: the experiment has no such arm, or the one table or figure does not show it.
    """
    if arms is None or list(arms) == ["all"]:
        return list(chosen)
    if len(chosen) == 1 and (odd := [name for name in arms if name not in chosen[0].arms]):
        raise UnknownNameError(f"arm of {chosen[0].name}", odd[0], chosen[0].arms)
    wanted = experiment.pick_arms(arms)
    own = [replace(exhibit, arms=tuple(arm for arm in exhibit.arms if arm in wanted)) for exhibit in chosen]
    return [exhibit for exhibit in own if exhibit.arms]


def specs(
    experiment: Experiment,
    exhibit: Exhibit,
    out: Path,
    seeds: Sequence[int] | None = None,
    allow_incomplete: bool = False,
) -> list[ReportSpec]:
    """What to report on, one entry per model.

    Args:
        experiment: which.
        exhibit: one of its tables or figures.
        out: folder of all runs.
        seeds: instead of the declared ones; runs of others are named in the notes.
        allow_incomplete: use evaluations with failed requests.
    """
    planned = tuple(seeds if seeds is not None else experiment.default_seeds(PAPER))
    reference = reference_table(exhibit.reference)
    found = []
    for model in exhibit.models:
        tree = RunTree(out / experiment.name / PAPER / model)
        runs = {(arm, seed): tree.run(arm, seed).path for arm in exhibit.arms for seed in sorted(planned)}
        left_out = seeds_left_out([(arm, seed) for arm in exhibit.arms for seed in _seeds_on_disk(tree, arm)], planned)
        if left_out and len(exhibit.models) > 1:
            left_out = f"{model}: {left_out}"
        found.append(
            ReportSpec(
                experiment=experiment.name,
                title=exhibit.title,
                scale=PAPER,
                model=model,
                runs=runs,
                base=tree.path / "base" if exhibit.base and exhibit.columns else None,
                columns=exhibit.columns,
                claims=exhibit.claims,
                deviations=experiment.deviations_at(PAPER),
                curves=exhibit.rewards,
                labels={arm.name: arm.label for arm in experiment.arms},
                exhibit=exhibit.name,
                reference=reference,
                allow_incomplete=allow_incomplete,
                notes=(left_out,) if left_out else (),
            )
        )
    return found


def commands(experiment: Experiment, exhibit: Exhibit) -> dict[str, str]:
    """What each does -> a command: to plan and to make the runs of a paper-scale exhibit, and its like in small."""
    options = f" --model {exhibit.models[0]}" if len(exhibit.models) == 1 else ""
    if set(exhibit.arms) == set(experiment.pick_arms(["all"], PAPER)):
        options += " --arms all"
    elif set(exhibit.arms) != set(experiment.pick_arms(None, PAPER)):
        options += f" --arms {','.join(exhibit.arms)}"
    evaluate = " --evaluate" if exhibit.columns else ""
    found = {
        "what it costs": f"gdpo plan {experiment.name} --scale paper{options}",
        "the jobs": f"gdpo launch {experiment.name} --to slurm{evaluate} --dry-run{options}",
    }
    return found | (
        {"in small, on this machine": f"gdpo run {experiment.name}"} if EMBEDDED in experiment.seeds else {}
    )


def progress(experiment: Experiment, exhibit: Exhibit, out: Path) -> dict[str, Any]:
    """An exhibit as listed: what it needs, and how many of its pieces are there.

    A piece is an evaluation of a run on a benchmark; of curves, a run with a step.
    """
    done, wanted = 0, 0
    for piece in _pieces(experiment, exhibit, out):
        wanted += 1
        done += piece
    return {
        "name": exhibit.name,
        "title": exhibit.title,
        "kind": exhibit.kind,
        "scale": exhibit.scale,
        "needs": exhibit.needs,
        "done": done,
        "wanted": wanted,
        "state": _state(exhibit, done, wanted),
    }


def _state(exhibit: Exhibit, done: int, wanted: int) -> str:
    if exhibit.kind == "groups":
        return "computed on request"
    if not done:
        return "not run"
    return "complete" if done >= wanted else f"{done} of {wanted} pieces"


def _pieces(experiment: Experiment, exhibit: Exhibit, out: Path) -> Iterator[bool]:
    from gdpo_nemo.evaluation.store import EvaluationStore

    if exhibit.scale == EMBEDDED:
        trees = [RunTree(path) for path in sorted((out / experiment.name / EMBEDDED).glob("*"))]
        default = [arm.name for arm in experiment.arms if arm.default]
        for tree in trees or [RunTree(out)]:
            keys = {(arm, seed) for arm in default for seed in experiment.seeds[EMBEDDED]} | set(tree.found())
            yield from (_is_finished(tree.run(arm, seed)) for arm, seed in sorted(keys))
        return
    benchmarks = dict.fromkeys(column.benchmark for column in exhibit.columns)
    for spec in specs(experiment, exhibit, out):
        for path in [*spec.runs.values(), *([spec.base] if spec.base else [])]:
            run = RunDir(path)
            if not benchmarks:
                yield (path / "metrics.jsonl").exists()
            for benchmark in benchmarks:
                store = EvaluationStore(run.evaluation_path(benchmark))
                yield _is_finished(run) if benchmark == HELDOUT else store.state() == "complete"


def _is_finished(run: RunDir) -> bool:
    return run.damage() is None and run.state() == "finished"


def _seeds_on_disk(tree: RunTree, arm: str) -> list[int]:
    """Seeds with a folder: a run that was evaluated elsewhere need not have a configuration here."""
    folders = (tree.path / arm).glob("seed*")
    return [int(path.name[4:]) for path in folders if path.name[4:].isdigit()]
