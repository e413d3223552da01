"""The peers: their plans against slow versions of them, on 200 random problems each."""

from functools import cache

import numpy as np
import pytest

import episafe as es
import oracles
import peer_oracles as slow
from episafe.learning.dope_problem import optimistic_pessimistic
from episafe.learning.transition_counts import Confidence, Radius, TransitionCounts

K, DELTA = 1000, 0.05
NUM_PROBLEMS = 200


@cache
def drawn(seed):
    """A tiny problem, episodes of its uniform policy, and a multiplier of bonuses."""
    rng = np.random.default_rng(seed)
    raw = oracles.random_cmdp(rng, 2, 2, int(rng.integers(1, 4)))
    said = [raw[name] for name in ("P", "reward", "utility")]
    free = es.LinearCMDP(*said, initial_state=raw["initial_state"], threshold=-1)
    threshold = rng.uniform(0.6, 0.95) * free.evaluate(free.task.safe_policy)[1]
    cmdp = es.LinearCMDP(*said, initial_state=raw["initial_state"], threshold=threshold)
    uniform = np.full(raw["reward"].shape, 0.5)
    episodes = oracles.random_episodes(rng, raw, uniform, int(rng.integers(0, 40)))
    return cmdp.task, episodes, float(10 ** rng.uniform(-5, 0))


def learned(agent, episodes):
    for states, actions in episodes:
        agent.learn(es.Episode(states, actions))
    return agent


@cache
def counted(seed):
    task, episodes, _ = drawn(seed)
    counts = np.zeros((*task.reward.shape, task.num_states))
    for states, actions in episodes:
        counts[np.arange(task.horizon), states[:-1], actions, states[1:]] += 1
    return counts


def problems():
    return [(*drawn(seed), counted(seed)) for seed in range(NUM_PROBLEMS)]


def on_estimate(plan, counts, gain, safety, task):
    """V^r and V^u of what was planned, on P̂."""
    P, table = slow.empirical(counts), plan.policy.table()
    return (slow.values(P, g, table, task.initial_state) for g in (gain, safety))


def test_optpess_lp_is_the_linear_program_on_the_estimated_kernel():
    sources = []
    for task, episodes, bonus, counts in problems():
        plan = learned(es.OptPessLP(task, K, DELTA, bonus), episodes).plan()
        gain, safety, value = slow.optpess_lp(task, counts, K, DELTA, bonus)
        assert (plan.source == "safe") == (value is None)
        sources.append(plan.source)
        if value is not None:
            reward, utility = on_estimate(plan, counts, gain, safety, task)
            assert reward == pytest.approx(value, abs=1e-8)
            assert utility == pytest.approx(plan.utility_bound, abs=1e-8)
            assert plan.utility_bound >= task.threshold
    assert min(sources.count("safe"), sources.count("search")) > 20


def test_dope_with_its_authors_constants_is_the_extended_linear_program():
    sources = []
    for task, episodes, bonus, counts in problems():
        bonus /= 5
        agent = learned(es.DOPE.authors(task, K, DELTA, bonus), episodes)
        plan, box = agent.plan(), agent.learner.box(agent.radius)
        value = slow.dope_authors(task, counts, K, DELTA, bonus)
        assert (plan.source == "safe") == (value is None)
        sources.append(plan.source)
        if value is not None:
            gain, safety = (
                task.reward + agent.constants.C_r * box.bonus,
                task.utility - agent.constants.C_u * box.bonus,
            )
            found = optimistic_pessimistic(gain, safety, box, task.threshold, task.initial_state)
            assert found[0] == pytest.approx(value, abs=1e-8)
            assert (plan.utility_bound, plan.lam) == (found[1], found[3])
    assert min(sources.count("safe"), sources.count("search")) > 20


def test_optcmdp_is_the_extended_linear_program():
    for task, episodes, bonus, counts in problems():
        plan = learned(es.OptCMDP(task, K, DELTA, bonus), episodes).plan()
        learner = TransitionCounts(task)
        learner.times = counts
        box = learner.box(Radius.efroni(task, Confidence(K, DELTA, bonus)))
        value = slow.optcmdp(task, counts, K, DELTA, bonus)
        assert (plan.utility_bound >= task.threshold) == (value is not None)
        if value is not None:
            found = optimistic_pessimistic(task.reward, task.utility, box, task.threshold, task.initial_state)
            assert found[0] == pytest.approx(value, abs=1e-8)
            assert plan.lam == found[3]


