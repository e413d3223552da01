"""Share of the way to the optimum with Hindsight on four systems that no constant was chosen on, through Gymnasium.

    python benchmarks/strangers.py [seeds, default 8] [episodes, default 1000] [names, default all]

Agents see `move` and what chance brought, and no list of states. A problem's optimum and the values of what is deployed
come from its rules, listed. `reservoir` and `bikes` were used while the search was written, with seeds below 6000.
Targets: call centre at least 0.45 at 100 and 0.85 at 1,000 episodes; no deployed mixture below its limit.
"""

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from hindsight_plan import CallCentre

import episafe as es
from episafe.core.types import Array
from episafe.problems.rules import Chance, Rules, RuleState, listed

FIRST_SEED = 6000
EPISODES = (30, 100, 300, 1000)
RESAMPLES = 2000


@dataclass(frozen=True)
class Reservoir(Rules):
    """Twelve months of a lake. An action releases 0 to 5 units for power; utility is 1 in a month that ends above 5."""

    horizon: int = 12
    num_actions: int = 6
    start: RuleState = (14,)

    def chances(self, h: int, state: RuleState) -> list[Chance]:
        """Inflow, large in spring."""
        wet = 0.5 + 0.4 * math.sin(2 * math.pi * h / 12)
        return [(range(6), [math.comb(5, k) * wet**k * (1 - wet) ** (5 - k) for k in range(6)])]

    def move(self, h: int, state: RuleState, action: int, w: tuple[Any, ...]) -> tuple[RuleState, float, float]:
        """Release, then take the inflow in; what does not fit runs over."""
        released = min(action, state[0])
        level = min(state[0] - released + w[0], 20)
        return (level,), released / 5, float(level > 5)

    def incumbent(self, h: int, state: RuleState) -> Array:
        """Release one unit, two in a full lake."""
        return np.eye(6)[2 if state[0] > 15 else 1]


@dataclass(frozen=True)
class Bikes(Rules):
    """Two stations with 12 bikes, ten hours. An action moves up to four bikes by van; utility is the share served."""

    horizon: int = 10
    num_actions: int = 9
    start: RuleState = (6,)

    def chances(self, h: int, state: RuleState) -> list[Chance]:
        """Rides in each direction: downhill in the morning, uphill in the evening."""
        p = 0.65 - 0.04 * h
        law = [[math.comb(4, k) * q**k * (1 - q) ** (4 - k) for k in range(5)] for q in (p, 0.9 - p)]
        return [(range(5), law[0]), (range(5), law[1])]

    def move(self, h: int, state: RuleState, action: int, w: tuple[Any, ...]) -> tuple[RuleState, float, float]:
        """Drive, then let customers ride."""
        moved = min(max(action - 4, -state[0]), 12 - state[0])
        here = state[0] + moved
        down, up = min(w[0], here), min(w[1], 12 - here)
        served = (down + up) / sum(w) if sum(w) else 1.0
        return (here - down + up,), 1 - abs(action - 4) / 4, served

    def incumbent(self, h: int, state: RuleState) -> Array:
        """Keep the stations balanced, with a few more bikes uphill."""
        return np.eye(9)[4 + min(max(7 - state[0], -4), 4)]


@dataclass(frozen=True)
class Printer(Rules):
    """A print shop, sixteen hours. An action is a speed; fast printing wears a part that fails when it is worn out."""

    horizon: int = 16
    num_actions: int = 4
    start: RuleState = (0, 0)

    def chances(self, h: int, state: RuleState) -> list[Chance]:
        """Jobs that come, and whether the part wears."""
        busy = 0.35 if 4 <= h < 10 else 0.2
        return [(range(7), [math.comb(6, k) * busy**k * (1 - busy) ** (6 - k) for k in range(7)]), ((0, 1), (0.6, 0.4))]

    def move(self, h: int, state: RuleState, action: int, w: tuple[Any, ...]) -> tuple[RuleState, float, float]:
        """Print, and exchange the part when it is worn out, which takes the hour."""
        (queue, wear), (jobs, wears) = state, w
        printed = 0 if wear == 5 else (0, 1, 2, 4)[action]
        queue = min(max(queue + jobs - printed, 0), 15)
        worn = 0 if wear == 5 else wear + wears * (action == 3)
        return (queue, worn), 1 - (0.0, 0.2, 0.45, 1.0)[action], float(queue <= 4)

    def incumbent(self, h: int, state: RuleState) -> Array:
        """Print fast while there is a queue."""
        return np.eye(4)[3 if state[0] > 0 else 2]


