"""Exact answers against slow, independent ones."""

import numpy as np
import pytest

import episafe as es
import oracles
from episafe.problems import exact_answers
from episafe.problems.dual_search import best_mixture


@pytest.mark.parametrize("seed", range(8))
def test_values_equal_the_enumeration_of_trajectories(seed):
    rng = np.random.default_rng(seed)
    raw = oracles.random_cmdp(rng, S=3, A=2, H=4)
    policy = rng.dirichlet(np.ones(2), (4, 3))
    V = exact_answers.policy_values(raw["P"], raw["reward"], raw["utility"], policy, raw["initial_state"])
    for value, g in zip(V, (raw["reward"], raw["utility"]), strict=True):
        expected = oracles.trajectory_value(raw["P"], policy, g, raw["initial_state"])
        assert value == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_occupancies_are_distributions_and_give_the_values(seed, draw_cmdp):
    rng = np.random.default_rng(seed)
    S = 6 + 3 * seed  # with and without whole eights of states
    cmdp, _ = draw_cmdp(rng, S=S, H=5)
    policy = rng.dirichlet(np.ones(3), (5, S))
    w = cmdp.occupancy(policy)
    np.testing.assert_allclose(w.sum(axis=(1, 2)), 1, atol=1e-12)
    V_r, V_u = cmdp.evaluate(policy)
    assert (w * cmdp.task.reward).sum() == pytest.approx(V_r, abs=1e-12)
    assert (w * cmdp.task.utility).sum() == pytest.approx(V_u, abs=1e-12)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("scale", [0.3, 0.6, 0.95, 0.999999])
def test_the_optimum_equals_brute_force_over_policies_and_mixtures(seed, scale, draw_cmdp):
    cmdp, raw = draw_cmdp(np.random.default_rng(seed), S=2, A=2, H=3, scale=scale)
    brute = oracles.brute_force_optimum(
        raw["P"], raw["reward"], raw["utility"], cmdp.task.threshold, raw["initial_state"]
    )
    assert cmdp.optimal_value() == pytest.approx(brute, abs=1e-10)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("shape", [(4, 3, 3, None), (30, 3, 4, 5), (12, 2, 8, None)])
def test_the_optimum_equals_two_linear_programs(seed, shape, draw_cmdp):
    S, A, H, d = shape
    rng = np.random.default_rng(seed)
    cmdp, raw = draw_cmdp(rng, S, A, H, d, scale=rng.uniform(0.4, 0.99))
    theirs = oracles.lp_optimum(raw["P"], raw["reward"], raw["utility"], cmdp.task.threshold, raw["initial_state"])
    assert cmdp.optimal_value() == pytest.approx(theirs, abs=1e-6)
    assert cmdp.optimal_value("lp") == pytest.approx(theirs, abs=1e-6)


@pytest.mark.parametrize("name", ["tabular", "streaming", "linear"])
@pytest.mark.parametrize("variant", ["released", "text"])
@pytest.mark.parametrize("seed", range(5))
def test_the_optimal_policy_attains_the_optimum_and_is_safe_in_float64(name, variant, seed):
    cmdp = es.make(name, seed, variant)
    reward_value, utility_value = cmdp.evaluate(cmdp.optimal_policy())
    assert reward_value == pytest.approx(cmdp.optimal_value(), abs=1e-12)
    assert utility_value >= cmdp.task.threshold


@pytest.mark.parametrize("seed", range(60))
def test_the_optimal_policy_is_safe_to_the_last_bit_when_the_threshold_is_its_own_utility(seed, draw_cmdp):
    """b = the utility of the unconstrained optimum, as dynamic programming rounds it."""
    _, raw = draw_cmdp(np.random.default_rng(seed))
    rewards = np.stack([raw["reward"], raw["utility"]], axis=-1)
    threshold = exact_answers.greedy_actions(raw["P"], rewards, np.array([1.0, 0.0]))[1][raw["initial_state"], 1]
    cmdp = es.LinearCMDP(raw["P"], raw["reward"], raw["utility"], None, raw["initial_state"], threshold=threshold)
    assert cmdp.evaluate(cmdp.optimal_policy())[1] >= threshold


@pytest.mark.parametrize("table", [np.full((3, 4, 3), 1.0), np.full((3, 4, 3), np.nan), "uniform", [[0.5]]])
def test_a_policy_object_whose_table_is_no_policy_is_refused(table, draw_cmdp):
    cmdp, _ = draw_cmdp(np.random.default_rng(0))

    class Wrong:
        def table(self):
            return table

        def probabilities(self, h, state):
            return table

    with pytest.raises(es.InvalidProblem, match="policy"):
        cmdp.evaluate(Wrong())
    with pytest.raises(es.InvalidProblem, match="policy"):
        es.Fixed(cmdp.task, Wrong())


def test_the_fractional_knapsack_by_hand():
    """Two arms, one step: arm 0 pays 1 and has utility 0, arm 1 pays 0 and has utility 1; b = 0.25."""
    cmdp = es.LinearCMDP(np.ones((1, 1, 2, 1)), [[[1.0, 0.0]]], [[[0.0, 1.0]]], threshold=0.25)
    assert cmdp.optimal_value() == 0.75
    np.testing.assert_allclose(cmdp.optimal_policy().table()[0, 0], [0.75, 0.25], atol=1e-15)


def test_a_deterministic_chain_by_hand():
    """Three states in a row; action 1 moves on, action 0 stays; reward 1 at the end, utility 1 for staying."""
    H, S = 3, 3
    P = np.zeros((H, S, 2, S))
    for s in range(S):
        P[:, s, 0, s] = 1
        P[:, s, 1, min(s + 1, S - 1)] = 1
    reward, utility = np.zeros((H, S, 2)), np.zeros((H, S, 2))
    reward[:, 2, :] = 1
    utility[:, :, 0] = 1
    cmdp = es.LinearCMDP(P, reward, utility, threshold=1.0)
    # moving twice and staying once gives reward 1 and utility 1
    assert cmdp.optimal_value() == pytest.approx(1.0, abs=1e-12)
    w = cmdp.occupancy(cmdp.optimal_policy())
    np.testing.assert_allclose(w[2, 2, 0], 1.0, atol=1e-12)


def test_the_search_ends_at_the_face_when_only_the_largest_utility_is_enough():
    points = [(3.0, 0.0), (2.0, 1.0), (0.5, 2.0), (0.25, 2.0)]

    def best(reward_weight, utility_weight):
        r, u = max(points, key=lambda p: reward_weight * p[0] + utility_weight * p[1])
        return r, u, None

    assert best_mixture(best, 2.0)[0] == 0.5
    assert best_mixture(best, 1.5)[0] == pytest.approx(1.25)
    assert best_mixture(best, -1.0)[0] == 3.0
    _, utility, _, lam = best_mixture(best, 2.5)
    assert utility == 2.0
    assert lam == np.inf
