"""Measure what a live step costs beside the bare loop, on environments as strangers write them, in µs of CPU time.

    OMP_NUM_THREADS=1 python benchmarks/live_step.py            # per step; the aim is 15 for play + learn
    OMP_NUM_THREADS=1 python benchmarks/live_step.py cartpole   # one environment

The bare loop resets, steps, asks the same policy function and draws the action; `play` is beyond that.
"""

import random
import sys
import time

import gymnasium
import numpy as np

import episafe as es
from episafe.core.types import is_outside


class Upright(gymnasium.Wrapper):
    """CartPole that costs 1 when the pole leans."""

    def step(self, action):
        state, reward, terminated, truncated, _ = self.env.step(action)
        return state, reward, terminated, truncated, {"cost": float(abs(state[2]) > 0.1)}


class House(gymnasium.Env):
    """A battery in a house: charge, price, sun and hour in a Box; the utility is 1 while a reserve is left."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.hour, self.charge = 0, 0.5
        return self._seen(0.5, 0.0), {}

    def _seen(self, price, sun):
        return np.array([self.charge, price, sun, self.hour / 24], dtype=np.float32)

    def step(self, action):
        price, sun = self.np_random.random(2)
        self.hour += 1
        self.charge = min(max(self.charge + 0.1 * (action - 1) + 0.05 * (sun - 0.5), 0.0), 1.0)
        reward = 0.5 + 0.5 * price * (1 - action)
        return self._seen(price, sun), reward, False, self.hour == 24, {"utility": float(self.charge > 0.3)}


class Stock(gymnasium.Env):
    """A shop whose observation is a dictionary of stock and weekday."""

    observation_space = gymnasium.spaces.Dict(
        {"stock": gymnasium.spaces.Discrete(20), "day": gymnasium.spaces.Discrete(7)}
    )
    action_space = gymnasium.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.day, self.stock = 0, 10
        return {"stock": self.stock, "day": self.day}, {}

    def step(self, action):
        demand = int(self.np_random.integers(6))
        served = min(self.stock, demand)
        self.stock, self.day = min(self.stock - served + 2 * action, 19), self.day + 1
        utility = {"utility": served / demand if demand else 1.0}
        return {"stock": self.stock, "day": self.day % 7}, served / 6, False, self.day == 14, utility


def cell(state):
    """Group CartPole's states by the signs and sizes of angle and speed."""
    return int(state[2] > 0), int(abs(state[2]) > 0.05), int(state[3] > 0), int(abs(state[3]) > 0.5)


def steady(h, state):
    """Push to the side to which the pole falls."""
    return [0.1, 0.9] if state[2] + 0.5 * state[3] > 0 else [0.9, 0.1]


def charge(h, state):
    """Charge while there is room."""
    return [0.1, 0.2, 0.7] if state[0] < 0.8 else [0.4, 0.6, 0.0]


def order(h, observation):
    """Order more when the stock is low."""
    return [0.0, 0.3, 0.7, 0.0] if observation["stock"] < 12 else [0.5, 0.5, 0.0, 0.0]


def mostly_left(h, state):
    """Stay away from the holes."""
    return [0.7, 0.1, 0.1, 0.1]


POLICIES = {"CartPole-v1": steady, "House": charge, "Stock": order, "FrozenLake-v1": mostly_left}


FOURIER = es.features.Fourier([-1.0] * 4, [1.0] * 4, order=1)


def bounded(state):
    """Return 16 functions of the four axes: d = 34 with two actions, the start and the end."""
    return FOURIER(state / (1 + np.abs(state)))


def cartpole(horizon=50, features=None):
    """Return CartPole with a tabular cell, or other features."""
    return es.from_gymnasium(
        Upright(gymnasium.make("CartPole-v1", max_episode_steps=horizon)),
        horizon=horizon, incumbent=steady, cost_limit=0.5 * horizon, slack=0.2 * horizon, time_homogeneous=True,
        features=features or es.features.OneHot(cell, 16),
    )  # fmt: skip


def house():
    """Return the house with the features that are chosen for it."""
    return es.from_gymnasium(House(), horizon=24, incumbent=charge, threshold=15, slack=2)


