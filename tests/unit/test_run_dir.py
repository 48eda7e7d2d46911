import contextlib
import json
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdpo_nemo.differences import differing_keys
from gdpo_nemo.errors import RunDirError
from gdpo_nemo.files import append_jsonl, is_held, read_json, read_jsonl, write_json
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.run_tree import RunTree

CONFIG = {"kind": "train", "seed": 0, "embedded": {"train": {"steps": 4, "lr": 1e-6}}, "base": None, "names": ["a"]}


@pytest.fixture
def run(tmp_path):
    return RunDir.claim(tmp_path / "runs" / "arm" / "seed0", CONFIG, {"python": "3"})


# ---- claim


def test_claim_stores_config_and_provenance(run):
    assert run.config() == CONFIG
    assert run.provenance() == {"python": "3"}
    assert run.state() == "started"


def test_a_directory_is_claimed_only_once_its_provenance_is_written(tmp_path):
    with pytest.raises(TypeError):
        RunDir.claim(tmp_path / "seed0", {}, {"python": object()})
    assert not RunDir(tmp_path / "seed0").exists()
    assert RunDir.claim(tmp_path / "seed0", {}, {"python": "3"}).provenance() == {"python": "3"}


def test_claim_again_with_the_same_config_opens_it_and_keeps_its_provenance(run):
    again = RunDir.claim(run.path, dict(CONFIG), {"python": "4"})
    assert again.provenance() == {"python": "3"}


def test_claim_for_another_config_names_keys_values_and_ways_out(run):
    other = CONFIG | {"embedded": {"train": {"steps": 9, "lr": 1e-6}}}
    with pytest.raises(RunDirError) as error:
        RunDir.claim(run.path, other, {})
    for part in ("embedded.train.steps", "4 there", "9 now", "--out", "--fresh"):
        assert part in str(error.value)
    assert "lr" not in str(error.value)


def test_metrics_without_a_config_are_not_overwritten(tmp_path):
    append_jsonl(tmp_path / "metrics.jsonl", [{"step": 1}])
    with pytest.raises(RunDirError, match="no configuration"):
        RunDir.claim(tmp_path, CONFIG, {})


def test_a_directory_that_was_never_claimed_is_not_a_run(tmp_path):
    assert RunDir(tmp_path).state() == "missing"
    with pytest.raises(RunDirError, match="not a run directory"):
        RunDir(tmp_path).config()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=8,
)


@settings(max_examples=25)
@given(config=st.dictionaries(st.text(min_size=1, max_size=5), json_values, max_size=4))
def test_any_json_config_survives_the_file(tmp_path_factory, config):
    path = tmp_path_factory.mktemp("claim")
    RunDir.claim(path, config, {}).check_config(config)


@given(old=json_values, new=json_values)
def test_keys_differ_exactly_when_values_do(old, new):
    assert bool(list(differing_keys({"key": old}, {"key": new}))) == (old != new)


# ---- resume


def checkpoint(run, step):
    with run.new_checkpoint(step) as folder:
        (folder / "weights").write_text(str(step))


