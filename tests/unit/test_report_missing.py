import shutil

import numpy as np
import pytest
from planted_runs import COLUMNS, cells, make_spec, planted, verdicts, write_all, write_run

from gdpo_nemo.report.builder import build
from gdpo_nemo.report.spec import Claim
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.types import NOT_APPLICABLE


def test_deleting_a_run_changes_its_cells_and_no_other(root, tmp_path):
    spec = make_spec(root, claims=(Claim("strong", ">", "twin", on="format"),))
    build(spec, tmp_path / "before")
    RunDir(root / "weak" / "seed2").clear()
    report = build(spec, tmp_path / "after")
    before, after = cells(tmp_path / "before"), cells(tmp_path / "after")
    assert {key for key in before if before[key] != after[key]} == {("weak", "format"), ("weak", "correct")}
    assert (after["weak", "format"]["seeds"], after["weak", "format"]["seed_list"]) == ("2", "0 1")
    assert report.missing == ["weak/seed2 (not started)"]
    assert "2 of 3 x 60" in report.text and "Weak: seed 2 not started" in report.text
    assert verdicts(tmp_path / "before") == verdicts(tmp_path / "after")


def test_an_arm_without_runs_and_an_unfinished_base_render_as_not_run(tmp_path):
    root = tmp_path / "runs"
    write_all(root, arms=("strong",))
    RunDir(root / "base" / "abc123").clear()
    write_run(root / "weak" / "seed0", planted("weak", 0), finish=False)
    with RunDir.claim(root / "weak" / "seed1", {}, {}).lock():
        report = build(make_spec(root, arms=("strong", "weak")), tmp_path / "out")
    assert report.missing == [
        "base/abc123 (not started)",
        "weak/seed0 (unfinished)",
        "weak/seed1 (still running)",
        "weak/seed2 (not started)",
    ]
    for arm in ("weak", "base/abc123"):
        cell = cells(tmp_path / "out")[arm, "format"]
        assert (cell["value"], cell["low"], cell["note"]) == ("", "", "not run")
    assert "| Weak | not run | not run | 0 of 3 seeds |" in (tmp_path / "out" / "table.md").read_text("utf-8")


def test_nothing_run_at_all_is_still_a_report(tmp_path):
    report = build(make_spec(tmp_path / "runs", claims=(Claim("strong", ">", "weak", on="format"),)), tmp_path / "out")
    assert len(report.missing) == 13 and report.verdicts[0].status == "not_run"
    assert {cell["note"] for cell in cells(tmp_path / "out").values()} == {"not run"}


def test_ungraded_samples_are_counted_and_left_out(tmp_path):
    root = tmp_path / "runs"
    write_all(root, arms=("strong", "weak"))
    shutil.rmtree(root / "strong" / "seed1")
    values = planted("strong", 1, ungraded=range(5))
    write_run(root / "strong" / "seed1", values)
    report = build(
        make_spec(root, arms=("strong", "weak"), claims=(Claim("strong", ">", "weak", on="format"),)), tmp_path
    )
    cell = cells(tmp_path)["strong", "format"]
    means = [np.mean([s[0] for s in planted("strong", seed)["format"]]) for seed in (0, 2)]
    means.append(np.mean([s[0] for s in values["format"] if s[0] is not None]))
    assert float(cell["value"]) == pytest.approx(100 * np.mean(means))
    assert (cell["ungraded"], cell["samples"], cell["questions"]) == ("5", "180", "60")
    assert "(5 ungraded)" in report.text and "Ungraded values: 5 of 840" in " ".join(report.text.split())
    assert verdicts(tmp_path)[0]["n"]["ungraded"] == 5


