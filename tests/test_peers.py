"""The tabular peers: their plans against slow versions of them, on random problems."""

from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

import episafe as es
import oracles
import peer_oracles as slow
from episafe.algorithms import li2023, registered_agents
from episafe.lab.build import make_agent
from episafe.linear.counts import extended_optimum

K, DELTA = 1000, 0.05
NUM_PROBLEMS = 80


@cache
def drawn(seed):
    """A tiny problem, episodes of its uniform policy, and a multiplier of bonuses."""
    rng = np.random.default_rng(seed)
    raw = oracles.random_cmdp(rng, 2, 2, int(rng.integers(1, 4)))
    said = [raw[name] for name in ("P", "reward", "utility")]
    free = es.LinearCMDP(*said, initial_state=raw["initial_state"], threshold=-1)
    threshold = rng.uniform(0.6, 0.95) * free.evaluate(free.task.incumbent)[1]
    cmdp = es.LinearCMDP(*said, initial_state=raw["initial_state"], threshold=threshold)
    uniform = np.full(raw["reward"].shape, 0.5)
    episodes = oracles.random_episodes(rng, raw, uniform, int(rng.integers(0, 40)))
    return cmdp.task, episodes, float(10 ** rng.uniform(-5, 0))


def told(task):
    """Return the task of one limit as the oracles read it."""
    return SimpleNamespace(
        horizon=task.horizon, num_actions=task.num_actions, initial_state=task.initial_state, reward=task.reward,
        utility=task.utilities[0], threshold=float(task.thresholds[0]), slack=float(task.slacks[0]),
        safe_policy=task.incumbent,
    )  # fmt: skip


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
        gain, safety, value = slow.optpess_lp(told(task), counts, K, DELTA, bonus)
        assert (plan.source == "safe") == (value is None)
        sources.append(plan.source)
        if value is not None:
            reward, utility = on_estimate(plan, counts, gain, safety, task)
            assert reward == pytest.approx(value, abs=1e-8)
            assert utility == pytest.approx(plan.bounds[0], abs=1e-8)
            assert plan.bounds[0] >= task.thresholds[0]
    assert min(sources.count("safe"), sources.count("search")) > 8


def test_dope_with_its_authors_constants_is_the_extended_linear_program():
    sources = []
    for task, episodes, bonus, counts in problems():
        bonus /= 5
        agent = learned(es.DOPE.authors(task, K, DELTA, bonus), episodes)
        plan, box, signals = agent.plan(), agent.counts.box(agent.radius), agent.counts.signals.copy()
        value = slow.dope_authors(told(task), counts, K, DELTA, bonus)
        assert (plan.source == "safe") == (value is None)
        sources.append(plan.source)
        if value is not None:
            signals[0] += agent.constants.C_r * box.bonus
            signals[1] -= agent.constants.C_u * box.bonus
            found = extended_optimum(signals, box, task.thresholds, task.initial_state)
            assert found.values[0] == pytest.approx(value, abs=1e-8)
            assert plan.bounds[0] == found.values[1] >= task.thresholds[0]
    assert min(sources.count("safe"), sources.count("search")) > 8


def test_optcmdp_is_the_extended_linear_program():
    for task, episodes, bonus, counts in problems():
        agent = learned(es.OptCMDP(task, K, DELTA, bonus), episodes)
        plan, box = agent.plan(), agent.counts.box(es.Radius.bernstein(task, agent.confidence, 6))
        value = slow.optcmdp(told(task), counts, K, DELTA, bonus)
        assert (plan.bounds[0] >= task.thresholds[0]) == (value is not None)
        if value is not None:
            found = extended_optimum(agent.counts.signals, box, task.thresholds, task.initial_state)
            assert found.values[0] == pytest.approx(value, abs=1e-8)


def test_optcmdp_bonus_is_the_linear_program_with_a_bonus():
    for task, episodes, bonus, counts in problems():
        plan = learned(es.OptCMDPBonus(task, K, DELTA, bonus), episodes).plan()
        gain, safety, value = slow.optcmdp_bonus(told(task), counts, K, DELTA, bonus)
        assert value is not None or plan.bounds[0] < task.thresholds[0]
        if value is not None:
            reward, utility = on_estimate(plan, counts, gain, safety, task)
            assert reward == pytest.approx(value, abs=1e-8)
            assert utility >= task.thresholds[0] - 1e-8


