"""What stands in the report page, from run directories on; the browser has its own tests."""

import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from page_documents import HOSTILE, make_curves, make_document

from gdpo_nemo.evaluation.store import EvaluationStore
from gdpo_nemo.report.figures.curves import MAX_POINTS
from gdpo_nemo.report.loading import read_evaluations
from gdpo_nemo.report.page import render_page, traces
from gdpo_nemo.report.page.build import Findings, build_page
from gdpo_nemo.report.page.charts import ticks
from gdpo_nemo.report.page.health import read_health
from gdpo_nemo.report.page.history import provenance_grids
from gdpo_nemo.report.page.markup import Markup, el, escaped
from gdpo_nemo.report.page.traces import MAX_SAMPLES, trace_cells
from gdpo_nemo.report.spec import Claim, Column, Deviation, ReportSpec
from gdpo_nemo.report.stability import measure
from gdpo_nemo.report.table import Part, build_table
from gdpo_nemo.report.training import Training, read_training
from gdpo_nemo.report.verdict import adjusted, judge_all
from gdpo_nemo.run_dir import RunDir

NUM_QUESTIONS, NUM_SAMPLES = 30, 2
COLUMNS = (
    Column("format", "Correct format", "format", at_least=1.0),
    Column("correct", "Correctness", "correct", unit="", digits=2),
)


def write_run(path, arm, seed, response="{arm} {row_id} {index}"):
    run = RunDir.claim(path, {"kind": "train"}, {"code": {"commit": "c0ffee"}, "command": f"run {seed}"})
    for step in (1, 2):
        run.append_metrics({"step": step, "reward/format/mean": 0.1 * step, "groups/alive": 3, "groups/total": 4})
    header = {"benchmark": {"name": "heldout"}, "grader": "default", "model": {}, "sampling": {}}
    store = EvaluationStore.create(run.evaluation_path("heldout"), header | {"samples_per_question": NUM_SAMPLES})
    row_ids = [f"q{q:02d}" for q in range(NUM_QUESTIONS)]
    store.write_questions(
        {"row_id": name, "messages": [{"role": "user", "content": f"ask {name}"}], "gold": {"is": name}}
        for name in row_ids
    )
    rows = [(name, index) for name in row_ids for index in range(NUM_SAMPLES)]
    store.append_generations(
        {"row_id": name, "index": index, "response": response.format(arm=arm, row_id=name, index=index)}
        for name, index in rows
    )
    store.append_scores(
        {"row_id": name, "index": index, "values": {"format": 1.0, "correct": None if name == "q00" else float(seed)}}
        for name, index in rows
    )
    run.finish({"steps": 2, "evaluation": {"questions": NUM_QUESTIONS, "samples_per_question": NUM_SAMPLES}})


@pytest.fixture
def spec(tmp_path):
    for arm in ("gdpo", "grpo"):
        for seed in (0, 1):
            write_run(tmp_path / arm / f"seed{seed}", arm, seed)
    write_run(tmp_path / "base" / "abc", "base", 0)
    return ReportSpec(
        experiment="paged",
        title="Paged",
        scale="embedded",
        model="tiny",
        runs={(arm, seed): tmp_path / arm / f"seed{seed}" for arm in ("gdpo", "grpo") for seed in (0, 1, 2)},
        base=tmp_path / "base" / "abc",
        columns=COLUMNS,
        claims=(Claim("gdpo", ">", "grpo", on="format"),),
        deviations=(Deviation("kl", "no <KL>"),),
        curves=("format",),
        labels={"gdpo": "GDPO", "grpo": "GRPO"},
    )


def write_page(spec, out):
    part = Part(spec, read_evaluations(spec))
    verdicts = adjusted(judge_all(spec, part.evaluations, spec.claims), spec.level)
    trainings = {spec.model: read_training(spec.runs)}
    steady = {spec.model: measure(trainings[spec.model], spec.curves, spec.reward_ranges)}
    out.mkdir(exist_ok=True)
    return build_page(Findings([spec], trainings, steady, [part], build_table([part], verdicts), verdicts), out)


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


