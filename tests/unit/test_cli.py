import json
import shlex
import sys

import pytest

from gdpo_nemo.suite.command_line import execute
from gdpo_nemo.suite.commands import COMMANDS
from gdpo_nemo.suite.grid import model_slug
from gdpo_nemo.suite.parsing import build_parser
from gdpo_nemo.suite.programs import find, programs_root
from gdpo_nemo.suite.running import next_commands
from gdpo_nemo.suite.seeds import parse_seeds
from gdpo_nemo.suite.selecting import selection

TREE = "runs/tool_calling/embedded/tiny"
SELECTED = ("tool_calling", "--smoke", "--arms", "grpo,gdpo", "--seeds", "0", "--out", "runs")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---- arguments


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "name a command: plan"),
        ("rnu tool_calling", "Did you mean 'run'?"),
        ("helth", "Did you mean 'health'?"),
        ("tabel1", "did you mean `gdpo report table1`?"),
        ("plan tool_caling", "Did you mean 'tool_calling'?"),
        ("report tabel1", "Did you mean 'table1'? Known: code_reasoning"),
        ("check figrue4", "Did you mean 'figure4'?"),
        ("power tabel1", "Did you mean 'table1'?"),
        ("explain tabel1:tiny/gdpo/format", "Did you mean 'table1'?"),
        ("explain embeded:tiny/gdpo/format", "Did you mean 'embedded'?"),
        ("explain tool_calling:tiny/gdpo/format", "embedded:tiny/..., with --experiment tool_calling"),
        ("plan table1", "here name its experiment: tool_calling"),
        ("report .", ". is a folder; name an experiment"),
        ("plan tool_calling --sed 0", "Did you mean '--seeds'?"),
        ("plan tool_calling --scale papr", "Did you mean 'paper'? Known: embedded, paper."),
        ("run tool_calling --arms gdop", "Did you mean 'gdpo'?"),
        ("run tool_calling --model tinny", "Did you mean 'tiny'?"),
        ("run tool_calling --model ./nowhere", "a local directory"),
        ("run tool_calling --seeds 0..2", "0-2 or 0,1,5"),
        ("run tool_calling --seeds 0-2,1", "one seed twice"),
        ("run tool_calling --seeds 2-0", "none"),
        ("run tool_calling embedded.train.stpes=3", "Did you mean 'embedded.train.steps'?"),
        ("run tool_calling embedded.train.steps=many", "valid integer"),
        ("run tool_calling seed=3", "keys start with gdpo. or embedded."),
        ("run tool_calling embedded.model.name=x", "--model x"),
        ("run tool_calling gdpo.rewards.lenght.weight=1", "'lenght'. Known: format, correct"),
        ("run tool_calling --sweep --arms gdpo", "leave one of them out"),
        ("run code_reasoning --sweep", "code_reasoning has none"),
        ("report tool_calling --sweep", "'--sweep'"),
        ("run tool_calling extra", "run does not take 'extra'"),
        ("status tool_calling embedded.train.steps=3", "status does not take"),
        ("plan tool_calling --jobs 0", "--jobs: 0 is not a whole number of 1 or more; see gdpo plan --help"),
        ("plan tool_calling --jobs x", "x is not a whole number of 1 or more"),
        ("plan", "required: target; see gdpo plan --help"),
        ("data fecth tool_calling", "invalid choice: 'fecth'"),
        ("power tool_calling --scale papr", "invalid choice: 'papr'"),
        ("power tool_calling --spread 0", "0 is not a number above 0"),
        ("health runs/tool_calling/embedded/tiny/gdpo/seed9", "there is no runs/tool_calling"),
        ("explain embedded:tiny/gdpo/format --experiment tool_caling", "Did you mean 'tool_calling'?"),
        ("eval mathsuite", "Did you mean 'math_suite'?"),
        ("eval math_suite", "--endpoint --model --checkpoint is required; see gdpo eval math_suite --help"),
        ("eval math_suite --endpoint x --limit 0", "0 is not a whole number"),
    ],
)
def test_a_wrong_command_line_is_explained_and_changes_nothing(line, words, here, capsys):
    assert execute(line.split()) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and words in error
    assert list(here.iterdir()) == []


