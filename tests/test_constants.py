"""Constants and replanning rules."""

import numpy as np
import pytest

import episafe as es
from conftest import constants


def test_the_published_constants():
    opse = {name: es.Constants.paper(name) for name in ("tabular", "streaming", "linear")}
    assert [(c.C_r, c.C_u, c.C_dagger, c.B_dagger) for c in opse.values()] == [
        (1, 1, 1, 1),
        (2, 2, 2, 1),
        (5, 5, 5, 1),
    ]
    assert [c.kappa for c in opse.values()] == [0.1, 0.1, 0.01]
    assert {(c.lam_max, c.num_halvings, c.ridge, c.level) for c in opse.values()} == {(300, 20, 1, "heuristic")}
    ghosh = es.Constants.paper("streaming", agent="ghosh")
    assert (ghosh.C_r, ghosh.C_u, ghosh.C_dagger, ghosh.B_dagger) == (2, 2, 0, 0)
    assert es.Constants.paper("linear", agent="dope").C_u == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"C_u": -1.0}, "C_u must be a finite number >= 0, got -1.0"),
        ({"kappa": 0.0}, "kappa must be a finite number > 0"),
        ({"ridge": 0.0}, "ridge must be a finite number > 0"),
        ({"C_r": float("nan")}, "C_r must be"),
        ({"C_r": "much"}, "C_r must be"),
        ({"num_halvings": 2.5}, "num_halvings must be a whole number"),
        ({"num_halvings": -1}, "num_halvings must be a whole number"),
        ({"num_halvings": None}, "num_halvings must be a whole number"),
        ({"C_r": True}, "C_r must be"),
    ],
)
def test_bad_constants_are_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        constants(**change)


def test_no_hand_set_constants_can_claim_more_than_heuristic():
    with pytest.raises(TypeError, match="level"):
        es.Constants(1, 1, 1, 1, 0.1, 300, 20, level="theorem")
    with pytest.raises(ValueError, match="no constant 'level'"):
        constants().replace(level="theorem")
    assert constants().replace(C_u=0.01).level == "heuristic"


def test_numpy_numbers_become_plain_ones():
    made = constants(C_u=np.float32(0.5), kappa=np.float64(0.1), num_halvings=np.uint8(25))
    assert [type(value) for value in (made.C_u, made.kappa, made.num_halvings)] == [float, float, int]


def test_huge_limits_are_warned_of_without_overflow():
    with pytest.warns(UserWarning, match="num_halvings >= 1030"):
        constants(lam_max=1e306, kappa=1e-3, num_halvings=20)


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="no published constants for 'maze'"):
        es.Constants.paper("maze")
    with pytest.raises(ValueError, match="agent must be"):
        es.Constants.paper("tabular", agent="ppo")
    with pytest.raises(ValueError, match="no constant 'C_q'"):
        constants().replace(C_q=1)


def test_a_bracket_that_is_not_far_below_kappa_is_warned_of():
    with pytest.warns(UserWarning, match="num_halvings >= 22"):
        constants(kappa=0.001, num_halvings=20)
    constants(kappa=0.001, num_halvings=22)  # warnings are errors here: none


def test_the_replanning_rules():
    then, now = np.array([1.0, 2.0]), np.array([1.2, 2.3])
    assert es.Every().due(then, then)
    assert es.Doubling(0.2).due(then, now)
    assert not es.Doubling(0.3).due(then, np.array([1.3, 2.3]) - 1e-12)
    with pytest.raises(ValueError, match="growth must be > 0"):
        es.Doubling(0.0)


@pytest.mark.parametrize("growth", [0.1, 0.3, 1.0])
def test_doubling_plans_no_more_often_than_its_bound(growth):
    """1 + dH ln(1 + K/(ρd))/growth plans in K episodes."""
    cmdp = es.make("linear", seed=1, num_states=20)
    record = es.run(cmdp, es.OPSE(cmdp.task, es.Constants.paper("linear"), es.Doubling(growth)), num_episodes=1000)
    assert record.plan_ids[-1] + 1 <= 1 + 5 * 4 * np.log(1 + 1000 / 5) / growth


@pytest.mark.parametrize("rule", [es.Every, 0.3, "every"])
def test_what_is_no_replanning_rule_is_refused_at_once(rule):
    with pytest.raises(TypeError, match="replan must be a rule"):
        es.OPSE(es.make("tabular").task, constants(), rule)


def test_dope_replans_exactly_when_some_log_count_grew_enough():
    cmdp = es.make("tabular", seed=2)
    agent = es.DOPE(cmdp.task, es.Constants.paper("tabular", "dope"), es.Doubling(0.3))
    counts, at_plan = np.zeros((4, 5, 3)), None
    rng = np.random.default_rng(0)
    replans = 0
    for _ in range(300):
        information = np.log(np.maximum(counts, 1))
        due = at_plan is None or (information - at_plan > 0.3).any()
        before = agent._plan
        assert (agent.plan() is not before) == due
        at_plan, replans = (information, replans + 1) if due else (at_plan, replans)
        states, actions = rng.integers(5, size=5), rng.integers(3, size=4)
        counts[np.arange(4), states[:-1], actions] += 1
        agent.learn(es.Episode(states, actions))
    assert 20 < replans < 280


def test_doubling_replans_exactly_when_some_log_determinant_grew_enough():
    cmdp = es.make("tabular", seed=2)
    agent = es.OPSE(cmdp.task, es.Constants.paper("tabular"), es.Doubling(0.3))
    counts, at_plan = np.zeros((4, 5, 3)), None
    rng = np.random.default_rng(0)
    for _ in range(300):
        information = np.log(counts + 1).sum(axis=(1, 2))
        due = at_plan is None or (information - at_plan > 0.3).any()
        before = agent._plan
        assert (agent.plan() is not before) == due
        at_plan = information if due else at_plan
        states, actions = rng.integers(5, size=5), rng.integers(3, size=4)
        counts[np.arange(4), states[:-1], actions] += 1
        agent.learn(es.Episode(states, actions))
