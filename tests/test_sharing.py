"""Data shared over steps: the same plans as a slow regression on pooled data, and less regret at no violation."""

import dataclasses

import gymnasium as gym
import numpy as np
import pytest

import episafe as es
import oracles
from conftest import constants
from episafe.problems.sampled_problem import SampledTask
from episafe.problems.states import ENDED, START


def homogeneous(seed, S=4, A=3, H=4, d=None, scale=0.6, shared=True):
    """A random problem with one kernel for all steps; rewards and utilities differ from step to step."""
    raw = oracles.random_cmdp(np.random.default_rng(seed), S, A, H, d)
    P = np.broadcast_to(raw["P"][:1], raw["P"].shape)
    phi = None if d is None else raw["phi"]

    def build(threshold):
        return es.LinearCMDP(
            P, raw["reward"], raw["utility"], phi, raw["initial_state"], threshold, time_homogeneous=shared
        )

    free = build(-1.0)
    return build(scale * free.evaluate(free.task.safe_policy)[1])


def episodes_of(cmdp, seed, count):
    H, S, A = cmdp.task.reward.shape
    raw = {"P": cmdp.P, "initial_state": cmdp.task.initial_state}
    return oracles.random_episodes(np.random.default_rng(seed), raw, np.full((H, S, A), 1 / A), count)


def pooled_softmax(cmdp, episodes, given, lam):
    """`oracles.composite_softmax` with one regression for all steps, by numpy, on the list of all transitions.

    Returns π (H, S, A) and V̲ᵘ(s₁).
    """
    task = cmdp.task
    H, S, A = task.reward.shape
    phi = np.array([task.features(s) for s in range(S)])
    rows = np.array([phi[s, a] for states, actions in episodes for s, a in zip(states[:-1], actions, strict=True)])
    after = np.concatenate([states[1:] for states, _ in episodes])
    gram = given.ridge * np.eye(task.dim) + rows.T @ rows
    beta = np.sqrt(np.einsum("sad,sad->sa", phi, np.linalg.solve(gram, phi.reshape(S * A, -1).T).T.reshape(phi.shape)))
    policy, V = np.zeros((H, S, A)), np.zeros((3, S))
    for h in reversed(range(H)):
        P_hat = [phi @ np.linalg.solve(gram, rows.T @ V[g][after]) for g in range(3)]
        left = H - 1 - h
        Q_r = task.reward[h] + np.clip(given.C_r * beta + P_hat[0], 0, left * (1 + given.kappa * np.log(A)))
        Q_d = given.B_dagger * beta + np.clip(given.C_dagger * beta + P_hat[1], 0, given.B_dagger * left)
        Q_u = task.utility[h] + np.clip(-given.C_u * beta + P_hat[2], 0, left)
        logs = np.array([oracles.log_softmax(row) for row in (Q_d + Q_r + lam * Q_u) / given.kappa])
        policy[h] = np.exp(logs)
        V = np.array([(policy[h] * Q).sum(axis=1) for Q in (Q_r - given.kappa * logs, Q_d, Q_u)])
    return policy, V[2, task.initial_state]


