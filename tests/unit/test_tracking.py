import json
import math
import os
import struct
import subprocess
import sys

import pytest

from gdpo_nemo import tracking
from gdpo_nemo.errors import UnknownNameError
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.suite.command_line import execute

ROWS = [{"step": step, "loss": 1 / step, "reward/format/mean": math.nan if step == 2 else 0.5} for step in (1, 2, 3)]


@pytest.fixture
def run(tmp_path):
    return RunDir.claim(tmp_path / "tool_calling/embedded/tiny/gdpo/seed0", {"seed": 0}, {})


def scalars(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.path / "logs" / "tensorboard"))
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_without_a_tracker_the_run_is_itself(run):
    with tracking.tracked(run, ()) as same:
        assert same is run


def test_tensorboard_has_the_finite_numbers_of_every_row_and_the_file_has_all(run):
    with tracking.tracked(run, tracking.parse("tensorboard,tensorboard")) as tracked:
        for row in ROWS:
            tracked.append_metrics(row)
    assert [row["step"] for row in run.metrics()] == [1, 2, 3]
    assert scalars(run) == {
        "loss": [(1, 1.0), (2, 0.5), (3, pytest.approx(1 / 3))],
        "reward/format/mean": [(1, 0.5), (3, 0.5)],
    }


def test_a_resumed_run_does_not_stand_twice_in_tensorboard(run):
    with tracking.tracked(run, ["tensorboard"]) as tracked:
        tracked.append_metrics(ROWS[0])
        with run.new_checkpoint(1):
            pass
        for row in ROWS[1:]:
            tracked.append_metrics(row)
    run.resume_point()
    with tracking.tracked(run, ["tensorboard"]) as tracked:
        for row in ROWS[1:]:
            tracked.append_metrics(row)
    assert [step for step, _ in scalars(run)["loss"]] == [1, 2, 3]


def test_wandb_keeps_a_run_offline_with_the_same_numbers(run, monkeypatch):
    import wandb

    monkeypatch.setenv("WANDB_MODE", "offline")
    with tracking.tracked(run, ["wandb"]) as tracked:
        for row in ROWS:
            tracked.append_metrics(row)
    wandb.teardown()  # W&B's own process has then written what it was told
    [file] = (run.path / "logs").rglob("run-*.wandb")
    logged = {}
    for step, key, value in history(file):
        logged.setdefault(key, {})[step] = value
    assert logged["loss"] == {1: 1.0, 2: 0.5, 3: pytest.approx(1 / 3)}
    assert logged["reward/format/mean"] == {1: 0.5, 3: 0.5}


def history(file):
    """Every logged number of an offline file."""
    from wandb.proto import wandb_internal_pb2

    for data in records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            for item in record.history.item:
                key = item.key or "/".join(item.nested_key)
                if not key.startswith("_"):
                    yield record.history.step.num, key, json.loads(item.value_json)


def records(content):
    """LevelDB's log format after a header of 7 bytes: blocks of 32 KiB, pieces with checksum, length and type."""
    at, parts = 7, b""
    while at + 7 <= len(content):
        left = 2**15 - at % 2**15
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", content[at : at + 7])
        parts += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            yield parts
            parts = b""


def test_an_unknown_tracker_is_refused_before_anything_starts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for command in ("plan", "run"):
        assert execute([command, "tool_calling", "--smoke", "--track", "tensorbord"]) == 2
        assert "Did you mean 'tensorboard'?" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UnknownNameError):
        tracking.parse("mlflow")


def test_a_tracker_that_is_not_installed_is_named_with_its_package(tmp_path):
    code = "import sys; sys.modules['wandb'] = None; from gdpo_nemo import tracking; tracking.parse('wandb')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": os.getcwd()}
    )
    assert done.returncode == 1 and "pip install wandb" in done.stderr


def test_a_run_is_mirrored_on_request(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = "run tool_calling --smoke --arms gdpo --seeds 0 --jobs 1 --track tensorboard"
    assert execute(line.split()) == 0
    run = RunDir(tmp_path / "runs/smoke/tool_calling/embedded/tiny/gdpo/seed0")
    rows = run.metrics()
    assert scalars(run)["loss"] == [(row["step"], pytest.approx(row["loss"])) for row in rows]
