import json
import math

import numpy as np
import pytest
import torch

from gdpo_nemo.advantages import diagnostics, gdpo, grpo
from gdpo_nemo.conditioning import Condition
from gdpo_nemo.errors import InputError, UnknownNameError
from gdpo_nemo.health.advice import advise
from gdpo_nemo.health.measures import measure
from gdpo_nemo.health.pairs import pair_health
from gdpo_nemo.health.rollouts import Rollouts, Setting
from gdpo_nemo.run_dir import RunDir
from gdpo_nemo.suite.command_line import execute

VARIANCES = {"format": 0.08, "correct": 0.5, "safety": 3.2, "brevity": 0.15}


def rollouts(rewards, groups, names=("a", "b"), **more):
    return Rollouts(tuple(names), np.array(rewards, dtype=float), np.array(groups), "made up", **more)


def four_rewards(prompts=100, group=8):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(prompts * group, 4)) * np.sqrt(list(VARIANCES.values()))
    return rollouts(values, np.arange(prompts).repeat(group), VARIANCES)


def lines(found, setting=None):
    setting = setting or Setting()
    return advise(measure(found, setting), setting)


def test_the_dominating_reward_is_named_with_its_numbers_and_a_way_out():
    found = four_rewards()
    [line] = [one for one in lines(found) if one.subject == "safety"]
    shares = {one.method: one.shares for one in measure(found, Setting()).methods}
    assert line.level == "act" and "gdpo.method: gdpo" in line.text
    assert f"decides {100 * shares['grpo']['safety']:.0f} % of the advantage" in line.text
    assert f"under GDPO {100 * shares['gdpo']['safety']:.0f} %" in line.text
    assert 0.75 < shares["grpo"]["safety"] < 0.88  # 3.2 of 3.93, and noise
    assert all(0.2 < share < 0.3 for share in shares["gdpo"].values())
    assert [one.level for one in lines(found, Setting(method="gdpo")) if one.subject == "safety"] == ["note"]


def test_independent_rewards_of_like_variance_draw_no_advice_but_counts():
    values = np.random.default_rng(1).normal(size=(800, 3))
    found = lines(rollouts(values, np.arange(100).repeat(8), "abc"))
    assert [one.level for one in found if one.level != "note"] == []


def test_shares_are_the_covariance_of_each_term_with_the_advantage():
    found = four_rewards(prompts=5, group=4)
    health = measure(found, Setting({"correct": 2.0}))
    weights = [1.0, 2.0, 1.0, 1.0]
    rewards, ids = torch.from_numpy(found.rewards_B_K), torch.from_numpy(found.group_ids_B)
    for scale in (True, False):
        advantage = grpo(rewards, ids, weights=weights, scale_by_std=scale).numpy()
        terms = np.zeros((20, 4))
        for group in range(5):
            own = found.group_ids_B == group
            weighted = found.rewards_B_K[own] * weights
            std = weighted.sum(1).std(ddof=1) if scale else 1.0
            terms[own] = (weighted - weighted.mean(0)) / std
        expected = [np.cov(terms[:, k], advantage)[0, 1] / advantage.var(ddof=1) for k in range(4)]
        np.testing.assert_allclose(terms.sum(1), advantage, atol=1e-12)
        own = health.method("grpo" if scale else "grpo_no_std").shares
        np.testing.assert_allclose(list(own.values()), expected, rtol=1e-9)
    logged = diagnostics(rewards, ids, names=found.names, weights=weights)
    for name, share in health.method("gdpo").shares.items():
        assert share == pytest.approx(logged.rewards[name].advantage_share)


def test_a_missing_reward_is_in_no_term_and_the_shares_still_add_to_one():
    found = four_rewards(prompts=10)
    found.rewards_B_K[::3, 0] = math.nan
    health = measure(found, Setting())
    for method in health.methods:
        assert sum(method.shares.values()) == pytest.approx(1.0)
    assert health.rewards[0].frac_missing == pytest.approx(np.isnan(found.rewards_B_K[:, 0]).mean())


def test_numbers_of_a_reward_worked_by_hand():
    health = measure(rollouts([[0, 1], [2, 1], [1, 1], [1, 1], [3, 0]], [0, 0, 1, 1, 2]), Setting(ranges={"a": (0, 3)}))
    a, b = health.rewards
    assert (a.lowest, a.highest, a.mean) == (0, 3, 1.4)
    assert a.variance == pytest.approx(1.3)
    assert a.variance_within == pytest.approx(2 / 2)  # groups of 2, 2, 1: two degrees of freedom
    assert (a.frac_constant_groups, b.frac_constant_groups) == (0.5, 1.0)
    assert (a.frac_ceiling, a.frac_floor) == (0.2, 0.2)
    assert (health.num_groups, health.group_sizes) == (3, (1, 2))


