"""``gdpo plan`` for a cluster, as typed."""

import json
from pathlib import Path

import pytest

from gdpo_nemo.data.sources import commands_for, sources_of
from gdpo_nemo.suite.cluster_targets import is_cluster_target
from gdpo_nemo.suite.command_line import execute

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
PAPER = ["plan", "tool_calling", "--scale", "paper"]
ONE = ["--arms", "gdpo", "--model", "qwen2.5-7b-instruct"]


@pytest.fixture(autouse=True)
def no_checkout(monkeypatch):
    monkeypatch.delenv("NEMO_RL_PATH", raising=False)


@pytest.fixture
def call(capsys):
    def run(*arguments):
        code = execute(list(arguments))
        done = capsys.readouterr()
        return code, done.out, done.err

    return run


@pytest.fixture
def told(call):
    """The same, with each line that the terminal's width broke in one piece again."""

    def run(*arguments):
        code, out, err = call(*arguments)
        return code, " ".join(out.split()), " ".join(err.split())

    return run


def test_a_task_at_the_papers_scale_is_planned_for_the_papers_models(told):
    code, out, _ = told(*PAPER, "--seeds", "0-4")
    assert code == 0
    assert "Qwen/Qwen2.5-1.5B-Instruct" in out and "Qwen/Qwen2.5-3B-Instruct" in out
    assert "30 in all: models qwen2.5-1.5b-instruct, qwen2.5-3b-instruct; arms grpo, grpo_no_std, gdpo" in out
    assert "format x 1, correct x 1" in out and "in optimiser steps of 512: 4 per rollout batch" in out
    assert out.rstrip().endswith("Nothing was started.")


def test_the_same_as_json(call):
    code, out, _ = call(*PAPER, "--arms", "gdpo", "--model", "qwen3-32b", "--json")
    data = json.loads(out)
    (plan,) = data["plans"]
    assert code == 0 and data["arms"] == ["gdpo"] and data["gpu_hours"] == 5 * plan["cost"]["total_gpu_hours"]
    assert plan["layout"]["nodes"] == 4  # the smallest cluster that suffices
    assert plan["memory"]["fits"] and plan["violations"] == []


def test_a_run_that_would_fail_is_planned_with_the_reason_and_exit_code_2(told):
    code, out, _ = told(*PAPER, "--model", "qwen3-32b", "--cluster", "1n8g")
    assert code == 2 and "This run would fail:" in out and "Set cluster.num_nodes=2" in out
    code, out, _ = told(*PAPER, "--model", "qwen3-32b", "--cluster", "1n8g", "cluster.num_nodes=2")
    assert code == 0 and "This run would fail" not in out


def test_a_scheduled_weight_is_planned_with_its_schedule(told):
    schedule = "gdpo.rewards.correct.weight={schedule: linear, start: 0, end: 2, last_step: 50}"
    code, out, _ = told(*PAPER, "--arms", "gdpo", "--model", "qwen3-32b", schedule)
    assert code == 0 and "format x 1, correct x 0 to 2 (steps 1 to 50)" in out


def test_a_composed_file_is_planned_alone(call, tmp_path):
    base = CONFIGS / "tool_calling"
    path = tmp_path / "mine.yaml"
    path.write_text(f"defaults: [{base / 'paper.yaml'}, {base / 'gdpo.yaml'}]\npolicy: {{model_name: someone/else}}\n")
    code, out, _ = call("plan", str(path), "policy.generation.top_p=0.9")
    assert code == 0 and "someone/else are not known here" in out
    code, out, _ = call("plan", str(path), "--cluster", "4n8g", "--model", "qwen2.5-7b-instruct", "--gpu", "b200")
    assert code == 0 and "4 x 8 GPUs = 32" in out and "B200" in out


def test_every_task_is_planned_with_its_rewards(told):
    code, out, _ = told("plan", "math_length", "--scale", "paper", "--model", "qwen3-4b-instruct")
    assert code == 0 and "8 per rollout batch" in out and "correct x 1, length x 1" in out
    code, _, error = told("plan", "math_length", "--scale", "paper", "--model", "qwen3-4b-instruct", "gdpo.task=maths")
    assert code == 2 and "unknown task 'maths'" in error


