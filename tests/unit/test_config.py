import warnings
from pathlib import Path

import pytest
from pydantic import ValidationError

from gdpo_nemo.config import GdpoConfig, LossConfig, RunConfig, TrainConfig, content_hash, load_yaml, validate
from gdpo_nemo.errors import ConfigError
from gdpo_nemo.method import Method

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
REWARDS = {
    "tool_calling": {"format", "correct"},
    "math_length": {"correct", "length"},
    "code_reasoning": {"pass_rate", "length", "no_bug"},
    "gsm8k": {"format", "correct", "integer"},
}
SHARED = ("base", "embedded", "paper")
ARMS = [path for task in REWARDS for path in sorted((CONFIGS / task).glob("*.yaml")) if path.stem not in SHARED]
MODELS = [CONFIGS / "model" / f"{name}.yaml" for name in ("smollm2", "tiny")]
RUN_FILES = [CONFIGS / "tool_calling" / name for name in ("gdpo.yaml", "embedded.yaml")]


@pytest.fixture
def write(tmp_path):
    """Write a YAML file and return its path."""

    def call(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        return path

    return call


# ---- the files that ship


@pytest.mark.parametrize("model", MODELS, ids=lambda path: path.stem)
@pytest.mark.parametrize("arm", ARMS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_arm_with_every_model_is_a_run(arm, model):
    data = load_yaml([arm, arm.with_name("embedded.yaml"), model])
    config = validate(RunConfig, data, origin=arm.name)
    assert set(Method(config.gdpo).names) == REWARDS[arm.parent.name] - ({"no_bug"} if "2obj" in arm.stem else set())
    assert config.embedded.model.name == model.stem


@pytest.mark.parametrize("task", REWARDS)
def test_the_arms_differ_in_the_method_and_the_use_of_rewards_only(task):
    blocks = [validate(RunConfig, load_yaml([arm])).gdpo for arm in ARMS if arm.parent.name == task]
    own = {
        "method",
        "preference",
        "scale_by_std",
        "batch_norm",
        "rescale_by_range",
        "kl_in_reward",
        *({"rewards"} if task != "tool_calling" else ()),
    }
    assert len({block.model_dump_json(exclude=own) for block in blocks}) == 1
    assert len({block.model_dump_json() for block in blocks}) == len(blocks) >= 3


@pytest.mark.parametrize("arm", [arm for arm in ARMS if arm.parent.name == "math_length"], ids=lambda path: path.stem)
def test_an_arm_of_the_sweep_has_the_weight_and_the_condition_in_its_name(arm):
    length = validate(RunConfig, load_yaml([arm])).gdpo.rewards["length"]
    weight = int(arm.stem.rpartition("_w")[2]) / 100 if "_w" in arm.stem else 1.0
    assert (length.weight, length.condition is not None) == (weight, "conditioned" in arm.stem)


def test_every_config_file_of_the_embedded_scale_is_covered_here():
    """The others are of the cluster scale: tests/unit/test_cluster_configs.py."""
    known = {*ARMS, *MODELS, *(CONFIGS / task / f"{name}.yaml" for task in REWARDS for name in ("base", "embedded"))}
    assert {path for path in CONFIGS.rglob("*.yaml") if "embedded:" in path.read_text("utf-8")} <= known


# ---- defaults, interpolation, overrides


def test_a_file_wins_over_its_defaults_and_later_defaults_over_earlier_ones(write):
    write("shared/first.yaml", "a: 1\nb: {x: 1, y: 1}\nc: 1")
    write("shared/second.yaml", "defaults: first.yaml\nb: {y: 2}\nc: 2")
    write("third.yaml", "c: 3\nd: 3")
    path = write("top.yaml", "defaults: [shared/second.yaml, third.yaml]\nd: 4")
    assert load_yaml([path]) == {"a": 1, "b": {"x": 1, "y": 2}, "c": 3, "d": 4}


def test_the_same_default_twice_is_no_loop(write):
    write("root.yaml", "a: 1")
    write("left.yaml", "defaults: root.yaml\na: 2")
    write("right.yaml", "defaults: root.yaml\nb: 3")
    assert load_yaml([write("top.yaml", "defaults: [left.yaml, right.yaml]")]) == {"a": 1, "b": 3}


def test_later_files_win_and_overrides_win_over_all(write):
    paths = [write("a.yaml", "x: {p: 1, q: 1, r: 1}"), write("b.yaml", "x: {q: 2, r: 2}")]
    assert load_yaml(paths, ["x.r=3", "x.s=[4, five]"]) == {"x": {"p": 1, "q": 2, "r": 3, "s": [4, "five"]}}


def test_override_values_are_yaml_and_may_hold_an_equals_sign():
    data = load_yaml([], ["a=1e-4", "b=null", "c=true", "d=x=y", "e={f: 2}", "g="])
    assert data == {"a": 1e-4, "b": None, "c": True, "d": "x=y", "e": {"f": 2}, "g": None}


def test_interpolation_sees_the_overrides(write):
    path = write("a.yaml", "train: {steps: 5}\nevery: ${train.steps}")
    assert load_yaml([path], ["train.steps=7"])["every"] == 7


def test_the_key_on_of_a_condition_needs_no_quotes(write):
    path = write("a.yaml", "gdpo:\n  rewards:\n    correct:\n      condition:\n        on: format\n        at_least: 1")
    overrides = ["gdpo.rewards.correct.condition={on: format}", "gdpo.rewards.correct.condition.on=format"]
    read = [load_yaml([path]), load_yaml([path], overrides[1:]), *(load_yaml([], [override]) for override in overrides)]
    assert {data["gdpo"]["rewards"]["correct"]["condition"].pop("on") for data in read} == {"format"}
    assert {len(data["gdpo"]["rewards"]["correct"]["condition"]) for data in read[:2]} == {1}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("defaults: a.yaml", "loop: .*a.yaml -> .*a.yaml"),
        ("defaults: nowhere.yaml", "no configuration file .*nowhere.yaml"),
        ("defaults: 3", "file name or a list of them, not 3"),
        ("defaults: {b: c.yaml}", "file name or a list of them, not {'b'"),
        ("a: [1", "a.yaml is not valid YAML"),
        ("a: 1\na: 2", "duplicate key a"),
        ("- a", "must hold a mapping"),
        ("a: ${b.c}", "Interpolation key 'b.c' not found"),
        ("a: ${b}\nb: ${a}", "Recursive interpolation"),
    ],
)
def test_a_wrong_file_is_explained(text, words, write):
    with pytest.raises(ConfigError, match=words):
        load_yaml([write("a.yaml", text)])