def test_the_sweep_of_math_length_is_its_methods_at_every_weight(here, capsys):
    assert execute(["plan", "math_length", "--sweep", "--smoke", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)["arms"]
    methods = ("grpo", "gdpo", "grpo_conditioned", "gdpo_conditioned")
    assert sorted(planned) == sorted(
        f"{method}{weight}" for method in methods for weight in ("", "_w75", "_w50", "_w25")
    )


@pytest.mark.parametrize("command", ["run", "report"])
def test_a_file_where_a_folder_should_be_is_one_line_with_its_name(command, here, capsys):
    (here / "runs").write_text("")
    assert execute([command, "tool_calling", "--smoke", "--out", "runs"]) != 0
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and "runs" in error
    assert execute(["report", "table1", "--out", "runs"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: runs/tool_calling/") and error.endswith(": Not a directory\n")


def test_seeds_are_ranges_and_lists():
    assert parse_seeds("0-2") == (0, 1, 2)
    assert parse_seeds("0,1,5") == (0, 1, 5)
    assert parse_seeds("7,1-3") == (7, 1, 2, 3)


@pytest.mark.parametrize(
    ("model", "slug"),
    [("tiny", "tiny"), ("Qwen/Qwen2.5-0.5B", "Qwen--Qwen2.5-0.5B"), ("../a b", "a--b"), ("/..x", "x")],
)
def test_a_model_name_is_one_safe_folder(model, slug):
    assert model_slug(model) == slug


def test_a_local_model_directory_is_named_after_its_folder(here):
    (here / "my model").mkdir()
    assert model_slug("./my model") == "my--model"


def test_debug_adds_the_traceback(here, capsys):
    assert execute(["plan", "tool_caling", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err
    assert execute(["plan", "tool_caling"]) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("command", ["report", "check"])
def test_without_runs_there_is_nothing_to_report(command, here, capsys):
    assert execute([command, "tool_calling"]) == 3
    assert "no runs in" in capsys.readouterr().err


# ---- help


def test_help_shows_every_command_an_example_of_it_and_the_exit_codes(gdpo, here):
    done = gdpo("--help", cwd=here)
    assert done.returncode == 0
    for command in (*COMMANDS, "list"):
        assert f"  gdpo {command}" in done.stdout
    assert all(f"\n  {code} " in done.stdout for code in (0, 1, 2, 3, 4, 130))


def test_help_reads_no_configuration_library(python, here):
    program = (
        "import sys\n"
        "from gdpo_nemo.suite.command_line import execute\n"
        "try: execute(['--help'])\n"
        "except SystemExit: pass\n"
        "slow = {'pydantic', 'omegaconf', 'torch', 'matplotlib', 'scipy'} & set(sys.modules)\n"
        "assert not slow, slow\n"
    )
    done = python("-c", program, cwd=here)
    assert done.returncode == 0, done.stderr


def test_a_script_is_the_same_program(python, gdpo, here):
    script = programs_root() / "repro" / "tool_calling.py"

    def run(*arguments):
        return python(script, *arguments, cwd=here)

    assert "  python " in run("--help").stdout
    assert json.loads(run("status", "--json").stdout) == json.loads(
        gdpo("status", "tool_calling", "--json", cwd=here).stdout
    )
    without_command = run("--seeds", "x")
    assert without_command.returncode == 2
    assert "seeds 'x'" in without_command.stderr
    unknown = run("stauts")
    assert unknown.returncode == 2
    assert "Did you mean 'status'?" in unknown.stderr
    elsewhere = run("health")
    assert elsewhere.returncode == 2
    assert "gdpo health" in elsewhere.stderr


# ---- a finished experiment


def test_a_run_ends_in_a_table_and_says_what_it_did(smoke):
    folder, stdout, stderr = smoke
    assert "GDPO" in stdout and "Correct format" in stdout and "Files in" in stdout
    for name in ("warm-up", "grpo seed0", "gdpo seed0"):
        assert f"finished {name} in" in stderr
    written = {path.name for path in (folder / TREE / "report").iterdir()}
    assert {"table.md", "table.tex", "table.csv", "curves.png", "verdict.json"} <= written


def test_a_run_ends_with_commands_that_work_and_show_the_same_runs(gdpo, smoke, finished):
    further = [shlex.split(line, comments=True) for line in smoke[1].splitlines()[-3:]]  # each is whole on its line
    assert [words[1] for words in further] == ["report", "explain", "power"]
    for program, *words in further:
        assert program.endswith("gdpo") and {"--seeds", "--arms", "grpo,gdpo"} <= set(words)
        done = gdpo(*words, cwd=finished)
        assert done.returncode == 0, done.stderr
    assert (finished / TREE / "report" / "report.html").exists()


def test_the_commands_name_the_program_where_nobody_activated_its_environment(here, monkeypatch):
    def program():
        options = build_parser("gdpo", None, "run").parse_args(["run", "tool_calling"])
        [line] = {line.split(" ")[0] for line in next_commands(selection(find("tool_calling"), options)).values()}
        return line

    monkeypatch.setenv("PATH", str(here / "bin"))
    monkeypatch.setattr(sys, "executable", str(here / ".venv/bin/python"))
    assert program() == "gdpo"
    for folder in (".venv/bin", "bin", "elsewhere"):
        (here / folder).mkdir(parents=True)
    (here / ".venv/bin/gdpo").touch(mode=0o755)
    assert program() == ".venv/bin/gdpo"
    monkeypatch.chdir(here / "elsewhere")
    assert program() == str(here / ".venv/bin/gdpo")
    (here / "bin/gdpo").touch(mode=0o755)
    assert program() == "gdpo"


def test_the_warm_up_is_said_to_be_of_this_folder(smoke):
    assert f"{TREE}: warm-up, trained once for this folder, for all its runs\n" in smoke[2]


def test_the_second_run_reuses_everything_and_ends_in_the_same_table(gdpo, smoke, finished):
    before = {path: path.stat().st_mtime_ns for path in (finished / TREE / "gdpo").rglob("*")}
    done = gdpo("run", *SELECTED, cwd=finished)
    assert done.returncode == 0
    assert done.stdout == smoke[1]
    assert done.stderr == "2 of 2 runs already finished, reused\n"
    assert {path: path.stat().st_mtime_ns for path in (finished / TREE / "gdpo").rglob("*")} == before


def test_another_configuration_is_refused_with_the_ways_out(gdpo, finished):
    done = gdpo("run", *SELECTED, "embedded.train.steps=7", cwd=finished)
    assert done.returncode == 1
    for words in ("embedded.train.steps: 6 there, 7 now", "--out", "--fresh"):
        assert words in done.stderr


def test_runs_that_cannot_be_compared_are_refused_before_they_start(gdpo, finished):
    done = gdpo(
        "run",
        "tool_calling",
        "--smoke",
        "--arms",
        "grpo_no_std",
        "--seeds",
        "0",
        "--out",
        "runs",
        "embedded.train.lr=1",
        cwd=finished,
    )
    assert done.returncode == 1
    assert "one table cannot compare them" in done.stderr and "embedded.train.lr" in done.stderr
    assert not (finished / TREE / "grpo_no_std").exists()


def test_status_shows_finished_and_missing_runs(gdpo, finished):
    answer = json.loads(gdpo("status", "tool_calling", "--out", "runs", "--json", cwd=finished).stdout)
    rows = {row["name"]: row for row in answer["runs"]}
    assert len(rows) == 1 + 9
    assert not answer["under_way"]
    assert rows["gdpo seed0"]["state"] == rows["warm-up"]["state"] == "finished"
    assert rows["gdpo seed0"]["step"] == rows["gdpo seed0"]["total_steps"] == 6
    assert rows["gdpo seed0"]["rewards_from"] == "evaluation"
    assert rows["gdpo seed2"]["state"] == "not run"
    text = gdpo("status", "tool_calling", "--out", "runs", cwd=finished).stdout
    assert "gdpo seed0" in text and "6/6" in text


def test_list_names_what_exists(gdpo, finished):
    rows = json.loads(gdpo("list", "--out", "runs", "--json", cwd=finished).stdout)
    [row] = [row for row in rows if row["name"] == "tool_calling"]
    assert row["name"] == "tool_calling"
    assert row["scales"] == {"embedded": [0, 1, 2], "paper": [0, 1, 2, 3, 4]}
    assert [arm["name"] for arm in row["arms"] if arm["default"]] == ["grpo", "grpo_no_std", "gdpo"]
    assert row["runs"] == [{"path": TREE, "runs": 2, "finished": 2}]
    shown = {one["name"]: (one["kind"], one["state"]) for one in row["exhibits"]}
    assert shown["embedded"] == ("table", "2 of 9 pieces")
    assert shown["table1"] == ("table", "not run")
    assert shown["figure3"] == ("groups", "computed on request")


def test_a_plan_says_what_is_reused_and_writes_nothing(gdpo, finished):
    before = sorted(finished.rglob("*"))
    answer = json.loads(gdpo("plan", "tool_calling", "--smoke", "--out", "runs", "--json", cwd=finished).stdout)
    assert {run["name"]: run["state"] for run in answer["runs"]}["gdpo seed0"] == "finished"
    assert answer["warm_up"]["state"] == "finished"
    batch, per_run = answer["batch"], answer["per_run"]
    assert (batch["prompts_per_step"], batch["rollouts_per_prompt"], batch["rollouts_per_step"]) == (4, 4, 16)
    assert batch["optimiser_steps_per_batch"] == 1
    assert (per_run["steps"], per_run["prompts"], per_run["rollouts"]) == (6, 24, 96)
    assert per_run["new_tokens_at_most"] == 96 * batch["max_new_tokens"]
    assert answer["rollouts_in_all"] == 9 * 96
    assert answer["parameters"] > 100_000 and answer["disk_bytes"] > 9 * 3 * answer["parameters"]
    assert answer["time"]["total_s"] > 0
    assert sorted(finished.rglob("*")) == before


def test_a_plan_works_without_torch_and_a_run_names_the_install_command(python, here):
    program = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "from gdpo_nemo.suite.command_line import execute\n"
        "sys.exit(execute(sys.argv[1:]))\n"
    )

    def without_torch(*arguments):
        return python("-c", program, *arguments, cwd=here)

    planned = without_torch("plan", "tool_calling")
    assert planned.returncode == 0, planned.stderr
    assert "rollouts, optimiser steps on them" in planned.stdout
    assert "torch not installed (pip install" in planned.stdout
    started = without_torch("run", "tool_calling")
    assert started.returncode == 3
    assert "pip install" in started.stderr
    assert list(here.iterdir()) == []
