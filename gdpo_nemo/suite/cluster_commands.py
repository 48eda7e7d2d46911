"""``train``, ``rehearse``, ``launch`` and ``checkpoint``: what ``gdpo`` does with NeMo RL."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from gdpo_nemo import launch, provenance
from gdpo_nemo.arguments import count
from gdpo_nemo.checkpoints import ExportOptions, export
from gdpo_nemo.cluster.architectures import architecture_of
from gdpo_nemo.cluster.constraints import host_violations
from gdpo_nemo.cluster.refusals import refusals
from gdpo_nemo.data.sources import commands_for
from gdpo_nemo.errors import ConfigError, PrerequisiteError, UsageError
from gdpo_nemo.launch.job import MODULE
from gdpo_nemo.method import Method, own_code
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.suite.answer import Answer
from gdpo_nemo.suite.cluster_targets import SCALE, Request, Target, compose
from gdpo_nemo.suite.programs import all_programs
from gdpo_nemo.suite.seeds import ranges
from gdpo_nemo.suite.status import with_damage
from gdpo_nemo.terminal import table

REHEARSAL_STEPS = 3


def train(options: argparse.Namespace, request: Request) -> Answer:
    """Become NeMo RL's own main on one run, with the plug-in registered. The same command resumes."""
    from gdpo_nemo.backends.nemo_rl import host

    target = _one(compose(request), "train")
    [job] = _jobs(target, options, launch.LocalOptions(), target.seeds[:1])
    found = host.locate()
    job.check()
    job.write_config()
    RunDir.claim(job.dir.path, job.settings, _provenance(target) | {"seed": job.seed})
    print(f"{found.description}; {job.name} of {job.model}, everything goes to {job.dir.path}", flush=True)
    _become([sys.executable, "-m", MODULE, "--config", str(job.config_path)], found.environment(), found.root)


def rehearse(options: argparse.Namespace, request: Request) -> Answer:
    """NeMo RL's own main on a CPU, with a small model in place of the GPU workers."""
    from gdpo_nemo.backends.nemo_rl.rehearsal.run import rehearse as run

    target = _representative(compose(request))
    _check(target)
    model = str(target.run.nemo["policy"]["model_name"])
    known = architecture_of(model)
    if known is None:
        raise PrerequisiteError(f"the architecture of {model} is not known here; give --model a local folder with it")
    _check_data(target)
    folder = (options.out or Path("runs")) / "rehearsal" / f"{target.experiment}-{target.model}-{target.arm}"

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    say(f"rehearsing arm {target.arm} of {target.experiment} on {model}")
    findings = run(target.run, known.model_type, folder.resolve(), steps=options.steps, say=say)
    return Answer(findings.as_text(), findings.as_dict())


def launch_runs(options: argparse.Namespace, request: Request) -> Answer:
    """Render a job for each run of the matrix, and hand it in unless it is a dry run."""
    targets = compose(request)
    for target in targets:
        _check(target)
        if options.to != "kuberay" and not options.dry_run:
            _check_data(target)
    if options.evaluate and options.to != "slurm":
        raise UsageError("--evaluate goes with --to slurm; elsewhere run gdpo eval on the exported checkpoints")
    chosen: Any = launch.read_options(options, launch.TARGETS[options.to])
    done: list[launch.Launched] = []
    for model in dict.fromkeys(target.model for target in targets):
        of_model = [target for target in targets if target.model == model]
        jobs = [job for target in of_model for job in _jobs(target, options, chosen)]
        tree = of_model[0].tree(_out(options))
        done.append(
            launch.launch(
                jobs,
                chosen,
                tree,
                dry_run=options.dry_run,
                **(_afterwards(of_model[0]) if options.evaluate else {}),
                provenance=_provenance(of_model[0], getattr(chosen, "container", "") or getattr(chosen, "image", "")),
                environment=_host_environment() if options.to == "local" and not options.dry_run else None,
            )
        )
    if done[-1].command:
        launch.local.start(done[-1].command)
    return Answer("\n".join(one.text for one in done), [one.data for one in done])