STEPPED = {
    "optdual": slow.optdual,
    "optprimaldual": slow.optprimaldual,
    "optpess-primaldual": slow.optpess_primaldual,
    "ghosh2022": slow.ghosh2022,
    "opdop": slow.opdop,
}


@pytest.mark.parametrize("name", STEPPED)
def test_a_primal_dual_agent_takes_the_steps_of_its_slow_version(name):
    make, oracle = registered_agents()[name][1], STEPPED[name]
    largest = 0.0
    for task, episodes, bonus, _ in problems():
        agent, counts, seen, plans = make(task, K, DELTA, bonus), np.zeros((*task.reward.shape, 2)), [], []
        for states, actions in episodes[:8]:
            plans.append(agent.plan())
            seen.append(counts.copy())
            agent.learn(es.Episode(states, actions))
            counts[np.arange(task.horizon), states[:-1], actions, states[1:]] += 1
        for plan, (policy, lam, utility) in zip(plans, oracle(told(task), seen, K, DELTA, bonus), strict=True):
            np.testing.assert_allclose(plan.policy.table(), policy, atol=1e-8)
            assert (plan.lam, plan.bounds[0]) == pytest.approx((lam, utility), abs=1e-8)
            largest = max(largest, lam)
    assert largest > 0.05  # else λ was never stepped


def test_opdop_promises_at_least_the_true_utility_with_the_bonus_of_its_theorem_and_less_without():
    cmdp, make = es.make("tabular", seed=0), registered_agents()["opdop"][1]
    with_bonus, without = (es.run(cmdp, make(cmdp.task, 200, bonus=bonus), 200) for bonus in (1.0, 0.0))
    assert (with_bonus.bounds >= with_bonus.utility_values).all()
    assert (without.bounds < without.utility_values).any()


def test_lsvi_ucb_is_greedy_for_its_optimistic_values():
    for task, episodes, bonus, counts in problems():
        plan = learned(es.LSVIUCB(task, K, DELTA, bonus / 10), episodes).plan()
        np.testing.assert_allclose(
            plan.policy.table(), slow.lsvi_ucb(told(task), counts, K, DELTA, bonus / 10), atol=1e-8
        )


def test_epsmix_tosses_the_coin_of_its_slow_version():
    shares = []
    for task, episodes, bonus, counts in problems():
        plan = learned(es.EpsMix(task, DELTA, bonus / 10), episodes).plan()
        rho, candidate = slow.epsmix(told(task), counts, DELTA, bonus / 10)
        shares.append(rho)
        assert plan.bounds[0] >= task.thresholds[0]
        parts = plan.policy.components if isinstance(plan.policy, es.Mixture) else (plan.policy,)
        np.testing.assert_allclose(parts[0].table(), candidate, atol=1e-8)
        if rho < 1:
            np.testing.assert_allclose(plan.policy.weights, [rho, 1 - rho], atol=1e-8)
            assert parts[1] is task.incumbent
    assert 8 < np.sum(np.array(shares) == 1) < 72


def test_stepmix_deploys_the_policy_of_its_slow_version():
    mixed = 0
    for task, episodes, bonus, counts in problems():
        plan = learned(es.StepMix(task, DELTA, bonus / 10), episodes).plan()
        policy = slow.stepmix(told(task), counts, DELTA, bonus / 10)
        np.testing.assert_allclose(plan.policy.table(), policy, atol=1e-8)
        assert plan.bounds[0] >= task.thresholds[0]
        mixed += bool(((policy > 0.01) & (policy < 0.99)).any())
    assert 8 < mixed < 72


