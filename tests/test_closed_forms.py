"""Formulas with a known answer. Those marked * fail on the released code."""

import math

import numpy as np
import pytest

import episafe as es
import oracles
from conftest import constants
from episafe.kernels import softmax_actions
from episafe.kernels.model_arrays import Scales
from episafe.learning.planner import SoftmaxPlanner


def planner(task, chosen, episodes=()):
    made = SoftmaxPlanner(task, chosen, pessimistic=True)
    for states, actions in episodes:
        made.observe(states, actions)
    made.decide()
    return made


def at(made, lam):
    """π^λ and its bound, whatever the search found."""
    bound = made.utility_bound(lam)
    return made.policy(lam), bound


def flat(S=1, A=3, H=4, **given):
    """Every action of every state leads to state 0; reward 0 and utility 1 unless given."""
    P = np.zeros((H, S, A, S))
    P[..., 0] = 1
    return es.LinearCMDP(P, given.get("reward", np.zeros((H, S, A))), np.ones((H, S, A)), threshold=0.5)


@pytest.mark.parametrize("kappa", [0.01, 0.1, 2.0])
@pytest.mark.parametrize("A", [2, 3, 7])
def test_zero_reward_gives_the_entropy_of_the_uniform_policy(kappa, A):
    """* V₁[κ] = κ H ln A and π uniform, with so much data that the ridge does not show."""
    cmdp = flat(A=A)
    silent = es.Constants(0, 0, 0, 0, kappa=kappa, lam_max=300, num_halvings=40, ridge=1e-12)
    episodes = [(np.zeros(5, dtype=np.int64), np.full(4, a)) for a in range(A)]
    made = planner(cmdp.task, silent, episodes)
    policy, _ = at(made, 0.0)
    assert made.regression.start_values[0] == pytest.approx(kappa * 4 * math.log(A), rel=1e-9)
    np.testing.assert_allclose(policy.table(), 1 / A, atol=1e-12)


def test_at_the_last_step_q_is_the_reward_whatever_the_bonus():
    """* The clip limit H−h is 0 there: π_H = softmax(r/κ) although the bonuses of all actions differ wildly."""
    reward = np.zeros((1, 1, 3))
    reward[0, 0] = [0.2, 0.5, 0.9]
    cmdp = flat(H=1, reward=reward)
    greedy = constants(C_r=100.0, C_u=100.0, C_dagger=100.0, B_dagger=0.0)
    made = planner(cmdp.task, greedy, [(np.zeros(2, dtype=np.int64), np.array([1]))] * 9)
    policy, bound = at(made, 0.0)
    expected = np.exp(reward[0, 0] / 0.1) / np.exp(reward[0, 0] / 0.1).sum()
    np.testing.assert_allclose(policy.table()[0, 0], expected, atol=1e-12)
    assert bound == pytest.approx(1.0, abs=1e-15)


@pytest.mark.parametrize("ridge", [0.5, 1.0, 3.0])
def test_one_hot_bonus_is_one_over_the_root_of_n_plus_rho(ridge):
    rng = np.random.default_rng(0)
    cmdp = es.make("tabular", seed=1)
    raw = {"P": cmdp.P, "initial_state": cmdp.task.initial_state}
    episodes = oracles.random_episodes(rng, raw, np.full((4, 5, 3), 1 / 3), 200)
    rotation = np.linalg.qr(rng.normal(size=(15, 15)))[0]  # the identity itself would be counted
    full = es.LinearCMDP(
        cmdp.P, cmdp.task.reward, cmdp.task.utility, rotation.reshape(5, 3, 15), cmdp.task.initial_state,
        threshold=cmdp.task.threshold,
    )  # fmt: skip
    counts = np.zeros((4, 5, 3))
    for states, actions in episodes:
        counts[np.arange(4), states[:-1], actions] += 1
    for task in (cmdp.task, full.task):
        made = planner(task, constants(ridge=ridge), episodes)
        known = made.regression
        for h in range(4):
            for slot in range(known.support.size[h]):
                expected = (counts[h, known.state_of[h, slot]] + ridge) ** -0.5
                np.testing.assert_allclose(known.work.bonus[h, :, slot], expected, atol=1e-12)
        log_det = np.log((counts + ridge) / ridge).sum(axis=(1, 2))
        np.testing.assert_allclose(made.information, log_det, atol=1e-9)


