"""``report`` and ``check``: from finished runs to tables, figures and verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from gdpo_nemo.differences import ABSENT, differing_keys
from gdpo_nemo.errors import GdpoError, OutsideBandError, PrerequisiteError, RunDirError
from gdpo_nemo.files import write_text
from gdpo_nemo.report.spec import ReportSpec
from gdpo_nemo.suite import exhibits
from gdpo_nemo.suite.answer import Answer, shortened
from gdpo_nemo.suite.grid import Selection, declared
from gdpo_nemo.suite.stored import bases, check_comparable, damage
from gdpo_nemo.terminal import sentences

if TYPE_CHECKING:
    from gdpo_nemo.report.builder import Report


def report(selection: Selection, *, page: bool = False, learning_rates: Sequence[Path] = ()) -> Answer:
    """Write tables, figures and verdicts, and show the table. Runs that cannot be read are named, and are not in it.

    Args:
        selection: the runs.
        page: write report.html as well.
        learning_rates: folders of the same runs with other learning rates.

    Raises:
        PrerequisiteError: no run has been started.
        RunDirError: the runs on disk were made with settings that cannot be compared.
    """
    spec, folder = embedded_spec(selection), selection.tree.report_path
    rates = None
    if learning_rates:
        from gdpo_nemo.suite.learning_rates import read_learning_rates

        rates = read_learning_rates(selection, learning_rates)
    built = _build(spec, folder, page)
    if rates and spec.model in built.stability:
        from gdpo_nemo.report.stability import to_markdown

        lines = rates.lines(spec.labels)
        write_text(folder / "learning_rates.csv", rates.to_csv())
        write_text(folder / "stability.md", to_markdown(built.stability[spec.model], spec.labels, lines))
        built = replace(built, text="\n".join([built.text.rstrip(), "", "Learning rates:", *lines]))
    return written(folder, built)


def check(selection: Selection) -> Answer:
    """Judge every claim: exit code 0 when all are supported, 1 when a run is damaged, 3 when some are missing, else 4.

    Raises:
        PrerequisiteError: no run has been started.
        RunDirError: the runs on disk were made with settings that cannot be compared.
    """
    from gdpo_nemo.report.captions import claim_line
    from gdpo_nemo.report.loading import SMOKE, is_smoke

    spec = embedded_spec(selection)
    built = _build(spec, selection.tree.report_path)
    lines = [SMOKE] if is_smoke(spec) else []
    lines += [claim_line(spec, verdict) for verdict in built.verdicts]
    statuses = [verdict.status for verdict in built.verdicts]
    lines += spec.notes
    lines.append(
        f"{statuses.count('supported')} of {len(statuses)} claims supported at {1 - spec.level:.0%} after Holm's "
        "correction for their number"
    )
    exit_code = 0
    if built.missing or "not_run" in statuses:
        exit_code = GdpoError.exit_code if built.unreadable else PrerequisiteError.exit_code
        absent = shortened(built.missing) or "some claims are about arms that were not run"
        lines += [f"cannot judge everything yet: {absent}; `run` does what is missing", *built.unreadable]
    elif statuses.count("supported") < len(statuses):
        exit_code = OutsideBandError.exit_code
    return Answer(sentences(lines), {"supported": exit_code == 0, **_as_data(built)}, exit_code)


def embedded_spec(selection: Selection) -> ReportSpec:
    """What a report on the runs of a selection shows.

    Raises:
        PrerequisiteError: no run has been started.
        RunDirError: the runs on disk were made with settings that cannot be compared.
    """
    from gdpo_nemo.config import GdpoConfig, validate
    from gdpo_nemo.method import reward_ranges

    experiment, runs, left_out = selection.experiment, selection.compared(), selection.seeds_left_out()
    broken = {run.path: text for run in runs.values() if (text := damage(run))}
    configs = {run.path: run.config() for run in runs.values() if run.exists() and run.path not in broken}
    if not configs:
        if broken:
            raise RunDirError("\n".join(["no run can be read:", *broken.values()]))
        which = "of these arms and seeds " if left_out or selection.arms_named else ""
        also = f"; {left_out}" if left_out else ""
        raise PrerequisiteError(f"no runs {which}in {selection.tree.path} yet; `run` makes them{also}")
    check_comparable(configs)
    path, config = next(iter(configs.items()))
    return ReportSpec(
        experiment=experiment.name,
        title=experiment.title,
        scale=cast("Literal['embedded', 'paper']", selection.scale),
        model=selection.model_name,
        runs={key: run.path for key, run in runs.items()},
        base=next((base.path for base in bases(runs.values())), None),
        columns=tuple(experiment.columns),
        claims=tuple(experiment.claims),
        deviations=experiment.deviations_at(selection.scale),
        curves=tuple(experiment.curves),
        tradeoff=experiment.tradeoff,
        labels={arm.name: arm.label for arm in experiment.arms},
        reward_ranges=reward_ranges(validate(GdpoConfig, config["gdpo"], origin=str(path))),
        reference=exhibits.reference_table(experiment.reference),
        unreadable=broken,
        options=selection.options,
        notes=tuple(filter(None, [left_out, _changed(selection, configs)])),
    )


def _changed(selection: Selection, configs: Mapping[Path, Mapping[str, Any]]) -> str:
    """One sentence about the settings of runs that differ from the experiment's; empty where none do."""
    arms: dict[str, list[str]] = {}
    for path, config in configs.items():
        arm = path.parent.name
        if arm in arms:  # its other seeds have the same settings
            continue
        try:
            own = declared(replace(selection, overrides=()), arm)
        except GdpoError as error:
            return f"not compared with the experiment's configuration: {error}"
        pairs = [(key, new) for block in own for key, old, new in differing_keys(own[block], config[block], block)]
        arms[arm] = [f"{key}={new}" for key, new in pairs if new != ABSENT]
    shared = [text for text in next(iter(arms.values())) if all(text in changed for changed in arms.values())]
    parts = [*shared, *(f"{text} ({arm})" for arm, changed in arms.items() for text in changed if text not in shared)]
    return f"Changed from the experiment's configuration: {shortened(parts)}" if parts else ""


def _build(spec: ReportSpec, folder: Path, page: bool = False) -> Report:
    from gdpo_nemo.report.builder import build

    return build(spec, folder, page=page)


def written(folder: Path, built: Report) -> Answer:
    """A report as the answer of a command."""
    files = sorted(path.name for path in folder.iterdir())
    listed = f"Files in {folder}: {', '.join(files)}"
    data = {"path": str(folder), "files": files, **_as_data(built)}
    lines = [*(f"Left out: {one}" for one in built.unreadable), listed]
    return Answer(f"{built.text.rstrip()}\n\n{sentences(lines)}", data, exit_code=1 if built.unreadable else 0)


def _as_data(built: Report) -> dict[str, Any]:
    verdicts = [verdict.to_json() for verdict in built.verdicts]
    return {"verdicts": verdicts, "missing": list(built.missing), "unreadable": list(built.unreadable)}