def test_what_is_about_a_cluster():
    arm, paper = (str(CONFIGS / "tool_calling" / f"{name}.yaml") for name in ("gdpo", "paper"))
    asked = [is_cluster_target(*one) for one in ((arm, "embedded"), (paper, "embedded"), (arm, "paper"))]
    assert asked == [False, True, True]
    assert not is_cluster_target("tool_calling", "embedded")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "tiny"], "unknown model in"),
        (["--cluster", "5n8g"], "unknown cluster in"),
        (["--gpu", "h10"], "unknown GPU 'h10'. Did you mean 'h100'"),
        (["--arms", "gdpoo"], "unknown arm of tool_calling 'gdpoo'. Did you mean 'gdpo'"),
        (["gdpo.rewards.format.wieght=2"], "Did you mean 'gdpo.rewards.format.weight'"),
        (["gdpo.rewards.lenght.weight=1"], "unknown reward"),
        (["policy.megatron_cfg.tensor_paralel=2"], "unknown key 'policy.megatron_cfg.tensor_paralel'"),
    ],
)
def test_what_is_wrong_is_said_in_one_message(call, arguments, message):
    code, out, err = call(*PAPER, "--model", "qwen2.5-1.5b-instruct", *arguments)
    assert code == 2 and not out and message in err


def test_the_data_is_named_and_whether_it_is_here(told):
    out = told(*PAPER, *ONE)[1]
    assert "data ToolRL's rlla_4k" in out and str(CONFIGS.parent / "data/rlla_4k/dataset/rlla_4k/train.parquet") in out
    assert "rows that a built-in world makes" in told(*PAPER, *ONE, "gdpo.data=null")[1]


def test_data_that_is_not_here_is_named_with_the_command_that_gets_it(told, tmp_path, monkeypatch):
    monkeypatch.delenv("GDPO_DATA", raising=False)
    files = [f"gdpo.data.{key}.path={tmp_path}/rlla_4k/dataset/rlla_4k/{name}.parquet"
             for key, name in (("train", "train"), ("heldout", "test"))]  # fmt: skip
    out = " ".join(told(*PAPER, *ONE, *files)[1].split())
    assert out.count("gdpo data fetch") == 1
    assert f"not on this machine, `gdpo data fetch tool_calling --data {tmp_path}` gets it" in out
    monkeypatch.setenv("GDPO_DATA", str(tmp_path))
    assert "`gdpo data fetch tool_calling` gets it" in " ".join(told(*PAPER, *ONE, *files)[1].split())
    own = [line.replace("dataset/rlla_4k/", "") for line in files]
    out = " ".join(told(*PAPER, *ONE, *own)[1].split())
    assert "not on this machine" in out and "data fetch" not in out, "a file of one's own is not to be fetched"


@pytest.mark.parametrize("task", ["tool_calling", "math_length", "code_reasoning", "gsm8k"])
def test_the_published_data_of_every_task_are_found_again(task):
    for source in sources_of(task):
        for name in source.files:
            path = Path("elsewhere", source.name, name.replace("*", "deepscaler"))
            assert commands_for([path]) == [f"gdpo data fetch {task} --data elsewhere"]


def test_a_wrong_layout_is_not_blamed_on_the_batch(told):
    code, out, _ = told(*PAPER, *ONE, "policy.megatron_cfg.tensor_model_parallel_size=3")
    assert code == 2 and "do not divide into copies of TP 3" in out and "train_global_batch_size=" not in out


def test_the_plan_says_when_rewards_are_computed(told):
    code = ["plan", "code_reasoning", "--scale", "paper", "--arms", "gdpo_3obj", *ONE[2:]]
    assert "each response as soon as it is complete, while others generate" in told(*code)[1]
    assert json.loads(told(*code, "--json")[1])["plans"][0]["grades_while_generating"] is True
    _, out, _ = told(*PAPER, *ONE)
    text = " ".join(out.split())
    assert "all responses after the last one, while the GPUs wait" in text
    assert "policy.generation.vllm_cfg.async_engine=true grades while others generate" in text


def test_the_keys_of_the_environment_are_checked(call):
    code, _, error = call(*PAPER, *ONE, "env.gdpo.grading_budget=5")
    assert code == 2 and "env.gdpo is wrong" in error and "grading_budget_s" in error
    code, _, error = call(*PAPER, *ONE, "env.gdpo.grading_budget_s=0")
    assert code == 2 and "grading_budget_s" in error
