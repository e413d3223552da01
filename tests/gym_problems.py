"""Gymnasium's toy-text environments with a cost, and the same as exact problems to judge policies by."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

import episafe as es


class WithCost(gym.Wrapper):
    """Adds info["cost"] = cost(state, action, next state), or "utility" likewise, and rescales the reward."""

    def __init__(self, env, cost, reward=lambda r: r, name="cost"):
        super().__init__(env)
        self._cost, self._reward, self._name = cost, reward, name

    def reset(self, **options):
        self._state, info = self.env.reset(**options)
        return self._state, info

    def step(self, action):
        state, reward, terminated, truncated, info = self.env.step(action)
        info = {**info, self._name: float(self._cost(self._state, action, state))}
        self._state = state
        return state, self._reward(reward), terminated, truncated, info


class OneStart(gym.Wrapper):
    """Begins every episode as `reset(seed=start)` does."""

    def __init__(self, env, start):
        super().__init__(env)
        self._start = start

    def reset(self, *, seed=None, options=None):
        return self.env.reset(seed=self._start, options=options)


def exact(env, horizon, cost, cost_limit, reward=lambda r: r, reward_range=(0.0, 1.0), start=None):
    """The toy-text environment as arrays, u = 1 − cost; the last state is the one after an early end.

    Of the states that can be reached from the start; `labels` of what is returned says which they are.
    """
    P = env.unwrapped.P
    first = int(env.reset(seed=0)[0]) if start is None else start
    labels = reachable(P, first)
    place = {label: s for s, label in enumerate(labels)}
    S, A = len(labels), len(P[first])
    kernel, r, u = np.zeros((S + 1, A, S + 1)), np.zeros((S + 1, A)), np.ones((S + 1, A))
    kernel[S, :, S] = 1.0
    low, high = reward_range
    r[S] = (0.0 - low) / (high - low)
    for s, label in enumerate(labels):
        for a in range(A):
            for p, following, raw, done in P[label][a]:
                kernel[s, a, S if done else place[following]] += p
                r[s, a] += p * (reward(raw) - low) / (high - low)
                u[s, a] -= p * cost(label, a, following)
    cmdp = es.LinearCMDP(
        *(np.tile(array, (horizon,) + (1,) * array.ndim) for array in (kernel, r, u)),
        initial_state=place[first],
        threshold=horizon - cost_limit,
    )
    cmdp.labels = labels
    return cmdp


def reachable(P, first):
    """Every state that some actions lead to from the first one, sorted; ends are not gone beyond."""
    found, ahead = {first}, [first]
    while ahead:
        for steps in P[ahead.pop()].values():
            for p, following, _, done in steps:
                if p > 0 and not done and following not in found:
                    found.add(following)
                    ahead.append(following)
    return sorted(found)


def table(policy, cmdp):
    """A policy of the live problem as a table of the exact one; any action after the end and where nobody can be."""
    H, S, A = cmdp.task.reward.shape
    found, reached = np.full((H, S, A), 1 / A), np.arange(S) == cmdp.task.initial_state
    for h in range(H):
        for s in np.flatnonzero(reached[: S - 1]):
            found[h, s] = policy.probabilities(h, cmdp.labels[s])
        reached = (cmdp.P[h, reached] > 0).any(axis=(0, 1))
    return found


def frozen_lake(slippery, horizon, limit, time_homogeneous):
    """A cost of 1 for falling in. The incumbent walks against the wall: it never falls, nor gets anywhere."""

    def fell(state, action, following):
        return float(following in (5, 7, 11, 12))

    env = gym.make("FrozenLake-v1", max_episode_steps=horizon, is_slippery=slippery)
    live = es.from_gymnasium(
        WithCost(env, fell),
        features=es.features.OneHot(),
        horizon=horizon,
        cost_limit=limit,
        safe_policy=lambda h, s: np.eye(4)[3 if slippery else 0],
        slack=limit,
        time_homogeneous=time_homogeneous,
    )
    return live, exact(env, horizon, fell, limit)


def cliff_walking(horizon, limit, time_homogeneous):
    """A cost of 1 for a fall, which is then not in the reward. The incumbent goes round by the top."""
    start = 36

    def cost(state, action, following):
        return float(state // 12 >= 2 and following == start and (state != start or action == 1))

    def by_the_top(state):
        row, column = divmod(state, 12)
        return 2 if column == 11 else (0 if row > 0 else 1)

    def reward(raw):
        return max(raw, -1.0)

    env = gym.make("CliffWalking-v1", max_episode_steps=horizon)
    live = es.from_gymnasium(
        WithCost(env, cost, reward),
        features=es.features.OneHot(),
        horizon=horizon,
        cost_limit=limit,
        safe_policy=lambda h, s: np.eye(4)[by_the_top(s)],
        slack=limit,
        reward_range=(-1.0, 0.0),
        time_homogeneous=time_homogeneous,
    )
    return live, exact(env, horizon, cost, limit, reward, (-1.0, 0.0))


def taxi(horizon, limit, time_homogeneous):
    """A cost of 1 for an illegal pick-up or drop-off, which is then not in the reward. One start, 10 steps away.

    The incumbent drives north, for ever: no cost, no delivery.
    """
    env = OneStart(gym.make("Taxi-v4", max_episode_steps=horizon), start=2)
    steps = env.unwrapped.P

    def cost(state, action, following):
        return float(steps[state][action][0][2] == -10)

    def reward(raw):
        return max(raw, -1.0)

    live = es.from_gymnasium(
        WithCost(env, cost, reward),
        features=es.features.OneHot(),
        horizon=horizon,
        cost_limit=limit,
        safe_policy=lambda h, s: np.eye(6)[1],
        slack=limit,
        reward_range=(-1.0, 20.0),
        time_homogeneous=time_homogeneous,
    )
    return live, exact(env, horizon, cost, limit, reward, (-1.0, 20.0))


@dataclass(frozen=True)
class Target:
    """An environment, and constants that were chosen on seeds 0 to 2: half of the way within `num_episodes`."""

    make: Callable[[bool], Any]
    constants: es.Constants
    replan: es.Doubling
    num_episodes: int


# without noise every certificate with C_u = 0 is true: the estimate n/(n + ρ)·V of a next value V is never above it
WITHOUT_NOISE = es.Constants(
    C_r=0.1, C_u=0.0, C_dagger=0.01, B_dagger=0.1, kappa=0.01, lam_max=300, num_halvings=25, ridge=0.01, C_theta=0.01
)
WITH_NOISE = es.Constants(
    C_r=0.3, C_u=0.5, C_dagger=0.1, B_dagger=0.1, kappa=0.002, lam_max=300, num_halvings=27, ridge=0.4, C_theta=0.1
)
TARGETS = {
    "FrozenLake, 8 steps, 0.5 falls": Target(
        lambda shared: frozen_lake(False, 8, 0.5, shared), WITHOUT_NOISE, es.Doubling(0.5), 500
    ),
    "FrozenLake, slippery, 20 steps, 0.5 falls": Target(
        lambda shared: frozen_lake(True, 20, 0.5, shared), WITH_NOISE, es.Doubling(0.5), 4_000
    ),
    "CliffWalking, 16 steps, 2 falls": Target(
        lambda shared: cliff_walking(16, 2.0, shared), WITHOUT_NOISE, es.Doubling(3.0), 500
    ),
    "Taxi, 20 steps, 2 illegal actions": Target(
        lambda shared: taxi(20, 2.0, shared), WITHOUT_NOISE, es.Doubling(5.0), 1_000
    ),
}


def shares(live, cmdp, agent, num_episodes, seed):
    """Exact share of the way from incumbent to optimum, and utility above b, of each plan deployed: (plans, 2).

    And the first episode of each plan, (plans,).
    """
    rng, values, firsts, last = np.random.default_rng(seed), [], [], None
    live.seed(seed)
    for k in range(num_episodes):
        plan = agent.plan()
        if plan is not last:
            values.append(cmdp.evaluate(table(plan.policy, cmdp)))
            firsts.append(k)
            last = plan
        agent.learn(es.play(live, plan.policy, rng), plan_id=plan.id)
    incumbent = cmdp.evaluate(table(live.task.safe_policy, cmdp))[0]
    way = cmdp.optimal_value() - incumbent
    return (np.array(values) - (incumbent, cmdp.task.threshold)) / (way, 1.0), np.array(firsts)