def test_what_does_not_apply_is_not_counted_as_ungraded(tmp_path):
    root = tmp_path / "runs"
    write_all(root, arms=("strong", "weak"))
    shutil.rmtree(root / "strong" / "seed1")
    values = planted("strong", 1, ungraded=range(5))
    values["format"][5:12] = [[NOT_APPLICABLE]] * 7
    write_run(root / "strong" / "seed1", values)
    shutil.rmtree(root / "weak" / "seed1")
    write_run(root / "weak" / "seed1", planted("weak", 1) | {"correct": [[NOT_APPLICABLE]] * 60})
    claims = (Claim("strong", ">", "weak", on="format"),)
    report = build(make_spec(root, arms=("strong", "weak"), claims=claims), tmp_path)
    cell, words = cells(tmp_path)["strong", "format"], " ".join(report.text.split())
    assert (cell["ungraded"], cell["does_not_apply"], cell["samples"]) == ("5", "7", "180")
    markdown = (tmp_path / "table.md").read_text("utf-8")
    assert "(5 ungraded, 7 do not apply)" in markdown and "(60 do not apply)" in markdown
    assert (
        "Ungraded values: 5 of 840" in words and "do not apply to their sample, as its reward says: 67 of 840" in words
    )
    assert {key: verdicts(tmp_path)[0]["n"][key] for key in ("ungraded", "does_not_apply")} == {
        "ungraded": 5,
        "does_not_apply": 7,
    }
    weak = cells(tmp_path)["weak", "correct"]
    assert (weak["seeds"], weak["ungraded"], weak["does_not_apply"]) == ("2", "0", "60")


def test_a_reward_that_applies_to_no_sample_says_so_in_its_cell(tmp_path):
    root = tmp_path / "runs"
    write_all(root, arms=("strong",), seeds=())
    write_run(root / "strong" / "seed0", planted("strong", 0) | {"format": [[NOT_APPLICABLE]] * 60})
    build(make_spec(root, arms=("strong",), seeds=(0,)), tmp_path)
    cell = cells(tmp_path)["strong", "format"]
    assert (cell["value"], cell["note"], cell["ungraded"], cell["does_not_apply"]) == ("", "does not apply", "0", "60")


def test_a_wholly_ungraded_seed_is_no_seed_of_that_column(tmp_path):
    root = tmp_path / "runs"
    write_all(root, arms=("strong", "weak"), seeds=(0, 1))
    for arm in ("strong", "weak"):
        shutil.rmtree(root / arm / "seed1")
    write_run(root / "strong" / "seed1", planted("strong", 1, ungraded=range(60)))
    write_run(root / "weak" / "seed1", {**planted("weak", 1), "format": [[None]] * 60})
    shutil.rmtree(root / "weak" / "seed0")
    build(make_spec(root, arms=("strong", "weak"), seeds=(0, 1)), tmp_path)
    strong, weak = cells(tmp_path)["strong", "format"], cells(tmp_path)["weak", "format"]
    assert (strong["seeds"], strong["ungraded"], strong["method"]) == ("1", "60", "Wilson")
    assert (weak["seeds"], weak["value"], weak["note"]) == ("0", "", "ungraded")
    assert cells(tmp_path)["strong", "correct"]["seeds"] == "2"


@pytest.mark.parametrize("lost", ["base/abc123", "strong/seed1"])
@pytest.mark.parametrize("file", [".", "scores/default.jsonl"])
def test_a_finished_run_whose_evaluation_is_lost_is_not_run_and_named(root, tmp_path, lost, file):
    whole = build(make_spec(root), tmp_path / "whole")
    gone = root / lost / "eval" / "heldout" / file
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    report = build(make_spec(root), tmp_path / "out")
    assert report.missing == [
        f"{lost} (finished, but its evaluation is not there; remove its result.json and start it again)"
    ]
    base, strong, *others = report.table.rows
    if lost == "strong/seed1":
        assert strong.seeds_used == (0, 2)
    else:
        assert [cell.note for cell in base.cells] == ["not run"] * len(COLUMNS)
        assert (strong, *others) == whole.table.rows[1:]
