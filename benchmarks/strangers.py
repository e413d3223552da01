"""What an agent gains on systems that no constant was chosen on: every target, with "pass" or "MISS".

    python benchmarks/strangers.py [examples strangers blackbox planner bets forecast] [--quick] [--jobs N]

examples: Hindsight on our inventory, battery and cloud. strangers: Hindsight on four systems through Gymnasium. Agents
see `move` and what chance brought, and no list of states; the optimum and the values of what is deployed come from the
rules, listed. `reservoir` and `bikes` were used while the search was written, with seeds below 6000. blackbox: a family
of rules, and two rules beside the planner (`families.py`). planner: the planner alone (`planner.py`). bets:
`Observation` and `Rollout` (`logs.py`). forecast: `forecast.py`. Intervals are bootstrap intervals of 95 %. The full
form takes about an hour of CPU.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import families
import forecast as forecasts
import gymnasium
import logs
import numpy as np
import planner as planners
from hindsight_plan import CallCentre
from logs import check

import episafe as es
from episafe.core.types import Array
from episafe.problems.rules import Chance, Rules, RuleState, listed

FIRST_SEED = 6000
EPISODES = (30, 100, 300, 1000)
RESAMPLES = 2000
EXAMPLES = {  # shares of the way at 30, 100 and 300 episodes
    "inventory": (0.65, 0.90, 0.96),
    "battery": (0.60, 0.82, 0.93),
    "cloud": (0.36, 0.85, 0.95),
}
TARGETS = {"call centre": {100: 0.45, 1000: 0.85}}


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
    start, optimum, names = exact.evaluate(exact.task.incumbent)[0], exact.optimal_value(), exact.task.state_names
    values: dict[int, tuple[object, tuple[float, float]]] = {}

    def value(policy):
        if id(policy) not in values:
            states = [problem.task.encode(np.array(name)) for name in names]
            table = [[policy.probabilities(h, state) for state in states] for h in range(rules.horizon)]
            values[id(policy)] = policy, exact.evaluate(np.array(table))
        return values[id(policy)][1]

    levels = start, optimum, limit
    return families.shares_of_run(problem, es.SafeAgent(problem), value, levels, num_episodes, seed)


def stranger(name: str, num_episodes: int, seed: int) -> tuple[Array, float, float]:
    """Return `curve` of one of the problems."""
    rules, limit = PROBLEMS[name]
    return curve(rules, limit, listed(rules, limit), num_episodes, seed)


def example(name: str, seed: int) -> tuple[Array, float]:
    """Return the share of the way before each of 300 episodes, and the least utility over the limit, of an example."""
    problem = es.make(name, seed=0)
    start, optimum = problem.evaluate(problem.task.incumbent)[0], problem.optimal_value()
    record = es.run(problem, es.SafeAgent(problem), 300, seed=seed)
    return (record.reward_values - start) / (optimum - start), float((record.utility_values - record.threshold).min())


def show(curves: Array, targets: dict[int, float], name: str) -> None:
    """Check the mean share of the way, with its interval, at each episode of the targets; print it at the others."""
    rng = np.random.default_rng(0)
    means = curves[rng.integers(len(curves), size=(RESAMPLES, len(curves)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975], axis=0)
    for k in (k for k in EPISODES if k <= curves.shape[1]):
        found, text = curves[:, k - 1].mean(), f"{curves[:, k - 1].mean():.2f} [{low[k - 1]:.2f}, {high[k - 1]:.2f}]"
        if k in targets:
            check(f"{name} at {k} episodes, at least {targets[k]}", text, round(found, 2) >= targets[k])
        else:
            print(f"        {name} at {k} episodes: {text}")


def examples(quick: bool, each: logs.Each) -> None:
    """Print the share of the way on our own examples."""
    print("\nexamples: Hindsight, share of the way from incumbent to optimum")
    for name, least in EXAMPLES.items():
        runs = each(example, [(name, FIRST_SEED + i) for i in range(5 if quick else 40)])
        show(np.array([shares for shares, _ in runs]), dict(zip(EPISODES, least, strict=False)), name)
        violated = sum(least < -1e-9 for _, least in runs)
        check(f"{name}, runs with a violation at most 5 %", f"{violated} of {len(runs)}", violated <= 0.05 * len(runs))


def strangers(quick: bool, each: logs.Each) -> None:
    """Print the share of the way on four systems through Gymnasium."""
    print("\nstrangers: Hindsight through Gymnasium, share of the way from incumbent to optimum")
    for name in PROBLEMS:
        runs = each(stranger, [(name, 300 if quick else 1000, FIRST_SEED + i) for i in range(2 if quick else 8)])
        show(np.array([shares for shares, _, _ in runs]), TARGETS.get(name, {}), name)
        violated = sum(least < -1e-9 for _, least, _ in runs)
        check(f"{name}, runs with a violation at most 5 %", f"{violated} of {len(runs)}", violated <= 0.05 * len(runs))
        slowest = max(one for _, _, one in runs)
        check(f"{name}, a plan takes at most 1 s", f"slowest {slowest:.2f} s of CPU", slowest <= 1)


def blackbox(quick: bool, each: logs.Each) -> None:
    """Print the share of the way on the call centre as a black box."""
    print("\nblackbox: the call centre without its law, share of the way from incumbent to optimum")
    for name, least in families.TARGETS.items():
        runs = each(families.curve, [(name, families.FIRST_SEED + i) for i in range(4 if quick else 12)])
        show(np.array([shares for shares, _ in runs]), {1000: least}, name)
        violated = sum(least < -1e-9 for _, least in runs)
        check(f"{name}, runs with a violation at most 5 %", f"{violated} of {len(runs)}", violated <= 0.05 * len(runs))


def planner(quick: bool, each: logs.Each) -> None:
    """Print the share of the way of the planner alone, on systems with few states."""
    print("\nplanner: six black boxes with few states, share of the way from incumbent to optimum")
    found = {}
    for name in planners.SYSTEMS:
        runs = each(planners.curve, [(name, FIRST_SEED + i) for i in range(4 if quick else 20)])
        found[name] = np.array([shares for shares, _ in runs])
        show(found[name], {}, name)
        violated = sum(least < -1e-9 for _, least in runs)
        check(f"{name}, runs with a violation at most 5 %", f"{violated} of {len(runs)}", violated <= 0.05 * len(runs))
    show(np.concatenate(list(found.values())), {}, "all six")


def bets(quick: bool, each: logs.Each) -> None:
    """Print what better bets gain."""
    logs.observation(quick, each)
    logs.rollout(quick, each)


def forecast(quick: bool, each: logs.Each) -> None:
    """Print forecasts beside runs."""
    print("\nforecast: episodes until half of the gain")
    found = each(forecasts.compare, [(name, 2 if quick else 10) for name in forecasts.PROBLEMS])
    ratios = [ratio for _, ratio in found if not math.isnan(ratio)]
    for (line, _), name in zip(found, forecasts.PROBLEMS, strict=True):
        print(f"        {name}: {line}")
    within = [sum(ratio <= factor for ratio in ratios) for factor in (2, 4)]
    said = len(found) - len(ratios)
    text = f"{within[0]} within 2 times, {within[1]} within 4 times, {said} cannot tell"
    check("6 of 8 within 2 times, none beyond 4", text, within[0] >= 6 and within[1] == len(ratios))


if __name__ == "__main__":
    logs.run_parts(examples, strangers, blackbox, planner, bets, forecast)