def test_one_hot_estimate_is_the_shrunken_frequency():
    """P̂V(s,a) = Σ n(s,a,s')V(s')/(n(s,a)+ρ): three visits to 0, one to 1, ρ = 1, V = (1, 10) gives 13/5."""
    P = np.full((2, 2, 2, 2), 0.5)
    cmdp = es.LinearCMDP(P, np.zeros((2, 2, 2)), np.ones((2, 2, 2)), threshold=0.5)
    episodes = [(np.array([0, last, 0]), np.array([1, 0])) for last in (0, 0, 0, 1)]
    made = planner(cmdp.task, constants(ridge=1.0, spread=1.0, curve=2.0), episodes)
    known = made.regression
    known.work.V[1, :2] = np.array([1, 10])[:, None, None]  # slots of step 1 in order of first sight: states 0, 1
    bonus, Q = np.zeros_like(known.work.bonus), np.zeros((2, 3, 2, known.state_of.shape[1]))
    softmax_actions.count_values(known.support.size, known.work, made.scales, bonus, Q)
    np.testing.assert_allclose(Q[0, :, 1, 0], 13 / 5)
    np.testing.assert_allclose(Q[0, :, 0, 0], 0)
    # β = 1/√5 and σ² = (3·1 + 1·100)/5 − (13/5)² = 13.84: βσ + 2β²; where nothing was seen, σ = 0 and β = 1
    np.testing.assert_allclose(bonus[0, :, 0], [2, np.sqrt(13.84 / 5) + 2 / 5])


@pytest.mark.parametrize(("lam", "target"), [(0.0, "reward"), (1e6, "utility")])
def test_small_kappa_is_greedy_for_reward_at_zero_and_for_utility_at_large_lambda(lam, target, draw_cmdp):
    rng = np.random.default_rng(2)
    cmdp, _ = draw_cmdp(rng, S=4, A=3, H=1)
    cold = es.Constants(0, 0, 0, 0, kappa=1e-4, lam_max=300, num_halvings=40)
    policy, _ = at(planner(cmdp.task, cold), lam)
    np.testing.assert_array_equal(policy.table()[0].argmax(axis=1), getattr(cmdp.task, target)[0].argmax(axis=1))
    np.testing.assert_allclose(policy.table()[0].max(axis=1), 1, atol=1e-6)


def test_an_exact_model_without_bonus_and_with_small_kappa_finds_the_optimum():
    """On a deterministic kernel, counted a million times, the search ends at the LP's optimum."""
    rng = np.random.default_rng(3)
    H, S, A = 3, 3, 2
    P = np.eye(S)[rng.integers(S, size=(H, S, A))]
    reward, utility = rng.random((2, H, S, A))
    free = es.LinearCMDP(P, reward, utility, threshold=-1)
    cmdp = es.LinearCMDP(P, reward, utility, threshold=0.8 * free.evaluate(free.task.safe_policy)[1])
    exact_model = es.Constants(0, 0, 0, 0, kappa=1e-3, lam_max=300, num_halvings=50, ridge=1e-9)
    agent = es.OPSE(cmdp.task, exact_model)
    for actions in np.ndindex(*(A,) * H):
        states = [0]
        for h, a in enumerate(actions):
            states.append(int(P[h, states[-1], a].argmax()))
        agent.learn(es.Episode(np.array(states), np.array(actions)))
    plan = agent.plan()
    optimum = oracles.lp_optimum(P, reward, utility, cmdp.task.threshold, 0)
    assert plan.source == "search"
    assert cmdp.evaluate(plan.policy)[0] == pytest.approx(optimum, abs=1e-4)


def test_nothing_known_means_the_incumbent_and_its_failed_bound():
    """Without data β = 1 and P̂ = 0, so V̲ᵘ is the utility of the first step alone."""
    cmdp = es.make("streaming", seed=0)
    plan = es.OPSE(cmdp.task, es.Constants.paper("streaming")).plan()
    assert plan.source == "safe"
    assert math.isnan(plan.lam)
    assert plan.utility_bound == pytest.approx(1.0, abs=1e-9)  # λ = 300 makes it take slow service
    assert plan.policy is cmdp.task.safe_policy
    assert plan.reason
    assert plan.level == "heuristic"


def test_scales_of_the_two_softmax_agents_differ_by_a_sign_and_the_compensation():
    cmdp = es.make("tabular", seed=0)
    chosen = constants()
    opse, ghosh = (SoftmaxPlanner(cmdp.task, chosen, pessimistic=pessimistic).scales for pessimistic in (True, False))
    assert opse == Scales(0.3, -0.2, 0.1, 0.2, 0.1)
    assert ghosh == Scales(0.3, 0.2, 0.0, 0.0, 0.1)
