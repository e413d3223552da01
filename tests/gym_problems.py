"""Gymnasium's toy-text environments with a cost, and the same as exact problems to judge policies by."""

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


def exact(env, horizon, cost, cost_limit, reward=lambda r: r, reward_range=(0.0, 1.0), start=None):
    """The toy-text environment as arrays, u = 1 − cost; the last state is the one after an early end."""
    P = env.unwrapped.P
    S, A = len(P), len(P[0])
    kernel, r, u = np.zeros((S + 1, A, S + 1)), np.zeros((S + 1, A)), np.ones((S + 1, A))
    kernel[S, :, S] = 1.0
    low, high = reward_range
    r[S] = (0.0 - low) / (high - low)
    for s in range(S):
        for a in range(A):
            for p, following, raw, done in P[s][a]:
                kernel[s, a, S if done else following] += p
                r[s, a] += p * (reward(raw) - low) / (high - low)
                u[s, a] -= p * cost(s, a, following)
    first = int(env.reset(seed=0)[0]) if start is None else start
    return es.LinearCMDP(
        *(np.tile(array, (horizon,) + (1,) * array.ndim) for array in (kernel, r, u)),
        initial_state=first,
        threshold=horizon - cost_limit,
    )


def table(policy, cmdp):
    """A policy of the live problem as a table of the exact one; any action after the end and where nobody can be."""
    H, S, A = cmdp.task.reward.shape
    found, reached = np.full((H, S, A), 1 / A), np.arange(S) == cmdp.task.initial_state
    for h in range(H):
        for s in np.flatnonzero(reached[: S - 1]):
            found[h, s] = policy.probabilities(h, int(s))
        reached = (cmdp.P[h, reached] > 0).any(axis=(0, 1))
    return found