def test_alive_distinct_and_the_expected_batch():
    # group 0: r2 = 1 - r1 cancels in the sum and in GDPO; groups 1 and 2 are alike; group 3 is dead
    rewards = [[0, 1], [1, 0], [0, 0], [1, 0], [0, 0], [1, 0], [1, 1], [1, 1]]
    found = rollouts(rewards, [0, 0, 1, 1, 2, 2, 3, 3])
    health = measure(found, Setting(prompts=16))
    method = health.method("gdpo")
    assert (method.alive, method.distinct) == (2, 2)
    assert method.expected_alive == (8, 0, 16)  # four groups say little about sixteen
    many = rollouts(rewards * 100, (np.arange(800) // 2).tolist())
    assert measure(many, Setting(prompts=16)).method("gdpo").expected_alive == pytest.approx((8, 4.0, 12.0), abs=0.1)
    assert method.amplification == pytest.approx(math.sqrt(2))
    unequal = measure(found, Setting({"b": 0.5}))
    assert [unequal.method(name).alive for name in ("grpo", "gdpo")] == [3, 3]


def test_pairs_by_hand_and_against_a_plain_loop():
    [pair] = pair_health(rollouts([[0, 0], [1, 2], [2, 1]], [7, 7, 7]))
    assert pair.pearson == pytest.approx(0.5) and pair.spearman == pytest.approx(0.5)
    assert (pair.conflict_rate, pair.num_ordered) == (pytest.approx(1 / 3), 3)
    rng = np.random.default_rng(2)
    values = rng.integers(0, 4, size=(60, 2)).astype(float)
    values[rng.random((60, 2)) < 0.2] = math.nan
    groups = rng.integers(0, 9, size=60)
    ordered = conflicts = 0
    for i in range(60):
        for j in range(i):
            left, right = values[i] - values[j]
            if groups[i] == groups[j] and left * right == left * right and left * right != 0:
                ordered += 1
                conflicts += left * right < 0
    [pair] = pair_health(rollouts(values, groups))
    assert (pair.num_ordered, pair.conflict_rate) == (ordered, pytest.approx(conflicts / ordered))


def test_correlations_do_not_see_differences_between_prompts():
    rng = np.random.default_rng(3)
    easy = np.arange(100).repeat(8)[:, None] * 5.0
    [pair] = pair_health(rollouts(rng.normal(size=(800, 2)) + easy, np.arange(100).repeat(8)))
    assert abs(pair.pearson) < 0.1


def test_rewards_that_say_the_same_are_a_family_unless_they_are_in_one():
    first = np.random.default_rng(0).normal(size=400)
    found = rollouts(np.stack([first, 3 * first], 1), np.arange(50).repeat(8))
    [line] = [one for one in lines(found) if "say the same" in one.text]
    assert line.text.endswith("or make them a family that counts once (gdpo.families: {name: [a, b]})")
    assert not any("say the same" in one.text for one in lines(found, Setting(families=(("a", "b"),))))
    [line] = [one for one in lines(found, Setting(method="grpo")) if "say the same" in one.text]
    assert "family" not in line.text


def test_a_scheduled_weight_counts_as_it_will_at_the_step_that_is_asked_for(configure):
    config = configure("gdpo.rewards.correct.weight={schedule: curriculum, start_step: 5, value: 2}")
    weights = [Setting.of(config, step).weights["correct"] for step in (4, 5, None)]
    assert weights == [0.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("column", "ranges", "words"),
    [
        ([math.nan] * 8, {}, "is missing in all 8 rollouts"),
        ([1.0] * 8, {}, "is 1 in every rollout"),
        ([0.0] * 4 + [1.0] * 4, {}, "differs between prompts and never inside a group"),
        ([0, 1, 0, 2, 0, 1, 0, 1], {"b": (0, 1)}, "outside its range [0, 1] in 1 of 8"),
        ([0, 1, 0, math.inf, 0, 1, 0, 1], {}, "outside the finite numbers in 1 of 8"),
    ],
)
def test_an_unusable_reward_is_told_and_the_healthy_one_is_not(column, ranges, words):
    found = rollouts([[i % 3, value] for i, value in enumerate(column)], [0] * 4 + [1] * 4)
    unusable = [line for line in lines(found, Setting(ranges=ranges)) if line.level == "unusable"]
    assert [line.subject for line in unusable] == ["b"] and words in unusable[0].text
    out_of_use = lines(found, Setting({"b": 0.0}, ranges))
    assert [line.level for line in out_of_use if line.subject == "b"].count("note") == 1


def test_rewards_that_say_the_same_and_that_oppose_each_other():
    a = np.random.default_rng(4).normal(size=400)
    groups = np.arange(50).repeat(8)
    assert any("say the same" in line.text for line in lines(rollouts(np.stack([a, 3 * a], 1), groups)))
    noise = np.random.default_rng(5).normal(size=400)
    opposed = lines(rollouts(np.stack([a, -a + 0.3 * noise], 1), groups))
    assert any("oppositely" in line.text for line in opposed)


def test_a_condition_changes_the_advantage_and_not_the_raw_numbers():
    found = rollouts([[0, 0], [0, 1], [1, 0], [1, 1]], [0] * 4)
    plain = measure(found, Setting())
    gated = measure(found, Setting(conditions=(Condition("b", "a"),)))
    assert gated.rewards == plain.rewards
    conditioned = torch.tensor([[0, 0], [0, 0], [1, 0], [1, 1.0]], dtype=torch.float64)
    advantage = gdpo(conditioned, torch.zeros(4, dtype=torch.int64), batch_norm=False)
    assert gated.method("gdpo").distinct == 1 and len(set(advantage.tolist())) == 3
    assert gated.method("gdpo").shares != plain.method("gdpo").shares


def test_masked_and_failed_rollouts_are_in_no_advantage():
    rewards, groups = [[0, 0], [1, 1], [5, 5]], [0, 0, 0]
    failed = np.array([[False, False], [False, False], [True, False]])
    for more in ({"masked_B": np.array([False, False, True])}, {"failed_B_K": failed}):
        found = rollouts(rewards, groups, **more)
        health = measure(found, Setting())
        assert health.num_valid == 2 and pair_health(found)[0].num_ordered == 1
        assert health.method("grpo").distinct == 1
    assert [reward.frac_failed for reward in health.rewards] == [pytest.approx(1 / 3), 0]


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(InputError, match="no prompt has two rollouts"):
        measure(rollouts([[0, 1], [1, 0]], [0, 1]), Setting())
    with pytest.raises(UnknownNameError, match="Did you mean 'a'"):
        measure(rollouts([[0, 1], [1, 0]], [0, 0]), Setting({"aa": 1.0}))


def test_the_command_reads_a_file_and_its_exit_code_tells(tmp_path, capsys):
    path, found = tmp_path / "rollouts.jsonl", four_rewards(prompts=20)
    rows = [
        {"prompt_id": int(group), "rewards": dict(zip(found.names, values.tolist(), strict=True))}
        for group, values in zip(found.group_ids_B, found.rewards_B_K, strict=True)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert execute(["health", "--rollouts", str(path)]) == 0
    assert "under GRPO safety decides" in capsys.readouterr().out
    assert execute(["health", "--rollouts", str(path), "--range", "brevity=-0.1,0.1", "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["advice"][0]["level"] == "unusable" and data["advice"][0]["subject"] == "brevity"
    assert execute(["health", "--rollouts", str(path), "--weight", "safety=0"]) == 0
    assert "safety decides" not in capsys.readouterr().out
    assert execute(["health", "--rollouts", str(path), "--weight", "safety"]) == 2
    assert execute(["health"]) == 2


def test_a_run_is_sampled_from_its_checkpoint_and_each_reward_function_is_timed(
    base, configure, claim, capsys, tmp_path
):
    (tmp_path / "health_own.py").write_text(
        "def short(row, rollout):\n"
        "    if rollout.index == 3: raise ValueError('no')\n"
        "    return 1.0 / (1 + rollout.length_tokens)\n"
    )
    own = ("gdpo.rewards={format: {}, correct: {}, short: {fn: 'health_own:short', range: [0, 1]}}",)
    config = configure(*own, f"gdpo.python_path={tmp_path}")
    run = claim(base.path.parents[1] / "gdpo" / "seed77", config.model_copy(update={"base": "small"}))
    code = execute(["health", str(run.path), "--prompts", "12", "--json"])
    data = json.loads(capsys.readouterr().out)
    assert code in (0, 1) and "base/small" in data["source"]
    assert (data["num_rollouts"], data["num_groups"], data["num_valid"]) == (48, 12, 36)
    assert [one["name"] for one in data["rewards"]] == ["format", "correct", "short"]
    assert [one["declared"] for one in data["rewards"]] == [[0, 1], [-3, 3], [0, 1]]
    costs = {one["name"]: one for one in data["costs"]}
    assert costs["task tool_calling"]["calls"] == costs["short"]["calls"] == 48
    assert costs["short"]["frac_failed"] == 0.25 and 0 <= costs["short"]["p50_s"] <= costs["short"]["p99_s"]
    [line] = [one for one in data["advice"] if one["subject"] == "short" and "25 %" in one["text"]]
    assert line["level"] == "act" and "timeout_s" in line["text"]


def test_a_run_of_another_version_is_told_as_one(tmp_path, capsys):
    RunDir.claim(tmp_path / "seed0", {"gdpo": {"task": "tool_calling"}, "embedded": {"warmup": {"mix": {}}}}, {})
    assert execute(["health", str(tmp_path / "seed0")]) == 2
    error = capsys.readouterr().err
    assert "seed0, perhaps written by another version, is wrong" in error and "embedded.warmup.mix" in error


def test_a_cluster_configuration_is_pointed_to_its_rollouts(capsys):
    assert execute(["health", "configs/tool_calling/paper.yaml"]) == 2
    assert "--rollouts" in capsys.readouterr().err