def test_resume_point_is_the_last_complete_checkpoint_and_later_rows_go(run):
    for step in range(1, 6):
        run.append_metrics({"step": step, "loss": 0.1 * step})
        if step in (2, 4):
            checkpoint(run, step)
    before = (run.path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    step, folder = run.resume_point()
    assert (step, (folder / "weights").read_text()) == (4, "4")
    assert (run.path / "metrics.jsonl").read_bytes() == b"".join(before[:4])
    assert run.last_step() == 4
    assert read_jsonl(run.path / "logs" / "resumes.jsonl") == [{"resumed_from_step": 4, "dropped_rows": 1}]


def test_a_metric_without_a_value_is_strict_json_and_reads_as_nan(run):
    run.append_metrics({"step": 1, "phase": "noisy", "loss": 0.1, "mean": math.nan, "norm": math.inf})
    checkpoint(run, 1)
    for _ in range(2):  # as written, and as a resume writes it again
        [line] = (run.path / "metrics.jsonl").read_text().splitlines()
        assert line == '{"step": 1, "phase": "noisy", "loss": 0.1, "mean": null, "norm": null}'
        [row] = run.metrics()
        assert math.isnan(row.pop("mean")) and math.isnan(row.pop("norm"))
        assert row == {"step": 1, "phase": "noisy", "loss": 0.1}
        run.resume_point()


def test_a_file_that_has_the_word_nan_can_still_be_read(run):
    (run.path / "metrics.jsonl").write_text('{"step": 1, "mean": NaN}\n')
    assert math.isnan(run.metrics()[0]["mean"])


def test_a_number_that_json_lacks_is_refused_inside_a_value(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        append_jsonl(tmp_path / "rows.jsonl", [{"values": [math.nan]}])


def test_resume_without_a_checkpoint_starts_over(run):
    run.append_metrics({"step": 1})
    assert run.resume_point() == (0, None)
    assert run.metrics() == []


def test_a_checkpoint_that_failed_half_way_never_appears(run):
    with pytest.raises(KeyError), run.new_checkpoint(3) as folder:
        (folder / "weights").write_text("half")
        raise KeyError
    assert run.checkpoints() == []
    run.resume_point()
    assert list((run.path / "checkpoints").iterdir()) == []


def test_a_checkpoint_that_is_half_removed_is_none_of_the_complete_ones(run, monkeypatch):
    """A kill while the files of an old one go; the next resume takes away what is left."""

    def killed(path, **how):
        if path.exists():
            (path / "weights").unlink()
            raise KeyError

    for step in (1, 2):
        checkpoint(run, step)
    with monkeypatch.context() as patch, pytest.raises(KeyError):
        patch.setattr(shutil, "rmtree", killed)
        checkpoint(run, 3)
    assert [(step, (folder / "weights").read_text()) for step, folder in run.checkpoints()] == [(2, "2"), (3, "3")]
    run.resume_point()
    assert sorted(path.name for path in (run.path / "checkpoints").iterdir()) == ["step2", "step3"]


def write_bytes(path):
    path.write_bytes(bytes(9000))


def write_with_torch(path):
    import torch

    torch.save({"a": torch.zeros(9000)}, path)


def write_with_safetensors(path):
    import torch
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(9000)}, path)


@contextlib.contextmanager
def files_of_at_most(num_bytes):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("write", [write_bytes, write_with_torch, write_with_safetensors])
def test_a_checkpoint_on_a_full_disk_is_named_and_the_one_before_stays(run, write):
    checkpoint(run, 2)
    with (
        pytest.raises(RunDirError, match=r"partial-step4 cannot be written: .*the same command goes on"),
        files_of_at_most(4000),
        run.new_checkpoint(4) as folder,
    ):
        write(folder / "weights")
    assert [step for step, _ in run.checkpoints()] == [2]
    assert run.resume_point()[0] == 2


def test_a_fault_of_the_program_is_not_taken_for_a_full_disk(run):
    with pytest.raises(RuntimeError, match="out of range") as raised, run.new_checkpoint(4):
        raise RuntimeError("index out of range")
    assert not isinstance(raised.value, RunDirError)


def test_a_file_on_a_full_disk_is_named_and_keeps_what_it_had(run, tmp_path):
    write_json(tmp_path / "a.json", {"a": 1})
    (tmp_path / "a.json.partial").symlink_to("/dev/full")
    with pytest.raises(RunDirError, match=r"a\.json cannot be written: No space left on device"):
        write_json(tmp_path / "a.json", {"a": 2})
    assert read_json(tmp_path / "a.json") == {"a": 1}
    (run.path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(RunDirError, match=r"metrics\.jsonl cannot be written: No space left on device"):
        run.append_metrics({"step": 1})


def test_only_the_last_checkpoints_are_kept_in_numeric_order(run):
    for step in (8, 9, 10):
        checkpoint(run, step)
    assert [step for step, _ in run.checkpoints()] == [9, 10]


@settings(max_examples=40)
@given(
    rows=st.lists(st.dictionaries(st.text(max_size=4), st.integers() | st.text()), min_size=1, max_size=5),
    cut=st.data(),
)
def test_a_file_cut_anywhere_reads_as_its_whole_lines_and_can_grow(tmp_path_factory, rows, cut):
    path = tmp_path_factory.mktemp("jsonl") / "rows.jsonl"
    append_jsonl(path, rows)
    whole = path.read_bytes()
    length = cut.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:length])
    survivors = rows[: whole[:length].count(b"\n")]
    assert read_jsonl(path) == survivors
    append_jsonl(path, [{"next": 1}])
    assert read_jsonl(path) == [*survivors, {"next": 1}]