def status(options: argparse.Namespace, request: Request) -> Answer:
    """What the scheduler says of the jobs, and how far each run is."""
    rows, lines = [], []
    for target in compose(request):
        tree = target.tree(_out(options))
        states = {row["name"]: row for row in launch.states(tree)}
        for job in _jobs(target, options, launch.LocalOptions()):
            row = {"model": target.model} | _row(job, states.get(f"{job.name} train", {}))
            rows.append(row)
            lines.append([target.model, job.name, row["state"], f"step {job.step} of {job.total_steps}"])
    return with_damage(table(lines), rows, rows)


def _row(job: launch.TrainingJob, submitted: Mapping[str, Any]) -> dict[str, Any]:
    row = {"run": job.name, "step": job.step, "job": submitted.get("id")}
    if text := job.dir.damage():  # the others are shown all the same
        return row | {"state": "unreadable", "error": text}
    state = "finished" if job.is_trained else str(submitted.get("state", "not submitted")).lower()
    if (halted := job.dir.halted_by()) and state != "running":
        state = f"stopped by {halted['rule']}"
    return row | {"state": state}


def checkpoint(options: argparse.Namespace, request: Request) -> Answer:
    """Write a checkpoint in Hugging Face format."""
    from gdpo_nemo.backends.nemo_rl import host

    exported = export(request.target, options.to, launch.read_options(options, ExportOptions), locate=host.locate)
    return Answer(exported.text, exported.data)


def _afterwards(target: Target) -> dict[str, Any]:
    """What follows training: the evaluations that the experiment's tables read, and the report, of these seeds too.

    Raises:
        UsageError: the target is no experiment, so there is nothing that says how to evaluate it.
    """
    known = {program.experiment.name: program.experiment for program in all_programs()}
    if target.experiment not in known:
        raise UsageError(f"--evaluate knows the benchmarks of {', '.join(known)}, and none of {target.experiment}")
    declared = known[target.experiment].default_seeds(SCALE)
    more = () if set(target.seeds) <= set(declared) else ("--seeds", ranges([*declared, *target.seeds]))
    command = ("uv", "run", "python", "-m", "gdpo_nemo.cli")
    return {
        "evaluations": [
            launch.Evaluation(
                name,
                (*command, "eval", name, "--model", "{checkpoint}", "--out", "{out}"),
                tuple(f"{benchmark}/result.json" for benchmark in benchmarks),
            )
            for name, benchmarks in known[target.experiment].evaluations.items()
        ],
        "report": (*command, "report", target.experiment, "--scale", SCALE, *more),
    }


def _provenance(target: Target, container: str = "") -> dict[str, Any]:
    gdpo = target.run.gdpo
    data = gdpo.data.model_dump(mode="json") if gdpo.data else {}
    return provenance.collect(sys.argv, own_code(gdpo), task=gdpo.task, data=data, container=container or None)


def add_arguments(command: str, parser: argparse.ArgumentParser, in_script: bool) -> None:
    """The arguments of one command: of ``gdpo`` (with a TARGET), or of one script (without)."""
    if command == "checkpoint":
        _add_checkpoint(parser)
        return
    if not in_script:
        parser.add_argument("target", help="a task, its script, or a YAML file with NeMo RL's sections")
    _add_runs(parser)
    if command == "rehearse":
        parser.add_argument(
            "--steps", type=count, default=REHEARSAL_STEPS, metavar="N", help="before the resume (default: %(default)s)"
        )
    if command == "launch":
        parser.add_argument("--to", choices=[*launch.TARGETS], required=True, help="where the jobs go")
        parser.add_argument("--dry-run", action="store_true", help="write the files and say where; submit nothing")
        parser.add_argument(
            "--evaluate", action="store_true", help="evaluate every checkpoint and the base model, then report (Slurm)"
        )
        for name, target in launch.TARGETS.items():
            launch.add_options(parser, target, f"--to {name}")


