import shutil
from dataclasses import replace

import pytest
from planted_runs import COLUMNS, cells, make_spec, planted, verdicts, write_all, write_evaluation, write_run

from gdpo_nemo.errors import InputError
from gdpo_nemo.report.builder import build
from gdpo_nemo.report.captions import power
from gdpo_nemo.report.spec import Claim
from gdpo_nemo.report.verdict import Verdict
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.stats import paired_difference


@pytest.mark.parametrize(
    ("claim", "status", "holds", "agreeing"),
    [
        (Claim("strong", ">", "weak", on="format"), "supported", True, 3),
        (Claim("weak", "<", "strong", on="format"), "supported", True, 3),
        (Claim("weak", ">", "strong", on="format"), "contradicted", False, 0),
        (Claim("strong", "<", "weak", on="format"), "contradicted", False, 0),
        (Claim("strong", ">", "erratic", on="format"), "not_supported", False, 1),
        (Claim("strong", ">", "absent", on="format"), "not_run", None, 0),
    ],
)
def test_verdict_of_a_planted_effect(root, tmp_path, claim, status, holds, agreeing):
    report = build(make_spec(root, claims=(claim,)), tmp_path / "out")
    [verdict] = verdicts(tmp_path / "out")
    assert (verdict["status"], verdict["holds"], verdict["seeds_agreeing"]) == (status, holds, agreeing)
    assert (report.verdicts[0].status, report.verdicts[0].holds) == (status, holds)
    assert f"{status.replace('_', ' ')}: {claim.left.title()} {claim.relation} {claim.right.title()}" in report.text


def test_verdict_shows_what_it_rests_on(root, tmp_path):
    build(make_spec(root, claims=(Claim("strong", ">", "weak", on="format"),)), tmp_path)
    sides = [
        {seed: [100 * samples[0] for samples in planted(arm, seed)["format"]] for seed in range(3)}
        for arm in ("strong", "weak")
    ]
    expected = paired_difference(*sides)
    [verdict] = verdicts(tmp_path)
    assert verdict["difference"] == expected.value
    assert verdict["difference_by_seed"] == {str(seed): value for seed, value in expected.by_seed.items()}
    assert verdict["interval"] == {
        "low": expected.interval.low,
        "high": expected.interval.high,
        "level": 0.95,
        "method": "crossed t over seeds and questions",
    }
    counts = {"seeds": 3, "seeds_planned": 3, "questions": 60, "samples": 360, "ungraded": 0, "does_not_apply": 0}
    assert verdict["n"] == counts
    assert verdict["runs"] == [f"{arm}/seed{seed}" for arm in ("strong", "weak") for seed in range(3)]
    assert 0 < verdict["minimum_detectable_effect"] < 100


def test_seeds_too_far_apart_for_any_share_say_so(root):
    spec = make_spec(root)
    verdict = Verdict(
        Claim("strong", ">", "weak", on="format"), "not_supported", "", "%", by_seed={0: 1.0, 2: 9.0}, detectable=339.7
    )
    [line] = power(spec, [verdict])
    assert line.endswith(": 2 seeds this far apart find no difference of shares (it would take 339.7 points)")
    [line] = power(spec, [replace(verdict, detectable=82.0)])
    assert line.endswith(": 2 seeds find a difference of 82.0 points four times in five")


def test_verdict_uses_the_seeds_that_both_arms_finished(root, tmp_path):
    RunDir(root / "weak" / "seed1").clear()
    build(make_spec(root, claims=(Claim("strong", ">", "weak", on="format"),)), tmp_path)
    [verdict] = verdicts(tmp_path)
    assert list(verdict["difference_by_seed"]) == ["0", "2"]
    assert verdict["n"]["seeds"] == 2 and verdict["n"]["seeds_planned"] == 3


def test_one_seed_supports_no_claim(tmp_path):
    write_all(tmp_path / "runs", seeds=(0,))
    spec = make_spec(tmp_path / "runs", seeds=(0,), claims=(Claim("strong", ">", "weak", on="format"),))
    build(spec, tmp_path / "out")
    [verdict] = verdicts(tmp_path / "out")
    assert (verdict["status"], verdict["holds"], verdict["interval"]) == ("not_supported", False, None)
    assert "two seeds" in verdict["reason"] and verdict["difference"] > 50
    assert cells(tmp_path / "out")["strong", "format"]["best"] == "0"


def test_no_common_seed_is_not_run(root, tmp_path):
    for arm, seed in (("strong", 0), ("weak", 1), ("weak", 2)):
        RunDir(root / arm / f"seed{seed}").clear()
    build(make_spec(root, claims=(Claim("strong", ">", "weak", on="format"),)), tmp_path)
    assert verdicts(tmp_path)[0]["status"] == "not_run"
    assert verdicts(tmp_path)[0]["reason"] == "no seed is finished in both arms"


def test_another_level_moves_the_line(root, tmp_path):
    spec = make_spec(root, claims=(Claim("strong", ">", "weak", on="format"),))
    build(spec, tmp_path / "a")
    build(replace(spec, level=0.999), tmp_path / "b")
    wide, narrow = verdicts(tmp_path / "b")[0], verdicts(tmp_path / "a")[0]
    assert wide["interval"]["level"] == 0.999 and wide["interval"]["low"] < narrow["interval"]["low"]
    assert "99.9 %" in (tmp_path / "b" / "table.md").read_text("utf-8")


def test_runs_that_cannot_be_paired_are_refused(tmp_path):
    spec = make_spec(tmp_path, arms=("strong", "weak"), seeds=(0,), columns=COLUMNS[:1], base=None)
    write_run(tmp_path / "strong" / "seed0", {"format": [[1.0], [0.0]]})
    write_run(tmp_path / "weak" / "seed0", {"format": [[1.0], [0.0], [1.0]]})
    with pytest.raises(InputError, match="2 questions, weak/seed0 has 3"):
        build(spec, tmp_path / "out")
    shutil.rmtree(tmp_path / "weak")
    write_run(tmp_path / "weak" / "seed0", {"format": [[1.0, 1.0], [0.0, 0.0]]})
    with pytest.raises(InputError, match="1 samples per question, weak/seed0 has 2"):
        build(spec, tmp_path / "out")
    run = RunDir(tmp_path / "weak" / "seed0")
    other = [{"row_id": "q000"}, {"row_id": "other"}]
    one = [{"row_id": q, "index": 0, "values": {"format": 1}} for q in ("q000", "q001")]
    write_evaluation(run, 1, other, one)
    report = build(spec, tmp_path / "out")
    assert report.missing == ["weak/seed0 (cannot be read)"] and "was not asked" in str(report.unreadable)
    write_evaluation(run, 1, other, [one[0], one[1] | {"row_id": "other"}])
    run.finish({"evaluation": {}})
    with pytest.raises(InputError, match=r"different questions, e\.g\. only one has 'other'"):
        build(spec, tmp_path / "out")