def test_a_corrupt_line_in_the_middle_is_named(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\n{"a": \n{"a": 3}\n')
    with pytest.raises(RunDirError, match="line 2"):
        read_jsonl(tmp_path / "rows.jsonl")


def test_bytes_that_are_no_text_are_named_like_any_corruption(run):
    for name, read in (
        ("config.resolved.yaml", run.config),
        ("result.json", run.result),
        ("metrics.jsonl", run.metrics),
    ):
        (run.path / name).write_bytes(b'{"a": "\xff\xfe"}\n')
        with pytest.raises(RunDirError, match=name):
            read()


def test_json_files_are_replaced_and_corruption_is_named(tmp_path):
    path = tmp_path / "a.json"
    assert read_json(path) is None
    write_json(path, {"a": 1})
    write_json(path, {"a": 2})
    assert read_json(path) == {"a": 2}
    assert [item.name for item in tmp_path.iterdir()] == ["a.json"]
    path.write_text("{")
    with pytest.raises(RunDirError, match="corrupt"):
        read_json(path)


def test_states_follow_the_files(run):
    run.finish({"steps": 4, "evaluation": {}})
    assert run.state() == "finished"
    assert RunDir(run.path).result() == {"steps": 4, "evaluation": {}}
    run.clear()
    assert run.state() == "missing"
    assert not run.path.exists()


# ---- lock

HOLDER = """
import sys, time
from pathlib import Path
from gdpo_nemo.run_dir import RunDir
with RunDir(Path(sys.argv[1])).lock():
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(run):
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(run.path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_held_directory_is_running_and_refused(run, holder):
    assert run.state() == "running"
    with pytest.raises(RunDirError, match=f"in use by process {holder.pid}"), run.lock():
        pass
    with pytest.raises(RunDirError, match="in use"):
        run.clear()
    assert run.exists()


def test_the_lock_of_a_killed_process_is_free(run, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert not run.is_locked()
    with run.lock():
        assert run.is_locked()
        assert (run.path / "run.lock").read_text() == str(os.getpid())
    assert not run.is_locked()


def test_looking_at_a_lock_does_not_keep_others_from_taking_it(run):
    path = run.path / "run.lock"
    path.touch()
    looker = subprocess.Popen(
        [sys.executable, "-c", "import sys\nfrom pathlib import Path\nfrom gdpo_nemo.files import is_held\n"
         "print(flush=True)\nwhile True: is_held(Path(sys.argv[1]))", str(path)], stdout=subprocess.PIPE
    )  # fmt: skip
    try:
        looker.stdout.readline()
        end = time.monotonic() + 0.5
        taken = 0
        while time.monotonic() < end:
            with run.lock():
                taken += 1
        assert taken > 1
    finally:
        looker.kill()
        looker.wait()
        looker.stdout.close()


def test_no_lock_file_means_not_held(tmp_path):
    assert not is_held(tmp_path / "run.lock")


# ---- tree


def test_a_tree_finds_claimed_runs_only(tmp_path):
    tree = RunTree(tmp_path)
    for arm, seed in (("gdpo", 10), ("gdpo", 2), ("grpo", 0)):
        RunDir.claim(tree.run(arm, seed).path, CONFIG, {})
    RunDir.claim(tree.base("abc").path, CONFIG, {})
    (tmp_path / "gdpo" / "seed3").mkdir()
    (tmp_path / "gdpo" / "seedling").mkdir()
    assert list(tree.found()) == [("gdpo", 2), ("gdpo", 10), ("grpo", 0)]
    assert tree.base("abc").config() == CONFIG


def test_one_process_at_a_time_starts_runs_in_a_tree(tmp_path):
    tree = RunTree(tmp_path / "new")
    assert not tree.is_locked()
    with tree.lock():
        assert RunTree(tmp_path / "new").is_locked()
        with pytest.raises(RunDirError, match="in use"), RunTree(tmp_path / "new").lock():
            pass
    assert json.loads((tmp_path / "new" / "tree.lock").read_text()) == os.getpid()
