"""Tables of the paper on the command line: list, report, check, explain and power, on made-up runs."""

import csv
import json
import shutil

import pytest

from gdpo_nemo.report.synthetic import Plan, write_exhibit
from gdpo_nemo.suite import exhibits
from gdpo_nemo.suite.command_line import execute

MODEL = "qwen2.5-1.5b-instruct"


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Table 2 as the paper has it, but for a format that GDPO learns worse."""
    root = tmp_path_factory.mktemp("planted")
    _, exhibit = exhibits.find("table2")
    plan = Plan(questions=25, spread=0.2, seeds=range(3), steps=20, offsets={("gdpo", "correct_format"): -30.0})
    write_exhibit(exhibit, exhibits.reference_table(exhibit.reference), root / "runs" / "tool_calling" / "paper", plan)
    return root


@pytest.fixture
def call(planted, monkeypatch, capsys):
    monkeypatch.chdir(planted)

    def run(line):
        code = execute(line.split())
        output = capsys.readouterr()
        return code, output.out, output.err

    return run


def test_a_table_of_the_paper_by_name(call, planted):
    code, out, _ = call("report table2 --seeds 0-2")
    assert code == 0
    assert out.startswith("SYNTHETIC") and "Table 2" in out and "not started" not in out
    folder = planted / "runs/tool_calling/paper/report/table2"
    assert {path.suffix for path in folder.glob("table.*")} == {".md", ".tex", ".csv", ".html"}


def test_seeds_and_arms_choose_the_same_runs_in_every_command_about_a_table(call, planted):
    remark = "seed 2 of grpo, seed 2 of gdpo are left out; --seeds 0-2 takes them in"
    options = "--arms gdpo,grpo --seeds 0-1"
    table = " ".join(call(f"report table2 {options}")[1].split())
    with (planted / "runs/tool_calling/paper/report/table2/table.csv").open() as lines:
        assert {(row["arm"], row["seeds"]) for row in csv.DictReader(lines)} == {
            ("base", "1"),
            ("grpo", "2"),
            ("gdpo", "2"),
        }
    assert remark in table
    assert remark in " ".join(call(f"check table2 {options}")[1].split())
    explained = json.loads(call(f"explain table2:{MODEL}/gdpo/avg {options} --json")[1])
    assert [run["path"].split("/")[-1] for run in explained["runs"]] == ["seed0", "seed1"]
    assert explained["notes"] == [remark] and explained["n"]["seeds"] == 2
    assert remark in " ".join(call(f"explain table2:{MODEL}/gdpo/avg {options}")[1].split())
    rows = json.loads(call(f"power table2 {options} --json")[1])
    assert {row["claim"].split(" on ")[0]: row["seeds"] for row in rows} == {
        "gdpo > grpo": 2,
        "gdpo > grpo_no_std": 0,
        "grpo > grpo_no_std": 0,
    }
    assert remark in " ".join(call(f"report figure4 {options}")[1].split())
    for command in ("report table2", "check table2", f"explain table2:{MODEL}/gdpo/avg", "power table2"):
        code, _, err = call(f"{command} --arms gdop")
        assert code == 2 and "unknown arm of table2 'gdop'. Did you mean 'gdpo'" in err


def test_of_several_tables_those_without_the_arms_that_are_named_are_left_out(call):
    code, out, _ = call("report tool_calling --scale paper --arms grpo_no_std --json")
    assert code == 0 and [one["path"].split("/")[-1] for one in json.loads(out)] == ["table2", "figure4"]


def test_all_of_an_experiment_at_paper_scale_run_or_not(call):
    code, out, _ = call("report tool_calling --scale paper --seeds 0-2 --json")
    folders = [one["path"].split("/")[-1] for one in json.loads(out)]
    assert code == 0
    assert folders == ["table1", "table2", "figure1b", "figure4", "figure3"]
    files = {one["path"].split("/")[-1]: one["files"] for one in json.loads(out)}
    assert f"figure4-{MODEL}.png" in files["figure4"] and "figure3.csv" in files["figure3"]


def test_a_table_without_any_run_says_first_what_is_missing_and_what_makes_it(call):
    code, out, _ = call("report table1 --out nowhere")
    head, table = out.split("Table 1: tool calling", 1)
    words = " ".join(head.split())
    assert code == 0 and "37.89" in table and len(head.splitlines()) <= 8
    assert words.startswith("table1: nothing of it has run yet. It needs 2 models x 2 arms x 5 seeds")
    lines = json.loads(call("report table1 --out nowhere --json")[1])[0]["commands"]
    assert [line.split("  # ")[0].strip() for line in head.splitlines() if "gdpo" in line] == lines, "whole, to copy"
    assert call(lines[0].removeprefix("gdpo "))[0] == 0
    assert call(f"{lines[2].replace('run', 'plan', 1).removeprefix('gdpo ')} --out nowhere")[0] == 0
    code, _, err = call(f"{lines[1].removeprefix('gdpo ')} --out nowhere")
    assert code == 2 and "--account ACCOUNT" in err, "all that it lacks is the cluster's own options"
    assert "nothing of it has run yet" not in call("report table2 --seeds 0-2")[1]
    assert "nothing of it has run yet" in call("report figure4 --out nowhere")[1]


def test_the_figure_of_groups_says_what_it_shows(call):
    words = " ".join(call("report figure3")[1].split())
    assert "How many different sets of advantages a group can get" in words
    assert "16 rollouts with 2 rewards: GRPO 121, GRPO w/o std 136, GDPO 497" in words


def test_list_says_how_far_each_exhibit_is(call):
    code, out, _ = call("list --json")
    rows = {one["name"]: one for row in json.loads(out) for one in row["exhibits"]}
    assert code == 0
    assert rows["table2"]["state"] == "10 of 16 pieces"  # a base model and 3 arms x 5 seeds, three of these run
    assert (rows["figure4"]["done"], rows["figure4"]["wanted"]) == (9, 15)
    assert "bfcl_v3" in rows["table2"]["needs"]
    text = call("list")[1]
    assert "table2" in text and "10 of 16 pieces" in text
    assert max(len(line) for line in text.splitlines() if not line.startswith(("  script", "  runs"))) <= 100


def test_check_counts_cells_and_claims(call):
    code, out, _ = call("check table2 --seeds 0-2 --json")
    answer = json.loads(out)
    assert code == 4 and not answer["as_in_the_paper"] and answer["missing"] == []
    assert answer["cells"]["not_reproduced"] >= 1 and sum(answer["cells"].values()) == 20
    assert answer["claims"].count("contradicted") >= 1
    code, out, _ = call("check table1")
    assert code == 3 and "cannot judge everything yet" in out


def test_explain_leads_from_a_cell_to_files_that_hold_its_samples(call, planted):
    key = f"table2:{MODEL}/gdpo/live"
    code, out, _ = call(f"explain {key} --json")
    answer = json.loads(out)
    assert code == 0 and answer["key"] == key and answer["synthetic"]
    assert answer["paper"] == 55.36 and answer["verdict"] in ("reproduced", "underpowered")
    finished = [run for run in answer["runs"] if run["state"] == "finished"]
    assert len(finished) == 3 and len(answer["runs"]) == 5
    for run in finished:
        assert (planted / run["config"]).exists() and (planted / run["evaluation"] / "evaluation.json").exists()
        assert run["sampling"] == {"temperature": 1.0}
    for sample in answer["samples"]:
        assert sample["group"].startswith("live_") and sample["messages"][0]["role"] == "user"
        path, line = sample["response_at"].rsplit(":", 1)
        row = json.loads((planted / path).read_text("utf-8").splitlines()[int(line) - 1])
        assert (row["row_id"], row["index"], row["response"]) == (sample["row_id"], sample["index"], "made-up response")
    text = call(f"explain {key}")[1]
    for part in ("paper", "55.36", "config", "evaluation", "user", "response at", "live_simple 0.1146", "SYNTHETIC"):
        assert part in text
    assert call(f"explain {key}")[1] == text != call(f"explain {key} --seed 1")[1]


def test_explain_of_the_base_model_and_of_a_cell_without_runs(call):
    answer = json.loads(call(f"explain table2:{MODEL}/base/live --json")[1])
    assert [run["path"].split("/")[-1] for run in answer["runs"]] == ["base"] and answer["claims"] == []
    answer = json.loads(call("explain table1:qwen2.5-3b-instruct/gdpo/avg --json")[1])
    assert answer["note"] == "not run" and answer["samples"] == [] and answer["paper"] == 40.87


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("table2", "is not of the form"),
        ("tabel2:m/gdpo/live", "Did you mean 'table2'"),
        (f"table2:{MODEL}x/gdpo/live", f"Did you mean '{MODEL}'"),
        (f"table2:{MODEL}/gdop/live", "Did you mean 'gdpo'"),
        (f"table2:{MODEL}/gdpo/lvie", "Did you mean 'live'"),
        (f"figure4:{MODEL}/gdpo/live", "no columns"),
        ("embedded:tiny/gdpo/format", "no embedded runs"),
        ("embedded:tiny/gdppo/format", "Did you mean 'gdpo'"),
        ("figure3:a/b/c", "no columns"),
    ],
)
def test_a_key_that_names_nothing_is_refused(call, key, message):
    code, _, err = call(f"explain {key}")
    assert code in (2, 3) and message in err


def test_power_measured_stated_and_unknown(call):
    rows = json.loads(call("power table2 --json")[1])
    by_claim = {row["claim"]: row for row in rows}
    live = by_claim["gdpo > grpo on Live"]
    assert (live["papers_effect"], live["seeds"], live["spread"]) == (4.73, 3, "measured")
    assert live["needed"] == "more questions" or int(live["needed"]) >= 2
    stated = json.loads(call("power table1 --spread 1.5 --json")[1])
    average = next(row for row in stated if "3B" in row["model"] and "Average" in row["claim"])
    assert (average["papers_effect"], average["needed"]) == (1.67, "9")
    unknown = json.loads(call("power table1 --out nowhere --json")[1])
    assert {row["needed"] for row in unknown} == {"-"}
    code, out, _ = call("power table2")
    assert code == 0 and "seeds needed" in out and "Power 0.8" in out
    assert max(map(len, out.splitlines())) <= 100
    assert call("power table2 --spread 0")[0] == 2


def test_runs_below_another_folder_are_not_seen(call, planted, tmp_path):
    shutil.copytree(planted / "runs" / "tool_calling" / "paper" / MODEL / "base", tmp_path / "x" / "base")
    code, out, _ = call(f"report table2 --out {tmp_path} --json")
    assert code == 0 and len(json.loads(out)[0]["missing"]) == 16