def _add_runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", help="a file of configs/model/, a local Hugging Face directory, or owner/name")
    parser.add_argument(
        "--cluster", metavar="4n8g", help="a file of configs/cluster/ (default: the smallest that fits)"
    )
    parser.add_argument(
        "--arms", metavar="A,B", help="some arms by name, or all (default: those that the paper compares)"
    )
    parser.add_argument("--seeds", metavar="0-2", help="0-2 or 0,1,5 (default: those that the experiment declares)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of all runs (default: runs)")
    parser.add_argument(
        "overrides", nargs="*", default=[], metavar="key.sub=value", help="change the configuration, NeMo RL's too"
    )


def _add_checkpoint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["export"], help="write it in Hugging Face format")
    parser.add_argument("target", metavar="RUN@STEP", help="a run or checkpoint directory @ a step, latest or best")
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="a new folder")
    launch.add_options(parser, ExportOptions)


DO: dict[str, Callable[[argparse.Namespace, Request], Answer]] = {
    "rehearse": rehearse,
    "train": train,
    "launch": launch_runs,
    "checkpoint": checkpoint,
    "status": status,
}
"""The function behind each command."""


def _out(options: argparse.Namespace) -> Path:
    return options.out or Path("runs")


def _jobs(
    target: Target, options: argparse.Namespace, chosen: Any, seeds: Sequence[int] | None = None
) -> list[launch.TrainingJob]:
    """One job for each seed, its paths as its processes see them (``chosen``: options of where it goes)."""
    _check(target)
    out = _out(options)
    runs = [(seed, target.tree(out).run(target.arm, seed)) for seed in seeds or target.seeds]
    return [
        launch.training_job(
            target.experiment, target.arm, seed, target.run.whole, run, seen_as=chosen.seen_as(run.path, out)
        )
        for seed, run in runs
    ]


def _one(targets: Sequence[Target], command: str) -> Target:
    if len(targets) > 1:
        named = ", ".join(f"{target.model} {target.arm}" for target in targets)
        raise UsageError(f"{command} takes one run and this names {len(targets)} ({named}); choose --model and --arms")
    return targets[0]


def _representative(targets: Sequence[Target]) -> Target:
    """The arm gdpo of the first model, else the first: what one has in common with the others is most of it."""
    return next((target for target in targets if target.arm == "gdpo"), targets[0])


def _check(target: Target) -> None:
    """Refuse what NeMo RL or our method would, before anything is started.

    Raises:
        ConfigError: one line for each fault, with a value that would work.
    """
    if target.run.gdpo.task is None and not target.run.gdpo.rewards:
        raise ConfigError("gdpo: names neither a task nor rewards; docs/own-rewards.md shows both")
    Method(target.run.gdpo)
    against = [*refusals(target.run.nemo, target.run.gdpo), *host_violations(target.run.nemo)]
    if against:
        raise ConfigError("\n".join(map(str, against)))


def _check_data(target: Target) -> None:
    data = target.run.gdpo.data
    paths = [Path(table.path) for table in (data.train, data.heldout) if table.path] if data else []
    missing = [path for path in paths if not path.is_file()]
    if missing:
        ways = [f"`{command}` gets it" for command in commands_for(missing)]
        ways += ["gdpo.data=null rehearses on rows that this package makes"]
        raise PrerequisiteError(f"no file {', '.join(map(str, missing))} (gdpo.data); {'; '.join(ways)}")


def _host_environment() -> Mapping[str, str]:
    from gdpo_nemo.backends.nemo_rl import host

    return host.locate().environment()


def _become(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> NoReturn:
    """Replace this process; NeMo RL's configurations name files relative to its root."""
    os.chdir(folder)
    os.execve(command[0], list(command), dict(environment))
