"""The exact optimum under several constraints, against an independent linear program and by hand."""

import numpy as np
import pytest

import episafe as es
import oracles
from episafe.problems import model_answers
from episafe.problems.exact_answers import greedy_actions, optimum, optimum_of_several, policy_values, utility_greedy


def several(rng, S, A, H, m, *, sparse=False):
    """P, reward, utilities (m, H, S, A), and the utilities of a random policy from state 0."""
    raw = [oracles.random_cmdp(rng, S, A, H) for _ in range(m)]
    P, reward, utilities = raw[0]["P"], raw[0]["reward"], np.array([one["utility"] for one in raw])
    if sparse:  # many ties
        reward, utilities = (np.round(values) for values in (reward, utilities))
    policy = rng.dirichlet(np.full(A, 0.3), (H, S))
    return P, reward, utilities, np.array([policy_values(P, reward, u, policy, 0)[1] for u in utilities])


def utilities_of(P, reward, utilities, policy):
    return np.array([policy_values(P, reward, u, policy, 0)[1] for u in utilities])


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("m", [2, 3, 5])
def test_the_optimum_equals_an_independent_linear_program(seed, m):
    """Also where the thresholds are a policy's own utilities, so that some problems have hardly any room."""
    rng = np.random.default_rng(seed)
    S, A, H = (int(rng.integers(*limits)) for limits in ((2, 12), (2, 4), (1, 6)))
    P, reward, utilities, attained = several(rng, S, A, H, m, sparse=seed % 3 == 0)
    thresholds = attained * (1.0 if seed % 4 == 0 else rng.uniform(0.7, 1))
    found = optimum_of_several(P, reward, utilities, thresholds, 0)
    assert found.value == pytest.approx(oracles.lp_optimum(P, reward, utilities, thresholds, 0), abs=1e-8)
    assert np.all(utilities_of(P, reward, utilities, found.table) >= thresholds)
    assert policy_values(P, reward, utilities[0], found.table, 0)[0] == found.value


@pytest.mark.parametrize("seed", range(6))
def test_the_multipliers_prove_the_optimum(seed):
    """min_λ max_π V^r + Σ λ_i(V_i − b_i) is attained at them, and they are 0 where a constraint does not bind."""
    P, reward, utilities, attained = several(np.random.default_rng(seed), 6, 3, 4, 3)
    thresholds = attained * [0.95, 0.95, 0.1]
    found = optimum_of_several(P, reward, utilities, thresholds, 0)
    weights = np.append(1.0, found.lam)
    V = greedy_actions(P, np.stack([reward, *utilities], axis=-1), weights)[1][0]
    assert weights @ V - found.lam @ thresholds == pytest.approx(found.value, abs=1e-9)
    slack = utilities_of(P, reward, utilities, found.table) - thresholds
    assert np.all(found.lam * slack < 1e-9)
    assert found.lam[2] == 0


@pytest.mark.parametrize("name", ["tabular", "streaming", "linear"])
@pytest.mark.parametrize("seed", range(4))
def test_one_constraint_is_the_one_dimensional_dual_bit_for_bit(name, seed):
    cmdp = es.make(name, seed)
    task = cmdp.task
    found = optimum_of_several(cmdp.P, task.reward, task.utility[None], np.array([task.threshold]), task.initial_state)
    alone = optimum(cmdp.P, task.reward, task.utility, task.threshold, task.initial_state)
    assert found.value == alone.value == cmdp.optimal_value()
    assert found.table.tobytes() == alone.table.tobytes() == cmdp.optimal_policy().table().tobytes()
    assert found.lam == alone.lam


def test_three_arms_by_hand():
    """Arm 0 pays 1; arms 1 and 2 have a utility of 1 each; thresholds 0.25 and 0.5 leave a quarter for arm 0."""
    P, reward = np.ones((1, 1, 3, 1)), np.array([[[1.0, 0.0, 0.0]]])
    utilities = np.array([[[[0.0, 1.0, 0.0]]], [[[0.0, 0.0, 1.0]]]])
    found = optimum_of_several(P, reward, utilities, np.array([0.25, 0.5]), 0)
    np.testing.assert_allclose(found.table[0, 0], [0.25, 0.25, 0.5], atol=1e-15)
    np.testing.assert_allclose(found.lam, [1, 1], atol=1e-12)
    assert found.value == pytest.approx(0.25, abs=1e-15)