@cache
def conservative(seed):
    """A tiny problem of Li et al. 2023: the limit is on the reward, and the incumbent is the uniform policy."""
    rng = np.random.default_rng(seed)
    raw = oracles.random_cmdp(rng, 2, 2, int(rng.integers(1, 4)))
    uniform = np.full(raw["reward"].shape, 0.5)
    least = rng.uniform(0.6, 0.95) * slow.values(raw["P"], raw["reward"], uniform, raw["initial_state"])
    cmdp = es.LinearCMDP(
        raw["P"], raw["reward"], raw["reward"], initial_state=raw["initial_state"], threshold=least, safe_policy=uniform
    )
    episodes = oracles.random_episodes(rng, raw, uniform, int(rng.integers(0, 400)))
    counts = np.zeros((*uniform.shape, 2))
    for states, actions in episodes:
        counts[np.arange(len(uniform)), states[:-1], actions, states[1:]] += 1
    return cmdp.task, episodes, float(10 ** rng.uniform(-5, -1)), counts


def test_epsmix_is_algorithm_4_and_stepmix_algorithm_1_where_the_limit_is_on_the_reward(monkeypatch):
    """With λ = 0 alone; the lower bound of the incumbent is raised to the b + ξ that the task tells."""
    monkeypatch.setattr(li2023, "MULTIPLIERS", (0.0,))
    found = []
    for task, episodes, bonus, counts in map(conservative, range(NUM_PROBLEMS)):
        H, b, told_value, base = task.horizon, *map(float, (*task.thresholds, *task.stated_utilities)), task.incumbent
        for agent, delta in ((es.EpsMix, DELTA / 4), (es.StepMix, DELTA / (3 * (H + 1)))):

            def lower(choose, delta=delta, task=task, counts=counts, bonus=bonus):
                _, value, policy = slow.mixing_bounds(told(task), counts, delta, bonus, choose)
                return value, policy

            pi_b = base.table()
            bar, pi = lower(lambda h, s, high, low: np.eye(2)[int(np.argmax(high))])
            plan = learned(agent(task, DELTA, bonus), episodes).plan()
            if agent is es.EpsMix:
                v_b = max(told_value, lower(lambda h, s, *_, pi_b=pi_b: pi_b[h, s])[0])
                rho = 1.0 if bar >= b else (v_b - b) / (v_b - bar)
                weights = plan.policy.weights if isinstance(plan.policy, es.Mixture) else [1.0]
                assert weights[0] == pytest.approx(rho, abs=1e-8)
                found.append(rho)
                continue
            candidates = [np.concatenate([pi_b[:h_0], pi[h_0:]]) for h_0 in range(H + 1)]
            bounds = [lower(lambda h, s, *_, one=one: one[h, s])[0] for one in candidates]
            bounds[H] = max(told_value, bounds[H])
            h_k = next(h for h in range(H + 1) if bounds[h] >= b)
            rho = 0.0 if h_k == 0 else (bounds[h_k] - b) / (bounds[h_k] - bounds[h_k - 1])
            expected = (1 - rho) * candidates[h_k] + rho * candidates[h_k - 1]
            np.testing.assert_allclose(plan.policy.table(), expected, atol=1e-8)
    assert 8 < np.sum(np.array(found) == 1) < NUM_PROBLEMS - 8


def test_triple_q_learns_what_its_slow_version_learns():
    largest, few = 0.0, 30  # a frame has ⌈30^0.6⌉ = 8 episodes
    for task, episodes, bonus, _ in problems():
        agent = es.TripleQ(task, few, bonus / 100)
        found = slow.triple_q(told(task), episodes[:18], few, bonus / 100)
        for (states, actions), (policy, lam) in zip(episodes[:18], found, strict=True):
            plan = agent.plan()
            np.testing.assert_allclose(plan.policy.table(), policy, atol=1e-8)
            assert plan.lam == pytest.approx(lam, abs=1e-8)
            agent.learn(es.Episode(states, actions))
            largest = max(largest, lam)
    assert largest > 0.05


def test_triple_q_with_its_default_bonus_gives_up_utility_above_the_limit_for_reward():
    cmdp = es.make("streaming", 0)
    record = es.run(cmdp, make_agent("triple-q", cmdp, 10_000, {}), 10_000, 0)
    reward, utility = cmdp.evaluate(cmdp.task.incumbent)
    assert record.reward_values[-2_000:].mean() > (reward + record.optimum) / 2
    assert (
        0.85 * cmdp.task.thresholds[0] < record.utility_values[-2_000:].mean() < (utility + cmdp.task.thresholds[0]) / 2
    )