def stock():
    """Return the shop, whose observation is a dictionary."""
    return es.from_gymnasium(Stock(), horizon=14, incumbent=order, threshold=9, slack=1)


def lake():
    """Return FrozenLake with a cost for holes."""
    env = gymnasium.make("FrozenLake-v1", max_episode_steps=20)
    fell = lambda observation, action, following, info: float(following in (5, 7, 11, 12))  # noqa: E731
    return es.from_gymnasium(env, horizon=20, incumbent=mostly_left, cost=fell, cost_limit=0.9)


ENVIRONMENTS = {"cartpole": cartpole, "house": house, "stock": stock, "lake": lake}
AGENTS = {
    "fixed": lambda problem: es.Fixed(problem, "incumbent"),
    "opse": lambda problem: es.OPSE(problem, es.Constants.tuned(problem.task), es.Doubling(1.0)),
    "safe": lambda problem: es.SafeAgent(problem),
}


def bare(problem, policy, rng):
    """Play an episode as a user would without a library; return the number of steps."""
    env, draw, horizon = problem.env, rng.random, problem.task.horizon - int(problem.random_start)
    observation, _ = env.reset()
    for h in range(horizon):
        row, u, action = policy(h, observation), draw(), 0
        while action < len(row) - 1 and u >= row[action]:
            u, action = u - row[action], action + 1
        observation, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            return h + 1
    return horizon


def measure(problem, agent, warm_up=300, episodes=60, rounds=5):
    """Return µs per step of play beyond the bare loop, of learn, of plan and of the bare loop; best of all rounds.

    The first `warm_up` episodes, in which most planning takes place, are not measured.
    """
    rng, coin, found, clock = np.random.default_rng(0), random.Random(0), [], time.process_time
    policy_of_user = POLICIES[problem.origin["env"]]
    for k in range(rounds + 1):
        seconds, steps = np.zeros(3), 0
        for _ in range(episodes if k else warm_up):
            times = [clock()]
            plan = agent.plan()
            times.append(clock())
            mixed = isinstance(plan.policy, es.Mixture)
            component, policy = plan.policy.draw(rng) if mixed else (None, plan.policy)
            episode = problem.play(policy, rng, component)
            times.append(clock())
            agent.learn(episode, plan.id)
            times.append(clock())
            seconds += np.diff(times)
            steps += sum(not is_outside(state) for state in episode.states[:-1])
        began = clock()
        bare_steps = sum(bare(problem, policy_of_user, coin) for _ in range(episodes))
        loop, (plan_s, play_s, learn_s) = 1e6 * (clock() - began) / bare_steps, 1e6 * seconds / steps
        found.append((play_s - loop, learn_s, plan_s, loop))
    return np.min(found[1:], axis=0)


def measure_features(growth, num_episodes=60):
    """Return ms per episode of CartPole with d = 34, H = 200, planned by OPSE with Doubling(growth)."""
    problem = cartpole(200, bounded)
    es.run(problem, es.OPSE(problem, es.Constants.tuned(problem.task)), 2)  # compile
    agent, began = es.OPSE(problem, es.Constants.tuned(problem.task), es.Doubling(growth)), time.process_time()
    es.run(problem, agent, num_episodes)
    return 1e3 * (time.process_time() - began) / num_episodes


def main():
    """Print the tables."""
    print("µs per step          play  learn    sum | plan, amortised  bare loop")
    for name in sys.argv[1:] or ENVIRONMENTS:
        for agent, build in AGENTS.items():
            problem = ENVIRONMENTS[name]()
            play, learn, plan, loop = measure(problem, build(problem))
            row = f"{play:5.1f}  {learn:5.1f}  {play + learn:5.1f} | {plan:15.1f}  {loop:9.1f}"
            print(f"{name:10} {agent:7} {row}", flush=True)
    for growth in (0.3, 8.0):
        found = measure_features(growth)
        print(f"CartPole, 34 Fourier features, H = 200, OPSE with Doubling({growth}): {found:.1f} ms per episode")


if __name__ == "__main__":
    main()
