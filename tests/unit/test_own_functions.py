"""Functions of one's own by dotted path, and what the configuration makes of them."""

import math
import sys
import threading

import pytest

from gdpo_nemo.config import GdpoConfig, RunConfig, load_yaml, validate
from gdpo_nemo.errors import ConfigError, UnknownNameError
from gdpo_nemo.method import Method, own_code, reward_ranges
from gdpo_nemo.rewards.own import OwnReward, load_function
from gdpo_nemo.types import Rollout, Row

ROWS = [Row(f"row{i}", {}, "gold") for i in range(8)]
ROLLOUTS = [Rollout(row.id, 0, "x" * i, i) for i, row in enumerate(ROWS)]


def by_length(row, rollout):
    return len(rollout.response)


# ---- functions by path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with modules whose names no other test uses; leaves sys.path and sys.modules as they were."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = f"rewards_of_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(
        "import math\n"
        "number = 3\n"
        "def helpful(row, rollout):\n    return 0.5\n"
        "def shouting(row):\n    return 1.0\n"
        "def long(rows, rollouts):\n    return [1.0 for _ in rows]\n"
    )
    (tmp_path / f"{name}_broken.py").write_text("import no_such_module\n")
    (tmp_path / f"{name}_wrong.py").write_text("1 / 0\n")
    yield tmp_path, name
    for module in [module for module in sys.modules if module.startswith(name)]:
        del sys.modules[module]


def test_a_function_is_found_in_the_folder_that_python_path_names(folder):
    path, name = folder
    function = load_function(f"{name}:helpful", str(path))
    assert function(None, None) == 0.5
    with pytest.raises(ConfigError, match="no such folder"):
        load_function(f"{name}:helpful", str(path / "elsewhere"))


@pytest.mark.parametrize(
    ("fn", "error", "words"),
    [
        ("{}", ConfigError, "not of the form package.module:function"),
        ("{}.helpful", ConfigError, "not of the form"),
        ("{}.py:helpful", ConfigError, "no module"),
        ("{}:helpfull", UnknownNameError, "Did you mean 'helpful'?"),
        ("{}:number", ConfigError, "is a int, which cannot be called"),
        ("{}_nowhere:helpful", ConfigError, "there is no module"),
        ("{}_broken:helpful", ConfigError, "fails: No module named 'no_such_module'"),
        ("{}_wrong:helpful", ConfigError, "fails: ZeroDivisionError"),
    ],
)
def test_a_wrong_path_is_explained(fn, error, words, folder):
    path, name = folder
    with pytest.raises(error) as caught:
        load_function(fn.format(name), str(path))
    assert words in str(caught.value)


def test_a_module_of_the_same_name_from_elsewhere_is_not_taken_silently(folder, tmp_path):
    path, name = folder
    load_function(f"{name}:helpful", str(path))
    other = tmp_path / "other"
    other.mkdir()
    (other / f"{name}.py").write_text("def helpful(row, rollout):\n    return 0.1\n")
    with pytest.raises(ConfigError, match="already imported from"):
        load_function(f"{name}:helpful", str(other))


@pytest.mark.parametrize(
    ("function", "options", "words"),
    [
        (lambda row: 1, {}, r"cannot be called with (row, rollout)"),
        (lambda row, rollout, extra: 1, {}, "missing a required argument: 'extra'"),
        (lambda: 1, {"batched": True}, "cannot be called with (rows, rollouts)"),
        (by_length, {"range": (1, 1)}, "range of reward 'mine' is [1, 1]"),
        (by_length, {"range": (0, math.inf)}, "expected [lowest, highest]"),
    ],
)
def test_a_signature_or_a_range_that_cannot_work_is_refused_before_any_call(function, options, words):
    with pytest.raises(ConfigError) as error:
        OwnReward("mine", function, **{"range": (0.0, 1.0)} | options)
    assert words in str(error.value)


# ---- in the configuration


def block(folder, rewards, **more):
    path, name = folder
    named = {key: {k: v.format(name) if k == "fn" else v for k, v in spec.items()} for key, spec in rewards.items()}
    return validate(GdpoConfig, {"python_path": str(path), "rewards": named} | more)


HELPFUL = {"fn": "{}:helpful", "range": [0, 1]}


def test_own_rewards_stand_alone_or_beside_those_of_a_task(folder):
    alone = Method(block(folder, {"helpful": HELPFUL | {"weight": 2.0}}))
    assert (alone.names, alone.weights, alone.ranges) == (("helpful",), (2.0,), {"helpful": (0, 1)})
    gated = HELPFUL | {"condition": {"on": "format"}}
    beside = Method(block(folder, {"helpful": gated, "format": {}}, task="tool_calling"))
    assert (beside.names, beside.scored) == (("format", "helpful"), ("format", "correct", "helpful"))
    assert beside.conditions[0].on == "format"
    gold = '<think> a </think>\n<tool_call>\n{"name": "f", "parameters": {}}\n</tool_call>'
    (vector,) = beside.score([Row("a", {}, gold)], [Rollout("a", 0, gold, 9)])
    assert dict(vector.values) == {"format": 1.0, "correct": 3.0, "helpful": 0.5}
    assert beside.matrix([vector]).tolist() == [[1.0, 0.5]]
    assert beside.failures([vector]) == {"reward/helpful/frac_failed": 0.0}


