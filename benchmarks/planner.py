"""The planner alone on six made-up black boxes with few states, through Gymnasium: the agent sees only its episodes.

    python benchmarks/strangers.py planner

Each seed draws another system of each kind. Seeds below 100 were used when the number of episodes before the first
proposal was chosen.
"""

from math import comb

import families
import gymnasium
import numpy as np

import episafe as es


def binomial(n, p):
    """Return the probabilities of 0 to n successes."""
    return [comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]


def transitions(num_states, num_actions, outcomes):
    """Return P (S, A, S); `outcomes(s, a)` yields probabilities and next states, cut to the states there are."""
    P = np.zeros((num_states, num_actions, num_states))
    for s in range(num_states):
        for a in range(num_actions):
            for p, following in outcomes(s, a):
                P[s, a, min(max(following, 0), num_states - 1)] += p
    return P


def greenhouse(rng):
    """Spray nothing, mild or strong; pests grow by themselves and should stay few."""
    kills, grows = (0.0, rng.uniform(0.3, 0.5), rng.uniform(0.7, 0.9)), rng.uniform(0.25, 0.4)

    def outcomes(s, a):
        killed, born = binomial(s, kills[a]), binomial(2 + s // 2, grows)
        return ((p * q, s - k + n) for k, p in enumerate(killed) for n, q in enumerate(born))

    P = transitions(7, 3, outcomes)
    return P, np.tile([1, 0.6, 0], (7, 1)), P @ (np.arange(7) <= 3), np.tile([0, 0.1, 0.9], (7, 1)), 1, 10


def heater(rng):
    """Heat not, a little or much; it should stay warm."""
    drift = rng.dirichlet([2, 4, 2])
    P = transitions(6, 3, lambda s, a: ((p, s + a - 1 + d) for d, p in zip((-1, 0, 1), drift, strict=True)))
    return P, np.tile([1, 0.5, 0], (6, 1)), P @ (np.arange(6) >= 2), np.tile([0.05, 0.25, 0.7], (6, 1)), 5, 12


def queue(rng):
    """Serve at one of four speeds; the queue should stay short."""
    arrivals, speeds = binomial(2, rng.uniform(0.35, 0.55) / 1.5), (0.1, 0.3, 0.55, 0.8)

    def outcomes(s, a):
        served = (1 - speeds[a], speeds[a])
        return ((p * q, s - d + n) for d, p in enumerate(served) for n, q in enumerate(arrivals))

    P = transitions(9, 4, outcomes)
    return P, np.tile([1, 0.8, 0.45, 0], (9, 1)), P @ (np.arange(9) <= 3), np.tile([0, 0, 0.1, 0.9], (9, 1)), 1, 16


def machine(rng):
    """Run fast or slowly, or repair; a worn machine fails."""
    wear = rng.uniform(0.3, 0.5)

    def outcomes(s, a):
        return [(0.9, 0), (0.1, s)] if a == 2 else [(wear / (1, 3)[a], s + 1), (1 - wear / (1, 3)[a], s)]

    reward, utility, incumbent = np.zeros((6, 3)), np.ones((6, 3)), np.tile([0, 0.1, 0.9], (6, 1))
    reward[:5, :2], utility[4], utility[5], incumbent[:2] = (1, 0.5), 0.4, 0, (0, 0.9, 0.1)
    utility[:, 2] = [1, 1, 1, 1, 1, 0.2]
    return transitions(6, 3, outcomes), reward, utility, incumbent, 0, 15


def random_system(rng):
    """Eight states and four actions without structure, where rewards cost utility."""
    P, reward = rng.dirichlet(np.full(8, 0.4), size=(8, 4)), rng.uniform(size=(8, 4)) ** 2
    utility, incumbent = 1 - rng.uniform(size=(8, 4)) * np.sqrt(reward), np.full((8, 4), 0.02)
    incumbent[np.arange(8), utility.argmax(axis=1)] += 0.92
    return P, reward, utility, incumbent, 0, 10


def walk(rng):
    """Step on or back; the last three of twelve places are rich and forbidden."""
    on, place = rng.uniform(0.6, 0.8), np.arange(12)
    P = transitions(12, 2, lambda s, a: [(0.8, s - 1), (0.2, s)] if a else [(on, s + 1), (1 - on, s - 1)])
    reward, utility = np.tile(place[:, None] / 11, (1, 2)), np.tile((place < 9)[:, None] * 1.0, (1, 2))
    return P, reward, utility, np.tile([0.35, 0.65], (12, 1)), 0, 14


SYSTEMS = {one.__name__: one for one in (greenhouse, heater, queue, machine, random_system, walk)}
NUM_EPISODES = 1000


class BlackBox(gymnasium.Env):
    """A system of arrays that shows its state number."""

    def __init__(self, P, reward, utility, start):
        self.P, self.rewards, self.utilities, self.start = P, reward, utility, start
        self.observation_space = gymnasium.spaces.Discrete(len(P))
        self.action_space = gymnasium.spaces.Discrete(P.shape[1])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.start
        return self.state, {}

    def step(self, action):
        reward, utility = self.rewards[self.state, action], self.utilities[self.state, action]
        self.state = int(self.np_random.choice(len(self.P), p=self.P[self.state, action]))
        return self.state, float(reward), False, False, {"utility": float(utility)}


def curve(name, seed):
    """Return the share of the way before each episode, and the least utility over the limit."""
    rng = np.random.default_rng(seed)
    P, reward, utility, table, start, H = SYSTEMS[name](rng)
    every = [np.broadcast_to(one, (H, *one.shape)) for one in (P, reward, utility, table)]
    told = {"initial_state": start, "safe_policy": every[3]}
    worth, kept = es.LinearCMDP(*every[:3], threshold=0, **told).evaluate(every[3])
    slack = rng.uniform(0.04, 0.09) * H
    exact = es.LinearCMDP(*every[:3], threshold=kept - slack, **told)
    problem = es.from_gymnasium(
        BlackBox(P, reward, utility, start),
        horizon=H,
        incumbent=lambda h, s: table[s],
        threshold=kept - slack,
        slack=slack,
        time_homogeneous=True,
    )
    problem.seed(seed)
    values = {}

    def value(policy):
        if id(policy) not in values:
            found = np.array([[policy.probabilities(h, s) for s in range(len(P))] for h in range(H)])
            values[id(policy)] = policy, exact.evaluate(found)
        return values[id(policy)][1]

    levels = worth, exact.optimal_value(), kept - slack
    return families.shares_of_run(problem, es.SafeAgent(problem), value, levels, NUM_EPISODES, seed)[:2]
