"""DOPE by extended value iteration against its linear program."""

import numpy as np
import pytest

import episafe as es
import oracles
from episafe.kernels.extended_value_iteration import (
    KernelBox,
    confidence_box,
    extended_greedy,
    extended_occupancy,
)
from episafe.learning.dope_problem import optimistic_pessimistic

SMALL = es.Constants(0.3, 0.3, 0, 0, kappa=1, lam_max=0, num_halvings=0)


def learned(cmdp, raw, rng, num_episodes, **options):
    agent = es.DOPE(cmdp.task, SMALL, **options)
    H, S, A = cmdp.task.reward.shape
    counts = np.zeros((H, S, A, S))
    for states, actions in oracles.random_episodes(rng, raw, np.full((H, S, A), 1 / A), num_episodes):
        agent.learn(es.Episode(states, actions))
        counts[np.arange(H), states[:-1], actions, states[1:]] += 1
    return agent, counts


@pytest.mark.parametrize("seed", range(25))
def test_plans_equal_the_extended_linear_program(seed, draw_cmdp):
    """Feasible together; the mixture of two (π, P') pairs reaches the LP's value and keeps the constraint."""
    rng = np.random.default_rng(seed)
    cmdp, raw = draw_cmdp(rng, S=int(rng.integers(2, 5)), A=2, H=int(rng.integers(1, 4)), scale=0.95)
    agent, counts = learned(cmdp, raw, rng, int(rng.integers(1, 1500)))
    task, plan = cmdp.task, agent.plan()
    solved = oracles.dope_lp(counts, task.reward, task.utility, 0.3, 0.3, task.threshold, task.initial_state)
    assert (plan.source == "safe") == (solved is None)
    if solved is not None:
        assert plan.utility_bound >= task.threshold
        box = KernelBox(*confidence_box(counts, 1.0, 1.0, np.inf))
        reward, utility = task.reward + 0.3 * box.bonus, task.utility - 0.3 * box.bonus
        value, _, _, lam = optimistic_pessimistic(reward, utility, box, task.threshold, task.initial_state)
        assert value == pytest.approx(solved[0], abs=1e-8)
        assert lam == plan.lam
        mass = solved[1].sum(axis=-1)
        reached = mass.sum(axis=-1) > 1e-6
        policy = mass[reached] / mass[reached].sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(plan.policy.table()[reached], policy, atol=1e-5)


@pytest.mark.slow
def test_plans_equal_the_extended_linear_program_on_two_hundred_problems(draw_cmdp):
    for seed in range(1000, 1200):
        test_plans_equal_the_extended_linear_program(seed, draw_cmdp)


def test_the_comparison_above_sees_both_outcomes(draw_cmdp):
    sources = set()
    for seed in range(25):
        rng = np.random.default_rng(seed)
        cmdp, raw = draw_cmdp(rng, S=int(rng.integers(2, 5)), A=2, H=int(rng.integers(1, 4)), scale=0.95)
        sources.add(learned(cmdp, raw, rng, int(rng.integers(1, 1500)))[0].plan().source)
    assert sources == {"safe", "search"}


@pytest.mark.parametrize("seed", range(5))
def test_the_box_is_the_papers_radius_and_everything_where_nothing_was_seen(seed):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 4, (2, 3, 2, 3)).astype(float)
    counts[0, 0, 0] = 0
    lower, upper, bonus = confidence_box(counts, 1.0, 1.0, np.inf)
    radius = oracles.dope_radius(counts)
    p_hat = counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1)
    np.testing.assert_allclose(lower, np.clip(p_hat - radius, 0, 1), atol=1e-14)
    np.testing.assert_allclose(upper, np.clip(p_hat + radius, 0, 1), atol=1e-14)
    np.testing.assert_allclose(bonus, radius.sum(axis=-1), atol=1e-14)
    assert (lower[0, 0, 0] == 0).all()
    assert (upper[0, 0, 0] == 1).all()
    assert bonus[0, 0, 0] == 3


@pytest.mark.parametrize("seed", range(5))
def test_a_box_of_one_kernel_gives_its_plain_values(seed, draw_cmdp):
    """With lower = upper = P, extended value iteration is value iteration and its occupancy the policy's."""
    cmdp, raw = draw_cmdp(np.random.default_rng(seed))
    box = KernelBox(raw["P"], raw["P"], np.zeros((3, 4, 3)))
    actions, order, V = extended_greedy(raw["reward"], raw["utility"], box.lower, box.upper, 0.0, 1.0)
    s = raw["initial_state"]
    assert V[s, 1] == pytest.approx(cmdp.evaluate(cmdp.task.safe_policy)[1], abs=1e-12)
    policy = np.eye(3)[actions]
    mass = extended_occupancy(box.lower, box.upper, actions, order, s)
    np.testing.assert_allclose(mass, cmdp.occupancy(policy).sum(axis=-1), atol=1e-12)
    assert cmdp.evaluate(policy) == pytest.approx((V[s, 0], V[s, 1]), abs=1e-12)


def test_the_best_row_of_a_box_by_hand():
    """lower 0.1 each, upper (0.5, 0.6, 0.9), values (3, 2, 1): 0.5, then 0.4, and 0.1 for the worst."""
    lower, upper = np.full((2, 3, 1, 3), 0.1), np.tile([0.5, 0.6, 0.9], (2, 3, 1, 1))
    reward = np.zeros((2, 3, 1))
    reward[1, :, 0] = [3, 2, 1]
    _, _, V = extended_greedy(reward, np.zeros((2, 3, 1)), lower, upper, 1.0, 0.0)
    assert V[0, 0] == pytest.approx(0.5 * 3 + 0.4 * 2 + 0.1 * 1)


def test_unreached_states_get_the_uniform_policy():
    """Buffer 5 cannot be full at the first step."""
    cmdp = es.make("streaming", seed=0)
    agent = es.DOPE(cmdp.task, es.Constants.paper("streaming", "dope"))
    es.run(cmdp, agent, num_episodes=300)
    plan = agent.plan()
    assert plan.source == "search"
    np.testing.assert_array_equal(plan.policy.table()[0, 5], 0.5)


def test_it_runs_at_a_hundred_states():
    """The paper left DOPE out of the linear environment as intractable."""
    cmdp = es.make("linear", seed=0)
    agent = es.DOPE(cmdp.task, es.Constants.paper("linear", "dope"), es.Doubling(0.3))
    record = es.run(cmdp, agent, num_episodes=500)
    assert record.violation()[-1] == 0
    assert record.plan_ids[-1] < 499


def test_the_authors_own_constants():
    task = es.make("tabular", seed=0).task
    agent = es.DOPE.authors(task, num_episodes=1000, bonus=0.1)
    assert agent.constants.C_u == 4
    assert agent.constants.C_r == pytest.approx(16 / task.slack)
    log_term = np.log(2 * 5 * 3 * 4 * 1000 / 0.05)
    assert agent.radius.deviation == pytest.approx(0.1 * 2 * np.sqrt(log_term))
    assert agent.radius.bias == pytest.approx(0.1 * 14 * log_term / 3)
    assert agent.radius.cap == 0.1
    assert agent.num_safe_episodes == np.ceil(0.01 * 25 * 3 * 64 / task.slack**2)
    assert agent.plan().source == "safe"
    assert "first" in agent.plan().reason