def by_functions(cmdp, features):
    """The same task with unlisted states; `features` False for one-hot ones."""
    task = cmdp.task
    return SampledTask(
        horizon=task.horizon,
        num_actions=task.num_actions,
        dim=task.dim,
        initial_state=task.initial_state,
        constraint=es.Constraint(lambda h, s: task.utility[h, s], task.threshold, task.slack),
        safe_policy=task.safe_policy,
        feature_function=task.features if features else None,
        reward_function=lambda h, s: task.reward[h, s],
        time_homogeneous=True,
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("d", [None, 3])
def test_plans_equal_a_slow_regression_on_pooled_data(seed, d):
    """Listed, sampled with features, and sampled one-hot tasks; room has to grow on the way."""
    cmdp, given = homogeneous(seed, d=d, H=5), constants(C_u=0.1)
    episodes = episodes_of(cmdp, seed, 200)
    tasks = [cmdp.task, by_functions(cmdp, True)] + ([by_functions(cmdp, False)] if d is None else [])
    for task in tasks:
        agent = es.OPSE(task, given)
        for states, actions in episodes:
            agent.learn(es.Episode(states.tolist(), actions))
        plan = agent.plan()
        if plan.source == "safe":
            _, bound = pooled_softmax(cmdp, episodes, given, given.lam_max)
        else:
            policy, bound = pooled_softmax(cmdp, episodes, given, plan.lam)
            for h in range(5):
                for s in range(4):
                    np.testing.assert_allclose(plan.policy.probabilities(h, s), policy[h, s], atol=1e-7)
        assert plan.utility_bound == pytest.approx(bound, abs=1e-9)
        np.testing.assert_array_equal(agent.planner.information, agent.planner.information[0])


@pytest.mark.parametrize("d", [None, 5])
def test_tables_are_those_of_pooled_data_and_nothing_follows_the_last_step(d):
    """Several constraints plan by tables: after the last step, whose transitions are pooled too, they were written at
    a place read behind the end of an array."""
    for seed in range(20):
        cmdp = homogeneous(seed, d=d)
        task, agent = cmdp.task, es.OPSE(cmdp.task, constants())
        H, S = task.reward.shape[:2]
        pooled = episodes_of(cmdp, seed, 30)
        for states, actions in pooled:
            agent.learn(es.Episode(states, actions))
        agent.planner.regression.prepare(agent.planner.scales)
        P_hat, beta = agent.planner.regression.tables()
        phi = np.array([task.features(s) for s in range(S)])
        steps = [
            (phi[s, a], t) for states, actions in pooled for s, a, t in zip(states, actions, states[1:], strict=False)
        ]
        rows, after = np.array([x for x, _ in steps]), np.eye(S)[[t for _, t in steps]]
        gram = agent.constants.ridge * np.eye(task.dim) + rows.T @ rows
        expected = phi @ np.linalg.solve(gram, rows.T @ after)
        for h in range(H):
            at = np.unique([states for states, _ in pooled])
            np.testing.assert_allclose(P_hat[h][at], expected[at] if h + 1 < H else 0, atol=1e-9)
            np.testing.assert_allclose(
                beta[h][at] ** 2, np.einsum("sad,de,sae->sa", phi[at], np.linalg.inv(gram), phi[at])
            )


def test_without_sharing_the_plan_is_another_one():
    """The control of the test above: the same data by step."""
    given = constants(C_u=0.1)
    bounds = []
    for shared in (True, False):
        cmdp = homogeneous(0, H=5, shared=shared)
        agent = es.OPSE(cmdp.task, given)
        for states, actions in episodes_of(cmdp, 0, 200):
            agent.learn(es.Episode(states, actions))
        agent.plan()
        bounds.append(agent.planner.utility_bound(1.0))
    assert bounds[0] > bounds[1] + 0.01


def test_many_states_and_long_episodes_find_room():
    """H = 40: one episode may bring more new states than there is room for at first."""
    H, S = 40, 90
    step = np.zeros((S, 2, S))
    step[np.arange(S), 0, (np.arange(S) + 1) % S] = 1.0
    step[np.arange(S), 1, np.arange(S)] = 1.0
    given = np.tile(step, (H, 1, 1, 1)), np.full((H, S, 2), 0.5), np.ones((H, S, 2))
    cmdp = es.LinearCMDP(*given, threshold=1.0, time_homogeneous=True)
    for task in (cmdp.task, by_functions(cmdp, False)):
        agent = es.OPSE(task, constants())
        for first in (0, 20, 45):
            agent.learn(es.Episode([first + h for h in range(H + 1)], [0] * H))
        assert (agent.planner.regression.support.size == 86).all()
        assert agent.plan().reason == ""  # no failure inside the planner


def test_learned_signals_are_pooled():
    """θ̂ from all steps, with counts and with features, against sums by hand."""
    cmdp = homogeneous(1, H=3)
    cmdp = es.LinearCMDP(
        cmdp.P,
        np.broadcast_to(cmdp.task.reward[:1], cmdp.task.reward.shape),
        np.broadcast_to(cmdp.task.utility[:1], cmdp.task.utility.shape),
        initial_state=cmdp.task.initial_state,
        threshold=0.1,
        time_homogeneous=True,
    )
    task, (H, S, A) = cmdp.task, cmdp.task.reward.shape
    n, sums = np.zeros((S, A)), np.zeros((2, S, A))
    agents = []
    for features in (False, True):
        known = by_functions(cmdp, features)
        unknown = dataclasses.replace(known.constraint, utility=None)
        told = dataclasses.replace(known, reward_function=None, constraint=unknown)
        agents.append(es.OPSE(told, constants(C_theta=0.4)))
    for states, actions in episodes_of(cmdp, 1, 50):
        at = np.arange(H), states[:-1], actions
        for agent in agents:
            agent.learn(es.Episode(states.tolist(), actions, task.reward[at], task.utility[at]))
        np.add.at(n, at[1:], 1)
        np.add.at(sums, (0, *at[1:]), task.reward[at])
        np.add.at(sums, (1, *at[1:]), task.utility[at])
    reward = np.clip(sums[0] / (n + 1) + 0.4 / np.sqrt(n + 1), 0, 1)
    utility = np.clip(sums[1] / (n + 1) - 0.4 / np.sqrt(n + 1), 0, 1)
    for agent in agents:
        agent.plan()
        known = agent.planner.regression
        for h in range(H):
            for s in range(S):
                slot = known.slot(h, s)
                np.testing.assert_allclose(known.support.reward[h, :, slot], reward[s], atol=1e-9)
                np.testing.assert_allclose(known.support.utility[h, :, slot], utility[s], atol=1e-9)


def test_start_and_end_are_states_like_others():
    """START is seen at the first step only, and ENDED stays: both in the one model of all steps."""
    task = SampledTask(
        horizon=3,
        num_actions=2,
        dim=6,
        initial_state=START,
        constraint=es.Constraint(None, 0.5, 0.5),
        safe_policy=es.TablePolicy(np.full((3, 2, 2), 0.5)),
        feature_function=None,
        reward_function=None,
        outside={START: (0.0, 0.0), ENDED: (0.0, 1.0)},
        time_homogeneous=True,
    )
    agent = es.OPSE(task, constants())
    for _ in range(4):
        agent.learn(es.Episode([START, "a", ENDED, ENDED], [0, 1, 0], [0, 1, 0], [0, 0, 1]))
    agent.plan()
    known = agent.planner.regression
    start, a, ended = (known.slot(0, state) for state in (START, "a", ENDED))
    assert start == 0
    for h in range(3):
        np.testing.assert_array_equal(known.model.visits[h, :, start], 4)  # for every action: they are alike there
        np.testing.assert_array_equal(known.model.visits[h, :, a], [0, 4])
        assert known.model.visits[h, :, ended].min() >= 1e9
        np.testing.assert_array_equal(known.support.utility[h, :, ended], 1)
    np.testing.assert_array_equal(agent.planner.information, agent.planner.information[0])


def test_a_random_start_does_not_lead_to_the_end_that_is_known():
    """Features, one model of all steps: START shared its dimension with ENDED, and all was certified unseen."""
    made = es.from_gymnasium(
        Scattered(), features=lambda x: np.array([0.6, 0.6 * x[0]]), horizon=4, cost_limit=1.0, slack=0.9,
        safe_policy=lambda h, x: [1.0, 0.0], random_start=True, time_homogeneous=True,
    )  # fmt: skip
    agent = es.OPSE(made.task, es.Constants(1, 1, 1, 1, kappa=0.1, lam_max=100, num_halvings=20))
    assert (agent.plan().source, agent.plan().utility_bound) == ("safe", 0.0)
    rng = np.random.default_rng(0)
    for n in range(1, 40):
        agent.learn(es.play(made, made.task.safe_policy, rng))
        bound = agent.plan().utility_bound
        assert bound <= 4 * n / (n + 1) - (n + 1) ** -0.5  # the bonus of the dummy step alone: C_u/√(n + ρ)


class Scattered(gym.Env):
    """A point anywhere at each moment; action 1 pays and costs."""

    action_space, observation_space = gym.spaces.Discrete(2), gym.spaces.Box(-1.0, 1.0, (1,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 1), {}

    def step(self, action):
        return self.np_random.uniform(-1, 1, 1), float(action), False, False, {"cost": float(action)}


def test_what_is_not_homogeneous_is_refused():
    cmdp = homogeneous(0)
    P = cmdp.P.copy()
    P[2, 1, 0] = np.roll(P[2, 1, 0], 1)
    given = P, cmdp.task.reward, cmdp.task.utility
    with pytest.raises(es.InvalidProblem, match=r"P\[2\] differs from P\[0\] by .* leave it out"):
        es.LinearCMDP(*given, threshold=0.1, time_homogeneous=True)
    with pytest.raises(es.InvalidProblem, match="time_homogeneous must be True or False, got 'yes'"):
        es.LinearCMDP(*given, threshold=0.1, time_homogeneous="yes")
    other = es.LinearCMDP(*given, initial_state=cmdp.task.initial_state, threshold=0.1)
    told = dataclasses.replace(other.task, time_homogeneous=True)
    with pytest.raises(es.InvalidProblem, match="differs from"):
        es.run(other, es.OPSE(told, constants()), 10)


def test_a_saved_problem_keeps_it_and_records_say_it(tmp_path):
    cmdp = homogeneous(0)
    cmdp.save(tmp_path / "problem.npz")
    assert es.LinearCMDP.load(tmp_path / "problem.npz").task.time_homogeneous
    assert es.run(cmdp, es.OPSE(cmdp.task, constants()), 5).settings["time_homogeneous"] is True
    agent = es.OPSE(cmdp.task, es.Constants.proposing(), certifier=es.certify.Observation(0.05))
    assert es.run(cmdp, agent, 300).settings["level"] == "theorem"
    plain = homogeneous(0, shared=False)
    assert "time_homogeneous" not in es.run(plain, es.OPSE(plain.task, constants()), 5).settings


@pytest.mark.parametrize("d", [None, 4])
def test_sharing_lowers_regret_without_violation(d):
    """12 problems, H = 6, 1500 episodes, the tuned rule as it is: less than half of the regret, on each of them."""
    for seed in range(200, 212):
        regrets = []
        for shared in (False, True):
            cmdp = homogeneous(seed, S=5, H=6, d=d, shared=shared)
            record = es.run(cmdp, es.OPSE(cmdp.task, es.Constants.tuned(cmdp.task)), 1500, seed=seed)
            assert not record.violating().any()
            regrets.append(record.regret()[-1])
        assert regrets[1] < regrets[0] / 2