class Elements(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def test_every_cell_leads_to_its_runs_and_the_same_questions_in_every_arm(spec, tmp_path):
    data = data_of(write_page(spec, tmp_path / "report").read_text("utf-8"))
    assert set(data["traces"]) == {
        f"embedded:tiny/{arm}/{column.name}" for arm in ("base", "gdpo", "grpo") for column in COLUMNS
    }
    asked = {}
    for key, trace in data["traces"].items():
        samples = [data["samples"][i] for i in trace["samples"]]
        asked[key] = [(data["questions"][sample["question"]]["row_id"], sample["index"]) for sample in samples]
        assert len(samples) == MAX_SAMPLES
        for (row_id, index), sample in zip(asked[key], samples, strict=True):
            arm, seed = sample["run"].split("/")
            assert sample["response"] == f"{arm} {row_id} {index}"
            number = 2 * int(row_id[1:]) + index + 1
            assert sample["path"] == f"../{arm}/{seed}/eval/heldout/generations.jsonl:{number}"
    assert len(set(map(tuple, asked.values()))) == 1
    assert len(data["samples"]) == 3 * MAX_SAMPLES and len(data["questions"]) == MAX_SAMPLES
    trace = data["traces"]["embedded:tiny/gdpo/correct"]
    assert [(run["name"], run["value"], run["state"], run["path"]) for run in trace["runs"]] == [
        ("gdpo/seed0", "0.00", "finished", "../gdpo/seed0"),
        ("gdpo/seed1", "1.00", "finished", "../gdpo/seed1"),
        ("gdpo/seed2", "-", "not started", "../gdpo/seed2"),
    ]
    assert {data["samples"][i]["run"] for i in trace["samples"]} == {"gdpo/seed0", "gdpo/seed1"}
    assert trace["words"].startswith("20 of 120")
    assert ["on a terminal", f"gdpo explain embedded:tiny/gdpo/correct --experiment {spec.experiment}"] in trace[
        "facts"
    ]
    assert data["questions"][0]["messages"] == [["user", f"ask {data['questions'][0]['row_id']}"]]


def test_two_builds_are_the_same_bytes_and_deleting_a_run_changes_its_cells_alone(spec, tmp_path):
    first = write_page(spec, tmp_path / "report").read_bytes()
    assert write_page(spec, tmp_path / "report").read_bytes() == first
    RunDir(tmp_path / "grpo" / "seed0").clear()
    RunDir(tmp_path / "grpo" / "seed1").clear()
    before, after = (data_of(page.decode()) for page in (first, write_page(spec, tmp_path / "report").read_bytes()))
    facts = {key: dict(trace["facts"]) for key, trace in after["traces"].items()}
    assert facts["embedded:tiny/grpo/format"]["value"] == "not run"
    same = "embedded:tiny/gdpo/format"
    assert facts[same] == dict(before["traces"][same]["facts"])


def test_texts_of_a_page_are_bounded(spec, tmp_path, monkeypatch):
    monkeypatch.setattr(traces, "MAX_TEXT_BYTES", 400)
    part = Part(spec, read_evaluations(spec))
    traced = trace_cells([part], tmp_path)
    size = sum(len(one.response) for one in traced.samples)
    size += sum(len(one.gold) + sum(len(text) for _, text in one.messages) for one in traced.questions)
    assert size <= 400
    assert {len(trace.samples) for trace in traced.traces.values()} == {len(traced.questions)}
    assert 1 < len(traced.questions) < MAX_SAMPLES


def test_a_failed_request_has_no_sample(spec, tmp_path):
    store = EvaluationStore(RunDir(tmp_path / "gdpo" / "seed0").evaluation_path("heldout"))
    path = store.file("generations")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[: 2 * NUM_QUESTIONS - 30]))
    part = Part(spec, read_evaluations(spec))
    traced = trace_cells([part], tmp_path)
    shown = traced.traces["embedded:tiny/gdpo/format"].samples
    assert 0 < len(shown) < MAX_SAMPLES
    assert len(traced.traces["embedded:tiny/grpo/format"].samples) == MAX_SAMPLES


def test_texts_of_models_are_in_the_data_block_alone_and_cannot_end_it():
    page = render_page(make_document())
    assert [sample["response"] for sample in data_of(page)["samples"]][: len(HOSTILE)] == [
        f"grpo: {text}" for text in HOSTILE
    ]
    block = re.search(r'id="data">(.*?)</script>', page, re.S)[1]
    assert not set("<>&") & set(block) and block.isascii()
    rest = page.replace(block, "")
    assert not any(text in rest for text in HOSTILE)
    assert [tag for tag, _ in Elements(page).found].count("script") == 2
    page.encode("utf-8")


def test_a_page_refers_to_nothing_outside_itself():
    for tag, attributes in Elements(render_page(make_document())).found:
        assert tag not in ("img", "link", "iframe", "object", "embed", "base", "form")
        assert not {
            name for name in attributes if name.startswith("on") or name in ("src", "style", "srcset", "action")
        }
        assert attributes.get("href", "#").startswith("#")


def test_the_parts_come_in_the_order_of_the_terminal():
    def read(document):
        found = Elements(render_page(document)).found
        skip = next(attributes["href"] for tag, attributes in found if tag == "a")
        return skip, [attributes["id"] for tag, attributes in found if tag == "section"]

    skip, parts = read(make_document())
    assert (skip, parts[:3]) == ("#tables", ["tables", "verdicts", "curves"])
    skip, parts = read(replace(make_document(), tables=(), verdicts=(), traces={}))
    assert (skip, parts[:2]) == ("#verdicts", ["verdicts", "curves"]), "a figure alone has no table"