def test_failures_are_counted_apart_from_what_does_not_apply(folder):
    path, name = folder
    (path / f"{name}_half.py").write_text(
        "def half(row, rollout):\n"
        "    if len(rollout.response) < 2: raise ValueError\n"
        "    return None if len(rollout.response) < 5 else 1.0\n"
    )
    method = Method(block(folder, {"half": {"fn": "{}_half:half", "range": [0, 1]}}))
    assert method.failures(method.score(ROWS, ROLLOUTS)) == {"reward/half/frac_failed": 2 / 8}


def test_a_task_alone_starts_no_thread_and_reports_no_failures():
    method = Method(GdpoConfig(task="tool_calling"))
    before = threading.active_count()
    vectors = method.score(ROWS, ROLLOUTS)
    assert len(vectors) == 8 and method.scorer is None and method.failures(vectors) == {}
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("rewards", "more", "error", "words"),
    [
        ({}, {}, ConfigError, "no rewards: set gdpo.task, or name your own"),
        ({"helpful": {"weight": 1.0}}, {}, ConfigError, "gdpo.rewards.helpful has neither fn nor judge"),
        ({"format": HELPFUL}, {"task": "tool_calling"}, ConfigError, "has a reward of that name"),
        ({"helpful": HELPFUL, "fromat": {}}, {"task": "tool_calling"}, UnknownNameError, "Did you mean 'format'?"),
        ({"helpful": {"fn": "{}:helpful"}}, {}, ConfigError, "needs its range"),
        ({"helpful": {"range": [0, 1]}}, {"task": "tool_calling"}, ConfigError, "range belongs to an own reward"),
        ({"helpful": {"timeout_s": 3}}, {"task": "tool_calling"}, ConfigError, "timeout_s belongs to an own reward"),
        ({"helpful": HELPFUL | {"timeout_s": 0}}, {}, ConfigError, "timeout_s"),
        ({"helpful": HELPFUL | {"timout_s": 1}}, {}, ConfigError, "Did you mean 'gdpo.rewards.helpful.timeout_s'?"),
        ({"shouting": {"fn": "{}:shouting", "range": [0, 1]}}, {}, ConfigError, "cannot be called with (row, rollout)"),
    ],
)
def test_a_wrong_block_is_explained(rewards, more, error, words, folder):
    with pytest.raises(error) as caught:
        Method(block(folder, rewards, **more))
    assert words in str(caught.value)


def test_ranges_and_code_files_are_known_without_a_method(folder):
    config = block(folder, {"helpful": HELPFUL})
    assert reward_ranges(config) == {"helpful": (0.0, 1.0)}
    assert own_code(config) == {"helpful": folder[0] / f"{folder[1]}.py"}


def test_the_block_survives_a_round_trip(folder):
    config = block(folder, {"helpful": HELPFUL | {"timeout_s": 2, "concurrency": 3, "batched": True}})
    assert GdpoConfig.model_validate(config.model_dump(mode="json")) == config


def test_paths_are_relative_to_the_file_that_names_them(tmp_path, monkeypatch):
    (tmp_path / "deep").mkdir()
    table = "path: rows.jsonl"
    (tmp_path / "base.yaml").write_text(f"gdpo: {{python_path: code, data: {{train: {{{table}}}}}}}\n")
    (tmp_path / "deep" / "arm.yaml").write_text(
        "defaults: ../base.yaml\ngdpo: {data: {heldout: {path: '${oc.env:GDPO_TEST_DATA}/held.jsonl'}}}\n"
    )
    monkeypatch.setenv("GDPO_TEST_DATA", "/data")
    monkeypatch.chdir(tmp_path / "deep")
    found = load_yaml([tmp_path / "deep" / "arm.yaml"])["gdpo"]
    assert found["python_path"] == str(tmp_path / "code")
    assert found["data"]["train"]["path"] == str(tmp_path / "rows.jsonl")
    assert found["data"]["heldout"]["path"] == "/data/held.jsonl"
    overridden = load_yaml([tmp_path / "deep" / "arm.yaml"], ["gdpo.data.train.path=other.jsonl"])["gdpo"]
    assert overridden["data"]["train"]["path"] == str(tmp_path / "deep" / "other.jsonl")


def test_a_run_without_task_or_data_is_one_on_the_tool_world(folder):
    config = RunConfig(gdpo=block(folder, {"helpful": HELPFUL}))
    assert config.gdpo.task is None and config.gdpo.data is None
