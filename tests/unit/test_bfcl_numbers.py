"""Numbers of an evaluation of BFCL, and the environment of its checkers, without either being there."""

from pathlib import Path

import pytest

from gdpo_nemo.errors import PrerequisiteError
from gdpo_nemo.evaluation.bfcl import environment
from gdpo_nemo.evaluation.bfcl.benchmark import Bfcl
from gdpo_nemo.evaluation.bfcl.checkers import Checkers
from gdpo_nemo.evaluation.bfcl.conversation import NativeStyle, ToolRLStyle
from gdpo_nemo.evaluation.bfcl.releases import RELEASES, V3, V4
from gdpo_nemo.evaluation.store import EvaluationStore
from gdpo_nemo.report.paper import BFCL_COLUMNS
from gdpo_nemo.report.samples import Evaluation
from gdpo_nemo.stats import mean_over_seeds

LIVE = [name for name in V3.categories if name.startswith("live_")]


def benchmark(release=V3, style=None, categories=None):
    return Bfcl(Checkers(release, Path("nowhere/bin/python")), style or ToolRLStyle(), categories)


@pytest.fixture
def store(tmp_path):
    """Two entries of each live category, one right; live_relevance has one without a verdict."""
    header = {key: {"name": "bfcl_v3"} for key in ("benchmark", "model", "sampling")}
    made = EvaluationStore.create(tmp_path / "bfcl_v3", header | {"grader": "official", "samples_per_question": 1})
    rows = [{"row_id": f"{group}_{n}", "group": group, "messages": []} for group in LIVE for n in range(2)]
    made.write_questions(rows)
    for row in rows:
        right = row["row_id"].endswith("0")
        value = None if row["row_id"] == "live_relevance_1" else float(right)
        values = {"correct": value, "corrected": value, "correct_format": 1.0, "correct_format_strict": float(right)}
        made.append_scores([{"row_id": row["row_id"], "index": 0, "values": values, "reasons": {}}])
    return made


def test_aggregates_weigh_categories_and_are_not_run_where_one_is_missing(store):
    numbers = {number.name: number for number in benchmark(categories=LIVE).numbers(store, "official")}
    assert numbers["live"].value == pytest.approx(100 * (0.5 * 2233 + 18) / 2251)
    assert (numbers["live"].num_questions, numbers["live"].ungraded) == (11, 1)
    assert numbers["live"].interval.low < numbers["live"].value < numbers["live"].interval.high
    assert {name for name, number in numbers.items() if number.value is None} == {
        f"{prefix}{name}" for prefix in ("", "corrected ") for name in ("multi_turn", "non_live", "avg")
    } | {"correct_format", "correct_format_strict"}
    assert (numbers["live_relevance"].value, numbers["live_simple"].value) == (100, 50)


def test_what_was_asked_how_is_part_of_the_name():
    assert benchmark().name == "bfcl_v3"
    assert benchmark(V4, NativeStyle()).name == "bfcl_v4_native"
    assert "bfcl-eval==2025.8.6.2" in benchmark().revision
    revisions = {benchmark(style=ToolRLStyle(kinds)).revision for kinds in ([], ["user_instruction"], ["obs_sentence"])}
    assert len(revisions) == 3
    assert set(benchmark().hashes) > set(V3.hashes)


@pytest.mark.parametrize("version", RELEASES)
def test_a_missing_environment_says_how_to_build_it(version, tmp_path):
    with pytest.raises(PrerequisiteError, match=f"gdpo eval bfcl setup --version {version}"):
        environment.find(RELEASES[version], tmp_path / "none")


def test_another_package_is_refused(tmp_path):
    package = tmp_path / "lib" / "python3.11" / "site-packages" / "bfcl_eval"
    (package / "data").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    (package / "utils.py").write_text("x = 1\n")
    (package / "data" / "a.json").write_text("{}\n")
    before = environment.content_hashes(package)
    (package / "data" / "a.json").write_text("{ }\n")
    after = environment.content_hashes(package)
    assert (before["code"] == after["code"], before["data"] == after["data"]) == (True, False)
    with pytest.raises(PrerequisiteError, match="its data and code differ"):
        environment.find(V3, tmp_path)


def test_the_commands_pin_everything(tmp_path):
    create, install = environment.commands(V4, tmp_path, "python3.12")
    assert create == ["python3.12", "-m", "venv", "--clear", str(tmp_path)]
    assert "--no-deps" in install
    assert all("==" in word for word in install[install.index("--no-deps") + 1 :])
    assert "bfcl-eval==2026.3.23" in install


def test_the_report_comes_to_the_same_numbers(store):
    matrix = store.score_matrix("official")
    evaluation = Evaluation("run", store.path, matrix.row_ids, matrix.groups, matrix.values)
    column = next(column for column in BFCL_COLUMNS if column.name == "live")
    ours = next(n for n in benchmark(categories=LIVE).numbers(store, "official") if n.name == "live")
    values_1_Q = evaluation.questions_Q(column)[None]
    assert 100 * mean_over_seeds(values_1_Q, evaluation.strata(column)) == pytest.approx(ours.value)
    assert [column.name for column in BFCL_COLUMNS if evaluation.has(column)] == ["live"]