def test_optcmdp_bonus_is_the_linear_program_with_a_bonus():
    for task, episodes, bonus, counts in problems():
        plan = learned(es.OptCMDPBonus(task, K, DELTA, bonus), episodes).plan()
        gain, safety, value = slow.optcmdp_bonus(task, counts, K, DELTA, bonus)
        assert value is not None or plan.utility_bound < task.threshold
        if value is not None:
            reward, utility = on_estimate(plan, counts, gain, safety, task)
            assert reward == pytest.approx(value, abs=1e-8)
            assert utility >= task.threshold - 1e-8


STEPPED = {
    "optdual": (es.OptDual, slow.optdual),
    "optprimaldual": (es.OptPrimalDual, slow.optprimaldual),
    "optpess-primaldual": (es.OptPessPrimalDual, slow.optpess_primaldual),
    "ghosh2022": (es.Ghosh2022, slow.ghosh2022),
}


@pytest.mark.parametrize("name", STEPPED)
def test_a_primal_dual_agent_takes_the_steps_of_its_slow_version(name):
    make, oracle = STEPPED[name]
    largest = 0.0
    for task, episodes, bonus, _ in problems():
        agent, counts, seen, plans = make(task, K, DELTA, bonus), np.zeros((*task.reward.shape, 2)), [], []
        for states, actions in episodes[:8]:
            plans.append(agent.plan())
            seen.append(counts.copy())
            agent.learn(es.Episode(states, actions))
            counts[np.arange(task.horizon), states[:-1], actions, states[1:]] += 1
        for plan, (policy, lam, utility) in zip(plans, oracle(task, seen, K, DELTA, bonus), strict=True):
            np.testing.assert_allclose(plan.policy.table(), policy, atol=1e-8)
            assert (plan.lam, plan.utility_bound) == pytest.approx((lam, utility), abs=1e-8)
            largest = max(largest, lam)
    assert largest > 0.05  # else λ was never stepped


def test_lsvi_ucb_is_greedy_for_its_optimistic_values():
    for task, episodes, bonus, counts in problems():
        plan = learned(es.LSVIUCB(task, K, DELTA, bonus / 10), episodes).plan()
        np.testing.assert_allclose(plan.policy.table(), slow.lsvi_ucb(task, counts, K, DELTA, bonus / 10), atol=1e-8)


def test_epsmix_tosses_the_coin_of_its_slow_version():
    shares = []
    for task, episodes, bonus, counts in problems():
        plan = learned(es.EpsMix(task, DELTA, bonus / 10), episodes).plan()
        rho, candidate = slow.epsmix(task, counts, DELTA, bonus / 10)
        shares.append(rho)
        assert plan.utility_bound >= task.threshold
        parts = getattr(plan.policy, "components", None) or (plan.policy,)
        np.testing.assert_allclose(parts[0].table(), candidate, atol=1e-8)
        if rho < 1:
            np.testing.assert_allclose(plan.policy.weights, [rho, 1 - rho], atol=1e-8)
            assert parts[1] is task.safe_policy
    assert 20 < np.sum(np.array(shares) == 1) < 180


def test_stepmix_deploys_the_policy_of_its_slow_version():
    mixed = 0
    for task, episodes, bonus, counts in problems():
        plan = learned(es.StepMix(task, DELTA, bonus / 10), episodes).plan()
        policy = slow.stepmix(task, counts, DELTA, bonus / 10)
        np.testing.assert_allclose(plan.policy.table(), policy, atol=1e-8)
        assert plan.utility_bound >= task.threshold
        mixed += bool(((policy > 0.01) & (policy < 0.99)).any())
    assert 20 < mixed < 180


def test_triple_q_learns_what_its_slow_version_learns():
    largest = 0.0
    for task, episodes, bonus, _ in problems():
        agent, few, episodes = (
            es.TripleQ(task, 30, bonus / 1000),
            30,
            episodes[:18],
        )  # a frame has ⌈30^0.6⌉ = 8 episodes
        for (states, actions), (policy, lam) in zip(
            episodes, slow.triple_q(task, episodes, few, bonus / 1000), strict=True
        ):
            plan = agent.plan()
            np.testing.assert_allclose(plan.policy.table(), policy, atol=1e-8)
            assert plan.lam == pytest.approx(lam, abs=1e-8)
            agent.learn(es.Episode(states, actions))
            largest = max(largest, lam)
    assert largest > 0.05