def test_a_loop_through_another_file_names_all_of_it(write):
    write("b.yaml", "defaults: a.yaml")
    with pytest.raises(ConfigError, match=r"a\.yaml -> .*b\.yaml -> .*a\.yaml"):
        load_yaml([write("a.yaml", "defaults: b.yaml")])


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("a.b", "override 'a.b' is not of the form key.sub=value"),
        ("a.b: 5", "override 'a.b: 5' is not of the form"),
        ("=5", "override '=5' is not of the form"),
        ("a.b=[1", "override 'a.b=[1' is not valid YAML"),
        ("a.b={c: 1, c: 2}", "duplicate key c"),
        ("a.b=${c}", "Interpolation key 'c' not found"),
    ],
)
def test_a_wrong_override_is_explained(override, words, write):
    with pytest.raises(ConfigError) as error:
        load_yaml([write("a.yaml", "a: {b: 1}")], [override])
    assert words in str(error.value)


# ---- validation


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("emebdded", "embedded"),
        ("gdpo.methd", "gdpo.method"),
        ("gdpo.rewards.format.wieght", "gdpo.rewards.format.weight"),
        ("gdpo.rewards.correct.condition.at_last", "gdpo.rewards.correct.condition.at_least"),
        ("embedded.thread", "embedded.threads"),
        ("embedded.data.num_citys", "embedded.data.num_cities"),
        ("embedded.data.mix.think_shar", "embedded.data.mix.think_share"),
        ("embedded.train.loss.clip_lo", "embedded.train.loss.clip_low"),
        ("embedded.evaluation.qestions", "embedded.evaluation.questions"),
    ],
)
def test_an_unknown_key_at_any_depth_is_an_error_that_names_the_nearest(key, nearest, configure):
    with pytest.raises(ConfigError) as error:
        configure("gdpo.rewards.correct.condition.on=format", f"{key}=1")
    assert f"unknown key {key!r}. Did you mean {nearest!r}?" in str(error.value)


def test_an_unknown_key_without_a_near_one_lists_what_there_is(configure):
    with pytest.raises(ConfigError) as error:
        configure("embedded.train.loss.zzz=1")
    assert "Did you mean" not in str(error.value)
    assert "Known under 'embedded.train.loss': clip_low, clip_high" in str(error.value)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("embedded.train.steps=many", "embedded.train.steps: .*valid integer.*'many'"),
        ("embedded.train.steps=0", "embedded.train.steps: .*greater than or equal to 1"),
        ("embedded.train.temperature=0", "embedded.train.temperature: .*greater than 0"),
        ("embedded.train.minibatch_prompts=0", "embedded.train.minibatch_prompts: .*greater than or equal to 1"),
        ("embedded.train.microbatch_rollouts=-1", "microbatch_rollouts: .*greater than or equal to 1"),
        ("embedded.train.lr=-1", "embedded.train.lr: .*greater than or equal to 0"),
        ("embedded.train.lr=.nan", "embedded.train.lr: .*finite"),
        ("embedded.train.grad_clip=0", "embedded.train.grad_clip: .*greater than 0"),
        ("embedded.train.grad_clip=.nan", "embedded.train.grad_clip: .*greater than 0"),
        ("embedded.train.weight_decay=-0.1", "embedded.train.weight_decay: .*greater than or equal to 0"),
        ("embedded.train.loss.clip_low=-0.2", "loss.clip_low: .*greater than or equal to 0"),
        ("embedded.train.loss.kl_coef=-0.1", "loss.kl_coef: .*greater than or equal to 0"),
        ("embedded.warmup.batch_size=0", "warmup.batch_size: .*greater than or equal to 1"),
        ("embedded.model.num_layers=-1", "model.num_layers: .*greater than or equal to 1"),
        ("embedded.train.loss.kl_estimator=k4", "kl_estimator: .*'k1', 'k2' or 'k3'"),
        ("embedded.data.num_cities=17", "embedded.data: .*num_cities is 17; it must be 2 to 16"),
        ("gdpo.method=ppo", "gdpo.method: .*'gdpo', 'grpo' or 'preference'"),
        ("gdpo.rewards.format.weight=.nan", "gdpo.rewards.format.weight: .*finite"),
        ("gdpo.rewards.format.weight=.inf", "gdpo.rewards.format.weight: .*finite"),
        ("gdpo.rewards.correct.condition.at_least=1", "gdpo.rewards.correct.condition.on: Field required"),
        ("gdpo.ddof=2", "gdpo.ddof: "),
        ("kind=finetune", "kind: "),
    ],
)
def test_a_wrong_value_names_its_key(override, words, configure):
    with pytest.raises(ConfigError, match=words):
        configure(override)


