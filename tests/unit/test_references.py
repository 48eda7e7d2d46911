"""The paper's numbers as data: what the file holds, and what its reader refuses."""

import json
from pathlib import Path

import pytest

from gdpo_nemo.errors import ConfigError, UnknownNameError
from gdpo_nemo.report.paper import EXHIBITS
from gdpo_nemo.report.references import load_references

PATH = Path(__file__).resolve().parents[2] / "repro" / "references" / "tables.json"


@pytest.fixture(scope="module")
def references():
    return load_references(PATH)


def test_numbers_keep_their_precision_and_source(references):
    assert references.source.startswith("arXiv:2601.05242")
    bfcl, math, code = (references.tables[name] for name in ("bfcl_v3", "math_length", "code_reasoning"))
    cell = bfcl.cell("qwen2.5-1.5b-instruct", "gdpo", "live")
    assert (cell.value, cell.decimals, cell.source) == (55.36, 2, "paper")
    cell = math.cell("deepseek-r1-distill-qwen-1.5b", "base", "minerva_correct")
    assert (cell.value, cell.decimals) == (38.41, 2)
    assert math.cell("deepseek-r1-distill-qwen-1.5b", "grpo", "minerva_correct").decimals == 1
    cell = code.cell("deepseek-r1-distill-qwen-7b", "gdpo_3obj", "taco_bug")
    assert (cell.value, cell.source) == (28.0, "secondary")


def test_what_is_not_known_stays_empty(references):
    code = references.tables["code_reasoning"]
    for arm in ("base", "grpo_2obj", "gdpo_2obj"):
        assert code.cell("deepseek-r1-distill-qwen-7b", arm, "taco_exceed") is None
    assert references.tables["bfcl_v3"].cell("qwen2.5-3b-instruct", "grpo_no_std", "avg") is None
    weights = references.tables["math_weights"]
    assert not any(model.cells for model in weights.models.values()) and len(weights.bounds) == 4
    with pytest.raises(UnknownNameError, match="Did you mean 'avg'"):
        references.tables["bfcl_v3"].cell("qwen2.5-3b-instruct", "grpo", "avgg")


def test_the_average_of_bfcl_is_the_mean_of_three(references):
    table = references.tables["bfcl_v3"]
    for model in table.models:
        for arm in table.models[model].cells:
            parts = [table.cell(model, arm, column).value for column in ("live", "multi_turn", "non_live")]
            assert table.cell(model, arm, "avg").value == pytest.approx(sum(parts) / 3, abs=0.0051)


def test_table_4_repeats_table_3(references):
    three, four = references.tables["math_length"], references.tables["math_conditioned"]
    model = "deepseek-r1-distill-qwen-7b"
    for arm in ("base", "grpo", "gdpo"):
        for column in three.columns:
            assert four.cell(model, arm, column) == three.cell(model, arm, column)


def test_effects_are_left_minus_right_by_model(references):
    effects = references.tables["bfcl_v3"].effects("gdpo", "grpo", "avg")
    assert effects == {"Qwen2.5-1.5B-Instruct": 2.63, "Qwen2.5-3B-Instruct": 1.67}
    assert references.tables["bfcl_v3"].effects("gdpo", "grpo_no_std", "avg") == {"Qwen2.5-1.5B-Instruct": 3.55}
    assert references.tables["code_reasoning"].effects("gdpo_2obj", "grpo_2obj", "taco_bug") == {}


@pytest.mark.parametrize("experiment", EXHIBITS)
def test_exhibits_and_references_fit(references, experiment):
    for exhibit in EXHIBITS[experiment]:
        names = [column.name for column in exhibit.columns]
        for claim in exhibit.claims:
            assert claim.on in names and claim.left in exhibit.arms and claim.right in exhibit.arms
        if exhibit.reference is None:
            continue
        table = references.table(exhibit.reference)
        assert set(exhibit.models) <= set(table.models)
        assert {column.reference for column in exhibit.columns} == set(table.columns)
        if not table.bounds:
            rows = {arm for model in exhibit.models for arm in table.models[model].cells}
            assert {"base", *exhibit.arms} <= rows
        assert {arm for bound in table.bounds for arm in (bound.arm, bound.from_)} <= set(exhibit.arms)


def test_every_known_cell_of_the_paper_is_shown_by_some_exhibit(references):
    shown = {
        (exhibit.reference, model, arm, column.reference)
        for exhibits in EXHIBITS.values()
        for exhibit in exhibits
        for model in exhibit.models
        for arm in ("base", *exhibit.arms)
        for column in exhibit.columns
    }
    for name, table in references.tables.items():
        for model, block in table.models.items():
            for arm, row in block.cells.items():
                for column, number in row.items():
                    assert number is None or (name, model, arm, column) in shown, (name, model, arm, column)


def test_exhibit_names_are_unique():
    names = [exhibit.name for exhibits in EXHIBITS.values() for exhibit in exhibits]
    assert len(set(names)) == len(names)
    assert {f"table{i}" for i in range(1, 6)} | {"weights"} <= set(names)
    assert {"figure1b", "figure3", "figure4", "figure5", "figure6", "figure7"} <= set(names)


def _bfcl(content):
    return content["tables"]["bfcl_v3"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(extra=1), "extra"),
        (lambda c: c.update(schema=2), "schema"),
        (lambda c: _bfcl(c).update(decimals=-1), "bfcl_v3.decimals"),
        (lambda c: _bfcl(c).pop("runs"), "bfcl_v3.runs"),
        (lambda c: _bfcl(c)["models"]["qwen2.5-3b-instruct"]["cells"]["gdpo"].update(live="71"), "bfcl_v3"),
        (lambda c: _bfcl(c)["models"]["qwen2.5-3b-instruct"]["cells"]["gdpo"].update(liv=71.2), "Did you mean 'live'"),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_refused(tmp_path, change, message):
    content = json.loads(PATH.read_text("utf-8"))
    change(content)
    (tmp_path / "tables.json").write_text(json.dumps(content), "utf-8")
    with pytest.raises(ConfigError) as caught:
        load_references(tmp_path / "tables.json")
    assert message in str(caught.value)


def test_an_absent_or_broken_file_and_an_unknown_table_are_errors(tmp_path, references):
    with pytest.raises(ConfigError, match="no reference numbers"):
        load_references(tmp_path / "none.json")
    (tmp_path / "broken.json").write_text("{", "utf-8")
    with pytest.raises(ConfigError, match="Invalid JSON"):
        load_references(tmp_path / "broken.json")
    with pytest.raises(UnknownNameError, match="Did you mean 'bfcl_v3'"):
        references.table("bfcl_v4")
    assert references.table(None) is None