def test_a_made_up_report_says_so():
    assert "Synthetic" not in render_page(make_document())
    page = render_page(make_document(synthetic=True))
    assert "No number on this page is a result." in page and "<title>Synthetic: " in page


def test_long_training_is_thinned():
    small, large = (len(render_page(make_document(num_steps=steps))) for steps in (MAX_POINTS, 20 * MAX_POINTS))
    assert large < 1.3 * small
    curves = {"tiny": make_curves(20 * MAX_POINTS)}
    page = render_page(replace(make_document(), curves=curves))
    steps = data_of(page)["panels"][0]["steps"]
    assert (steps[0], steps[-1]) == (1, 20 * MAX_POINTS) and len(steps) <= MAX_POINTS + 1
    assert "One step in 20 is drawn" in page


def test_an_unfinished_arm_is_drawn_as_far_as_it_got():
    early = [replace(curve, steps_T=curve.steps_T[:5], values_T=curve.values_T[:5]) for curve in make_curves(30)]
    other = [curve for curve in make_curves(30) if curve.arm == "grpo"]
    curves = {"tiny": (*[curve for curve in early if curve.arm == "gdpo"], *other)}
    panel = data_of(render_page(replace(make_document(), curves=curves)))["panels"][0]
    assert panel["arms"]["gdpo"][4] is not None and panel["arms"]["gdpo"][5:] == [None] * 25
    assert panel["arms"]["grpo"][29] is not None and "grpo_no_std" not in panel["arms"]


def test_health_is_late_and_per_arm():
    steps = np.arange(1.0, 21.0)
    dead = np.where(steps > 18, 0.5, 0.0)
    logged = {"reward/a/mean": steps, "reward/a/frac_dead_groups": dead, "kl": 0 * steps, "groups/alive": 0 * steps + 3}
    trainings = {
        ("gdpo", 0): Training("gdpo/seed0", steps, logged | {"groups/total": 0 * steps + 4}),
        ("gdpo", 1): Training("gdpo/seed1", steps[:10], {key: values[:10] for key, values in logged.items()}),
        ("grpo", 0): Training("grpo/seed0", steps, {"reward/a/frac_dead_groups": steps * math.nan}),
    }
    found = {entry.title: entry for entry in read_health(trainings)}
    assert list(found) == ["constant groups: a", "groups with a signal"]  # KL is 0 throughout
    assert found["groups with a signal"].late == {"gdpo": 0.75}
    assert found["constant groups: a"].late["gdpo"] == 0.0  # as far as both seeds got
    assert math.isnan(found["constant groups: a"].late["grpo"])
    alone = read_health({("gdpo", 0): trainings["gdpo", 0]})
    assert alone[0].late == {"gdpo": 0.5}


def test_alarms_of_runs_are_on_the_page(spec, tmp_path):
    quiet = write_page(spec, tmp_path / "quiet").read_text("utf-8")
    row = {"step": 7, "rule": "hack", "level": "checkpoint", "subject": "correct", "since": 2, "action": "stop"}
    row |= {"text": "correct fell & fell", "last_healthy_checkpoint": "checkpoints/step2", "accepted": True}
    RunDir(spec.runs["gdpo", 0]).write_alarms([row])
    page = write_page(spec, tmp_path / "loud").read_text("utf-8")
    assert "Alarms while training" in page and "Alarms while training" not in quiet
    for words in ("gdpo/seed0", "correct fell &amp; fell", "stop, accepted", "checkpoints/step2"):
        assert words in page[page.index("Alarms while training") :]


def test_provenance_tells_what_runs_share_from_what_differs():
    records = {f"a/seed{i}": {"code": {"commit": "c", "diff": "x" * 999}, "machine": {"cpu": i % 2}} for i in range(3)}
    (name, common), (_, differing) = provenance_grids(records | {"none": {}})
    assert (name, common.rows) == ("All 3 runs", (("code.commit", "c"),))
    assert differing.rows == (("machine.cpu", "0 (2: a/seed0, a/seed2); 1 (1: a/seed1)"),)
    assert provenance_grids({"none": {}}) == ()


def test_markup_is_escaped_once_and_only_where_it_is_text():
    assert el("p", "a < b & c", Markup("<b>d</b>"), title='"x"', hidden=True, class_=None) == (
        '<p title="&quot;x&quot;" hidden>a &lt; b &amp; c<b>d</b></p>'
    )
    assert el("input", value=3) == '<input value="3">'
    assert escaped("\ud800x\U0001f600") == "\ufffdx\U0001f600"


@pytest.mark.parametrize(
    ("ends", "expected"),
    [((0, 1), [0, 0.2, 0.4, 0.6, 0.8, 1]), ((-3, 3), [-3, -2, -1, 0, 1, 2, 3]), ((1, 500), [100, 200, 300, 400, 500])],
)
def test_ticks_are_round(ends, expected):
    assert ticks(*ends) == expected
