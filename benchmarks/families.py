"""Share of the way to the optimum on a call centre as a black box: a family of rules, two rules, and the planner.

    python benchmarks/families.py [seeds, default 20]

The call centre has 12 hours, 36 rosters and 121 queues (`hindsight_plan.py`); agents see it through Gymnasium, without
its law. The optimum of the family and of all policies come from the listed problem. Targets at 1,000 episodes: family
at least 0.50, two rules at least 0.55, no deployed mixture below the limit.
"""

import math
import sys
import time

import gymnasium
import numpy as np
from hindsight_plan import BUSY, CallCentre

import episafe as es
from episafe.problems.rules import listed

LIMIT, SLACK = 10.8, 1.1
CENTRE = CallCentre()
SPACE = {"load": (0.3, 1.8), "hold": (0.0, 1.5), "buffer": (-1.0, 3.0)}
FIRST_SEED = 5000  # seeds below it were used while the search was written
EPISODES = (30, 100, 300, 1000)


class CallCentreEnv(gymnasium.Env):
    """The call centre as a stranger would write it."""

    observation_space = gymnasium.spaces.MultiDiscrete([11, 11])
    action_space = gymnasium.spaces.Discrete(36)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.hour, self.queue = 0, (0, 0)
        return np.array(self.queue), {}

    def step(self, action):
        calls = [min(int(self.np_random.poisson(5 * BUSY[self.hour] * share)), 10) for share in (1.0, 0.7)]
        self.queue, reward, utility = CENTRE.move(self.hour, self.queue, int(action), tuple(calls))
        self.hour += 1
        return np.array(self.queue), reward, self.hour == 12, False, {"utility": utility}


def rule(load, hold, buffer):
    """Staff for `load` times the calls that this hour usually has, `hold` times the queue, and a buffer."""

    def act(h, state):
        staff = [
            min(max(math.ceil((hold * state[i] + load * 5 * BUSY[h] * share) / 2 + buffer) - 1, 0), 5)
            for i, share in enumerate((1.0, 0.7))
        ]
        return np.eye(36)[staff[0] * 6 + staff[1]]

    return act


def largest(h, state):
    """Use the largest roster."""
    return np.eye(36)[35]


RULES = {"generous": rule(1.3, 0.6, 0.3), "lean": rule(0.8, 0.4, 0.5)}


def main(num_seeds: int = 20) -> None:
    """Print the mean share of the way, with two standard errors, and the least expected utility of a mixture."""
    exact = listed(CENTRE, LIMIT)
    optimum, start = exact.optimal_value(), exact.evaluate(largest)[0]
    values: dict[bytes, tuple[float, float]] = {}

    def value(policy):
        states = [np.array(name) for name in exact.task.state_names]
        table = np.array([[policy.probabilities(h, state) for state in states] for h in range(12)])
        key = table.tobytes()
        if key not in values:
            values[key] = exact.evaluate(table)
        return values[key]

    agents = {
        "family": lambda problem: es.SafeAgent(problem, family=es.Family(rule, SPACE)),
        "two rules": lambda problem: es.SafeAgent(problem, candidates=RULES),
        "two rules and family": lambda problem: es.SafeAgent(problem, candidates=RULES, family=es.Family(rule, SPACE)),
    }
    for label, make in agents.items():
        began, curves, least, tried = time.process_time(), [], math.inf, []
        for seed in range(FIRST_SEED, FIRST_SEED + num_seeds):
            problem = es.from_gymnasium(CallCentreEnv(), horizon=12, incumbent=largest, threshold=LIMIT, slack=SLACK)
            problem.seed(seed)
            agent, rng, curve = make(problem), np.random.default_rng(seed), []
            for _ in range(EPISODES[-1]):
                plan = agent.plan()
                mixture = plan.policy if isinstance(plan.policy, es.Mixture) else es.Mixture([plan.policy], [1.0])
                reward, utility = mixture.weights @ [value(one) for one in mixture.components]
                curve.append((reward - start) / (optimum - start))
                least = min(least, utility)
                component, policy = mixture.draw(rng)
                agent.learn(problem.play(policy, rng, component), plan.id)
            curves.append(curve)
            tried.append(len(agent.bounds()) - 1)
        mean, error = np.mean(curves, axis=0), 2 * np.std(curves, axis=0) / math.sqrt(num_seeds)
        shares = "  ".join(f"{mean[k - 1]:.2f} ± {error[k - 1]:.2f} at {k}" for k in EPISODES)
        cost = (time.process_time() - began) / num_seeds
        print(f"{label}: {shares}; least utility {least:.2f} (limit {LIMIT}); tried {np.mean(tried):.1f}; {cost:.1f} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
