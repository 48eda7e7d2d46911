"""Our official column against the official process, entry by entry, on right, nearly right and broken outputs."""

import csv
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import outputs
import pytest

from gdpo_nemo.evaluation.benchmark import Sample
from gdpo_nemo.evaluation.bfcl import official
from gdpo_nemo.evaluation.bfcl.aggregates import AGGREGATES, aggregate
from gdpo_nemo.evaluation.bfcl.benchmark import Bfcl
from gdpo_nemo.evaluation.bfcl.checkers import Checkers
from gdpo_nemo.evaluation.bfcl.conversation import NativeStyle, ToolRLStyle
from gdpo_nemo.evaluation.bfcl.decoding import native_text
from gdpo_nemo.evaluation.bfcl.releases import is_multi_turn

NOT_RUN = {("nativegold", "multi_turn"), ("nativegold", "avg")}
STYLES = {"toolrl": ToolRLStyle, "native": NativeStyle}
LAUNCHER = Path(__file__).with_name("official_evaluate.py")


def answered(entry, number):
    """The steps of an entry by turn; a single turn is one turn with one step."""
    if is_multi_turn(entry["group"]):
        return outputs.dialogue(entry, number)
    return [[outputs.single_turn(entry, number)]]


def text_of(step, style):
    """A step as we store it."""
    written = getattr(outputs, style)(step)
    if isinstance(written, str):
        return written
    calls = [{"function": {"name": n, "arguments": a}} for call in written for n, a in call.items()]
    return native_text("", calls)


def sample(entry, turns, style):
    question = {"row_id": entry["id"], "group": entry["group"]}
    texts = [[text_of(step, style) for step in turn] for turn in turns]
    generation = {"row_id": entry["id"], "index": 0, "response": texts[0][0], "turns": texts, "ended": "done"}
    return Sample(question, generation)


def result(entry, turns, style):
    """The same for the official process."""
    written = [[getattr(outputs, style)(step) for step in turn] for turn in turns]
    return {"id": entry["id"], "result": written if is_multi_turn(entry["group"]) else written[0][0]}


@pytest.fixture(scope="module")
def entries(checkers):
    names = checkers.release.categories
    return [entry | {"group": category} for category in names for entry in checkers.questions(category, native=False)]


@pytest.fixture(scope="module")
def cases(entries):
    """Name of the official model -> style, and the steps of each entry: varied, and all as the references say."""
    varied = [(entry, answered(entry, number)) for number, entry in enumerate(entries)]
    gold = [(entry, answered(entry, 0)) for entry in entries]
    short = [(entry, turns) for entry, turns in gold if not is_multi_turn(entry["group"])]
    return {
        "toolrl": ("toolrl", varied),
        "toolrlgold": ("toolrl", gold),
        "native": ("native", varied),
        "nativegold": ("native", short),
    }


@pytest.fixture(scope="module")
def official_run(checkers, evaluate_python, cases, tmp_path_factory):
    """Model -> entry -> whether the official process accepts it, and the folder with its tables."""
    root, version = tmp_path_factory.mktemp("official"), checkers.release.version
    for model, (style, steps) in cases.items():
        by_category = {}
        for entry, turns in steps:
            by_category.setdefault(entry["group"], []).append(result(entry, turns, style))
        folder = root / "result" / model
        folder.mkdir(parents=True)
        for category, rows in by_category.items():
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / f"BFCL_{version}_{category}_result.json").write_text(lines)
    chosen = [word for category in checkers.release.categories for word in ("--test-category", category)]
    command = [evaluate_python, LAUNCHER, version, *(w for model in cases for w in ("--model", model)), *chosen]
    environment = {"BFCL_PROJECT_ROOT": str(root), "OPENAI_API_KEY": "none", "PATH": os.defpath}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    verdicts = {}
    for model, (_, steps) in cases.items():
        wrong = {
            json.loads(line)["id"]
            for path in (root / "score" / model).rglob("*_score.json")
            for line in path.read_text().splitlines()[1:]
        }
        verdicts[model] = {entry["id"]: entry["id"] not in wrong for entry, _ in steps}
    return verdicts, root / "score"


def differing(benchmark, style, steps, verdicts):
    """Entries on which our official column differs. Some dialogues come after another sample of their entry."""
    samples, compared = [], []
    for number, (entry, turns) in enumerate(steps):
        if entry["group"] == "multi_turn_base" and number % 4 == 0:
            samples.append(sample(entry, outputs.dialogue(entry, 2), style))
            compared.append(False)
        samples.append(sample(entry, turns, style))
        compared.append(True)
    vectors = list(benchmark.grade(samples, "official"))
    assert len(vectors) == len(samples)
    return [
        s.question["row_id"]
        for s, vector, counts in zip(samples, vectors, compared, strict=True)
        if counts and vector["correct"] != float(verdicts[s.question["row_id"]])
    ]


