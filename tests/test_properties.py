"""Laws that hold on every problem, by hypothesis."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import episafe as es
import oracles
from conftest import constants
from episafe.learning.planner import SoftmaxPlanner

seeds = st.integers(0, 2**32 - 1)
relaxed = settings(max_examples=25, deadline=None, derandomize=True)


def problem(seed, S=4, A=3, H=3, d=None):
    rng = np.random.default_rng(seed)
    raw = oracles.random_cmdp(rng, S, A, H, d)
    cmdp = es.LinearCMDP(
        raw["P"], raw["reward"], raw["utility"], None if d is None else raw["phi"], raw["initial_state"],
        threshold=-1,
    )  # fmt: skip
    return rng, raw, cmdp


def exact_planner(seed, kappa):
    """A planner whose estimate is the true, deterministic kernel: each path seen once, no bonus, next to no ridge."""
    rng = np.random.default_rng(seed)
    P = np.eye(4)[rng.integers(4, size=(3, 4, 3))]
    reward, utility = rng.random((2, 3, 4, 3))
    cmdp = es.LinearCMDP(P, reward, utility, threshold=-1)
    silent = es.Constants(0, 0, 0, 0, kappa=kappa, lam_max=300, num_halvings=60, ridge=1e-12)
    made = SoftmaxPlanner(cmdp.task, silent, pessimistic=True)
    for actions in np.ndindex(3, 3, 3):
        states = [0]
        for h, a in enumerate(actions):
            states.append(int(P[h, states[-1], a].argmax()))
        made.observe(np.array(states), np.array(actions))
    made.decide()
    return cmdp, made


@relaxed
@given(seeds, st.floats(0.01, 2.0), st.floats(0, 50), st.floats(0, 50))
def test_the_softmax_utility_grows_with_lambda_on_an_exact_model(seed, kappa, lam, more):
    """Lemma "Softmax value monotonicity"."""
    cmdp, made = exact_planner(seed, kappa)
    assert made.utility_bound(lam + more) >= made.utility_bound(lam) - 1e-9
    bound = made.utility_bound(lam)
    assert cmdp.evaluate(made.policy(lam))[1] == pytest.approx(bound, abs=1e-9)


@relaxed
@given(seeds, st.integers(1, 60), st.sampled_from([None, 3]))
def test_relabelling_states_and_actions_permutes_the_policy(seed, num_episodes, d):
    rng, raw, cmdp = problem(seed, S=5, d=d)
    task = cmdp.task
    episodes = oracles.random_episodes(rng, raw, np.full((3, 5, 3), 1 / 3), num_episodes)
    new_state, new_action = rng.permutation(5), rng.permutation(3)
    old_state, old_action = np.argsort(new_state), np.argsort(new_action)

    def relabelled(array):
        return array[:, old_state][:, :, old_action]

    renamed = es.LinearCMDP(
        relabelled(cmdp.P)[..., old_state], relabelled(task.reward), relabelled(task.utility),
        None if d is None else raw["phi"][old_state][:, old_action], int(new_state[task.initial_state]),
        threshold=-1,
    )  # fmt: skip
    plain, moved = (SoftmaxPlanner(t, constants(), pessimistic=True) for t in (task, renamed.task))
    for states, actions in episodes:
        plain.observe(states, actions)
        moved.observe(new_state[states], new_action[actions])
    plain.decide()
    moved.decide()
    np.testing.assert_allclose(moved.utility_bound(2.0), plain.utility_bound(2.0), atol=1e-10)
    np.testing.assert_allclose(moved.policy(2.0).table(), relabelled(plain.policy(2.0).table()), atol=1e-9)


def bonuses(made, H, S, A):
    """β (H, S, A) at the visited states, 1/√ρ elsewhere."""
    made.decide()
    known, out = made.regression, np.full((H, S, A), made.regression.ridge**-0.5)
    for h in range(H):
        for slot in range(known.support.size[h]):
            out[h, known.state_of[h, slot]] = known.work.bonus[h, :, slot]
    return out


@relaxed
@given(seeds, st.sampled_from([None, 3]))
def test_bonuses_never_grow_with_data(seed, d):
    rng, raw, cmdp = problem(seed, d=d)
    made = SoftmaxPlanner(cmdp.task, constants(), pessimistic=True)
    before = np.inf
    for states, actions in oracles.random_episodes(rng, raw, np.full((3, 4, 3), 1 / 3), 30):
        made.observe(states, actions)
        now = bonuses(made, 3, 4, 3)
        assert (now <= before + 1e-12).all()
        before = now


@relaxed
@given(seeds, st.integers(1, 200), st.sampled_from([0.5, 1.0, 2.0]))
def test_elliptical_potential(seed, num_episodes, ridge):
    """Σ_k min{1, β_k²} ≤ 2 ln(det Λ/det ρI) ≤ 2d ln(1 + K/(ρd)), and ln det is what is tracked."""
    rng, raw, cmdp = problem(seed, S=6, d=4)
    made, total = SoftmaxPlanner(cmdp.task, constants(ridge=ridge), pessimistic=True), np.zeros(3)
    for states, actions in oracles.random_episodes(rng, raw, np.full((3, 6, 3), 1 / 3), num_episodes):
        for h in range(3):
            x = raw["phi"][states[h], actions[h]]
            total[h] += min(1.0, x @ made.regression.model.gram_inv[h] @ x)
        made.observe(states, actions)
    assert (total <= 2 * made.information + 1e-9).all()
    assert (made.information <= 4 * np.log(1 + num_episodes / (ridge * 4)) + 1e-9).all()


@relaxed
@given(seeds, st.sampled_from([None, 3]), st.booleans())
def test_the_order_of_episodes_does_not_matter(seed, d, plan_between):
    rng, raw, cmdp = problem(seed, d=d)
    episodes = oracles.random_episodes(rng, raw, np.full((3, 4, 3), 1 / 3), 40)
    agents = [es.Ghosh2024(cmdp.task, constants()) for _ in range(2)]
    for agent, order in zip(agents, (episodes, episodes[::-1]), strict=True):
        for k, (states, actions) in enumerate(order):
            agent.learn(es.Episode(states, actions))
            if plan_between and k % 7 == 0:
                agent.plan()
    first, second = (agent.plan() for agent in agents)
    assert first.source == second.source
    np.testing.assert_allclose(first.utility_bound, second.utility_bound, atol=1e-9)
    np.testing.assert_allclose(first.policy.table(), second.policy.table(), atol=1e-8)


@relaxed
@given(seeds)
def test_the_search_returns_an_admitted_lambda_monotone_or_not(seed):
    """Whatever the estimate does between, the policy deployed from the search passed the check itself."""
    rng = np.random.default_rng(seed)
    raw = oracles.random_cmdp(rng, 4, 3, 3, None)
    free = es.LinearCMDP(raw["P"], raw["reward"], raw["utility"], initial_state=raw["initial_state"], threshold=-1)
    largest = free.evaluate(free.task.safe_policy)[1]
    cmdp = es.LinearCMDP(
        raw["P"], raw["reward"], raw["utility"], initial_state=raw["initial_state"], threshold=0.7 * largest
    )
    agent = es.OPSE(cmdp.task, constants(C_u=0.1))
    for states, actions in oracles.random_episodes(rng, raw, np.full((3, 4, 3), 1 / 3), 100):
        agent.learn(es.Episode(states, actions))
    plan = agent.plan()
    assert plan.source == "safe" or plan.utility_bound >= cmdp.task.threshold
    if plan.source == "safe":
        assert plan.utility_bound < cmdp.task.threshold