def test_constraints_that_conflict_are_named_with_the_amount():
    """No policy has more than 1 in all: 0.7 and 0.5 are 0.2 too much, so one of them is missed by 0.1."""
    P, reward = np.ones((1, 1, 3, 1)), np.zeros((1, 1, 3))
    utilities = np.array([[[[0.0, 1.0, 0.0]]], [[[1.0, 1.0, 1.0]]], [[[0.0, 0.0, 1.0]]]])
    thresholds = np.array([0.7, 0.9, 0.5])
    with pytest.raises(es.Infeasible, match=r"^service >= 0.7 and waste >= 0.5 conflict: .* by 0.1 or more"):
        optimum_of_several(P, reward, utilities, thresholds, 0, ("service", "budget", "waste"))
    with pytest.raises(es.Infeasible, match=r"constraint 0 >= 0.7 and constraint 2"):
        optimum_of_several(P, reward, utilities, thresholds, 0)


@pytest.mark.parametrize("m", [1, 2])
def test_a_threshold_that_no_policy_reaches_is_named(m):
    P, reward, utilities, _ = several(np.random.default_rng(0), 4, 2, 3, m)
    largest = np.array([utility_greedy(P, u)[1][0] for u in utilities])
    with pytest.raises(
        es.Infeasible, match=rf"of constraint {m - 1} cannot be reached: the largest .* {largest[-1]:.12g}"
    ):
        optimum_of_several(P, reward, utilities, largest * 0.1 + np.eye(m)[-1] * largest, 0)


@pytest.mark.parametrize("seed", range(6))
def test_a_conflict_is_reported_exactly_where_the_linear_program_has_no_solution(seed):
    """Thresholds are raised until they conflict; a little less is solved, with no room left."""
    rng = np.random.default_rng(seed)
    P, reward, utilities, attained = several(rng, 5, 3, 3, 3)
    low, high = 1.0, 3.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        try:
            optimum_of_several(P, reward, utilities, attained * middle, 0)
            low = middle
        except es.Infeasible:
            high = middle
    assert oracles.lp_optimum(P, reward, utilities, attained * (low - 1e-6), 0) > 0
    with pytest.raises(RuntimeError, match="infeasible"):
        oracles.lp_optimum(P, reward, utilities, attained * (high + 1e-6), 0)
    tight = optimum_of_several(P, reward, utilities, attained * low, 0)
    assert np.all(utilities_of(P, reward, utilities, tight.table) >= attained * low - 2e-9)


def test_without_any_room_the_best_policy_of_the_face_is_found():
    """Arms 1 and 2 alone reach the first threshold; the second constraint asks for half of arm 1, which pays less."""
    P, reward = np.ones((1, 1, 3, 1)), np.array([[[1.0, 0.3, 0.8]]])
    utilities = np.array([[[[0.0, 1.0, 1.0]]], [[[0.0, 1.0, 0.0]]]])
    found = optimum_of_several(P, reward, utilities, np.array([1.0, 0.5]), 0)
    assert found.value == pytest.approx(0.55, abs=1e-8)
    assert np.all(utilities_of(P, reward, utilities, found.table) >= np.array([1.0, 0.5]) - 2e-9)


def test_the_same_constraint_twice_changes_nothing():
    P, reward, utilities, attained = several(np.random.default_rng(3), 6, 3, 4, 1)
    twice = optimum_of_several(P, reward, np.repeat(utilities, 2, axis=0), np.repeat(0.9 * attained, 2), 0)
    assert twice.value == pytest.approx(optimum(P, reward, utilities[0], 0.9 * attained[0], 0).value, abs=1e-10)


def test_a_threshold_is_needed_for_each_utility():
    P, reward, utilities, attained = several(np.random.default_rng(3), 3, 2, 2, 2)
    for wrong in (attained[:1], 1.0, np.append(attained, 0)):
        with pytest.raises(es.InvalidProblem, match="one of each a constraint"):
            optimum_of_several(P, reward, utilities, wrong, 0)


def test_five_hundred_states_and_three_constraints_take_few_backward_inductions(monkeypatch):
    """25 to 45 of them, 0.15 to 0.25 s on one core."""
    rng, made = np.random.default_rng(0), []
    P, (reward, *utilities) = rng.dirichlet(np.full(500, 0.1), (4, 500, 3)), rng.random((4, 4, 500, 3))
    thresholds = np.array([0.75 * utility_greedy(P, u)[1][0] for u in utilities])
    monkeypatch.setattr(model_answers, "greedy_actions", lambda *told: made.append(1) or greedy_actions(*told))
    found = optimum_of_several(P, reward, np.array(utilities), thresholds, 0)
    assert len(made) < 80
    assert np.all(utilities_of(P, reward, utilities, found.table) >= thresholds)