@pytest.mark.parametrize("model", ["toolrl", "toolrlgold", "native", "nativegold"])
def test_every_entry_is_scored_as_the_official_process_scores_it(checkers, cases, official_run, model):
    style, steps = cases[model]
    verdicts = official_run[0][model]
    assert 0.1 < np.mean(list(verdicts.values())) < 1
    assert differing(Bfcl(checkers, STYLES[style]()), style, steps, verdicts) == []


def test_the_references_are_mostly_right_answers(checkers, cases, official_run):
    verdicts, group = official_run[0]["toolrlgold"], {entry["id"]: entry["group"] for entry, _ in cases["toolrl"][1]}
    share = {
        category: np.mean([valid for row_id, valid in verdicts.items() if group[row_id] == category])
        for category in checkers.release.categories
    }
    typed = [category for category in share if "java" in category]  # want every argument as a string
    assert all(share[category] > 0.9 for category in share if category not in (*typed, "live_relevance")), share


def test_aggregates_are_those_of_the_official_table(checkers, cases, official_run):
    verdicts, folder = official_run
    version = checkers.release.version
    with open(folder / "data_overall.csv", encoding="utf-8") as handle:
        table = {row["Model"]: row for row in csv.DictReader(handle)}
    column = {
        "live": "Live Acc", "multi_turn": "Multi Turn Acc", "avg": "Overall Acc",
        "non_live": "Non-Live AST Acc", "irrelevance": "Irrelevance Detection",
    }  # fmt: skip
    for model, (_, steps) in cases.items():
        values = {}
        for entry, _ in steps:
            values.setdefault(entry["group"], []).append(verdicts[model][entry["id"]])
        means = {category: float(np.mean(valid)) for category, valid in values.items()}
        for name, weights in AGGREGATES[version].items():
            ours = aggregate(weights, means)
            if ours is None:
                assert name in ("agentic", "overall") or (model, name) in NOT_RUN
            elif name == "non_live" and version == "v3":
                with open(folder / "data_non_live.csv", encoding="utf-8") as handle:
                    rows = {row["Model"]: row for row in csv.DictReader(handle)}
                assert rows[model]["Non_Live Overall Acc"] == f"{100 * ours:.2f}%"
            else:
                assert table[model][column[name]] == f"{100 * ours:.2f}%", name


# ---- mistakes in our plumbing are found by this comparison

SOME = ("multiple", "parallel", "live_simple", "multi_turn_base")


class SwappedCategory(Checkers):
    def check(self, samples, model):
        other = {"multiple": "parallel", "parallel": "multiple"}
        ids = {"multiple": "parallel_0", "parallel": "multiple_0"}
        swapped = [
            s | {"category": other.get(s["category"], s["category"]), "id": ids.get(s["category"], s["id"])}
            for s in samples
        ]
        return super().check(swapped, model)


class ShiftedId(Checkers):
    def check(self, samples, model):
        ids = [s["id"] for s in samples]
        shifted = []
        for s in samples:
            own = [i for i in ids if i.rsplit("_", 1)[0] == s["id"].rsplit("_", 1)[0]]
            shifted.append(s | {"id": own[(own.index(s["id"]) + 2) % len(own)]})
        return super().check(shifted, model)


class DroppedTurn(Checkers):
    def check_dialogue(self, category, row_id, turns, model):
        return super().check_dialogue(category, row_id, [*turns[:-1], []], model)


STALE = """
def carry_out(release, request):
    preload(release, request)
    try:
        return json.dumps({"value": OPERATIONS[request["do"]](release, request)}).encode()
    except Exception as error:
        return json.dumps({"fault": str(error)}).encode()


if __name__ == "__main__":"""


@pytest.mark.parametrize("mutant", ["none", "swapped category", "shifted id", "dropped turn", "stale backend"])
def test_a_planted_mistake_is_found(checkers, cases, official_run, tmp_path, monkeypatch, mutant):
    kinds = {"swapped category": SwappedCategory, "shifted id": ShiftedId, "dropped turn": DroppedTurn}
    if mutant == "stale backend":
        text = Path(official.__file__).read_text("utf-8")
        assert text.count('\nif __name__ == "__main__":') == 1
        (tmp_path / "official.py").write_text(text.replace('\nif __name__ == "__main__":', STALE))
        monkeypatch.setattr(official, "__file__", str(tmp_path / "official.py"))
    made = kinds.get(mutant, Checkers)(checkers.release, checkers.interpreter)
    style, steps = cases["toolrlgold"]
    some = [(e, turns) for e, turns in steps if e["group"] in SOME and int(e["id"].split("_")[-1].split("-")[0]) < 60]
    try:
        found = differing(Bfcl(made, ToolRLStyle()), style, some, official_run[0]["toolrlgold"])
    finally:
        made.close()
    assert (len(found) == 0) == (mutant == "none"), (mutant, len(found))
