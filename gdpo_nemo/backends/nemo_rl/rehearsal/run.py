"""``gdpo rehearse``: two processes of NeMo RL's own main on a CPU, the second resumed from the first's checkpoint."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from gdpo_nemo.backends.nemo_rl import host
from gdpo_nemo.backends.nemo_rl.rehearsal import stage
from gdpo_nemo.backends.nemo_rl.rehearsal.findings import Findings
from gdpo_nemo.cluster.recipes import ClusterRun
from gdpo_nemo.errors import GdpoError, PrerequisiteError, RunDirError
from gdpo_nemo.files import read_jsonl, write_json, write_text

MODULE = "gdpo_nemo.backends.nemo_rl.rehearsal"
RECORD = "GDPO_REHEARSAL_RECORD"
NEEDED = ("ray", "datasets", "torchdata", "tensordict", "hydra", "transformers", "torch")
NEEDED_BY = {"math_length": ("math_verify",)}
"""Task -> what its rewards import in the environment's process."""
MARKER = "rehearsal.json"
POLL_S = 0.5
GRACE_S = 20.0
LOG_LINES = 25

Say = Callable[[str], None]


class RehearsalError(GdpoError, RuntimeError):
    """The cluster job would fail; the message holds the end of NeMo RL's output."""


def rehearse(run: ClusterRun, model_type: str, folder: Path, *, steps: int = 3, say: Say) -> Findings:
    """Run ``steps`` steps, then resume for one more; afterwards ``folder`` holds logs, checkpoints and a record.

    Args:
        run: the cluster run.
        model_type: the architecture, as Hugging Face calls it.
        folder: emptied first; it must be new, or hold an earlier rehearsal.
        steps: of the first process.
        say: takes one line of progress.

    Raises:
        PrerequisiteError: NeMo RL, or a package that its loop needs, is missing.
        RunDirError: the folder holds something else.
        RehearsalError: a process failed.
    """
    found = host.locate()
    check_packages(run.gdpo.task)
    started = time.monotonic()
    _clear(folder)
    say(f"{found.description}; everything goes to {folder}")
    say("a small model of the same architecture learns the rows' gold answers for some seconds")
    model, tokenizer = stage.write_model(run.gdpo, stage.small_architecture(model_type), folder)
    for last in (steps, steps + 1):
        config = stage.shrink(run.whole, folder, model, tokenizer, last)
        write_text(folder / "config.yaml", yaml.safe_dump(config, sort_keys=False))
        say("NeMo RL starts" if last == steps else f"NeMo RL starts again, to resume at step {steps}")
        run_main(found, folder, say)
        check_step(folder, last)
    findings = Findings.read(folder, run, steps, time.monotonic() - started)
    write_json(folder / MARKER, findings.as_dict())
    return findings


def check_packages(task: str | None = None) -> None:
    """Refuse to start without what NeMo RL's loop and the rewards of a task import.

    Raises:
        PrerequisiteError: with the command that installs what is missing.
    """
    missing = [name for name in (*NEEDED, *NEEDED_BY.get(task or "", ())) if importlib.util.find_spec(name) is None]
    if missing:
        raise PrerequisiteError(
            f"NeMo RL's loop needs {', '.join(missing)}; run inside its container, or: "
            "pip install -r tests/nemo_rl/requirements.txt"
        )


def _clear(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()) and not (folder / MARKER).exists():
        raise RunDirError(f"{folder} is not empty and holds no rehearsal; give another --out")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_json(folder / MARKER, {"state": "started"})


def run_main(found: host.Host, folder: Path, say: Say) -> None:
    """One process of NeMo RL's main on ``config.yaml`` of a folder; every step is reported while it runs.

    Raises:
        RehearsalError: it failed.
    """
    record, log = folder / "metrics.jsonl", folder / "nemo_rl.log"
    with _private_ray() as ray_folder, log.open("ab") as output:
        environment = found.environment() | {
            RECORD: str(record),
            "RAY_TMPDIR": ray_folder,
            "RAY_AUTH_MODE": "disabled",
            "RAY_USAGE_STATS_ENABLED": "0",
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }
        environment.pop("RAY_ADDRESS", None)
        process = subprocess.Popen(
            [sys.executable, "-m", MODULE, "--config", str(folder / "config.yaml")],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
        try:
            seen = len(read_jsonl(record))
            while process.poll() is None:
                time.sleep(POLL_S)
                rows = read_jsonl(record)
                for row in rows[seen:]:
                    if row["prefix"] in ("train", "validation") and (line := _line(row)):
                        say(line)
                seen = len(rows)
        finally:
            _end(process)
    if process.returncode:
        raise _failed(folder, f"ended with code {process.returncode}")


def check_step(folder: Path, step: int) -> None:
    """Refuse a record without a training step: NeMo RL can end early and say that all is well.

    Raises:
        RehearsalError: it is not there.
    """
    if not any(row["prefix"] == "train" and row["step"] == step for row in read_jsonl(folder / "metrics.jsonl")):
        raise _failed(folder, f"ended before step {step}")


def _failed(folder: Path, how: str) -> RehearsalError:
    log = folder / "nemo_rl.log"
    tail = "\n".join(log.read_text("utf-8", errors="replace").splitlines()[-LOG_LINES:])
    return RehearsalError(f"the cluster job would fail: NeMo RL {how}\n{tail}\n{log}")


def _line(row: dict[str, Any]) -> str:
    metrics = row["metrics"]
    if row["prefix"] == "validation":
        return f"validation at step {row['step']}: mean total reward {metrics['accuracy']:.3f}" * (
            "accuracy" in metrics
        )
    means = {
        name.split("/")[1]: value for name, value in metrics.items() if name.endswith("/mean") and "reward/" in name
    }
    return f"step {row['step']}: " + ", ".join(f"{name} {value:.3f}" for name, value in means.items()) if means else ""


@contextlib.contextmanager
def _private_ray() -> Iterator[str]:
    """A folder of Ray's own, so that no running cluster is joined; its sockets need a short path."""
    folder = tempfile.mkdtemp(prefix="gdpo-ray-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process if it still runs; Ray's own processes end with it when it is asked, not killed."""
    if process.poll() is None:
        os.kill(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
        if process.poll() is None:
            process.kill()
            process.wait()