PROBLEMS = {  # rules and limit
    "call centre": (CallCentre(), 10.8),
    "reservoir": (Reservoir(), 10.8),
    "bikes": (Bikes(), 8.0),
    "printer": (Printer(), 13.6),
}


class RulesEnv(gymnasium.Env):
    """Rules as an environment that reports what chance brought."""

    def __init__(self, rules: Rules, states: Sequence[RuleState]) -> None:
        self.rules = rules
        self.observation_space = gymnasium.spaces.MultiDiscrete(np.max(states, axis=0) + 1)
        self.action_space = gymnasium.spaces.Discrete(rules.num_actions)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.h, self.state = 0, self.rules.start
        return np.array(self.state), {}

    def step(self, action):
        law = self.rules.chances(self.h, self.state)
        w = tuple(int(self.np_random.choice(list(values), p=np.array(p) / np.sum(p))) for values, p in law)
        self.state, reward, utility = self.rules.move(self.h, self.state, int(action), w)
        self.h += 1
        done = self.h == self.rules.horizon
        return np.array(self.state), reward, done, False, {"utility": utility, "chance": w}


def curve(rules: Rules, limit: float, exact: es.LinearCMDP, num_episodes: int, seed: int) -> tuple[Array, float, float]:
    """Return the share of the way before each episode, the least utility over the limit, and the slowest plan."""

    def move(h, observation, action, w):
        following, reward, utility = rules.move(h, tuple(observation.tolist()), action, w)
        return np.array(following), reward, utility

    def incumbent(h, observation):
        return rules.incumbent(h, tuple(observation.tolist()))

    slack = float(exact.task.slacks[0])
    problem = es.from_gymnasium(
        RulesEnv(rules, exact.task.state_names),
        horizon=rules.horizon,
        incumbent=incumbent,
        threshold=limit,
        slack=slack,
        move=move,
    )
    problem.seed(seed)
    agent, rng = es.SafeAgent(problem), np.random.default_rng(seed)
    start, optimum, names = exact.evaluate(exact.task.incumbent)[0], exact.optimal_value(), exact.task.state_names
    values: dict[int, tuple[object, tuple[float, float]]] = {}

    def value(policy):
        if id(policy) not in values:
            states = [problem.task.encode(np.array(name)) for name in names]
            table = [[policy.probabilities(h, state) for state in states] for h in range(rules.horizon)]
            values[id(policy)] = policy, exact.evaluate(np.array(table))
        return values[id(policy)][1]

    shares, least, slowest = [], math.inf, 0.0
    for _ in range(num_episodes):
        began = time.process_time()
        plan = agent.plan()
        slowest = max(slowest, time.process_time() - began)
        mixture = plan.policy if isinstance(plan.policy, es.Mixture) else es.Mixture([plan.policy], [1.0])
        reward, utility = mixture.weights @ [value(one) for one in mixture.components]
        shares.append((reward - start) / (optimum - start))
        least = min(least, utility - limit)
        component, policy = mixture.draw(rng)
        agent.learn(problem.play(policy, rng, component), plan.id)
    return np.array(shares), least, slowest


def main(num_seeds: int = 8, num_episodes: int = 1000, *names: str) -> None:
    """Print the mean share of the way, with its bootstrap interval of 95 %."""
    rng = np.random.default_rng(0)
    for name in names or PROBLEMS:
        rules, limit = PROBLEMS[name]
        exact = listed(rules, limit)
        runs = [curve(rules, limit, exact, num_episodes, FIRST_SEED + i) for i in range(num_seeds)]
        curves = np.array([shares for shares, _, _ in runs])
        means = curves[rng.integers(num_seeds, size=(RESAMPLES, num_seeds))].mean(axis=1)
        low, high = np.quantile(means, [0.025, 0.975], axis=0)
        shares = ", ".join(
            f"{curves[:, k - 1].mean():.2f} [{low[k - 1]:.2f}, {high[k - 1]:.2f}] at {k}"
            for k in EPISODES
            if k <= num_episodes
        )
        violated = sum(least < -1e-9 for _, least, _ in runs)
        slowest = max(one for _, _, one in runs)
        print(f"{name}: {shares}; {violated} of {num_seeds} runs violate; slowest plan {slowest:.2f} s", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]), *sys.argv[3:])
