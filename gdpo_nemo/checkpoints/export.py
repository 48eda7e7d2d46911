"""A checkpoint of NeMo RL as a folder in Hugging Face format, whole or not at all.

Weights go through NeMo RL's own converter, or are copied where they are in that format already. The tokenizer that was
trained with (its chat template, too) replaces what the converter writes, changes that the run made to the model's
config.json are put into the export's, and the result is verified before it appears under its name.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gdpo_nemo.checkpoints import converters
from gdpo_nemo.checkpoints.steps import HUGGING_FACE, Checkpoint, find
from gdpo_nemo.checkpoints.verify import ExportError, Verification, verify
from gdpo_nemo.errors import RunDirError
from gdpo_nemo.files import hold, read_json, write_json, write_text

RECORD = "export.json"
LOG_LINES = 25


@dataclass(frozen=True)
class ExportOptions:
    """How an export is made."""

    gpus: int = field(
        default=0, metadata={"help": "GPUs of this machine (default: as in the run); 1: convert in one process"}
    )
    base_model: str = field(
        default="", metadata={"help": "folder or hub id of the base model, where it is not what the run named"}
    )
    python: str = field(
        default="",
        metadata={"help": "how to start Python for NeMo RL's converter (default: uv run in its container, else this)"},
    )
    replace: bool = field(default=False, metadata={"help": "put the export in place of an earlier one in DIR"})
    verify: bool = field(
        default=True, metadata={"help": "do not compare the logits of one prompt, which loads the model on the CPU"}
    )


@dataclass(frozen=True)
class Exported:
    """What an export gave.

    Attributes:
        path: the folder in Hugging Face format.
        checkpoint: the folder ``step_<N>`` that it came from.
        step: its step.
        source_format: how the weights lay there.
        command: of the converter; empty where files were copied.
        verification: None when it was not asked for.
    """

    path: str
    checkpoint: str
    step: int
    source_format: str
    command: str
    verification: Verification | None

    @property
    def data(self) -> dict[str, Any]:
        """As JSON-able values."""
        return asdict(self) | {"summary": self.text}

    @property
    def text(self) -> str:
        """For a person."""
        how = f"converted from {self.source_format} format" if self.command else "copied"
        checked = self.verification.text if self.verification else "not verified"
        return f"{self.path}: step {self.step} of {Path(self.checkpoint).parent}, {how}; {checked}"


def export(
    name: str, to: Path, options: ExportOptions | None = None, *, locate: Callable[[], converters.NemoRl]
) -> Exported:
    """Write one checkpoint to ``to`` in Hugging Face format.

    Args:
        name: ``RUN@STEP``, see ``steps.find``.
        to: a new or empty folder.
        options: how.
        locate: gives NeMo RL; asked only when its converter is needed.

    Raises:
        RunDirError: there is no such checkpoint, or ``to`` holds something.
        PrerequisiteError: NeMo RL or transformers is missing, or there is no converter for these weights.
        ExportError: the converter failed, or its result is not the checkpoint's model.
    """
    options = options or ExportOptions()
    checkpoint = find(name)
    form, source = checkpoint.source
    to = to.expanduser().resolve()
    earlier = options.replace and (to / RECORD).exists()
    if to.exists() and not earlier and (not to.is_dir() or any(to.iterdir())):
        raise RunDirError(f"{to} is not empty; name a new folder, or remove it")
    to.parent.mkdir(parents=True, exist_ok=True)
    with _aside(to) as aside:
        command: list[str] = []
        if form == HUGGING_FACE:
            shutil.copytree(source, aside)
        else:
            converters.check_adapters(checkpoint)
            command = _convert(checkpoint, aside, options, locate())
        _finish(checkpoint, aside)
        base = converters.base_model(checkpoint, options.base_model)
        checked = verify(aside, checkpoint, base) if options.verify else None
        exported = Exported(str(to), str(checkpoint.path), checkpoint.step, form, shlex.join(command), checked)
        write_json(aside / RECORD, exported.data)
        if earlier:
            old = to.with_name(f".{to.name}.old")
            to.rename(old)
            aside.rename(to)
            shutil.rmtree(old)
        else:
            if to.exists():
                to.rmdir()
            aside.rename(to)
    return exported


def exported_step(folder: Path) -> int:
    """The step that a folder is the export of, 0 when it is none."""
    return int((read_json(folder / RECORD) or {}).get("step", 0))


@contextlib.contextmanager
def _aside(to: Path) -> Iterator[Path]:
    """A path next to the target for one process; what is left there afterwards is removed."""
    lock, aside = to.with_name(f".{to.name}.lock"), to.with_name(f".{to.name}.partial")
    with hold(lock):
        shutil.rmtree(aside, ignore_errors=True)
        try:
            yield aside
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    lock.unlink(missing_ok=True)


def _convert(checkpoint: Checkpoint, target: Path, options: ExportOptions, host: converters.NemoRl) -> list[str]:
    """Run the converter; its output is kept only when it fails."""
    file, log = target.with_name(f"{target.name}.config.yaml"), target.with_name(f"{target.name}.log")
    config = converters.write_config(checkpoint, file, options.base_model)
    command = converters.command(
        checkpoint,
        config,
        target,
        host,
        gpus=options.gpus,
        named=options.base_model,
        python=options.python,
    )
    try:
        with log.open("wb") as output:
            done = subprocess.run(
                command,
                env=host.environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
    except FileNotFoundError as error:
        raise ExportError(f"{command[0]} was not found; name how to start Python for NeMo RL (--python)") from error
    finally:
        file.unlink(missing_ok=True)
    text = log.read_text("utf-8", errors="replace")
    if done.returncode or not target.is_dir():
        tail = "\n".join(text.splitlines()[-LOG_LINES:])
        raise ExportError(
            f"NeMo RL's converter ended with code {done.returncode}\n{tail}\n{log}\n"
            f"The command was: {shlex.join(command)}"
        )
    log.unlink()
    return command


def _finish(checkpoint: Checkpoint, folder: Path) -> None:
    """The trained tokenizer over the converter's, and the run's own changes to config.json."""
    if not checkpoint.tokenizer.is_dir():
        raise RunDirError(f"{checkpoint.path} has no policy/tokenizer; an export would lack the trained chat template")
    shutil.copytree(checkpoint.tokenizer, folder, dirs_exist_ok=True)
    file = folder / "config.json"
    config = json.loads(file.read_text("utf-8"))
    changed = _merged(config, converters.overrides_of(checkpoint))
    if changed != config:
        write_text(file, json.dumps(changed, indent=2) + "\n")


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        inner = merged.get(key)
        merged[key] = _merged(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return merged
