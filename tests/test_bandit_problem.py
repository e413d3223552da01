"""Bandits: exact answers by hand, bad input refused with its place and remedy, environments."""

import numpy as np
import pytest

import episafe as es

ARMS = [[1.0, 0.0], [0.0, 1.0]]


def bandit(**changes):
    given = {"theta_r": [0.9, 0.2], "theta_u": [0.0, 0.8], "actions": ARMS, "threshold": 0.4, "safe_policy": [0.0, 1.0]}
    return es.bandits.LinearBandit(**{**given, **changes})


def test_two_arms_by_hand():
    made = bandit()
    np.testing.assert_allclose(made.optimal_policy().probabilities, [0.5, 0.5], atol=1e-15)
    assert made.optimal_value() == pytest.approx(0.55)
    assert made.evaluate(made.safe_policy()) == pytest.approx((0.2, 0.8))
    assert made.task.slack == pytest.approx(0.4)


def test_a_ball_by_hand():
    """max x s.t. y ≥ 0.6 on the unit disc is 0.8; on an ellipse with half-axes 1 and 1/2, y ≥ 0.3 costs as much."""
    disc = bandit(
        theta_r=[1.0, 0.0], theta_u=[0.0, 1.0], actions=es.bandits.Ball(), threshold=0.6, safe_policy=[0, 0.9]
    )
    assert disc.optimal_value() == pytest.approx(0.8, abs=1e-10)
    ellipse = es.bandits.Ellipsoid(np.diag([1.0, 4.0]))
    made = bandit(theta_r=[1.0, 0.0], theta_u=[0.0, 1.0], actions=ellipse, threshold=0.3, safe_policy=[0, 0.45])
    assert made.optimal_value() == pytest.approx(0.8, abs=1e-10)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"theta_r": [1.0, np.nan]}, r"theta_r\[1\] is nan"),
        ({"theta_u": [1.0]}, r"theta_u must have shape \(2\)"),
        ({"theta_r": [2.0, 0.0]}, "norm 2 > norm_bound 1: raise norm_bound"),
        ({"actions": [[1.0, 1.0], [0.0, 1.0]]}, r"actions\[0\] has norm .* divide all by the largest norm"),
        ({"actions": np.zeros((0, 2))}, "lists no arm"),
        ({"actions": es.bandits.Ball(dim=3)}, "dimension 3"),
        ({"safe_policy": [0.5, 0.6]}, "sums to 1.1"),
        ({"safe_policy": [1.0, 0.0]}, "strictly safe"),
        ({"slack": 0.5}, "exceeds the true one of the incumbent, 0.4: pass slack=0.4"),
        ({"slack": 0.0}, "slack must be > 0"),
        ({"noise": -1.0}, "noise must be >= 0"),
        ({"noise": 0.1, "clicks": True}, "noise must be >= 0.5"),
        ({"actions": lambda k: ARMS}, "slack must be given"),
        ({"actions": lambda k: ARMS, "slack": 0.1}, "both be functions of the round"),
        ({"actions": es.bandits.Ball(0.5), "safe_policy": [0.0, 0.9]}, "outside the action set"),
    ],
)
def test_bad_input_is_refused_with_its_place_and_remedy(changes, message):
    with pytest.raises(es.InvalidProblem, match=message):
        bandit(**changes)


@pytest.mark.parametrize(
    ("M", "options", "message"),
    [
        (np.diag([1.0, 0.25]), {}, "eigenvalue 0.25 < 1"),
        (np.array([[1.0, 0.5], [0.0, 1.0]]), {}, "symmetric"),
        (np.eye(2), {"center": [0.1, 0.0]}, "centred at 0"),
        (np.diag([1.0, -1.0]), {}, "positive definite"),
    ],
)
def test_bad_ellipsoids_are_refused(M, options, message):
    with pytest.raises(es.InvalidProblem, match=message):
        es.bandits.Ellipsoid(M, **options)


def test_a_round_whose_incumbent_lacks_the_slack_is_named():
    def arms(k):
        return ARMS if k < 5 else [[1.0, 0.0], [0.0, 0.5]]

    made = bandit(actions=arms, safe_policy=lambda k: [0.0, 1.0], slack=0.1)
    with pytest.raises(es.InvalidProblem, match="the incumbent of round 5"):
        es.bandits.run(made, es.bandits.OPLBSP(made.task, 10), 10)


@pytest.mark.parametrize("name", ["finite", "ball", "ellipsoid", "contexts", "catalogue"])
def test_environments_bind_and_have_the_slack_they_say(name):
    for seed in range(20):
        made = es.bandits.make(name, seed)
        reward, utility = made.evaluate(made.optimal_policy())
        assert utility == pytest.approx(made.task.threshold, abs=1e-9)
        safe_reward, safe_utility = made.evaluate(made.safe_policy())
        assert safe_utility - made.task.threshold >= made.task.slack - 1e-9
        assert reward > safe_reward
    again = es.bandits.make(name, 19)
    np.testing.assert_array_equal(again.theta_r, made.theta_r)
    if name == "contexts":
        for k in range(1000):
            made.check_round(k)


def test_clicks_are_zero_or_one_with_their_mean():
    made = es.bandits.make("catalogue", seed=0)
    rates = made.task.arms(0) @ made.theta_r
    assert 0 < rates.min() and rates.max() < 1
    seen = []

    class Watched(es.bandits.Incumbent):
        def learn(self, action, reward, utility, plan_id=None):
            seen.append((float(action @ made.theta_r), reward))
            super().learn(action, reward, utility)

        replan = None

    agent = Watched(made.task)
    agent.replan = type("Never", (), {"due": lambda *_: False})()
    es.bandits.run(made, agent, 4000)
    mean, clicks = np.array(seen).T
    assert set(clicks) == {0.0, 1.0}
    assert abs((clicks - mean).mean()) < 4 * 0.5 / np.sqrt(4000)  # four standard deviations


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="no bandit 'disc'; there are finite, ball"):
        es.bandits.make("disc")