def test_all_faults_are_told_at_once_with_their_origin(configure):
    data = configure().model_dump() | {"sede": 1, "kind": "x"}
    with pytest.raises(ConfigError) as error:
        validate(RunConfig, data, origin="my.yaml")
    first, *others = str(error.value).splitlines()
    assert first.startswith("my.yaml") and len(others) == 2


def test_a_configuration_cannot_be_changed(configure):
    config = configure()
    with pytest.raises(ValidationError, match="frozen"):
        config.embedded.train.steps = 3
    with pytest.raises(AttributeError):
        config.embedded.data.seed = 3


def test_a_stored_configuration_reads_back_as_itself_and_its_run_goes_on(configure, claim, tmp_path):
    config = configure("gdpo.rewards.correct.condition={on: format, else_value: .nan}", "gdpo.rewards.format.weight=1")
    run = claim(tmp_path / "run", config)
    assert validate(RunConfig, run.config()).model_dump_json() == config.model_dump_json()
    assert claim(tmp_path / "run", config).state() == "started"


# ---- content hash


def test_the_content_hash_is_the_same_in_every_process_and_order():
    parts = ("v1", {"b": [1, 2.5, None], "a": {"y": True, "x": "é"}})
    assert content_hash(*parts) == content_hash("v1", {"a": {"x": "é", "y": True}, "b": [1, 2.5, None]})
    assert content_hash(*parts) == "76977301f591"


@pytest.mark.parametrize(
    "other", [("v2", {"a": 1}), ("v1", {"a": 2}), ("v1", {"a": "1"}), ("v1", {"b": 1}), ("v1",), ("v1", {"a": 1}, None)]
)
def test_the_content_hash_sees_every_difference(other):
    assert content_hash(*other) != content_hash("v1", {"a": 1})


def test_the_hash_of_a_block_follows_its_values():
    block = GdpoConfig(task="tool_calling")
    same = GdpoConfig(task="tool_calling", eps=1e-6)
    assert content_hash(block.model_dump(mode="json")) == content_hash(same.model_dump(mode="json"))
    assert content_hash(block.model_dump(mode="json")) != content_hash(same.model_dump(mode="json") | {"eps": 1e-5})


# ---- numbers and truth values


@pytest.mark.parametrize(
    "override",
    [
        "seed=true",
        "gdpo.eps=false",
        "gdpo.ddof=true",
        "gdpo.rewards.format.weight=true",
        "embedded.train.steps=true",
        "embedded.train.lr=on",
        "embedded.train.minibatch_prompts=true",
        "embedded.train.loss.kl_coef=false",
        "embedded.data.num_tools=true",
        "embedded.data.mix.think_share=true",
    ],
)
def test_a_truth_value_is_no_number(override):
    key, _, _ = override.partition("=")
    with pytest.raises(ConfigError, match=key):
        validate(RunConfig, load_yaml(RUN_FILES, [override]))


def test_a_truth_value_is_no_number_in_python_either():
    with pytest.raises(ValidationError, match="number, not a truth value"):
        TrainConfig(steps=True)


def test_truth_values_and_numbers_in_any_notation_are_taken():
    overrides = ["gdpo.batch_norm=false", "embedded.train.lr=1e-3", "embedded.train.steps='7'", "embedded.data.seed=1"]
    config = validate(RunConfig, load_yaml(RUN_FILES, overrides))
    assert config.gdpo.batch_norm is False
    assert (config.embedded.train.lr, config.embedded.train.steps, config.embedded.data.seed) == (0.001, 7, 1)
    assert TrainConfig(lr="1e-3").lr == 0.001  # as a plain YAML 1.1 parser gives it


@pytest.mark.parametrize(("estimator", "kl_coef", "warns"), [("k1", 0.1, True), ("k1", 0, False), ("k2", 0.1, False)])
def test_a_kl_term_that_cannot_pull_draws_a_warning(estimator, kl_coef, warns):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        LossConfig(kl_coef=kl_coef, kl_estimator=estimator)
    assert ["Use k2 or k3" in str(warning.message) for warning in caught] == [True] * warns
